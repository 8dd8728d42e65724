package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/internal/loopfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// HZ-10, LOG-11, LOG-12 (T6): a real disk becomes full at any step of a log's life: making a segment,
// its header, a write, the seal, the index, the mark. What is refused is void and of the class of a full
// disk, what was committed is readable, also after a kill and an open while the disk is still full; and
// with room the log goes on by itself.
func TestDiskThatFillsAtAnyStep(t *testing.T) {
	f := loopfs.New(t, loopfs.Options{MiB: 16})
	step := int64(8 << 10)
	if invariants.Enabled {
		step = 20 << 10
	}
	n := 0
	for leave := int64(0); leave <= 160<<10; leave += step {
		n++
		o := testOptions(ring.OS(), withSegment(16<<10), func(o *Options) { o.Dir = filepath.Join(f.Dir, fmt.Sprint("log", n)) })
		l := mustOpen(t, o)
		commitOne(t, l, 1, 100)
		good := l.Committed()
		// fill commits until the disk is full, and says how far it came.
		fill := func(l *Log) {
			t.Helper()
			for range 1000 {
				appendOne(t, l, 1, 700)
				for _, out := range pump(l) {
					if out.Err == nil {
						continue
					}
					if errors.Is(out.Err, ErrPoisoned) || !errors.Is(out.Err, ring.ErrNoSpace) {
						t.Fatalf("%d bytes left: %v", leave, out.Err)
					}
					good = l.Committed()
					return
				}
			}
			t.Fatal("the disk is never full")
		}
		empty := f.Fill(leave)
		fill(l)
		checkRecords(t, l, 0, good)
		l.letGo() // killed
		l = mustOpen(t, o)
		checkRecords(t, l, 0, good)
		fill(l)
		checkRecords(t, l, 0, good)
		empty()
		for range 60 {
			commitOne(t, l, 1, 700)
		}
		checkRecords(t, l, 0, good+60)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, o)
		checkRecords(t, l, 0, good+60)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := ring.OS().RemoveAll(o.Dir); err != nil {
			t.Fatal(err)
		}
	}
}

// HZ-2, LOG-10 (T3): writing back fails under a log whose file grows as it is appended to. The kernel says
// so once; the next sync of the file would succeed. The log is at its end with the first one: nothing
// more is taken, and with the device whole again everything that was committed is there.
func TestFailedWriteBackEndsTheLog(t *testing.T) {
	f := loopfs.New(t, loopfs.Options{MiB: 96, HolderMiB: 12})
	o := testOptions(ring.OS(), withSegment(64<<20), func(o *Options) { o.Dir, o.NoPreWrite = filepath.Join(f.Dir, "log"), true })
	l := mustOpen(t, o)
	var failure error
	for range 10_000 {
		appendOne(t, l, 1, 3000)
		for _, out := range pump(l) {
			if out.Err != nil {
				failure = out.Err
			}
		}
		if failure != nil {
			break
		}
	}
	if !errors.Is(failure, ErrPoisoned) {
		t.Fatalf("the device is full, and the log says: %v", failure)
	}
	good := l.Committed()
	if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 100)), 1); !errors.Is(err, ErrPoisoned) {
		t.Errorf("append after the failure: %v", err)
	}
	checkRecords(t, l, 0, good)
	if err := l.Close(); !errors.Is(err, ErrPoisoned) {
		t.Errorf("close: %v", err)
	}
	f.GrowHolder(128)
	f.Remount()
	l = mustOpen(t, o)
	if l.Committed() < good {
		t.Fatalf("%d records on the disk, committed were %d", l.Committed(), good)
	}
	checkRecords(t, l, 0, l.Committed())
	commitOne(t, l, 1, 100)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// HZ-7: the same directory is torn, opened and killed again and again. Twenty times: a write is torn,
// recovery is killed at each of its calls in turn, then comes to its end; ten records are written and
// acknowledged, and the process is killed. Everything that was ever acknowledged is there each time.
func TestRecoveryKilledAtEveryCall(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, withSegment(8<<10))
	r := rand.New(rand.NewPCG(7, 1))
	var acked, staged uint64
	killedAt := 0
	for round := range 20 {
		for call, whole := 1, false; !whole; call++ {
			whole = openUntil(t, fs, o, call)
			killedAt++
		}
		l := mustOpen(t, o)
		// The torn write was not acknowledged: it is there whole or not at all.
		if next := l.Committed(); next != acked && next != staged {
			t.Fatalf("round %d: %d records, acknowledged %d, staged %d", round, next, acked, staged)
		}
		checkRecords(t, l, 0, l.Committed())
		for range 10 {
			acked = commitOne(t, l, 1, 200+r.IntN(900)) + 1
		}
		checkRecords(t, l, 0, acked)
		// The write that the kill tears.
		appendOne(t, l, 1+r.IntN(3), 300)
		staged = l.Next()
		for j := l.TakeJob(); j != nil; j = l.TakeJob() {
			j.Run()
			l.JobDone(j)
		}
		if op := l.NextOp(); op != nil {
			runPart(op, r.Int64N(opSize(op)), nil)
		}
		l.letGo()
		if round%3 == 2 { // and the machine goes with it
			fs = fs.Crash(uint64(round))
			o.FS = fs
		}
	}
	if killedAt < 100 {
		t.Errorf("recovery was killed %d times only", killedAt)
	}
}

