package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ringcast/ringcast/client"
)

// readyTimeout is how long a start may take, recovery included.
const readyTimeout = 60 * time.Second

// Options say how to run a broker.
type Options struct {
	// Bin is the ringcastd to run.
	Bin string
	// Wrap is put in front of the command: a program that changes the process and executes the rest.
	Wrap []string
	// Data is the data directory.
	Data string
	// Log is the file that takes what the process logs. Default: Data with .log appended.
	Log string
	// Dev, if set, is where the keys and addresses of --dev are kept: Data/dev becomes a link to it. So
	// they are out of reach of what a test does to the disk under Data.
	Dev string
	// Args are flags beside those that make a --dev broker on loopback.
	Args []string
}

// Daemon is a broker process.
type Daemon struct {
	o    Options
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended, after err was set
	err  error

	// QUIC and HTTP are the addresses; they stay the same over restarts.
	QUIC, HTTP string
	// Token opens everything in tenant "dev"; CA is the file to verify the broker with.
	Token, CA string
}

// Build compiles ringcastd from the module in which the test or program runs.
func Build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "ringcastd")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/ringcast/ringcast/cmd/ringcastd")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("daemon: build: %w\n%s", err, out)
	}
	return bin, nil
}

// Start runs a broker and waits until it is ready.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	d := &Daemon{o: o, QUIC: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	return d, d.start(ctx)
}

// Restart starts a killed or stopped broker again, on its old ports and data.
func (d *Daemon) Restart(ctx context.Context) error { return d.start(ctx) }

func (d *Daemon) start(ctx context.Context) error {
	if d.o.Dev != "" {
		if err := d.linkDev(); err != nil {
			return err
		}
	}
	args := append(append([]string{}, d.o.Wrap...), d.o.Bin, "--dev", "--data-dir", d.o.Data, "--quic-bind", d.QUIC, "--http-bind", d.HTTP)
	args = append(args, d.o.Args...)
	out, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	defer out.Close()
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Stderr = out // the text for a person, on standard output, is not kept: it holds the token
	d.cmd.SysProcAttr = dieWithParent()
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "RINGCAST_") {
			d.cmd.Env = append(d.cmd.Env, kv)
		}
	}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("daemon: start: %w", err)
	}
	d.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		defer close(done)
		d.err = cmd.Wait()
	}(d.cmd, d.done)

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !d.readAddr() {
		select {
		case <-tick.C:
		case <-d.done:
			return fmt.Errorf("daemon: it ended before it was ready: %w\n%s", d.err, d.Log(20))
		case <-ctx.Done():
			d.Kill()
			return fmt.Errorf("daemon: not ready: %w\n%s", ctx.Err(), d.Log(20))
		}
	}
	token, err := os.ReadFile(filepath.Join(d.o.Data, "dev", "token"))
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	d.Token, d.CA = strings.TrimSpace(string(token)), filepath.Join(d.o.Data, "dev", "ca.pem")
	return nil
}

// linkDev makes Data/dev a link to the directory of Options.Dev.
func (d *Daemon) linkDev() error {
	for _, dir := range []string{d.o.Data, d.o.Dev} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("daemon: %w", err)
		}
	}
	if err := os.Symlink(d.o.Dev, filepath.Join(d.o.Data, "dev")); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("daemon: %w", err)
	}
	return nil
}

// readAddr says whether this process has announced itself; a file of an earlier one does not count.
func (d *Daemon) readAddr() bool {
	text, err := os.ReadFile(filepath.Join(d.o.Data, "dev", "addr.json"))
	if err != nil {
		return false
	}
	var a struct {
		QUIC, HTTP string
		PID        int
	}
	if json.Unmarshal(text, &a) != nil || a.PID != d.cmd.Process.Pid {
		return false
	}
	d.QUIC, d.HTTP = a.QUIC, a.HTTP
	return true
}

// Kill ends the process with SIGKILL: nothing is flushed that was not flushed already. It returns
// when the process is gone.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill()
	<-d.done
}

// Stop ends the process with SIGTERM and returns its error: nil after an orderly shutdown. A process
// that does not end within ctx is killed.
func (d *Daemon) Stop(ctx context.Context) error {
	select {
	case <-d.done:
		return nil // it was killed, or stopped before
	default:
	}
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.done:
		if d.err != nil {
			return fmt.Errorf("daemon: shutdown: %w\n%s", d.err, d.Log(20))
		}
		return nil
	case <-ctx.Done():
		d.Kill()
		return fmt.Errorf("daemon: it did not stop: %w\n%s", ctx.Err(), d.Log(20))
	}
}

// Signal sends a signal.
func (d *Daemon) Signal(sig os.Signal) error {
	if err := d.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("daemon: signal: %w", err)
	}
	return nil
}

// Data is the data directory.
func (d *Daemon) Data() string { return d.o.Data }

// PID is the process's.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Done is closed when the process has ended.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// Client makes a client of the broker; opts come after what makes it one.
func (d *Daemon) Client(opts ...client.Option) (*client.Client, error) {
	base := []client.Option{client.WithTenant("dev"), client.WithToken(d.Token), client.WithCAFile(d.CA)}
	c, err := client.New(d.QUIC, append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	return c, nil
}

func (d *Daemon) logFile() string { return cmp.Or(d.o.Log, d.o.Data+".log") }

// Log returns the last lines that the process wrote.
func (d *Daemon) Log(lines int) string {
	text, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
