package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/loopfs"
	"github.com/ringcast/ringcast/wire"
)

// HZ-26, PUB-18, OPS-6 (T5): the disk hangs, as fsfreeze makes it. Nothing durable is acknowledged,
// streams in memory and reads of durable records go on, the process does not grow threads with every
// publish, and a shutdown gives up in its budget. Thawed, the process ends, and started anew has
// everything that was acknowledged.
func TestHangingDiskHoldsDurablePublishesAlone(t *testing.T) {
	for _, engine := range []string{"portable", "auto"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fs := loopfs.New(t, loopfs.Options{})
			d := onDisk(t, fs.Dir, nil, "--storage-engine="+engine, "--shutdown-drain-timeout-ms=3000")
			f := newFailing(t, d)
			thaw := fs.Freeze(3 * patience)
			const senders, each = 40, 2
			all := []*series{f.durable}
			told := make(chan error, senders*each)
			for i := range uint32(senders) {
				all = append(all, &series{id: 1 + i}) // each in its own order
				s := newSender(t, d, "disk", all[1+i])
				go func() {
					for range each {
						told <- s.send()
					}
				}()
			}
			for i := range 50 {
				if err := f.mem.send(); err != nil {
					t.Fatalf("a stream in memory, publish %d: %v", i, err)
				}
			}
			for range cap(told) {
				if err := <-told; !errors.Is(err, wire.ErrUnacknowledged) && !errors.Is(err, wire.ErrOverloaded) {
					t.Errorf("a durable publish on a hanging disk: %v", err)
				}
			}
			readBack(t, d, "disk", all...)
			if n := threads(t, d.PID()); n > threadsMax {
				t.Errorf("%d threads while the disk hangs", n)
			}
			if err := d.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			deadline := time.After(patience)
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for !strings.Contains(d.Log(5), "ringcastd failed") {
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatal("the shutdown waits for the disk beyond its budget")
				}
			}
			thaw()
			<-d.Done()
			if err := d.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			readBack(t, d, "disk", all...)
			newSender(t, d, "disk", f.durable).untilTaken()
		})
	}
}

// threadsMax is above what the workers of the engine, of the files and of Go's scheduler can be, and
// far below a thread per publish.
const threadsMax = 64

func threads(t *testing.T, pid int) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nThreads:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
