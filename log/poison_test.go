package log

import (
	"errors"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// A sync that fails, whichever it is, ends the log: nothing more is accepted, what was staged is
// void, readers stop at the durable bound, Close reports it. Other logs do not notice.
func TestFailedSyncPoisons(t *testing.T) { // LOG-10, LOG-25, HZ-2, HZ-8
	type script struct {
		name  string
		mode  FsyncMode
		kind  ringtest.Kind
		path  string
		nth   int
		first bool // before anything is written
	}
	scripts := []script{
		{"group", FsyncOnCommit, ringtest.Sync, ".seg", 1, false},
		{"tick", FsyncPeriodic, ringtest.Sync, ".seg", 1, false},
		{"seal", FsyncPeriodic, ringtest.Sync, segmentName(0), 1, false},
		{"seal none", FsyncNone, ringtest.Sync, segmentName(0), 1, false},
		{"prepare", FsyncOnCommit, ringtest.Sync, segmentName(1), 1, false},
		{"directory", FsyncOnCommit, ringtest.SyncDir, testDir, 1, false},
		{"header", FsyncOnCommit, ringtest.Sync, segmentName(1), 2, false},
		{"first prepare", FsyncOnCommit, ringtest.Sync, segmentName(0), 1, true},
		{"first directory", FsyncOnCommit, ringtest.SyncDir, testDir, 1, true},
		{"first header", FsyncOnCommit, ringtest.Sync, segmentName(0), 2, true},
		{"close", FsyncNone, ringtest.Sync, ".seg", 1, false},
	}
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			inner := crashfs.New()
			fs := ringtest.NewFS(inner)
			o := testOptions(fs, withMode(c.mode), withSegment(16<<10))
			l := mustOpen(t, o)
			healthy := mustOpen(t, testOptions(fs, func(o *Options) { o.Dir = "/data/other" }))
			var committed uint64
			if !c.first {
				committed = 1 + commitOne(t, l, 1, 300)
				commitOne(t, healthy, 1, 100)
			}
			fs.Add(ringtest.Rule{Kind: c.kind, Path: c.path, Nth: c.nth, Err: syscall.EIO})
			if c.name == "close" {
				if err := l.Close(); !errors.Is(err, ErrPoisoned) || !errors.Is(err, ring.ErrIO) {
					t.Fatalf("Close: %v", err)
				}
				return
			}
			var poison error
			for i := 0; poison == nil; i++ {
				if i == 200 {
					t.Fatal("the failure never came")
				}
				if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 300)), 1); err != nil {
					t.Fatalf("append: %v", err)
				}
				staged := l.Next()
				outs := pump(l)
				if c.name == "tick" {
					op := l.Tick()
					runHere(op)
					outs = append(outs, l.OpDone(op))
				}
				for _, out := range outs {
					if out.Err != nil {
						if poison != nil {
							t.Fatalf("told twice: %v", out.Err)
						}
						poison = out.Err
						if out.FailedTo != staged {
							t.Errorf("void up to %d, staged up to %d", out.FailedTo, staged)
						}
						if c.mode == FsyncOnCommit && out.FailedFrom != committed {
							t.Errorf("void from %d, committed %d", out.FailedFrom, committed)
						}
						continue
					}
					committed = max(committed, out.Committed)
				}
			}
			fs.Clear() // the next sync would succeed, and prove nothing
			if !errors.Is(poison, ErrPoisoned) || !errors.Is(poison, ring.ErrIO) {
				t.Errorf("outcome %v", poison)
			}
			if _, err := l.Append(entryOf(recordsAt(0, 1, 10)), 1); !errors.Is(err, ErrPoisoned) {
				t.Errorf("append: %v", err)
			}
			if l.NextOp() != nil || l.TakeJob() != nil || l.Tick() != nil {
				t.Error("a poisoned log wants work done")
			}
			if !errors.Is(l.Err(), ErrPoisoned) || !l.Stats().Poisoned {
				t.Error("a poisoned log does not say so")
			}
			if c.mode == FsyncOnCommit && l.Committed() != committed {
				t.Errorf("readers stop at %d, acknowledged was %d", l.Committed(), committed)
			}
			checkRecords(t, l, 0, l.Stats().Durable)
			if err := l.Close(); !errors.Is(err, ErrPoisoned) {
				t.Errorf("Close: %v", err)
			}
			commitOne(t, healthy, 1, 100)
			// Power fails: everything that readers were still shown is there.
			after := mustOpen(t, testOptions(inner.Crash(crashfs.SeedLoseAll), withMode(c.mode)))
			if after.Committed() < l.Stats().Durable {
				t.Errorf("%d records on the disk, the durable bound was %d", after.Committed(), l.Stats().Durable)
			}
		})
	}
}

