package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// scrub replaces what differs from run to run.
func scrub(text string) string {
	for _, r := range []struct{ re, to string }{
		{`"created":"[^"]*"`, `"created":"T"`},
		{`created    [0-9TZ:-]+`, `created    T`},
		{`"time":"[^"]*"`, `"time":"T"`},
		{`"(seconds|records_per_second|bytes_per_second|ack_p50_ms|ack_p99_ms)":[0-9.e+-]+`, `"$1":0`},
		{`"frames":[0-9]+`, `"frames":0`},
		{`"id":[0-9]+`, `"id":0`},
		{`(127\.0\.0\.1|\[::1\]):[0-9]+`, `HOST:PORT`},
	} {
		text = regexp.MustCompile(r.re).ReplaceAllString(text, r.to)
	}
	return text
}

// The whole command line against a real broker, as a transcript: what scripts rely on.
func TestCommandsAgainstABroker(t *testing.T) {
	dir := devBroker(t, "--auto-create=false").dir
	file := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(file, []byte("one\ntwo\n\nfour without end"), 0o600); err != nil {
		t.Fatal(err)
	}
	badToken := ok(t, nil, "token", "mint", "--key", filepath.Join(dir, "dev", "signing.jwk"), "--tenant", "dev",
		"--perm", "stream.subscribe:stream:dev/*")
	other := filepath.Join(t.TempDir(), "other.jwk")
	ok(t, nil, "token", "keygen", "--out", other, "--jwks", other+"s")
	foreign := ok(t, nil, "token", "mint", "--key", other, "--tenant", "dev", "--all")

	var out strings.Builder
	step := func(stdin string, args ...string) {
		t.Helper()
		o := ringcast(t, strings.NewReader(stdin), args...)
		line := strings.Join(args, " ")
		for from, to := range map[string]string{strings.TrimSpace(badToken): "READONLY", strings.TrimSpace(foreign): "FOREIGN", file: "FILE"} {
			line = strings.ReplaceAll(line, from, to)
		}
		fmt.Fprintf(&out, "$ ringcast %s\n%s", line, scrub(o.stdout+o.stderr))
		if o.code != 0 {
			fmt.Fprintf(&out, "[exit %d]\n", o.code)
		}
	}
	step("", "stream", "create", "orders")
	step("", "stream", "create", "orders")
	step("", "stream", "create", "orders", "--shards", "3")
	step("", "--json", "stream", "create", "wide", "--shards", "4", "--retention", "24h")
	step("", "stream", "list")
	step("", "--json", "pub", "orders", "hello", "world")
	step("from stdin\n", "pub", "orders", "-q")
	step("", "--json", "pub", "orders", "-f", file, "--idempotent")
	step("", "--json", "pub", "orders", "-f", file, "--whole", "--key", "k")
	step("", "--json", "sub", "orders", "--from", "earliest", "-n", "3")
	step("", "sub", "orders", "--from", "2", "--count", "5")
	step("", "sub", "orders", "--from", "7", "-n", "1", "--raw")
	step("", "--json", "sub", "orders", "--from", "99", "-n", "1")
	step("", "sub", "orders", "--from", "yesterday")
	step("a:1\nb:2\nb:3\n", "--json", "pub", "wide", "--key-separator", ":")
	step("", "--json", "sub", "wide", "--from", "earliest", "--idle", "300ms", "--shard", "3")
	step("", "--json", "sub", "wide", "--from", "1")
	step("", "pub", "wide", "named", "--shard", "2")
	step("", "--json", "sub", "wide", "--from", "earliest", "--shard", "2", "-n", "1")
	step("", "pub", "wide", "named", "--shard", "4")
	step("", "pub", "wide", "named", "--shard", "1", "--key-separator", ":")
	step("", "stream", "create", "accounts")
	step("", "--json", "pub", "accounts", "opened", "named", "--if-offset", "0")
	step("", "pub", "accounts", "opened again", "--if-offset", "0")
	step("", "--json", "pub", "accounts", "opened again", "--if-offset", "1")
	step("", "pub", "accounts", "x", "--if-offset", "2", "--idempotent")
	step("", "pub", "accounts", "--if-offset", "2")
	step("", "state", "get", "accounts", "balance")
	step("", "--json", "state", "get", "accounts", "balance")
	step("", "commit", "accounts", "paid in", "--entity", "ann", "--put", "balance=12=€", "--put", "open=", "--delete", "hold")
	step("", "state", "get", "accounts", "balance", "--entity", "ann")
	step("paid out", "--json", "commit", "accounts", "--if-offset", "3", "--put", "balance=0", "--delete", "open")
	step("", "commit", "accounts", "late", "--if-offset", "3")
	step("", "commit", "accounts", "elsewhere", "--shard", "1")
	step("", "commit", "accounts", "x", "--put", "nothing")
	step("", "--json", "state", "get", "accounts", "balance")
	step("", "--json", "state", "get", "accounts", "open", "--shard", "0")
	step("", "sub", "accounts", "--from", "earliest", "-n", "4")
	step("", "sub", "orders", "--since", "1h", "-n", "2")
	step("", "sub", "orders", "--at", "2001-02-03 04:05", "-n", "1")
	step("", "sub", "wide", "--at", "2199-01-01", "--idle", "300ms")
	step("", "sub", "orders", "--at", "teatime")
	step("", "stream", "update", "wide", "--retention-bytes", "1048576")
	step("", "stream", "show", "wide")
	step("", "stream", "update", "wide", "--retention-age", "0s")
	step("", "stream", "update", "wide", "--retention-bytes", "0")
	step("", "stream", "update", "nosuch", "--retention", "1h")
	step("", "stream", "describe", "orders")
	step("", "--json", "pub", "nosuch", "x")
	step("", "sub", "nosuch")
	step("", "--json", "pub", "orders", "x", "--token", strings.TrimSpace(badToken))
	step("", "--json", "pub", "orders", "x", "--token", strings.TrimSpace(foreign))
	step("", "--json", "cache", "put", "nosuch", "k", "v")
	step("", "stream", "delete", "orders", "--yes")
	step("", "--json", "stream", "describe", "orders")
	step("", "--json", "stream", "list", "-A")
	golden(t, "commands.txt", out.String())
}

