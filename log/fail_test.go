package log

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// runPart carries out the first n bytes of a write and ends it with err. Of a direct one those are
// whole blocks, and when it fails at its end nobody can say that anything was written.
func runPart(op *ring.Op, n int64, err error) {
	if op.Kind == ring.OpWriteDirect {
		n = alignDown(n)
		if n == opSize(op) && err != nil {
			defer func() { op.Written = 0 }()
		}
	}
	for _, b := range op.Vec {
		k := min(n-op.Written, int64(len(b)))
		if k > 0 {
			if werr := writeFull(op.File, b[:k], op.Off+op.Written); werr != nil {
				panic(werr)
			}
			op.Written += k
		}
	}
	op.Err = err
}

// opSize is the bytes of a write.
func opSize(op *ring.Op) (n int64) {
	for _, b := range op.Vec {
		n += int64(len(b))
	}
	return n
}

func diskError(errno syscall.Errno) error { return ring.Classify("write", "segment", errno) }

// A write that fails at any byte, with any error: its records and those staged behind it are
// void, nothing of them is readable then or after a restart, and the log takes the same offsets
// again. What is answered as void cannot come back: until the file is cut, nothing is answered.
func TestFailedWriteLeavesNoTrace(t *testing.T) { // LOG-11, LOG-23, HZ-5
	for _, before := range []int{0, 2} { // in an empty segment, and behind committed entries
		probe := mustOpen(t, testOptions(crashfs.New()))
		for range before {
			commitOne(t, probe, 1, 50)
		}
		appendOne(t, probe, 3, 50)
		for j := probe.TakeJob(); j != nil; j = probe.TakeJob() {
			j.Run()
			probe.JobDone(j)
		}
		size := opSize(probe.NextOp())
		for n := int64(0); n < size; n++ {
			for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EFBIG, syscall.EINTR, 0} {
				padding := n > 640 && n < size-64 // zeros behind the entries, alike at every byte
				if padding && n%61 != 0 || invariants.Enabled && n%16 != 0 && errno != syscall.ENOSPC {
					continue
				}
				failWriteAt(t, before, n, errno)
			}
		}
	}
}

func failWriteAt(t *testing.T, before int, n int64, errno syscall.Errno) {
	t.Helper()
	fs := crashfs.New()
	o := testOptions(fs, withSegment(8<<10)) // small, since there are thousands
	l := mustOpen(t, o)
	for range before {
		commitOne(t, l, 1, 50)
	}
	good := uint64(before)
	appendOne(t, l, 3, 50)
	for j := l.TakeJob(); j != nil; j = l.TakeJob() {
		j.Run()
		l.JobDone(j)
	}
	op := l.NextOp()
	if n >= opSize(op) {
		t.Fatalf("a write of %d bytes has no byte %d", opSize(op), n)
	}
	appendOne(t, l, 1, 50) // fills while the write is in flight
	err := error(nil)      // errno 0: an engine that reports a short write as success
	if errno != 0 {
		err = diskError(errno)
	}
	runPart(op, n, err)
	if out := l.OpDone(op); out.Err != nil || out.Committed != good {
		t.Fatalf("at byte %d: answered before the file was cut: %+v", n, out)
	}
	if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 50)), 1); !errors.Is(err, ErrGroupFull) {
		t.Fatalf("append before the cut: %v", err)
	}
	if l.NextOp() != nil {
		t.Fatal("a write before the cut")
	}
	outs := pump(l)
	void := 0
	for _, out := range outs {
		if out.Err == nil {
			continue
		}
		void++
		if out.FailedFrom != good || out.FailedTo != good+4 || out.Committed != good || errors.Is(out.Err, ErrPoisoned) {
			t.Fatalf("at byte %d: outcome %+v", n, out)
		}
		if errno != 0 && !errors.Is(out.Err, errno) {
			t.Fatalf("%v hides errno %v", out.Err, errno)
		}
		full := errno == syscall.ENOSPC || errno == syscall.EDQUOT || errno == syscall.EFBIG
		if full && !errors.Is(out.Err, ring.ErrNoSpace) {
			t.Fatalf("%v is not of the class of a full disk", out.Err)
		}
	}
	if void != 1 {
		t.Fatalf("%d outcomes void the offsets, want 1", void)
	}
	checkRecords(t, l, 0, good)
	// Power fails now: nothing that was answered as void is there.
	after := mustOpen(t, testOptions(fs.Crash(uint64(n)), withSegment(8<<10)))
	checkRecords(t, after, 0, good)
	// Space is back.
	if first := commitOne(t, l, 2, 60); first != good {
		t.Fatalf("offset %d after the failure, want %d", first, good)
	}
	commitOne(t, l, 1, 10)
	checkRecords(t, l, 0, good+3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, o)
	checkRecords(t, again, 0, good+3)
	again.letGo()
}

