package log

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// Zeros are written ahead in doubling steps up to the size of the segment, and the file is then as
// long as that: appends change nothing but bytes.
func TestZerosAreWrittenAheadOfTheTail(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, withSegment(256<<10)))
	var ready []int64
	for l.Stats().Rolls < 2 {
		commitOne(t, l, 1, 900)
		if n := len(ready); n == 0 || ready[n-1] != l.cur.ready {
			ready = append(ready, l.cur.ready)
			if size := fileSize(t, fs, segmentName(l.cur.seg.id)); size != l.cur.ready {
				t.Fatalf("the file has %d bytes, %d were written ahead", size, l.cur.ready)
			}
		}
	}
	if len(ready) < 2 || ready[0] != 16<<10 || ready[1] != 256<<10 {
		t.Errorf("written ahead up to %v", ready)
	}
	if s := l.Stats(); s.PreWritten < 240<<10 || s.Outran != 0 || s.ExtendErrors != 0 {
		t.Errorf("%+v", s)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{0, 1} {
		if seg := readFile(t, fs, testDir+"/"+segmentName(id)); allZero(seg[len(seg)-unitBytes:]) {
			t.Errorf("segment %d ends with zeros after it was sealed", id)
		}
	}
}

func fileSize(t *testing.T, fs ring.FS, name string) int64 {
	t.Helper()
	info, err := fs.Stat(testDir + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A group never touches the region that a job is writing zeros to: it waits until the job has
// stopped at its next piece, and the segment goes on without zeros.
func TestGroupThatOutrunsTheZerosWaitsForThem(t *testing.T) {
	for _, direct := range []bool{false, true} {
		l := mustOpen(t, testOptions(crashfs.New(), withSegment(256<<10), withDirect(direct)))
		j := workUntil(t, l, jobExtend)
		for l.outrunBy() < 0 {
			appendOne(t, l, 1, 900)
		}
		if op := l.NextOp(); op != nil {
			t.Fatalf("a write of %d bytes at %d while zeros are written from %d", opSize(op), op.Off, j.from)
		}
		if !j.stop.Load() {
			t.Fatal("the job is not told to stop")
		}
		if l.TakeJob() != nil {
			t.Fatal("two jobs")
		}
		j.Run()
		if j.zeroed != j.from {
			t.Fatalf("the job wrote on up to %d", j.zeroed)
		}
		l.JobDone(j)
		op := l.NextOp()
		if op == nil {
			t.Fatal("the group does not go on")
		}
		runHere(op)
		l.OpDone(op)
		for l.Stats().Rolls < 2 { // the rest of the segment
			if j := l.TakeJob(); j != nil {
				if j.kind == jobExtend && j.tail.seg.id == 0 {
					t.Fatal("zeros are written ahead again")
				}
				j.Run()
				l.JobDone(j)
				continue
			}
			if op := l.NextOp(); op != nil {
				runHere(op)
				l.OpDone(op)
			}
			l.Append(entryOf(recordsAt(l.Next(), 1, 900)), 100+l.Next())
		}
		pump(l)
		checkRecords(t, l, 0, l.Next())
		if n := l.Stats().Outran; n != 1 {
			t.Errorf("%d segments were outrun, want 1", n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// outrunBy is how far the filling group reaches into the region of the job that is out.
func (l *Log) outrunBy() int64 { return alignUp(l.filling.end()) - l.job.from - 1 }

// A full disk during pre-writing costs nothing: the file is what it was, appends go on.
func TestFullDiskWhilePreWritingCostsNothing(t *testing.T) { // HZ-10
	fs := ringtest.NewFS(crashfs.New())
	l := mustOpen(t, testOptions(fs, withSegment(4<<20)))
	j := workUntil(t, l, jobExtend)
	before := fileSize(t, fs, segmentName(0))
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: segmentName(0), Nth: 2, Err: syscall.ENOSPC, Short: 5000})
	j.Run()
	fs.Clear()
	if out := l.JobDone(j); out.Err != nil || l.Err() != nil {
		t.Fatalf("%v, %v", out.Err, l.Err())
	}
	if size := fileSize(t, fs, segmentName(0)); size != before {
		t.Errorf("the file has %d bytes, %d before", size, before)
	}
	if l.Stats().ExtendErrors != 1 {
		t.Error("not counted")
	}
	for range 600 {
		commitOne(t, l, 1, 900)
	}
	checkRecords(t, l, 0, l.Next())
	// Nor does one that has room for a header only.
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: segmentName(1), Err: syscall.ENOSPC, IsShort: true, Short: blockBytes, Nth: 1})
	for l.Stats().Rolls < 2 {
		commitOne(t, l, 1, 9000)
	}
	checkRecords(t, l, 0, l.Next())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A sync that fails while zeros are written is a failed sync of the log's disk like any other.
func TestFailedSyncOfZerosPoisons(t *testing.T) { // HZ-2, LOG-10
	fs := ringtest.NewFS(crashfs.New())
	l := mustOpen(t, testOptions(fs, withSegment(256<<10)))
	j := workUntil(t, l, jobExtend)
	fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: segmentName(0), Err: syscall.EIO})
	j.Run()
	l.JobDone(j)
	if !errors.Is(l.Err(), ErrPoisoned) {
		t.Fatalf("the log goes on: %v", l.Err())
	}
	if err := l.Close(); !errors.Is(err, ErrPoisoned) {
		t.Fatal(err)
	}
}

// What waits more than zeros makes the job end: the next segment, the seal of the last one.
func TestPreWritingGivesWay(t *testing.T) { // LOG-17
	l := mustOpen(t, testOptions(crashfs.New(), withSegment(256<<10)))
	j := workUntil(t, l, jobExtend)
	if op := l.NextOp(); op != nil {
		runHere(op)
		l.OpDone(op)
	}
	if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 300<<10)), 1<<40); err != nil { // has a segment of its own
		t.Fatal(err)
	}
	if l.TakeJob() != nil || !j.stop.Load() {
		t.Fatal("the job that writes zeros holds up the next segment")
	}
	j.Run()
	l.JobDone(j)
	pump(l)
	checkRecords(t, l, 0, l.Next())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A log of large writes grows: the zeros would cost the disk as much as the writes.
