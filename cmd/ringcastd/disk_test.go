package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/internal/daemon"
	"github.com/ringcast/ringcast/internal/loopfs"
	"github.com/ringcast/ringcast/wire"
)

// onDisk runs a broker whose data lie in dir, and whose keys and log lie elsewhere.
func onDisk(t *testing.T, dir string, wrap []string, args ...string) *daemon.Daemon {
	t.Helper()
	aside := t.TempDir()
	d, err := daemon.Start(t.Context(), daemon.Options{
		Bin: bin, Wrap: wrap, Data: filepath.Join(dir, "data"), Dev: filepath.Join(aside, "dev"), Log: filepath.Join(aside, "log"), Args: args,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("the broker's last words:\n%s", d.Log(30))
		}
	})
	return d
}

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// sender publishes to one stream, one record after the other.
type sender struct {
	t *testing.T
	p *client.Publisher
	s *series
}

func newSender(t *testing.T, d *daemon.Daemon, stream string, s *series) *sender {
	t.Helper()
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	// A refusal that may be repeated is to be seen, not repeated for a minute.
	p, err := c.Publisher(t.Context(), stream, client.WithDeliveryTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return &sender{t, p, s}
}

// send publishes the next record.
func (s *sender) send() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	n := s.s.next()
	ack, err := s.p.Publish(ctx, client.Record{Value: record(s.s.id, n)})
	s.s.told(n, ack, err)
	return err
}

// untilRefused publishes until an error comes, and returns it.
func (s *sender) untilRefused() error {
	s.t.Helper()
	for range 100_000 {
		if err := s.send(); err != nil {
			return err
		}
	}
	s.t.Fatal("the disk never failed")
	return nil
}

// untilTaken publishes until one is acknowledged again.
func (s *sender) untilTaken() {
	s.t.Helper()
	until(s.t, "a publish is taken again", func() bool { return s.send() == nil })
}

// readBack judges a stream: every acknowledged record is there, at its offset and in order.
func readBack(t *testing.T, d *daemon.Daemon, stream string, all ...*series) *oracle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sub, err := c.Subscribe(ctx, stream, client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	o := newOracle(all)
	if err := o.readTo(ctx, sub, tail(all)); err != nil {
		t.Fatalf("read %s: %v", stream, err)
	}
	if err := o.missing(); err != nil {
		t.Fatalf("read %s: %v", stream, err)
	}
	return o
}

// tailOf is how far a stream can be read, by what the broker says of it.
func tailOf(t *testing.T, d *daemon.Daemon, stream string) uint64 {
	t.Helper()
	_, a := call(t, "GET", "http://"+d.HTTP+"/v1/status", d.Token, "")
	list, _ := a["streams"].([]any)
	for _, s := range list {
		if s := s.(map[string]any); s["stream"] == stream {
			return uint64(s["shard_info"].([]any)[0].(map[string]any)["tail"].(float64))
		}
	}
	t.Fatalf("no stream %s: %v", stream, a)
	return 0
}

func readyz(t *testing.T, d *daemon.Daemon) (status int, failed []any) {
	t.Helper()
	status, a := call(t, "GET", "http://"+d.HTTP+"/readyz", "", "")
	failed, _ = a["failed_logs"].([]any)
	return status, failed
}

// HZ-10, LOG-11, LOG-12 (T6): a real file system fills up under a broker. Publishes are refused as
// overloaded, which may be repeated; reads go on; killed and started while the disk is still full, the
// broker is ready and serves them; and when space returns publishes succeed without a restart.
func TestFullFileSystemHeals(t *testing.T) {
	for _, engine := range []string{"portable", "auto"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f := loopfs.New(t, loopfs.Options{})
			d := onDisk(t, f.Dir, nil, "--storage-engine="+engine, "--durable-segment-bytes=256KiB")
			one := &series{id: 0}
			s := newSender(t, d, "full", one)
			if err := s.send(); err != nil {
				t.Fatal(err)
			}
			empty := f.Fill(600 << 10)
			refused := func(err error) {
				t.Helper()
				if !errors.Is(err, wire.ErrOverloaded) {
					t.Fatalf("on the full disk: %v", err)
				}
				if status, failed := readyz(t, d); status != http.StatusOK || len(failed) > 0 {
					t.Fatalf("/readyz on the full disk: %d %v", status, failed)
				}
			}
			refused(s.untilRefused())
			readBack(t, d, "full", one)
			refused(s.untilRefused()) // what little the first refusal freed is used up, too
			d.Kill()
			if err := d.Restart(t.Context()); err != nil {
				t.Fatalf("start on the full disk: %v", err)
			}
			if status, failed := readyz(t, d); status != http.StatusOK || len(failed) > 0 {
				t.Fatalf("/readyz after the start: %d %v", status, failed)
			}
			readBack(t, d, "full", one)
			s = newSender(t, d, "full", one)
			refused(s.untilRefused())
			empty()
			s.untilTaken()
			for range 100 {
				if err := s.send(); err != nil {
					t.Fatalf("with space: %v", err)
				}
			}
			readBack(t, d, "full", one)
			d.Kill()
			if err := d.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			readBack(t, d, "full", one)
		})
	}
}

