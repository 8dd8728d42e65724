package log

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/wire"
)

// What was committed is read back, across segments, before and after a reopen, in every mode.
func TestCommittedRecordsAreReadBack(t *testing.T) { // LOG-2
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		t.Run(mode.String(), func(t *testing.T) {
			fs := crashfs.New()
			o := testOptions(fs, withMode(mode))
			l := mustOpen(t, o)
			checkRecords(t, l, 0, 0)
			for i := range 200 {
				commitOne(t, l, 1+i%7, 100+i*13%900)
			}
			next := l.Next()
			checkRecords(t, l, 0, next)
			if n := l.Stats().Segments; n < 4 {
				t.Fatalf("%d segments: the script does not roll", n)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, o)
			checkRecords(t, l, 0, next)
			if r := l.Recovery(); r.Truncated != 0 || r.RebuiltIndexes != 0 || r.Removed != 0 {
				t.Errorf("recovery after a clean end: %+v", r)
			}
			for range 20 {
				commitOne(t, l, 2, 300)
			}
			checkRecords(t, l, 0, next+40)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// 64 entries that are staged while a write is in flight take one more write, not 64.
func TestManyAppendsShareOneWrite(t *testing.T) { // LOG-8, LOG-9
	l := mustOpen(t, testOptions(crashfs.New(), withSegment(1<<20)))
	commitOne(t, l, 1, 100)
	before := l.Stats().Groups
	appendOne(t, l, 1, 100)
	op := l.NextOp()
	if op == nil {
		t.Fatal("no operation for a staged entry")
	}
	for range 63 {
		appendOne(t, l, 1, 100)
	}
	if l.NextOp() != nil {
		t.Fatal("two writes of one log in flight")
	}
	runHere(op)
	if out := l.OpDone(op); out.Committed != 2 {
		t.Fatalf("committed %d, want 2", out.Committed)
	}
	outs := pump(l)
	if l.Committed() != 65 {
		t.Fatalf("committed %d, want 65", l.Committed())
	}
	// One outcome takes all 63: whoever waits for them is told at once.
	covered := 0
	for _, out := range outs {
		if out.Committed == 65 {
			covered++
		}
	}
	if groups := l.Stats().Groups - before; groups != 2 || covered == 0 {
		t.Errorf("64 appends took %d writes, want 2", groups)
	}
	// Two groups of one entry, and one of 63, which is more than 32 and at most 64.
	if sizes := l.Stats().GroupEntries; sizes != (GroupSizes{0: 2, 6: 1}) {
		t.Errorf("groups by size: %v", sizes)
	}
	checkRecords(t, l, 0, 65)
}

// A group is one operation of 2n+2 slices that refer to the sections.
func TestSectionsAreReferencedNotCopied(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New()))
	buf := testPool.Get(200)
	section := wire.AppendSection(buf.Bytes()[:0], recordsAt(0, 2, 50)...)
	for range 3 {
		if _, err := l.Append(&Entry{Kind: KindRecords, Count: 2, Section: section, Buf: buf}, 1); err != nil {
			t.Fatal(err)
		}
	}
	j := l.TakeJob()
	j.Run()
	l.JobDone(j)
	op := l.NextOp()
	if len(op.Vec) != 8 {
		t.Fatalf("%d slices for 3 entries and the rest of the block, want 8", len(op.Vec))
	}
	if &op.Vec[1][0] != &section[0] || &op.Vec[5][0] != &section[0] {
		t.Error("the section was copied")
	}
	inUse := testPool.Stats().InUse
	buf.Release() // the log holds its own references
	if testPool.Stats().InUse != inUse {
		t.Fatal("the Buf went back while its write was in flight")
	}
	runHere(op)
	l.OpDone(op)
	if testPool.Stats().InUse != inUse-1 {
		t.Error("the Buf did not go back after its write")
	}
}

// An entry that does not fit goes to the next segment; one that fits nowhere gets a segment of its
// own and is readable.
func TestOversizedEntryGetsItsOwnSegment(t *testing.T) { // LOG-24
	l := mustOpen(t, testOptions(crashfs.New(), withSegment(16<<10)))
	commitOne(t, l, 1, 100)
	commitOne(t, l, 1, 40<<10)
	commitOne(t, l, 1, 100)
	if n := l.Stats().Segments; n != 3 {
		t.Errorf("%d segments, want 3", n)
	}
	checkRecords(t, l, 0, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestEntryLargerThanTheFormatIsRefused(t *testing.T) { // LOG-19
	l := mustOpen(t, testOptions(crashfs.New()))
	huge := make([]byte, entryBytesMax) // nothing but zeros: the count is refused or the size
	huge[3] = 1
	_, err := l.Append(&Entry{Kind: KindRecords, Count: 1, Section: huge}, 1)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	long := make([]byte, 256)
	e := entryOf(recordsAt(0, 1, 10))
	e.Publisher = string(long)
	if _, err := l.Append(e, 1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("publisher of 256 bytes: %v, want ErrTooLarge", err)
	}
	for _, bad := range []*Entry{
		{Kind: 0, Count: 1, Section: wire.AppendSection(nil, nil)},
		{Kind: 4, Count: 1, Section: wire.AppendSection(nil, nil)},
		{Kind: KindRecords, Count: 0, Section: wire.AppendSection(nil)},
		{Kind: KindRecords, Count: 2, Section: wire.AppendSection(nil, nil)},
		{Kind: KindEpoch, Count: 2, Section: wire.AppendSection(nil, nil, nil)},
		{Kind: KindRecords, Count: 1, Section: nil},
	} {
		if _, err := l.Append(bad, 1); !errors.Is(err, ErrEntry) {
			t.Errorf("%+v: %v, want ErrEntry", bad, err)
		}
	}
	if l.Next() != 0 {
		t.Errorf("refused entries took offsets up to %d", l.Next())
	}
}

// Below the base a read is told where the log begins; at the tail it is empty.
func TestReadsOutsideTheLogAreTyped(t *testing.T) { // LOG-15, HZ-15
	fs := crashfs.New()
	o := testOptions(fs, withSegment(8<<10))
	l := mustOpen(t, o)
	for range 40 {
		commitOne(t, l, 1, 500)
	}
	next := l.Next()
	l.Close()
	// Drop the oldest segments, as retention does.
	for id := range uint64(2) {
		fs.Remove(testDir + "/" + segmentName(id))
		fs.Remove(testDir + "/" + indexName(id))
	}
	l = mustOpen(t, o)
	base := l.Base()
	if base == 0 {
		t.Fatal("the base did not move")
	}
	for _, from := range []uint64{0, base - 1} {
		var trimmed *TrimmedError
		if _, err := l.Read(from, 1000); !errors.As(err, &trimmed) || trimmed.Oldest != base || trimmed.Requested != from {
			t.Errorf("read at %d: %v", from, err)
		}
	}
	for _, from := range []uint64{next, next + 1, 1<<64 - 1} {
		p, err := l.Read(from, 1000)
		if err != nil || len(p.Entries) != 0 || p.Next != from {
			t.Errorf("read at %d: %v", from, err)
			continue
		}
		p.Release()
	}
	checkRecords(t, l, base, next)
	for from := base; from < next; from++ {
		for _, max := range []int{1, 600, 5000, 1 << 20} {
			if got, err := readRecords(l, from, max); err != nil || uint64(len(got)) != next-from {
				t.Fatalf("read from %d by %d bytes: %d records, %v", from, max, len(got), err)
			}
		}
	}
	l.Close()
}

// A read that begins inside an entry gets the end of it, with a count word of its own.
func TestReadBeginsInsideAnEntry(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New()))
	for i := range 30 {
		e := entryOf(recordsAt(l.Next(), 5, 60))
		e.Publisher = fmt.Sprintf("pub-%d", i)
		if _, err := l.Append(e, 1); err != nil {
			t.Fatal(err)
		}
	}
	pump(l)
	for from := range uint64(150) {
		got, err := readRecords(l, from, 700)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != int(150-from) || string(got[0]) != string(recordAt(from, 60)) {
			t.Fatalf("from %d: %d records", from, len(got))
		}
		p, _ := l.Read(from, 700)
		if want := fmt.Sprintf("pub-%d", from/5); string(p.Entries[0].Publisher) != want {
			t.Fatalf("from %d: publisher %q, want %q", from, p.Entries[0].Publisher, want)
		}
		p.Release()
	}
}

// The page is bounded in records.
func TestPageHoldsAtMostTenThousandRecords(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), withSegment(8<<20)))
	for range 6 {
		commitOne(t, l, 3000, 8)
	}
	p, err := l.Read(0, 1<<30)
	if err != nil || p.Next != 9000 {
		t.Fatalf("page ends at %d, want 9000: %v", p.Next, err)
	}
	p.Release()
	checkRecords(t, l, 0, 18000)
}

