package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
)

// makePair writes two segments and stops while the first is not sealed. It returns the files, how
// many records the first holds, and where its last entry starts.
func makePair(t *testing.T, mode FsyncMode) (fs *crashfs.FS, l *Log, first uint64, last int64) {
	t.Helper()
	fs = crashfs.New()
	l = mustOpen(t, testOptions(fs, withMode(mode), withSegment(8<<10)))
	for l.Stats().Segments < 2 || l.Committed() < first+3 {
		if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 900)), 10); err != nil {
			t.Fatal(err)
		}
		if l.Stats().Segments == 1 && len(l.retired) == 0 {
			last, first = l.cur.pos-entrySize(0, 908), l.Next()
		}
		for j := l.TakeJob(); j != nil; j = l.TakeJob() {
			if j.kind == jobSeal || j.kind == jobMark {
				// Never ends: the process is killed first.
				l.jobOut = false
				break
			}
			j.Run()
			l.JobDone(j)
		}
		if op := l.NextOp(); op != nil {
			runHere(op)
			l.OpDone(op)
		}
	}
	return fs, l, first, last
}

// Under periodic and none a newer segment may reach the disk before the end of the one before. The
// log then ends in the older one; records are never missing in the middle.
func TestNewerSegmentMayOvertakeTheOlder(t *testing.T) { // LOG-3
	for _, mode := range []FsyncMode{FsyncPeriodic, FsyncNone} {
		fs, l, first, _ := makePair(t, mode)
		overtaken, met := 0, 0
		for seed := range uint64(300) {
			after := fs.Crash(seed)
			o := testOptions(after, withMode(mode), withSegment(8<<10))
			p, err := MakePlan(o)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", mode, seed, err)
			}
			l := mustOpen(t, o)
			checkRecords(t, l, 0, l.Committed())
			switch next := l.Committed(); {
			case next > first:
				met++
			case next < first && p.Report.Removed > 0:
				overtaken++
			}
			commitOne(t, l, 1, 10)
		}
		if overtaken == 0 || met == 0 {
			t.Errorf("%s: %d images where the newer one overtook, %d where they met", mode, overtaken, met)
		}
		l.letGo()
	}
}

// What proves that the older segment was synced before the newer one was written makes a missing
// end of it damage: an entry under on_commit, or the mark.
func TestProvenSegmentMustBeWhole(t *testing.T) { // HZ-6, HZ-8
	for _, c := range []struct {
		name   string
		mode   FsyncMode
		mark   *Mark
		damage bool
	}{
		{"on_commit", FsyncOnCommit, nil, true},
		{"periodic, mark in the newer", FsyncPeriodic, &Mark{Segment: 1, Bytes: blockBytes + 64}, true},
		{"periodic, mark below", FsyncPeriodic, &Mark{Segment: 0, Bytes: blockBytes + 64}, false},
		{"periodic, no mark", FsyncPeriodic, nil, false},
	} {
		fs, _, first, last := makePair(t, c.mode)
		files := snapshotDir(t, fs, testDir)
		delete(files, markName)
		if c.mark != nil {
			files[markName] = appendMark(nil, *c.mark)
		}
		for _, cut := range []bool{false, true} {
			seg := append([]byte(nil), files[segmentName(0)]...)
			if cut {
				seg = seg[:last]
			} else {
				seg[last+20] ^= 4
			}
			damaged := maps.Clone(files)
			damaged[segmentName(0)] = seg
			l, err := Open(testOptions(restoreDir(t, damaged), withMode(c.mode), withSegment(8<<10)))
			var bad *CorruptError
			switch {
			case c.damage && (!errors.As(err, &bad) || bad.Segment != 0 || bad.Pos != last):
				t.Errorf("%s, cut %v: %v, want damage at byte %d", c.name, cut, err, last)
			case !c.damage && err != nil:
				t.Errorf("%s, cut %v: %v", c.name, cut, err)
			case !c.damage:
				checkRecords(t, l, 0, first-1)
			}
		}
	}
}

// Two segments that hold the same offsets, or a mark beyond a segment that is followed by another,
// are nothing that a crash makes.
func TestSegmentsThatCannotBothBeRightAreRefused(t *testing.T) { // HZ-6
	fs, _, first, _ := makePair(t, FsyncPeriodic)
	files := snapshotDir(t, fs, testDir)
	delete(files, markName)
	open := func(files map[string][]byte) *CorruptError {
		var bad *CorruptError
		_, err := Open(testOptions(restoreDir(t, files), withMode(FsyncPeriodic), withSegment(8<<10)))
		if err != nil && !errors.As(err, &bad) {
			t.Fatal(err)
		}
		return bad
	}
	if bad := open(files); bad != nil {
		t.Fatalf("as written: %v", bad)
	}
	marked := maps.Clone(files)
	marked[markName] = appendMark(nil, Mark{Segment: 0, Bytes: int64(len(files[segmentName(0)])) + 64})
	if bad := open(marked); bad == nil || bad.Segment != 0 || bad.Pos != int64(len(files[segmentName(0)])) {
		t.Errorf("mark beyond the segment: %v", bad)
	}
	// The newer one begins one record too early.
	seg := append([]byte(nil), files[segmentName(1)]...)
	binary.BigEndian.PutUint64(seg[16:], first-1)
	binary.BigEndian.PutUint32(seg[60:], crc32.Checksum(seg[:60], castagnoli))
	var h entryHeader
	for at := blockBytes; at < len(seg); at += int(h.length) {
		if allZero(seg[at:]) {
			break
		}
		if !decodeEntryHeader(seg[at:], &h) {
			t.Fatal("no header")
		}
		h.base--
		putHeader(seg, at, &h)
	}
	overlap := maps.Clone(files)
	overlap[segmentName(1)] = seg
	if bad := open(overlap); bad == nil || bad.Segment != 0 {
		t.Errorf("overlapping segments: %v", bad)
	}
}