// HZ-5, HZ-10 (T8): a limit on the size of files (EFBIG) is met like a full disk: the write is cut off,
// the segment ends there, and the log goes on in the next.
func TestFileSizeLimitIsMetLikeAFullDisk(t *testing.T) {
	limited := []string{"/bin/sh", "-c", `ulimit -f 512 && exec "$0" "$@"`} // blocks of 512 bytes
	d := onDisk(t, t.TempDir(), limited, "--durable-segment-bytes=64MiB")
	one := &series{id: 0}
	s := newSender(t, d, "limited", one)
	for range 1000 {
		if err := s.send(); err != nil && !errors.Is(err, wire.ErrOverloaded) {
			t.Fatalf("at the limit: %v", err)
		}
	}
	segments, err := filepath.Glob(filepath.Join(d.Data(), "logs", "streams", "*", "0", "*.seg"))
	if err != nil || len(segments) < 2 {
		t.Fatalf("%d segments: the limit was not met", len(segments))
	}
	readBack(t, d, "limited", one)
	d.Kill()
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	readBack(t, d, "limited", one)
}

// failing is a broker with a durable and an in-memory stream whose disk is about to fail.
type failing struct {
	t       *testing.T
	d       *daemon.Daemon
	durable *series
	memory  *series
	disk    *sender
	mem     *sender
	live    *client.Subscription // of the in-memory stream
}

func newFailing(t *testing.T, d *daemon.Daemon) *failing {
	t.Helper()
	f := &failing{t: t, d: d, durable: &series{id: 0}, memory: &series{id: 0}}
	if status, a := call(t, "PUT", "http://"+d.HTTP+"/v1/tenants/dev/namespaces/default/streams/memory", d.Token, `{"durable":false}`); status != http.StatusCreated {
		t.Fatalf("make a stream in memory: %d %v", status, a)
	}
	f.disk, f.mem = newSender(t, d, "disk", f.durable), newSender(t, d, "memory", f.memory)
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if f.live, err = c.Subscribe(t.Context(), "memory"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.live.Close() })
	for range 50 {
		if err := f.disk.send(); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// judge checks what must hold once the disk has failed for good; err is what a publish was told.
func (f *failing) judge(err error) {
	f.t.Helper()
	if !errors.Is(err, wire.ErrStorage) && !errors.Is(err, wire.ErrUnacknowledged) {
		f.t.Fatalf("the failure was answered with %v", err)
	}
	bound := tail([]*series{f.durable})
	for range 20 {
		err := f.disk.send()
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeStorage || e.Retry != wire.RetryFatal {
			f.t.Fatalf("a publish after the failure: %v", err)
		}
	}
	if end := tailOf(f.t, f.d, "disk"); end != bound {
		f.t.Errorf("readers see %d records, acknowledged were %d", end, bound)
	}
	readBack(f.t, f.d, "disk", f.durable)
	for i := range 20 {
		if err := f.mem.send(); err != nil {
			f.t.Fatalf("a stream in memory, publish %d: %v", i, err)
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), patience)
		e, err := f.live.Next(ctx)
		cancel()
		if err != nil {
			f.t.Fatalf("a stream in memory, event %d: %v", i, err)
		}
		if _, _, err := parseRecord(e.Payload); err != nil {
			f.t.Fatal(err)
		}
	}
	status, failed := readyz(f.t, f.d)
	if status != http.StatusOK || len(failed) != 1 || !strings.HasPrefix(fmt.Sprint(failed[0]), "streams/") {
		f.t.Errorf("/readyz: %d, failed logs %v", status, failed)
	} else if _, err := os.Stat(filepath.Join(f.d.Data(), "logs", fmt.Sprint(failed[0]))); err != nil {
		f.t.Errorf("/readyz names a log that is not there: %v", err)
	}
}

// HZ-11 (T15): the journal of a real file system is aborted under load. Publishes are refused for good,
// durable records are read on, streams in memory go on, readiness names the log; mounted anew, nothing
// that was acknowledged is lost.
func TestAbortedJournalStopsWritesAndNotReads(t *testing.T) {
	for _, engine := range []string{"portable", "auto"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fs := loopfs.New(t, loopfs.Options{})
			d := onDisk(t, fs.Dir, nil, "--storage-engine="+engine)
			f := newFailing(t, d)
			told := make(chan error, 1)
			go func() { told <- f.disk.untilRefused() }()
			fs.AbortJournal()
			f.judge(<-told)
			d.Kill()
			fs.Remount()
			if err := d.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			readBack(t, d, "disk", f.durable)
			newSender(t, d, "disk", f.durable).untilTaken()
			readBack(t, d, "disk", f.durable)
		})
	}
}

// HZ-2, LOG-10 (T3): the device under a real file system fails while pages are written back. The sync
// that meets it fails once, and would succeed if it were repeated; so that log is at its end. A broker
// on a healthy disk is not concerned.
func TestFailedWriteBackIsFinal(t *testing.T) {
	for _, engine := range []string{"portable", "auto"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fs := loopfs.New(t, loopfs.Options{MiB: 96, HolderMiB: 12})
			d := onDisk(t, fs.Dir, nil, "--storage-engine="+engine)
			f := newFailing(t, d)
			f.judge(f.disk.untilRefused())
			healthy := newSender(t, onDisk(t, t.TempDir(), nil), "healthy", &series{id: 0})
			if err := healthy.send(); err != nil {
				t.Errorf("a broker on a healthy disk: %v", err)
			}
			d.Kill()
			fs.GrowHolder(128)
			fs.Remount()
			if err := d.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			readBack(t, d, "disk", f.durable)
		})
	}
}