// openUntil opens a log and kills the process before the given call of the file layer. It says whether
// the open came to its end first.
func openUntil(t *testing.T, fs *crashfs.FS, o Options, call int) (whole bool) {
	t.Helper()
	defer func() {
		fs.OnOp(nil)
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	n := 0
	fs.OnOp(func(_ int, op, _ string) {
		if n++; n == call {
			panic(killed{op})
		}
	})
	l, err := Open(o)
	if err != nil {
		t.Fatalf("recovery after it was killed at call %d: %v", call-1, err)
	}
	l.letGo()
	return true
}

// HZ-8, LOG-10: the sync of a full segment's seal fails while publishes wait, at any moment relative to
// the writes and syncs of the next segment: 500 seeded orders of the owner's steps. From the failure on
// nothing more is committed, and what readers were still shown is on the disk after a power cut.
func TestFailedSealInAnyOrder(t *testing.T) {
	runs := 500
	if invariants.Enabled {
		runs = 150
	}
	poisoned := 0
	for seed := range runs {
		mode := []FsyncMode{FsyncOnCommit, FsyncPeriodic, FsyncNone}[seed%3]
		inner := crashfs.New()
		fs := ringtest.NewFS(inner)
		o := testOptions(fs, withMode(mode), withSegment(8<<10))
		l := mustOpen(t, o)
		r := rand.New(rand.NewPCG(uint64(seed), 8))
		var jobs []*Job
		var ops []*ring.Op
		var acked uint64 // the bound of what was acknowledged before the failure
		failing := false
		note := func(out Outcome) {
			if out.Err == nil && l.Err() == nil {
				acked = max(acked, out.Committed)
			}
		}
		for range 600 {
			if l.Err() != nil && len(jobs) == 0 && len(ops) == 0 {
				break
			}
			switch r.IntN(6) {
			case 0, 1:
				_, _ = l.Append(entryOf(recordsAt(l.Next(), 1, 500)), 1) // refused when there is no room
			case 2:
				if j := l.TakeJob(); j != nil {
					jobs = append(jobs, j)
				}
			case 3:
				if op := l.NextOp(); op != nil {
					ops = append(ops, op)
				} else if op := l.Tick(); op != nil {
					ops = append(ops, op)
				}
			case 4:
				if len(jobs) > 0 {
					j := jobs[0]
					jobs = jobs[1:]
					if j.kind == jobSeal && (failing || r.IntN(3) == 0) {
						failing = true
						fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: segmentName(j.header.id), Err: syscall.EIO})
					}
					j.Run()
					note(l.JobDone(j))
					fs.Clear() // another try would succeed
				}
			case 5:
				if len(ops) > 0 {
					i := r.IntN(len(ops))
					op := ops[i]
					ops = append(ops[:i], ops[i+1:]...)
					runHere(op)
					note(l.OpDone(op))
				}
			}
			if l.Err() != nil && l.Committed() > acked {
				t.Fatalf("seed %d, %s: committed %d after the failure, acknowledged were %d", seed, mode, l.Committed(), acked)
			}
		}
		if l.Err() == nil {
			continue // the seal's turn never came
		}
		poisoned++
		if mode == FsyncOnCommit && l.Committed() != acked {
			t.Fatalf("seed %d: readers stop at %d, acknowledged were %d", seed, l.Committed(), acked)
		}
		checkRecords(t, l, 0, l.Committed())
		o.FS = inner.Crash(crashfs.SeedLoseAll)
		after := mustOpen(t, o)
		if after.Committed() < l.Committed() {
			t.Fatalf("seed %d, %s: %d records on the disk, readers were shown %d", seed, mode, after.Committed(), l.Committed())
		}
		checkRecords(t, after, 0, after.Committed())
		after.letGo()
		l.letGo()
	}
	if poisoned < runs/2 {
		t.Errorf("the seal failed in %d of %d runs only", poisoned, runs)
	}
}
