package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringcast/ringcast/internal/daemon"
)

func TestMain(m *testing.M) {
	becomeForbidden()
	dir, err := os.MkdirTemp("", "ringcastd-test-")
	if err == nil {
		bin, err = daemon.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	if code == 0 {
		// The client's and the server's goroutines must all have been joined.
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// call makes one request to an HTTP port and decodes the JSON answer.
func call(t *testing.T, method, url, token, body string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s %s: %v\n%s", method, url, err, text)
		}
	}
	return resp.StatusCode, answer
}

// engineOf asks a broker which storage engine runs, and why it is not another.
func engineOf(t *testing.T, d *daemon.Daemon) string {
	t.Helper()
	status, a := call(t, "GET", "http://"+d.HTTP+"/v1/status", d.Token, "")
	if status != http.StatusOK {
		t.Fatalf("/v1/status: %d %v", status, a)
	}
	return fmt.Sprintf("%v (%v)", a["engine"], a["engine_reason"])
}
