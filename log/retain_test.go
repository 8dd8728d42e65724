package log

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// makeSegments makes a log of n entries of one record of 900 bytes in segments of 8 KiB. The append
// time of a record is 100 and its offset.
func makeSegments(t testing.TB, fs ring.FS, n int, change ...func(*Options)) (*Log, Options) {
	t.Helper()
	o := testOptions(fs, append([]func(*Options){withSegment(8 << 10)}, change...)...)
	l := mustOpen(t, o)
	for range n {
		commitOne(t, l, 1, 900)
	}
	return l, o
}

// starts are the first offsets of the log's segments.
func starts(l *Log) (at []uint64) {
	for _, s := range l.view.Load().segs {
		at = append(at, s.base)
	}
	return at
}

// trim looks once and deletes what is due.
func trim(t testing.TB, l *Log, now uint64) {
	t.Helper()
	l.Retain(now, l.Committed())
	for _, out := range pump(l) {
		if out.Err != nil {
			t.Fatal(out.Err)
		}
	}
}

// segmentFiles are the ids of the segments on the disk.
func segmentFiles(t testing.TB, fs ring.FS) (names []string) {
	t.Helper()
	all, err := fs.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, ".seg") {
			names = append(names, name)
		}
	}
	return names
}

// The oldest sealed segments go until the log is not above its bound of bytes, and their indexes
// with them; a restart finds the same log.
func TestRetentionByBytes(t *testing.T) { // LOG-15
	fs := crashfs.New()
	l, o := makeSegments(t, fs, 60)
	at := starts(l)
	if len(at) < 6 {
		t.Fatalf("%d segments", len(at))
	}
	trim(t, l, math.MaxUint64)
	checkRecords(t, l, 0, 60) // no bound
	held := l.Stats().Held
	l.SetRetention(Retention{Bytes: held})
	trim(t, l, math.MaxUint64)
	checkRecords(t, l, 0, 60) // at the bound
	l.SetRetention(Retention{Bytes: held - 1})
	trim(t, l, math.MaxUint64)
	checkRecords(t, l, at[1], 60)
	l.SetRetention(Retention{Bytes: 20 << 10})
	trim(t, l, math.MaxUint64)
	base := l.Base()
	if s := l.Stats(); s.Held > 20<<10 || s.Held < 12<<10 || s.TrimmedBytes != uint64(held-s.Held) || s.Base != base {
		t.Errorf("held %d bytes of a bound of %d, %d deleted, base %d", s.Held, 20<<10, s.TrimmedBytes, s.Base)
	}
	if n := l.Stats().Segments; len(segmentFiles(t, fs)) > n+1 { // one may be prepared
		t.Errorf("%d segments are read, files: %v", n, segmentFiles(t, fs))
	}
	checkRecords(t, l, base, 60)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	before := snapshotDir(t, fs, testDir)
	for name := range before {
		if strings.HasSuffix(name, ".idx") && before[strings.TrimSuffix(name, ".idx")+".seg"] == nil {
			t.Errorf("%s was left without its segment", name)
		}
	}
	l = mustOpen(t, o)
	checkRecords(t, l, base, 60)
	commitOne(t, l, 1, 900)
	checkRecords(t, l, base, 61)
	l.letGo()
}