// A segment that cannot be made voids what was staged for it and nothing else. The log heals by
// itself, and what a failed attempt left behind never reads as damage.
func TestSegmentThatCannotBeMadeHeals(t *testing.T) { // LOG-11, LOG-12, HZ-10
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.EIO} {
		for _, kind := range []ringtest.Kind{ringtest.Open, ringtest.Write} {
			for _, unlinkFails := range []bool{false, true} {
				for _, full := range []bool{false, true} {
					name := fmt.Sprintf("%v %s unlink fails %v full %v", errno, kind, unlinkFails, full)
					inner := crashfs.New()
					fs := ringtest.NewFS(inner)
					o := testOptions(fs, withSegment(16<<10))
					l := mustOpen(t, o)
					if full {
						for l.cur == nil || !l.cur.full(2048, 16<<10) {
							commitOne(t, l, 1, 1900)
						}
						if s := l.spare; s != nil { // no segment was prepared
							s.file.Close()
							inner.Remove(testDir + "/" + segmentName(s.id))
							l.spare = nil
						}
					}
					good := l.Committed()
					for attempt := range 3 {
						rule := ringtest.Rule{Kind: kind, Path: ".seg", Err: errno, Times: -1}
						if kind == ringtest.Write {
							rule.Short = 100 * attempt
						}
						fs.Add(rule)
						if unlinkFails {
							fs.Add(ringtest.Rule{Kind: ringtest.Remove, Err: syscall.EIO, Times: -1})
						}
						appendOne(t, l, 2, 1000)
						var failed []Outcome
						for _, out := range pump(l) {
							if out.Err != nil {
								failed = append(failed, out)
							}
						}
						if len(failed) != 1 || failed[0].FailedFrom != good || failed[0].FailedTo != good+2 || errors.Is(failed[0].Err, ErrPoisoned) || !errors.Is(failed[0].Err, errno) {
							t.Fatalf("%s: %+v", name, failed)
						}
						if l.Next() != good || l.Committed() != good {
							t.Fatalf("%s: next %d committed %d, want %d", name, l.Next(), l.Committed(), good)
						}
						fs.Clear()
						checkRecords(t, l, 0, good)
						after := mustOpen(t, testOptions(inner.Crash(uint64(attempt)), withSegment(16<<10)))
						checkRecords(t, after, 0, good)
						commitOne(t, after, 1, 10)
					}
					commitOne(t, l, 3, 100)
					checkRecords(t, l, 0, good+3)
					if err := l.Close(); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					after := mustOpen(t, o)
					checkRecords(t, after, 0, good+3)
				}
			}
		}
	}
}

// A header that was written in part is gone for good when the failure is answered: after a power cut
// it could not be told from damage.
func TestTornHeaderDoesNotComeBack(t *testing.T) { // LOG-12
	for _, short := range []int{1, 40, 63} {
		inner := crashfs.New()
		fs := ringtest.NewFS(inner)
		l := mustOpen(t, testOptions(fs))
		appendOne(t, l, 1, 100)
		fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: ".seg", Nth: 2, Short: short, Err: syscall.ENOSPC})
		if outs := pump(l); len(outs) != 1 || !errors.Is(outs[0].Err, ring.ErrNoSpace) {
			t.Fatalf("%+v", outs)
		}
		for seed := range uint64(50) {
			checkRecords(t, mustOpen(t, testOptions(inner.Crash(seed))), 0, 0)
		}
		commitOne(t, l, 1, 10)
	}
}