// Append times never fall, whatever the clock does, and time finds offsets.
func TestOffsetForTime(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, withSegment(8<<10))
	l := mustOpen(t, o)
	var times []uint64
	for i, at := range []uint64{100, 200, 200, 150, 300, 300, 400} {
		for range 5 {
			if _, err := l.Append(entryOf(recordsAt(l.Next(), 2, 400)), at); err != nil {
				if !errors.Is(err, ErrGroupFull) {
					t.Fatal(err)
				}
				pump(l)
				if _, err := l.Append(entryOf(recordsAt(l.Next(), 2, 400)), at); err != nil {
					t.Fatal(err)
				}
			}
			last := at
			if n := len(times); n > 0 {
				last = max(last, times[n-1])
			}
			times = append(times, last, last)
		}
		_ = i
	}
	pump(l)
	check := func(l *Log) {
		t.Helper()
		for at := uint64(50); at <= 450; at += 25 {
			want, found := uint64(0), false
			for i, tm := range times {
				if tm >= at {
					want, found = uint64(i), true
					break
				}
			}
			got, ok, err := l.OffsetForTime(at)
			if err != nil || ok != found || got != want {
				t.Errorf("time %d: offset %d %v %v, want %d %v", at, got, ok, err, want, found)
			}
		}
	}
	check(l)
	l.Close()
	l = mustOpen(t, o)
	check(l)
	if first, err := l.Append(entryOf(recordsAt(l.Next(), 1, 10)), 1); err != nil || first != 70 {
		t.Fatal(first, err)
	}
	pump(l)
	if off, ok, _ := l.OffsetForTime(400); !ok || off != 60 {
		t.Errorf("after a restart with a clock that fell: %d %v", off, ok)
	}
	p, _ := l.Read(70, 100)
	if p.Entries[0].TimeMicros != 400 {
		t.Errorf("append time fell to %d", p.Entries[0].TimeMicros)
	}
	p.Release()
}