// Whatever the bounds: what is written to, what is not sealed yet, what is at or above the floor and
// what is not durable stays; and a log never loses its last segment, so that a restart goes on with
// the right offset.
func TestRetentionNeverTouchesWhatIsOpenOrAboveTheFloor(t *testing.T) { // LOG-16
	all := Retention{Bytes: 1, Age: time.Microsecond}
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		fs := crashfs.New()
		l, o := makeSegments(t, fs, 40, withMode(mode))
		l.SetRetention(all)
		at := starts(l)
		for i, floor := range []uint64{0, at[1] - 1, at[1], at[2] + 1, at[3]} {
			l.Retain(math.MaxUint64, floor)
			if want := []uint64{0, 0, at[1], at[2], at[3]}[i]; l.Base() != want {
				t.Errorf("%s, floor %d: base %d, want %d", mode, floor, l.Base(), want)
			}
		}
		trim(t, l, math.MaxUint64)
		last := at[len(at)-1]
		checkRecords(t, l, last, 40)
		// A retired segment that is not sealed.
		workUntil(t, l, jobSeal)
		l.jobOut = false // put off
		if op := l.NextOp(); op != nil {
			runHere(op)
			l.OpDone(op)
		}
		l.Retain(math.MaxUint64, math.MaxUint64)
		if l.Base() != last {
			t.Errorf("%s: base %d while the segment at %d is not sealed", mode, l.Base(), last)
		}
		pump(l)
		trim(t, l, math.MaxUint64)
		base, next := l.Base(), l.Committed()
		if base != starts(l)[0] || base == last || next <= base {
			t.Errorf("%s: base %d of %d after the seal", mode, base, next)
		}
		// After a kill in the middle of a write, the newest segment is sealed and there is no other.
		name := testDir + "/" + segmentName(l.view.Load().segs[0].id)
		torn := append(readFile(t, fs, name), make([]byte, 64)...)
		l.letGo()
		writeFile(t, fs, name, torn)
		l = mustOpen(t, o)
		l.SetRetention(all)
		trim(t, l, math.MaxUint64)
		checkRecords(t, l, base, next)
		l.letGo()
	}
}

// Age is that of a segment's newest record by its append time, against the clock of now.
func TestRetentionByAge(t *testing.T) {
	l, _ := makeSegments(t, crashfs.New(), 60)
	defer l.letGo()
	at := starts(l)
	l.SetRetention(Retention{Age: 50 * time.Microsecond})
	newest := 100 + at[1] - 1 // append time of the last record of the first segment
	trim(t, l, newest+49)
	checkRecords(t, l, 0, 60)
	trim(t, l, newest+50)
	checkRecords(t, l, at[1], 60)
	trim(t, l, newest-40) // the clock steps back: nothing comes back, nothing goes
	checkRecords(t, l, at[1], 60)
	trim(t, l, math.MaxUint64)
	checkRecords(t, l, at[len(at)-1], 60)
}

// A clock that was ahead for a moment leaves records from the future. They are kept for as long as
// the bound says, counted from when that was seen, and retention goes on; a clock that stands still
// or steps back meanwhile only makes it wait.
func TestClockThatJumpedForwardDoesNotBlockRetention(t *testing.T) {
	fs := crashfs.New()
	l, _ := makeSegments(t, fs, 20)
	defer l.letGo()
	const year = uint64(365 * 24 * time.Hour / time.Microsecond)
	hour := uint64(time.Hour / time.Microsecond)
	if _, err := l.Append(entryOf(recordsAt(20, 1, 900)), year); err != nil {
		t.Fatal(err)
	}
	pump(l)
	for range 40 {
		commitOne(t, l, 1, 900) // with the clock back in the present: none is older than the jump
	}
	at, next := starts(l), l.Next()
	var jumped int // the first segment that ends in the future
	for at[jumped+1] <= 20 {
		jumped++
	}
	l.SetRetention(Retention{Age: time.Hour})
	now := 10 * hour
	trim(t, l, now) // the old ones go, the others age from here
	checkRecords(t, l, at[jumped], next)
	trim(t, l, now) // a frozen clock
	trim(t, l, now+hour-1)
	checkRecords(t, l, at[jumped], next)
	now -= 5 * hour // steps back: counted anew
	trim(t, l, now)
	trim(t, l, now+hour-1)
	checkRecords(t, l, at[jumped], next)
	sealedLater := l.view.Load().segs[len(at)-1-jumped]
	trim(t, l, now+hour)
	checkRecords(t, l, at[len(at)-1], next) // all that were sealed
	// A segment that is sealed only now ages from now.
	for l.cur == nil || l.cur.seg == sealedLater {
		commitOne(t, l, 1, 900)
	}
	trim(t, l, now+hour)
	if l.Base() != at[len(at)-1] {
		t.Errorf("base %d: a segment went that was sealed a moment ago", l.Base())
	}
	trim(t, l, now+2*hour)
	if l.Base() == at[len(at)-1] {
		t.Error("it never goes")
	}
	// A clock that got there and steps back again counts anew.
	s := l.view.Load().segs[0]
	if s.aheadSince = 0; l.expired(s, now) || s.aheadSince != now || l.expired(s, year+10) || l.expired(s, now+hour) {
		t.Error("aged from before the clock got there")
	}
	if !l.expired(s, now+2*hour) {
		t.Error("not aged from when it was seen again")
	}
	s.aheadSince = 0
	// Once its time has come it is aged by that.
	base := l.Base()
	for l.Stats().Segments < 2 {
		commitOne(t, l, 1, 900)
	}
	pump(l)
	trim(t, l, year-10)
	trim(t, l, year+hour-100)
	if l.Base() != base {
		t.Errorf("base %d, want %d: its newest record is from %d", l.Base(), base, year)
	}
	trim(t, l, year+2*hour)
	if l.Base() == base {
		t.Error("it never goes")
	}
}