// Caches: what is put is got, bytes included, and it goes when its time is over.
func TestCacheCommands(t *testing.T) {
	devBroker(t)
	ok(t, nil, "cache", "put", "prices", "apple", "1.20")
	if got := ok(t, nil, "cache", "get", "prices", "apple"); got != "1.20\n" {
		t.Errorf("got %q", got)
	}
	ok(t, strings.NewReader("\xff\x00"), "cache", "put", "prices", "raw")
	if got := ok(t, nil, "--json", "cache", "get", "prices", "raw"); got != `{"cache":"prices","key":"raw","found":true,"value_base64":"/wA="}`+"\n" {
		t.Errorf("got %s", got)
	}
	if got := ok(t, nil, "cache", "get", "--raw", "prices", "raw"); got != "\xff\x00" {
		t.Errorf("got %q", got)
	}
	ok(t, nil, "cache", "put", "prices", "soon", "gone", "--ttl", "1ms")
	<-time.After(20 * time.Millisecond)
	if got := ok(t, nil, "--json", "cache", "get", "prices", "soon"); got != `{"cache":"prices","key":"soon","found":false}`+"\n" {
		t.Errorf("got %s", got)
	}
	if o := ringcast(t, nil, "cache", "get", "prices", "soon"); o.code != 1 || !strings.Contains(o.stderr, "no key soon") {
		t.Errorf("%+v", o)
	}
	if got := ok(t, nil, "cache", "delete", "prices", "apple"); got != "apple removed\n" {
		t.Errorf("got %q", got)
	}
	if got := ok(t, nil, "cache", "rm", "prices", "apple"); got != "apple was not there\n" {
		t.Errorf("got %q", got)
	}
}

// A live subscription prints each record as it comes, and ends with its signal.
func TestSubPrintsAtOnceAndStopsOnASignal(t *testing.T) {
	devBroker(t)
	ok(t, nil, "pub", "live", "first", "-q")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	r, w := io.Pipe()
	var wg sync.WaitGroup
	var stderr bytes.Buffer
	code := -1
	wg.Go(func() {
		code = run(ctx, []string{"sub", "live", "--from", "earliest"}, strings.NewReader(""), w, &stderr)
		_ = w.Close()
	})
	buf := make([]byte, 100)
	for _, want := range []string{"first\n", "second\n"} {
		n, err := r.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Fatalf("got %q %v", buf[:n], err)
		}
		if want == "first\n" {
			ok(t, nil, "pub", "live", "second", "-q")
		}
	}
	interrupt()
	wg.Wait()
	if code != 0 {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

// 20,000 lines in, the same 20,000 lines out, with the records of an idempotent publisher.
func TestFileGoesInAndComesOutTheSame(t *testing.T) {
	devBroker(t)
	var text bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&text, "%06d %s\n", i, strings.Repeat("x", i%97))
	}
	file := filepath.Join(t.TempDir(), "in.txt")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var sum pubSummary
	if err := json.Unmarshal([]byte(ok(t, nil, "--json", "pub", "bulk", "-f", file, "--idempotent")), &sum); err != nil {
		t.Fatal(err)
	}
	if sum.Records != 20_000 || sum.LastOffset == nil || *sum.LastOffset != 19_999 || sum.RecordsPerSecond <= 0 {
		t.Errorf("%+v", sum)
	}
	if got := ok(t, nil, "sub", "bulk", "--from", "earliest", "-n", "20000"); got != text.String() {
		t.Errorf("%d bytes came out, %d went in", len(got), text.Len())
	}
}

