package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// createStream makes the durable stream over the admin API and checks what the broker promises
// for it.
func (r *run) createStream(ctx context.Context) error {
	token, err := os.ReadFile(filepath.Join(r.data, "dev", "token"))
	if err != nil {
		return err
	}
	url := "http://" + r.broker.http + "/v1/tenants/dev/namespaces/default/streams/" + streamName
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url,
		strings.NewReader(`{"shards":1,"durable":true,"fsync":"on_commit"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("create the stream: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("create the stream: %w", err)
	}
	var info struct {
		Durable bool   `json:"durable"`
		Fsync   string `json:"fsync"`
	}
	if resp.StatusCode != http.StatusCreated || json.Unmarshal(text, &info) != nil {
		return fmt.Errorf("create the stream: %s: %s", resp.Status, text)
	}
	if !info.Durable || info.Fsync != "on_commit" {
		return fmt.Errorf("the stream is not durable on_commit: %s", text)
	}
	r.say("stream: %s, durable, on_commit: an acknowledged record is on disk", streamName)
	return nil
}
