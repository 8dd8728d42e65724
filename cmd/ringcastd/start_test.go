package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// While logs are opened, the process is alive, not ready, says how far it is and serves no client; told
// to stop, it ends in order and the directory opens again. The log that does not get on is one with a
// pipe in the place of a segment, which nobody can open for reading until somebody writes to it.
func TestNothingIsServedBeforeEveryLogIsOpen(t *testing.T) { // HZ-18
	data := t.TempDir()
	i := launch(t, data)
	publish(t, i, "s", "a")
	if err := i.stop(); err != nil {
		t.Fatal(err)
	}
	shards, err := filepath.Glob(filepath.Join(data, "logs", "streams", "*", "0"))
	if err != nil || len(shards) != 1 {
		t.Fatalf("%v, %v", shards, err)
	}
	pipe := filepath.Join(shards[0], "00000000000000000099.seg")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}

	quic, web := freePort(t, "udp"), freePort(t, "tcp")
	l, err := load(t, "", nil, "--dev", "--quic-bind="+quic, "--http-bind="+web, "--data-dir="+data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	var out, text lockedBuffer
	go func() { done <- Run(ctx, make(chan struct{}), l, &out, slog.New(slog.NewTextHandler(&text, nil))) }()
	until(t, "the HTTP port answers", func() bool {
		c, err := net.Dial("tcp", web)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	until(t, "the progress is told", func() bool {
		status, a := call(t, "GET", "http://"+web+"/readyz", "", "")
		if status != http.StatusServiceUnavailable || a["status"] != "starting" {
			t.Fatalf("/readyz: %d %v", status, a)
		}
		return a["progress"] == "opening logs: 0 of 1, 0 MiB read"
	})
	if status, a := call(t, "GET", "http://"+web+"/healthz", "", ""); status != http.StatusOK {
		t.Errorf("/healthz: %d %v", status, a)
	}
	// The client port is not taken yet: it is ours to take.
	c, err := net.ListenPacket("udp", quic)
	if err != nil {
		t.Errorf("the client port is open before the logs are: %v", err)
	} else {
		c.Close()
	}
	cancel()
	select {
	case err := <-done:
		t.Fatalf("it ended with a log half open: %v", err)
	default:
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("stopped while starting: %v\n%s", err, text.String())
	}
	w.Close()
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	again := launch(t, data)
	publish(t, again, "s", "b")
	if err := again.stop(); err != nil {
		t.Fatal(err)
	}
}

// freePort returns an address that nobody listens on.
func freePort(t *testing.T, network string) string {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().String()
	}
	c, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Addr().String()
}