// Epoch and commit entries take offsets and are returned with their kind.
func TestKindsAreReturned(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, func(o *Options) { o.Epoch = 5 })
	l := mustOpen(t, o)
	for _, k := range []Kind{KindEpoch, KindRecords, KindCommit} {
		e := entryOf(recordsAt(l.Next(), 1, 8))
		e.Kind = k
		if _, err := l.Append(e, 1); err != nil {
			t.Fatal(err)
		}
	}
	pump(l)
	p, err := l.Read(0, 1000)
	if err != nil || len(p.Entries) != 3 {
		t.Fatal(err)
	}
	for i, k := range []Kind{KindEpoch, KindRecords, KindCommit} {
		if p.Entries[i].Kind != k {
			t.Errorf("entry %d is of kind %d, want %d", i, p.Entries[i].Kind, k)
		}
	}
	p.Release()
	l.Close()
	o.Epoch = 4
	if _, err := Open(o); err == nil {
		t.Error("an epoch below that of the entries was taken")
	}
	o.Epoch = 0
	l = mustOpen(t, o)
	if l.epoch != 5 {
		t.Errorf("epoch %d, want 5", l.epoch)
	}
}

// A log whose mode changed goes on in a new segment.
func TestModeChangeStartsASegment(t *testing.T) {
	fs := crashfs.New()
	for i, mode := range []FsyncMode{FsyncOnCommit, FsyncPeriodic, FsyncNone, FsyncOnCommit} {
		l := mustOpen(t, testOptions(fs, withMode(mode)))
		commitOne(t, l, 1, 100)
		commitOne(t, l, 1, 100)
		if want := []int{1, 2, 2, 3}[i]; l.Stats().Segments != want {
			t.Errorf("%s: %d segments, want %d", mode, l.Stats().Segments, want)
		}
		checkRecords(t, l, 0, uint64(2*i+2))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