func TestLargeWritesAreNotWrittenAhead(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), withSegment(1<<20)))
	for range 15 {
		commitOne(t, l, 1, 60<<10)
	}
	if n := l.Stats().PreWritten; n != 0 {
		t.Errorf("%d bytes of zeros in front of writes of 60 KiB", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A log at rest writes nothing ahead, nor does one that was only opened.
func TestLogAtRestWritesNothingAhead(t *testing.T) { // LOG-18
	fs := crashfs.New()
	o := testOptions(fs, withSegment(64<<10))
	l := mustOpen(t, o)
	for range 20 {
		commitOne(t, l, 1, 1500)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	if j := l.TakeJob(); j != nil {
		t.Fatalf("job %d in a log that was only opened", j.kind)
	}
	commitOne(t, l, 1, 10)
	if l.Stats().PreWritten == 0 {
		t.Error("nothing is written ahead in a log that goes on")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A direct write is aligned, begins with what the block holds already and ends with zeros, and the
// section is copied: its Buf goes back at once.
func TestDirectGroupsAreAligned(t *testing.T) { // HZ-25
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, withDirect(true)))
	for i := range 40 {
		buf := testPool.Get(4000)
		e := entryOf(recordsAt(l.Next(), 1+i%3, 30+i*150))
		e.Buf = buf
		inUse := testPool.Stats().InUse
		if _, err := l.Append(e, 100+l.Next()); err != nil {
			t.Fatal(err)
		}
		buf.Release()
		if testPool.Stats().InUse >= inUse {
			t.Fatal("the log holds the Buf of a section that it copied")
		}
		for j := l.TakeJob(); j != nil; j = l.TakeJob() {
			j.Run()
			l.JobDone(j)
		}
		start := l.cur.written
		op := l.NextOp()
		if op.Kind != ring.OpWriteDirect {
			t.Fatalf("kind %d", op.Kind)
		}
		at := op.Off
		for _, b := range op.Vec {
			if !ring.IsAligned(b, at) {
				t.Fatalf("%d bytes at %d are not aligned", len(b), at)
			}
			at += int64(len(b))
		}
		lead := int(start - op.Off)
		if lead < 0 || lead >= blockBytes {
			t.Fatalf("the write begins at %d, the data ended at %d", op.Off, start)
		}
		if old := readFile(t, fs, testDir+"/"+segmentName(l.cur.seg.id)); !bytes.Equal(op.Vec[0][:lead], old[op.Off:start]) {
			t.Fatal("the block does not begin as it is on the disk")
		}
		runHere(op)
		l.OpDone(op)
		if i == 20 { // the next write begins in a block of an earlier life
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, testOptions(fs, withDirect(true)))
		}
	}
	checkRecords(t, l, 0, l.Next())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// refusing is a file system without direct writes.
type refusing struct{ ring.FS }

func (refusing) OpenDirect(name string, _ bool) (ring.File, error) {
	return nil, &ring.Error{Op: "open direct", Path: name, Class: ring.ErrUnsupported, Err: syscall.EINVAL}
}

// Where the file system refuses direct writes, the same groups are written and synced.
func TestDirectWritesAreRefused(t *testing.T) { // HZ-20
	fs := crashfs.New()
	o := testOptions(refusing{fs}, withDirect(true), withSegment(32<<10))
	l := mustOpen(t, o)
	for range 60 {
		commitOne(t, l, 2, 700)
	}
	image := fs.Crash(crashfs.SeedLoseAll)
	checkRecords(t, l, 0, 120)
	l.letGo()
	o.FS = refusing{image}
	l = mustOpen(t, o)
	checkRecords(t, l, 0, 120)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