// A broker that is not there is said to be so, in time.
func TestMissingBrokerIsReportedInTime(t *testing.T) {
	began := time.Now()
	e := failed(t, 1, "pub", "s", "x", "--addr", "127.0.0.1:1", "--token", tokenFor("t"), "--timeout", "300ms")
	if e.Code != "unreachable" || !strings.Contains(e.Hint, "ringcastd --dev") || time.Since(began) > 5*time.Second {
		t.Errorf("%+v after %s", e, time.Since(began))
	}
	e = failed(t, 1, "stream", "list", "--http", "127.0.0.1:1", "--token", tokenFor("t"))
	if e.Code != "unreachable" {
		t.Errorf("%+v", e)
	}
}

// What cannot be meant is a usage error, exit 2.
func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"frob"}, {"pub"}, {"pub", "s", "x", "-f", "f"}, {"pub", "s", "x", "--ack", "maybe"}, {"pub", "s", "--ack", "none", "--idempotent"},
		{"pub", "s", "--key", "k", "--key-separator", ":"}, {"sub", "s", "--raw", "--count", "-1"}, {"sub", "s", "--raw"},
		{"sub", "s", "--since", "1h", "--at", "2026-01-01"}, {"sub", "s", "--since", "1h", "--from", "7"}, {"sub", "s", "--since", "-1h"},
		{"stream", "update", "s"}, {"stream", "update", "s", "--retention", "1ms"}, {"stream", "update", "s", "--retention-bytes", "-1"},
		{"token", "mint", "--tenant", "t"}, {"token", "mint", "--tenant", "t", "--all", "--ttl", "0s"}, {"stream", "create", "s", "--retention", "1ms"},
	} {
		if e := failed(t, 2, args...); e.Code != "usage" || e.Hint == "" {
			t.Errorf("%q: %+v", args, e)
		}
	}
	if o := ringcast(t, nil, "--help"); o.code != 0 || !strings.Contains(o.stdout, "pub") {
		t.Errorf("%+v", o)
	}
	if o := ringcast(t, nil, "version"); o.code != 0 || !strings.HasPrefix(o.stdout, "ringcast ") {
		t.Errorf("%+v", o)
	}
	if o := ringcast(t, nil, "completion", "bash"); o.code != 0 || !strings.Contains(o.stdout, "completion bash -c") && !strings.Contains(o.stdout, "completion -c bash") {
		t.Errorf("%+v", o)
	}
}

// Keys and tokens: made, shown, not overwritten.
func TestTokenCommands(t *testing.T) {
	dir := t.TempDir()
	key, set := filepath.Join(dir, "k.jwk"), filepath.Join(dir, "k.jwks")
	ok(t, nil, "token", "keygen", "--out", key, "--jwks", set)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("private key: %v %v", info.Mode(), err)
	}
	if e := failed(t, 1, "token", "keygen", "--out", key, "--jwks", set); !strings.Contains(e.Message, "--force") {
		t.Errorf("%+v", e)
	}
	token := strings.TrimSpace(ok(t, nil, "token", "mint", "--key", key, "--tenant", "acme", "--subject", "me",
		"--perm", "stream.publish:stream:acme/default/*", "--ttl", "1h"))
	text := ok(t, nil, "token", "inspect", token)
	for _, want := range []string{"tenant   acme", "subject  me", "allows   stream.publish:stream:acme/default/*", " (in "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	var v struct{ Claims struct{ Tid string } }
	if err := json.Unmarshal([]byte(ok(t, nil, "--json", "token", "inspect", token)), &v); err != nil || v.Claims.Tid != "acme" {
		t.Errorf("%+v %v", v, err)
	}
	if e := failed(t, 1, "token", "mint", "--key", key, "--tenant", "acme", "--perm", "fly:moon"); e.Message == "" {
		t.Errorf("%+v", e)
	}
	if e := failed(t, 1, "token", "inspect", "abc"); !strings.Contains(e.Message, "three parts") {
		t.Errorf("%+v", e)
	}
}
