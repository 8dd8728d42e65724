package log

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// The owner's calls never wait for a disk: whatever happens, they make no call of the file layer
// but to close a file that is not needed any more.
func TestOwnerNeverTouchesAFile(t *testing.T) { // HZ-9
	for _, mode := range []FsyncMode{FsyncOnCommit, FsyncPeriodic, FsyncNone} {
		fs := ringtest.NewFS(crashfs.New())
		l := mustOpen(t, testOptions(fs, withMode(mode), withSegment(16<<10)))
		owner := func(what string, step func()) {
			t.Helper()
			fs.Forget()
			step()
			for _, c := range fs.Calls() {
				if c.Kind != ringtest.Close {
					t.Fatalf("%s: %s calls %s", mode, what, c)
				}
			}
		}
		for i := range 220 {
			var j *Job
			var op *ring.Op
			owner("Append", func() { l.Append(entryOf(recordsAt(l.Next(), 1, 500)), 1) })
			owner("TakeJob", func() { j = l.TakeJob() })
			if j != nil {
				j.Run()
				owner("JobDone", func() { l.JobDone(j) })
			}
			owner("NextOp", func() { op = l.NextOp() })
			if op == nil {
				owner("Tick", func() { op = l.Tick() })
			}
			if op != nil {
				if i%50 == 49 && op.Kind != ring.OpSync {
					runPart(op, 70, diskError(syscall.ENOSPC))
				} else {
					runHere(op)
				}
				owner("OpDone", func() { l.OpDone(op) })
			}
		}
		if s := l.Stats(); s.Rolls < 5 || s.FailedWrites < 2 {
			t.Errorf("%s: %d rolls, %d failed writes: the script is too short", mode, s.Rolls, s.FailedWrites)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// While a seal hangs in its sync, records are read, staged, written and committed.
func TestSlowSealHoldsNobodyBack(t *testing.T) { // LOG-17, LOG-20, HZ-9
	fs := ringtest.NewFS(crashfs.New())
	l := mustOpen(t, testOptions(fs, withSegment(16<<10)))
	commitOne(t, l, 1, 100)
	seal := workUntil(t, l, jobSeal)
	if op := l.NextOp(); op != nil {
		runHere(op)
		l.OpDone(op)
	}
	entered, hang := make(chan struct{}, 1), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: segmentName(seal.header.id), Entered: entered, Wait: hang})
	var worker sync.WaitGroup
	worker.Go(seal.Run)
	select {
	case <-entered:
	case <-time.After(10 * time.Second):
		t.Fatal("the seal does not sync")
	}
	next := l.Next()
	for range 5 {
		if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 900)), 1); err != nil {
			t.Fatal(err)
		}
		op := l.NextOp()
		runHere(op)
		l.OpDone(op)
	}
	checkRecords(t, l, 0, next+5)
	close(hang)
	worker.Wait()
	if out := l.JobDone(seal); out.Err != nil {
		t.Fatal(out.Err)
	}
	checkRecords(t, l, 0, next+5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Segments follow each other faster than they are sealed: nothing is refused for good, and at most
// one segment before the newest is unsealed, as recovery expects.
func TestRollWaitsForTheSealBeforeLast(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), withSegment(8<<10)))
	commitOne(t, l, 1, 4000)
	var seal *Job
	for i := 0; i < 50; i++ {
		l.Append(entryOf(recordsAt(l.Next(), 1, 3000)), 1)
		if seal == nil {
			if j := l.TakeJob(); j != nil {
				if j.kind == jobSeal {
					seal = j // slow
				} else {
					j.Run()
					l.JobDone(j)
				}
			}
		}
		if op := l.NextOp(); op != nil {
			runHere(op)
			l.OpDone(op)
		}
	}
	if seal == nil {
		t.Fatal("nothing was sealed")
	}
	if n := l.Stats().Segments; n > 2 {
		t.Errorf("%d segments while the first one is not sealed", n)
	}
	seal.Run()
	l.JobDone(seal)
	pump(l)
	if l.Committed() != l.Next() {
		t.Errorf("committed %d of %d after the seal", l.Committed(), l.Next())
	}
	checkRecords(t, l, 0, l.Next())
}
