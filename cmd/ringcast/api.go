package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/ringcast/ringcast/wire"
)

// adminAPI talks to the HTTP API of a broker (design.md 11).
type adminAPI struct {
	base  string
	token string
	http  *http.Client
}

// admin resolves the settings to the admin API.
func (s *Settings) admin() (*adminAPI, *resolved, error) {
	r, err := s.resolve()
	if err != nil {
		return nil, nil, err
	}
	base := r.http
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, nil, usageError(fmt.Errorf("--http %s is neither HOST:PORT nor a URL", r.http))
	}
	return &adminAPI{base: strings.TrimSuffix(base, "/"), token: r.token, http: &http.Client{Timeout: s.Timeout}}, r, nil
}

// do sends one request and decodes its answer into out. A refusal is a *wire.Error.
func (a *adminAPI) do(ctx context.Context, method, path string, in, out any) (status int, err error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	defer a.http.CloseIdleConnections()
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, &adminUnreachable{a.base, err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return 0, &adminUnreachable{a.base, err}
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, adminRefusal(resp.StatusCode, text)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			return resp.StatusCode, fmt.Errorf("%s %s answered something else than JSON: %w", method, a.base+path, err)
		}
	}
	return resp.StatusCode, nil
}

// adminUnreachable: the HTTP port did not answer.
type adminUnreachable struct {
	base string
	err  error
}

func (e *adminUnreachable) Error() string { return "admin API at " + e.base + ": " + e.err.Error() }
func (e *adminUnreachable) Unwrap() error { return e.err }

func adminRefusal(status int, text []byte) error {
	var b struct{ Code, Message, Retry string }
	if json.Unmarshal(text, &b) != nil || b.Code == "" {
		return fmt.Errorf("admin API answered %d %s: %.200s", status, http.StatusText(status), text)
	}
	e := &wire.Error{Message: b.Message, Retry: wire.ParseRetry(b.Retry)}
	var known bool
	if e.Code, known = wire.ParseCode(b.Code); !known {
		e.CodeText = b.Code
	}
	return e
}

// streamPath is the resource of one stream.
func (r *resolved) streamPath(stream string) string {
	return "/v1/tenants/" + url.PathEscape(r.tenant) + "/namespaces/" + url.PathEscape(r.namespace) + "/streams/" + url.PathEscape(stream)
}
