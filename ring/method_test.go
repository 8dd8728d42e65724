package ring_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// Files without a descriptor are done through their methods, on every engine alike: what tests of
// the layers above script must reach them whichever engine runs.
func eachEngine(t *testing.T, fn func(t *testing.T, e ring.Engine)) {
	t.Helper()
	kinds := []string{ring.Portable, ring.URing, ring.URingDirect}
	if os.Getenv("RING_TEST_FORBID") != "" {
		kinds = []string{ring.KindAuto}
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			e, _, err := ring.Open(kind, ring.Options{Depth: 16, Workers: 4, Dir: t.TempDir()})
			if kind != ring.Portable && (errors.Is(err, ring.ErrUnsupported) || errors.Is(err, ring.ErrPermission)) {
				t.Skipf("io_uring is not available: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			fn(t, e)
		})
	}
}

type inbox chan *ring.Op

func (c inbox) OpDone(op *ring.Op) { c <- op }

func (c inbox) next(t *testing.T) *ring.Op {
	t.Helper()
	select {
	case op := <-c:
		return op
	case <-time.After(30 * time.Second):
		t.Fatal("the operation does not end")
		return nil
	}
}

func open(t *testing.T, f ring.FS, name string) ring.File {
	t.Helper()
	file, err := f.Open(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestShortWritesAreContinuedAndThenSynced(t *testing.T) { // HZ-4, HZ-21
	eachEngine(t, func(t *testing.T, e ring.Engine) {
		for k := range 12 {
			fs := ringtest.NewFS(nil)
			name := filepath.Join(t.TempDir(), "f")
			f := open(t, fs, name)
			fs.Forget()
			fs.Short(1, k)
			fs.Short(1, 1) // and what follows is short again
			done := make(inbox, 1)
			op := &ring.Op{Kind: ring.OpWriteSync, File: f, Off: 5, Vec: [][]byte{[]byte("hello "), []byte("world")}, Owner: done}
			e.Submit([]*ring.Op{op})
			done.next(t)
			if k == 0 {
				if !errors.Is(op.Err, ring.ErrIO) || op.Written != 0 {
					t.Fatalf("a write that takes nothing: %v, %d bytes", op.Err, op.Written)
				}
				continue
			}
			if op.Err != nil || op.Written != 11 {
				t.Fatalf("short after %d: %v, %d bytes", k, op.Err, op.Written)
			}
			got, err := os.ReadFile(name)
			if err != nil || string(got[5:]) != "hello world" {
				t.Fatalf("short after %d: %q, %v", k, got, err)
			}
			calls := fs.Calls()
			if last := calls[len(calls)-1]; last.Kind != ringtest.Sync {
				t.Fatalf("short after %d: the sync is not last: %s", k, fs.Trace())
			}
			if n := len(calls); n < 3 {
				t.Fatalf("short after %d: the rule was not met: %s", k, fs.Trace())
			}
		}
	})
}

// HZ-2, HZ-5: the error keeps its class, what was written before it is reported, a failed sync is
// made once only.
func TestFailuresKeepWhatWasWritten(t *testing.T) {
	eachEngine(t, func(t *testing.T, e ring.Engine) {
		for _, c := range []struct {
			rule    ringtest.Rule
			want    error
			written int64
			syncs   int
		}{
			{ringtest.Rule{Kind: ringtest.Write, Err: syscall.ENOSPC}, ring.ErrNoSpace, 0, 0},
			{ringtest.Rule{Kind: ringtest.Write, Nth: 2, Short: 2, Err: syscall.EDQUOT}, ring.ErrNoSpace, 6, 0},
			{ringtest.Rule{Kind: ringtest.Write, Short: 3, Err: syscall.EIO}, ring.ErrIO, 3, 0},
			{ringtest.Rule{Kind: ringtest.Sync, Err: syscall.EIO}, ring.ErrIO, 8, 1},
			{ringtest.Rule{Kind: ringtest.Sync, Err: syscall.EROFS}, ring.ErrReadOnly, 8, 1},
		} {
			fs := ringtest.NewFS(crashfs.New())
			f := open(t, fs, "f")
			fs.Add(c.rule)
			done := make(inbox, 1)
			op := &ring.Op{Kind: ring.OpWriteSync, File: f, Vec: [][]byte{[]byte("four"), []byte("more")}, Owner: done}
			e.Submit([]*ring.Op{op})
			done.next(t)
			if !errors.Is(op.Err, c.want) || !errors.Is(op.Err, c.rule.Err) || op.Written != c.written {
				t.Errorf("%+v: %v, %d bytes, want %v, %d", c.rule, op.Err, op.Written, c.want, c.written)
			}
			syncs := 0
			for _, call := range fs.Calls() {
				if call.Kind == ringtest.Sync {
					syncs++
				}
			}
			if syncs != c.syncs {
				t.Errorf("%+v: %d syncs, want %d", c.rule, syncs, c.syncs)
			}
		}
	})
}

// A file whose sync hangs holds one worker; the others serve the other files.
func TestSlowFileStopsNoOther(t *testing.T) { // HZ-9
	eachEngine(t, func(t *testing.T, e ring.Engine) {
		fs := ringtest.NewFS(crashfs.New())
		release, entered := make(chan struct{}), make(chan struct{}, 1)
		fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: "slow", Wait: release, Entered: entered})
		slow, fast := make(inbox, 1), make(inbox, 8)
		slowFile := open(t, fs, "slow")
		e.Submit([]*ring.Op{{Kind: ring.OpWriteSync, File: slowFile, Vec: [][]byte{{1}}, Owner: slow}})
		<-entered
		for i := range 8 {
			f := open(t, fs, string(rune('a'+i)))
			e.Submit([]*ring.Op{{Kind: ring.OpWriteSync, File: f, Vec: [][]byte{{1}}, Owner: fast}})
			if op := fast.next(t); op.Err != nil {
				t.Fatal(op.Err)
			}
		}
		if len(slow) != 0 {
			t.Fatal("the slow operation ended early")
		}
		close(release)
		if op := slow.next(t); op.Err != nil {
			t.Fatal(op.Err)
		}
	})
}

// The promise of OpWriteSync, on files that forget: after it, no cut loses the bytes.
func TestSyncedOperationSurvivesPowerCut(t *testing.T) { // HZ-1
	eachEngine(t, func(t *testing.T, e ring.Engine) {
		fs := crashfs.New()
		f := open(t, fs, "f")
		if err := fs.SyncDir("."); err != nil {
			t.Fatal(err)
		}
		done := make(inbox, 1)
		want := bytes.Repeat([]byte("data"), 700)
		e.Submit([]*ring.Op{{Kind: ring.OpWriteSync, File: f, Vec: [][]byte{want[:1000], want[1000:]}, Owner: done}})
		if op := done.next(t); op.Err != nil {
			t.Fatal(op.Err)
		}
		after := open(t, fs.Crash(crashfs.SeedLoseAll), "f")
		got := make([]byte, len(want))
		if _, err := after.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("after the cut: %v", err)
		}
	})
}