// Power is cut at every operation while retention deletes, the log grows and is closed: what a
// restart finds begins at a segment, at or below the base that readers were shown, has everything
// that was acknowledged, and no gap.
func TestPowerCutInARetentionSweepLeavesNoGap(t *testing.T) { // LOG-13, LOG-3
	for _, s := range setups[:3] {
		fs, mode := crashfs.New(), s.mode
		o := testOptions(fs, withMode(mode), withDirect(s.direct), withSegment(16<<10))
		var l *Log
		var acked uint64
		segments := map[uint64]bool{0: true}
		images, longer := 0, 0
		fs.OnOp(func(n int, op, path string) {
			if l == nil {
				return
			}
			for _, seed := range []uint64{crashfs.SeedLoseAll, 2, 3, 4, crashfs.SeedKeepAll} {
				images++
				what := fmt.Sprintf("%s, cut before operation %d (%s %s), seed %d", mode, n, op, path, seed)
				after := o
				after.FS = fs.Crash(seed)
				promised := l.durable
				if mode == FsyncOnCommit {
					promised = acked
				}
				l2, err := Open(after)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				base := l2.Base()
				if base > l.Base() || !segments[base] || l2.Committed() < promised {
					t.Fatalf("%s: log of [%d, %d), readers saw base %d, promised %d", what, base, l2.Committed(), l.Base(), promised)
				}
				if base < l.Base() {
					longer++
				}
				checkRecords(t, l2, base, l2.Committed())
				commitOne(t, l2, 1, 20)
				l2.letGo()
			}
		})
		grown := mustOpen(t, o)
		for range 100 {
			acked = commitOne(t, grown, 1, 900) + 1
		}
		for _, s := range starts(grown) {
			segments[s] = true
		}
		// First a sweep over many segments, with no other sync of the directory between them; then one
		// by one.
		l = grown
		l.SetRetention(Retention{Bytes: 24 << 10})
		if trim(t, l, 0); l.Stats().Trimmed < 4 {
			t.Fatalf("%s: %d segments deleted in a sweep", s.name, l.Stats().Trimmed)
		}
		for range 60 {
			appendOne(t, l, 1, 900)
			for _, s := range starts(l) {
				segments[s] = true
			}
			for _, out := range pump(l) {
				acked = out.Committed
			}
			for _, s := range starts(l) {
				segments[s] = true
			}
			if acked%7 == 0 {
				trim(t, l, 0)
			}
		}
		if st := l.Stats(); st.Trimmed < 2 || st.Recycled < 2 || longer == 0 {
			t.Errorf("%s: %d segments deleted, %d used again, %d of %d images were longer", s.name, st.Trimmed, st.Recycled, longer, images)
		}
		t.Logf("%s: %d images, %d longer than what readers saw", mode, images, longer)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that cannot be deleted is tried again at the next look and not before, and none behind it
// is touched meanwhile; readers do not see it any more. A full disk does not matter.
func TestFailedDeletionIsTriedAgain(t *testing.T) { // HZ-10, LOG-13
	fs := ringtest.NewFS(crashfs.New())
	l, o := makeSegments(t, fs, 60, func(o *Options) { o.NoPreWrite = true })
	at := starts(l)
	l.SetRetention(Retention{Bytes: 20 << 10})
	fs.Add(ringtest.Rule{Kind: ringtest.Remove, Path: segmentName(1), Err: syscall.EIO})
	fs.Add(ringtest.Rule{Kind: ringtest.Remove, Path: indexName(2), Err: syscall.EACCES})
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Err: syscall.ENOSPC, Times: -1})
	files := func() int { return len(segmentFiles(t, fs)) }
	before := files()
	trim(t, l, 0)
	base := l.Base()
	if base < at[4] {
		t.Fatalf("base %d", base)
	}
	if got := before - files(); got != 1 || l.Stats().TrimErrors != 1 {
		t.Errorf("%d files deleted, %d errors; want one and one", got, l.Stats().TrimErrors)
	}
	if j := l.TakeJob(); j != nil {
		t.Errorf("job of kind %d before the next look", j.kind)
	}
	trim(t, l, 0)
	if got := before - files(); got != 3 || l.Stats().TrimErrors != 2 { // the index of the third failed
		t.Errorf("%d files deleted, %d errors; want three and two", got, l.Stats().TrimErrors)
	}
	trim(t, l, 0)
	fs.Clear()
	checkRecords(t, l, base, 60)
	if s := l.Stats(); int(s.Trimmed) != len(at)-s.Segments {
		t.Errorf("%d segments deleted, %d of %d left", s.Trimmed, s.Segments, len(at))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	checkRecords(t, l, base, 60)
	l.letGo()
}

// A sync of the directory that fails poisons, as every sync does.
func TestFailedDirectorySyncInASweepPoisons(t *testing.T) { // LOG-10, LOG-13, HZ-2
	for _, rule := range []ringtest.Rule{
		{Kind: ringtest.SyncDir, Err: syscall.EIO},
		{Kind: ringtest.Remove, Err: syscall.EROFS}, // HZ-11
	} {
		fs := ringtest.NewFS(crashfs.New())
		l, _ := makeSegments(t, fs, 60)
		l.SetRetention(Retention{Bytes: 20 << 10})
		fs.Add(rule)
		l.Retain(0, l.Committed())
		pump(l)
		if err := l.Err(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("%v: %v", rule.Kind, err)
		}
		if _, err := l.Append(entryOf(recordsAt(60, 1, 10)), 0); !errors.Is(err, ErrPoisoned) {
			t.Errorf("%v: append: %v", rule.Kind, err)
		}
		l.Retain(0, l.Committed())
		if j := l.TakeJob(); j != nil {
			t.Error("a poisoned log goes on deleting")
		}
		checkRecords(t, l, l.Base(), 60) // on_commit: all of it is durable
		l.letGo()
	}
}

// Deleting comes after everything that somebody waits for.
func TestDeletionWaitsForOtherFileWork(t *testing.T) { // LOG-17
	l, _ := makeSegments(t, crashfs.New(), 60)
	defer l.letGo()
	l.SetRetention(Retention{Bytes: 20 << 10})
	l.Retain(0, l.Committed())
	var kinds []jobKind
	for len(l.retired) == 0 {
		if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 900)), 0); err != nil {
			t.Fatal(err)
		}
		if op := l.NextOp(); op != nil {
			runHere(op)
			l.OpDone(op)
		}
	}
	for j := l.TakeJob(); j != nil; j = l.TakeJob() {
		kinds = append(kinds, j.kind)
		j.Run()
		l.JobDone(j)
	}
	for i, k := range kinds {
		if k == jobTrim && i+1 < len(kinds) && kinds[i+1] != jobTrim {
			t.Fatalf("jobs ran in the order %v", kinds)
		}
	}
	if kinds[0] == jobTrim || kinds[len(kinds)-1] != jobTrim {
		t.Errorf("jobs ran in the order %v", kinds)
	}
}