// Under periodic, nothing in a newer segment is durable before the retired one is sealed; when the
// seal fails, nothing of either is.
func TestRetiredSegmentIsSyncedFirst(t *testing.T) { // HZ-8
	fs := ringtest.NewFS(crashfs.New())
	l := mustOpen(t, testOptions(fs, withMode(FsyncPeriodic), withSegment(16<<10)))
	for range 40 {
		appendOne(t, l, 1, 1000)
		if j := l.TakeJob(); j != nil {
			if j.kind == jobSeal {
				// The seal is out and slow; writes go on in the new segment.
				if op := l.Tick(); op != nil {
					t.Fatal("a sync of the new segment while the old one is not sealed")
				}
				first := l.Next()
				if op := l.NextOp(); op != nil {
					runHere(op)
					l.OpDone(op)
				}
				if l.Committed() != first || l.Stats().Durable != 0 {
					t.Fatalf("committed %d, durable %d", l.Committed(), l.Stats().Durable)
				}
				fs.Fail(ringtest.Sync, 1, syscall.EIO)
				j.Run()
				out := l.JobDone(j)
				if !errors.Is(out.Err, ErrPoisoned) || out.Committed != 0 {
					t.Fatalf("%+v", out)
				}
				checkRecords(t, l, 0, 0)
				l.Close()
				return
			}
			j.Run()
			l.JobDone(j)
		}
		if op := l.NextOp(); op != nil {
			runHere(op)
			l.OpDone(op)
		}
	}
	t.Fatal("no segment was sealed")
}

// A failed cut leaves a file that nobody can vouch for.
func TestFailedCutPoisons(t *testing.T) { // LOG-11
	for _, kind := range []ringtest.Kind{ringtest.Truncate, ringtest.Sync} {
		for _, before := range []int{0, 1} {
			fs := ringtest.NewFS(crashfs.New())
			l := mustOpen(t, testOptions(fs))
			for range before {
				commitOne(t, l, 1, 100)
			}
			appendOne(t, l, 2, 100)
			for j := l.TakeJob(); j != nil; j = l.TakeJob() {
				j.Run()
				l.JobDone(j)
			}
			op := l.NextOp()
			runPart(op, 100, diskError(syscall.EIO))
			l.OpDone(op)
			fs.Fail(kind, 1, syscall.EIO)
			outs := pump(l)
			last := outs[len(outs)-1]
			if !errors.Is(last.Err, ErrPoisoned) || last.FailedFrom != uint64(before) || last.FailedTo != uint64(before)+2 {
				t.Fatalf("%s: %+v", kind, last)
			}
			checkRecords(t, l, 0, uint64(before))
			if err := l.Close(); !errors.Is(err, ErrPoisoned) {
				t.Errorf("Close: %v", err)
			}
		}
	}
}

// A read-only file system is for good.
func TestReadOnlyFileSystemPoisons(t *testing.T) { // HZ-11
	fs := ringtest.NewFS(crashfs.New())
	l := mustOpen(t, testOptions(fs))
	appendOne(t, l, 1, 100)
	fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: ".seg", Err: syscall.EROFS, Times: -1})
	outs := pump(l)
	if last := outs[len(outs)-1]; !errors.Is(last.Err, ErrPoisoned) || !errors.Is(last.Err, ring.ErrReadOnly) {
		t.Errorf("%+v", last)
	}
}
