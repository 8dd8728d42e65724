package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ringcast/ringcast/client"
)

const (
	readyTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
	pollEvery    = 5 * time.Millisecond
	tailMax      = 16 << 10 // of the broker's own output, kept to explain a failure
)

// broker is a ringcastd --dev in a process of its own.
type broker struct {
	cmd  *exec.Cmd
	dir  string
	quic string
	http string
	out  *tail

	exited chan struct{} // closed once the process is gone
	err    error         // its exit; set before exited is closed
}

// startBroker starts the binary on a directory and waits until it serves.
func startBroker(ctx context.Context, binary, dir string, environ []string) (*broker, error) {
	b := &broker{dir: dir, out: &tail{}, exited: make(chan struct{})}
	b.cmd = exec.Command(binary, "--dev", "--data-dir", dir, "--quic-bind", "127.0.0.1:0", "--http-bind", "127.0.0.1:0")
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.out
	b.cmd.Env = make([]string, 0, len(environ)) // not nil: nil would be this process's own
	for _, v := range environ {
		if !strings.HasPrefix(v, "RINGCAST_") { // settings of the person's own broker are not for this one
			b.cmd.Env = append(b.cmd.Env, v)
		}
	}
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the broker: %w", err)
	}
	go func() { // waited for by stop and kill
		b.err = b.cmd.Wait()
		close(b.exited)
	}()
	if err := b.awaitReady(ctx); err != nil {
		b.kill()
		return nil, b.explain(err)
	}
	return b, nil
}

// awaitReady waits for the address file of this process.
func (b *broker) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var addr struct {
			QUIC string `json:"quic"`
			HTTP string `json:"http"`
			PID  int    `json:"pid"`
		}
		text, err := os.ReadFile(filepath.Join(b.dir, "dev", "addr.json"))
		if err == nil && json.Unmarshal(text, &addr) == nil && addr.PID == b.cmd.Process.Pid {
			b.quic, b.http = addr.QUIC, addr.HTTP
			return nil
		}
		select {
		case <-tick.C:
		case <-b.exited:
			return fmt.Errorf("the broker ended while starting: %v", b.err)
		case <-ctx.Done():
			return fmt.Errorf("the broker was not ready in %s: %w", readyTimeout, context.Cause(ctx))
		}
	}
}

// connect makes a client with the development token.
func (b *broker) connect(ctx context.Context) (*client.Client, error) {
	token, err := os.ReadFile(filepath.Join(b.dir, "dev", "token"))
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, b.quic,
		client.WithTenant("dev"),
		client.WithToken(strings.TrimSpace(string(token))),
		client.WithCAFile(filepath.Join(b.dir, "dev", "ca.pem")))
	if err != nil {
		return nil, b.explain(err)
	}
	return c, nil
}

// kill ends the process without warning, as a crash would, and waits until it is gone.
func (b *broker) kill() {
	_ = b.cmd.Process.Kill() // it may be gone already
	<-b.exited
}

// stop ends the process in order; one that does not end is killed.
func (b *broker) stop() error {
	select {
	case <-b.exited:
		return b.explain(fmt.Errorf("the broker ended by itself: %v", b.err))
	default:
	}
	if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
		b.kill()
		return err
	}
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-b.exited:
		if b.err != nil {
			return b.explain(fmt.Errorf("the broker's shutdown failed: %w", b.err))
		}
		return nil
	case <-t.C:
		b.kill()
		return b.explain(errors.New("the broker did not shut down and was killed"))
	}
}

// explain adds what the broker wrote last.
func (b *broker) explain(err error) error {
	if text := b.out.String(); text != "" {
		return fmt.Errorf("%w\nthe broker's last words:\n%s", err, text)
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailMax; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// String returns the last lines; a token in them is left out.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.buf), []byte("\n"))
	lines = lines[max(0, len(lines)-20):]
	for i, l := range lines {
		if bytes.Contains(l, []byte("  token  ")) {
			lines[i] = []byte("  token  (left out)")
		}
	}
	return string(bytes.Join(lines, []byte("\n")))
}