// The cut after a failed write waits until nothing uses the file any more: a sync that is in flight
// would fail on it, and a failed sync is for good.
func TestCutWaitsForTheSyncInFlight(t *testing.T) { // LOG-11, HZ-5
	l := mustOpen(t, testOptions(crashfs.New(), withMode(FsyncPeriodic)))
	commitOne(t, l, 1, 100)
	sync := l.Tick()
	appendOne(t, l, 1, 100)
	op := l.NextOp()
	runPart(op, 10, diskError(syscall.ENOSPC))
	l.OpDone(op)
	if l.TakeJob() != nil {
		t.Fatal("the file is cut under a sync")
	}
	runHere(sync)
	if out := l.OpDone(sync); out.Err != nil || l.Stats().Durable != 1 {
		t.Fatalf("%+v, durable %d", out, l.Stats().Durable)
	}
	pump(l)
	commitOne(t, l, 1, 100)
	checkRecords(t, l, 0, 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Preparing the next segment ahead is nobody's failure: it is tried again, at the latest by the roll.
func TestFailedPreparationCostsNothing(t *testing.T) { // LOG-17
	fs := ringtest.NewFS(crashfs.New())
	l := mustOpen(t, testOptions(fs, withSegment(32<<10)))
	commitOne(t, l, 1, 100)
	fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: segmentName(1), Err: syscall.ENOSPC})
	for range 100 {
		commitOne(t, l, 1, 500)
	}
	if l.Stats().OpenErrors == 0 {
		t.Error("the preparation did not fail")
	}
	checkRecords(t, l, 0, 101)
}

// The opened log of a full disk serves what it has, without an index or a mark of its own.
func TestFullDiskOpensForReading(t *testing.T) { // HZ-10
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	inner := restoreDir(t, m.with(m.segment()[:m.ends[4]+10], 0))
	fs := ringtest.NewFS(inner)
	for _, kind := range []ringtest.Kind{ringtest.Write} {
		fs.Add(ringtest.Rule{Kind: kind, Err: syscall.ENOSPC, Times: -1})
	}
	l := mustOpen(t, testOptions(fs))
	checkRecords(t, l, 0, m.next[4])
	appendOne(t, l, 1, 10)
	outs := pump(l)
	if last := outs[len(outs)-1]; !errors.Is(last.Err, ring.ErrNoSpace) {
		t.Errorf("%+v", last)
	}
	fs.Clear()
	commitOne(t, l, 1, 10)
	checkRecords(t, l, 0, m.next[4]+1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Close with work out is refused and changes nothing; twice is the same as once.
func TestCloseFlushesWhatIsStaged(t *testing.T) { // LOG-25
	fs := crashfs.New()
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		o := testOptions(fs, withMode(mode), func(o *Options) { o.Dir = "/data/" + mode.String() })
		l := mustOpen(t, o)
		appendOne(t, l, 2, 100)
		j := l.TakeJob()
		if err := l.Close(); !errors.Is(err, ErrBusy) {
			t.Fatalf("close with a job out: %v", err)
		}
		j.Run()
		l.JobDone(j)
		op := l.NextOp()
		if err := l.Close(); !errors.Is(err, ErrBusy) {
			t.Fatalf("close with an operation out: %v", err)
		}
		appendOne(t, l, 3, 100)
		runHere(op)
		l.OpDone(op)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatalf("second close: %v", err)
		}
		if l.Committed() != 5 {
			t.Errorf("%s: committed %d after Close, want 5", mode, l.Committed())
		}
		if _, err := l.Append(entryOf(recordsAt(5, 1, 10)), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("append: %v", err)
		}
		if _, err := l.Read(0, 100); !errors.Is(err, ErrClosed) {
			t.Errorf("read: %v", err)
		}
		// Shutdown made everything durable, whatever the mode, with index and mark.
		o.FS = fs.Crash(crashfs.SeedLoseAll)
		after := mustOpen(t, o)
		checkRecords(t, after, 0, 5)
		files := snapshotDir(t, fs, o.Dir)
		if len(files) != 3 || files[markName] == nil || files[indexName(0)] == nil {
			t.Errorf("%s: files after Close: %d", mode, len(files))
		}
	}
}

// An idle log has no work: no sync, no job.
func TestIdleLogIsSilent(t *testing.T) { // LOG-18
	fs := ringtest.NewFS(crashfs.New())
	l := mustOpen(t, testOptions(fs, withMode(FsyncPeriodic)))
	if l.Tick() != nil {
		t.Error("an empty log wants a sync")
	}
	commitOne(t, l, 1, 10)
	op := l.Tick()
	if op == nil || l.Tick() != nil {
		t.Fatal("one sync wanted for what was written")
	}
	runHere(op)
	l.OpDone(op)
	pump(l)
	fs.Forget()
	for range 10 {
		if l.Tick() != nil || l.TakeJob() != nil || l.NextOp() != nil {
			t.Error("a clean log wants work")
		}
	}
	if calls := fs.Calls(); len(calls) != 0 {
		t.Errorf("an idle log called %v", calls)
	}
}
