package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/internal/daemon"
)

// instance is a broker inside the test's process.
type instance struct {
	t      *testing.T
	data   string
	out    lockedBuffer
	log    lockedBuffer
	quic   string
	http   string
	cancel context.CancelFunc
	hurry  chan struct{}
	done   chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launch runs a --dev broker and waits until it has announced itself.
func launch(t *testing.T, data string, args ...string) *instance {
	t.Helper()
	i := &instance{t: t, data: data, hurry: make(chan struct{}), done: make(chan error, 1)}
	l, err := load(t, "", nil, append([]string{"--dev", "--quic-bind=127.0.0.1:0", "--http-bind=127.0.0.1:0", "--data-dir=" + data}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	go func() { i.done <- Run(ctx, i.hurry, l, &i.out, slog.New(slog.NewTextHandler(&i.log, nil))) }()
	t.Cleanup(func() { i.cancel() })
	until(t, "the broker is ready", func() bool {
		select {
		case err := <-i.done:
			t.Fatalf("the broker ended while starting: %v\n%s", err, i.log.String())
		default:
		}
		var a struct{ QUIC, HTTP string }
		text, err := os.ReadFile(filepath.Join(data, "dev", "addr.json"))
		if err != nil || json.Unmarshal(text, &a) != nil {
			return false
		}
		i.quic, i.http = a.QUIC, "http://"+a.HTTP
		return true
	})
	return i
}

// until polls a condition with a deadline.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
		<-tick.C
	}
}

// stop ends the broker in order.
func (i *instance) stop() error {
	i.t.Helper()
	i.cancel()
	select {
	case err := <-i.done:
		return err
	case <-time.After(40 * time.Second):
		i.t.Fatalf("the broker does not stop\n%s", i.log.String())
		return nil
	}
}

func (i *instance) token() string {
	i.t.Helper()
	text, err := os.ReadFile(filepath.Join(i.data, "dev", "token"))
	if err != nil {
		i.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (i *instance) client(opts ...client.Option) *client.Client {
	i.t.Helper()
	c, err := client.New(i.quic, append([]client.Option{
		client.WithTenant("dev"), client.WithToken(i.token()), client.WithCAFile(filepath.Join(i.data, "dev", "ca.pem")),
	}, opts...)...)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { c.Close() })
	return c
}

// The first five minutes: --dev makes everything it needs, keeps it over a restart, serves a client
// with it, and leaves no address behind when it has stopped.
func TestDevKeepsKeysAndDataOverARestart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	i := launch(t, data)
	for _, name := range []string{"ca.pem", "cert.pem", "key.pem", "signing.jwk", "jwks", "token", "addr.json"} {
		info, err := os.Stat(filepath.Join(data, "dev", name))
		if err != nil {
			t.Fatal(err)
		}
		if secret := name == "key.pem" || name == "signing.jwk" || name == "token"; secret && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	until(t, "the announcement names token, address and a command", func() bool {
		out := i.out.String()
		return strings.Contains(out, i.token()) && strings.Contains(out, "ringcast sub") && strings.Contains(out, i.quic)
	})
	if strings.Contains(i.log.String(), i.token()) {
		t.Error("the token is in the log")
	}
	publish(t, i, "kept", "a", "b")
	token, quic := i.token(), i.quic
	if err := i.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, i.log.String())
	}
	if _, err := os.Stat(filepath.Join(data, "dev", "addr.json")); !os.IsNotExist(err) {
		t.Errorf("addr.json is still there: %v", err)
	}
	again := launch(t, data, "--quic-bind="+quic)
	if again.token() != token {
		t.Error("the token changed")
	}
	sub, err := again.client().Subscribe(t.Context(), "kept", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"a", "b"} {
		e, err := sub.Next(t.Context())
		if err != nil || string(e.Payload) != want || e.Offset != uint64(n) {
			t.Fatalf("event %d: %q at %d, %v", n, e.Payload, e.Offset, err)
		}
	}
	sub.Close()
	if err := again.stop(); err != nil {
		t.Error(err)
	}
}

func publish(t *testing.T, i *instance, stream string, values ...string) {
	t.Helper()
	p, err := i.client().Publisher(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if _, err := p.Publish(t.Context(), client.Record{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// OPS-6, OPS-7, PUB-29: SIGTERM under load. Readiness turns off first and liveness stays on; every
// record that was acknowledged is on disk; the process ends within its budget.
func TestShutdownUnderLoadLosesNothingAcknowledged(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	i := launch(t, data, "--shutdown-predrain-ms=300", "--shutdown-drain-timeout-ms=10000")
	c := i.client()
	p, err := c.Publisher(t.Context(), "load")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked := make(map[uint64]string)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				v := strings.Repeat(string(rune('a'+w)), 1+n%300)
				ack, err := p.Publish(ctx, client.Record{Value: []byte(v)})
				if err != nil {
					return
				}
				mu.Lock()
				acked[ack.Offset] = v
				mu.Unlock()
			}
		})
	}
	until(t, "records are acknowledged", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > 500 })
	began := time.Now()
	i.cancel()
	until(t, "readiness is off", func() bool {
		status, _ := call(t, "GET", i.http+"/readyz", "", "")
		return status == http.StatusServiceUnavailable
	})
	if status, _ := call(t, "GET", i.http+"/healthz", "", ""); status != http.StatusOK {
		t.Errorf("liveness while draining: %d", status)
	}
	if err := <-i.done; err != nil {
		t.Errorf("shutdown: %v\n%s", err, i.log.String())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
	cancel()
	c.Close()
	wg.Wait()

	again := launch(t, data)
	sub, err := again.client().Subscribe(t.Context(), "load", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for left := len(acked); left > 0; {
		e, err := sub.Next(t.Context())
		if err != nil {
			t.Fatalf("%d acknowledged records are missing: %v", left, err)
		}
		if want, ok := acked[e.Offset]; ok {
			if want != string(e.Payload) {
				t.Fatalf("offset %d holds other bytes", e.Offset)
			}
			left--
		}
	}
	t.Logf("%d acknowledged records are there", len(acked))
}

// A second signal cuts the waits of a shutdown short, and the logs are still flushed.
func TestSecondSignalCutsTheShutdownShort(t *testing.T) {
	i := launch(t, filepath.Join(t.TempDir(), "d"), "--shutdown-predrain-ms=60000", "--shutdown-drain-timeout-ms=60000")
	publish(t, i, "s", "x")
	i.cancel()
	until(t, "readiness is off", func() bool {
		status, _ := call(t, "GET", i.http+"/readyz", "", "")
		return status == http.StatusServiceUnavailable
	})
	began := time.Now()
	close(i.hurry)
	<-i.done
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// HZ-17: the second broker on a directory ends with a clear message and changes no byte; a stopped
// first one is still in possession; after kill -9 the next starts at once.
func TestSecondBrokerOnADirectoryIsRefused(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	d, err := daemon.Start(t.Context(), daemon.Options{Bin: bin, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	refused := func() {
		t.Helper()
		before := snapshot(t, data)
		l, err := load(t, "", nil, "--dev", "--quic-bind=127.0.0.1:0", "--http-bind=127.0.0.1:0", "--data-dir="+data)
		if err != nil {
			t.Fatal(err)
		}
		err = Run(t.Context(), nil, l, &bytes.Buffer{}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "lock") || !strings.Contains(err.Error(), data) {
			t.Errorf("second broker: %v", err)
		}
		if after := snapshot(t, data); after != before {
			t.Errorf("the second broker changed the directory:\nbefore\n%s\nafter\n%s", before, after)
		}
	}
	refused()
	if err := d.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	refused()
	d.Kill()
	if err := d.Restart(t.Context()); err != nil {
		t.Errorf("after kill -9: %v", err)
	}
}

// snapshot lists every file of a directory with its size, time and content.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		b.WriteString(strings.Join([]string{name, info.ModTime().String(), string(text)}, " "))
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A broker that could let nobody in does not start; keys stored through the admin API are enough.
func TestStartWithoutAnyKeyIsRefused(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	dev := launch(t, data)
	cert := filepath.Join(data, "dev", "cert.pem")
	key := filepath.Join(data, "dev", "key.pem")
	plain := []string{"--tls-cert=" + cert, "--tls-key=" + key, "--quic-bind=127.0.0.1:0", "--http-bind=127.0.0.1:0", "--data-dir=" + data}

	signing, err := auth.LoadSigningKey(filepath.Join(data, "dev", "signing.jwk"))
	if err != nil {
		t.Fatal(err)
	}
	token := dev.token()
	if err := dev.stop(); err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context) error {
		l, err := load(t, "", nil, plain...)
		if err != nil {
			t.Fatal(err)
		}
		return Run(ctx, nil, l, &bytes.Buffer{}, slog.New(slog.DiscardHandler))
	}
	if err := start(t.Context()); err == nil || !strings.Contains(err.Error(), "RINGCAST_JWKS") {
		t.Errorf("start without keys: %v", err)
	}
	dev = launch(t, data)
	if status, a := call(t, "PUT", dev.http+"/v1/tenants/dev/keys", token, string(signing.PublicJWKS())); status != http.StatusOK {
		t.Fatalf("store keys: %d %v", status, a)
	}
	if err := dev.stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	select {
	case err := <-done:
		t.Errorf("with stored keys: %v", err)
	case <-time.After(500 * time.Millisecond):
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	cancel()
}

// A start that fails leaves nothing behind: the ports and the directory are free again.
func TestFailedStartUndoesWhatItDid(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	i := launch(t, data)
	l, err := load(t, "", nil, "--dev", "--quic-bind="+i.quic, "--http-bind=127.0.0.1:0", "--data-dir="+data+"2")
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), nil, l, &bytes.Buffer{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("two brokers on one port")
	}
	if err := i.stop(); err != nil {
		t.Fatal(err)
	}
	other := launch(t, data+"2")
	if err := other.stop(); err != nil {
		t.Error(err)
	}
}

func TestMemoryLimitIsReadFromTheContainer(t *testing.T) {
	for text, want := range map[string]int64{
		"1073741824\n": 1073741824 / 100 * memoryShare, "max\n": 0, "9223372036854771712\n": 0, "": 0, "x": 0, "-1": 0, "0": 0,
	} {
		if n, ok := parseMemoryLimit(text); n != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
}
