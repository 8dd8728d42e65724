package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// sealedImage is a log of many segments as a kill leaves it, mark and checkpoint included, and the
// offset after its last record.
func sealedImage(t testing.TB, mode FsyncMode) (files map[string][]byte, o Options, next uint64) {
	t.Helper()
	fs := crashfs.New()
	o = testOptions(fs, withMode(mode), withSegment(32<<10))
	l := mustOpen(t, o)
	for i := range 300 {
		commitOne(t, l, 1+i%3, 150+i*7%500)
		if op := l.Tick(); op != nil {
			runHere(op)
			l.OpDone(op)
		}
		pump(l)
	}
	next = l.Next()
	files = snapshotDir(t, fs, testDir)
	l.letGo()
	if len(files) < 12 || files[checkpointName] == nil {
		t.Fatalf("%d files", len(files))
	}
	return files, o, next
}

// Sealed segments are opened by header, index and end: little of them is read, however large they
// are, and every one is known as exactly as if all of it had been.
func TestSealedSegmentsAreOpenedByTheirEnds(t *testing.T) { // HZ-18
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		files, o, next := sealedImage(t, mode)
		fs := ringtest.NewFS(restoreDir(t, files))
		o.FS = fs
		plan, err := MakePlan(o)
		if err != nil {
			t.Fatal(err)
		}
		var read, newest int64
		for _, c := range fs.Calls() {
			if c.Kind == ringtest.Read {
				read += int64(c.N)
			}
		}
		o.VerifyAll = true
		all, err := MakePlan(o)
		if err != nil {
			t.Fatal(err)
		}
		whole, ends := int64(0), 0
		for i := range plan.Segments {
			got, want := plan.Segments[i], all.Segments[i]
			whole += got.Bytes - blockBytes
			// Without syncs nothing proves the last but one to be whole.
			if i < len(plan.Segments)-2 || i < len(plan.Segments)-1 && mode != FsyncNone {
				ends++
				if got.Walked || got.Entries != 0 {
					t.Errorf("%s: entries of segment %d were counted: %+v", mode, got.ID, got)
				}
				want.Entries, want.Walked = 0, false
			}
			newest = got.FileBytes
			got.index, want.index = nil, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: segment %d by its end\n%+v, in full\n%+v", mode, got.ID, got, want)
			}
		}
		if plan.Report.Segments-plan.Report.Walked != ends || all.Report.Segments != all.Report.Walked || ends < 5 {
			t.Errorf("%s: %d of %d sealed segments opened by their ends, %d with VerifyAll", mode, plan.Report.Segments-plan.Report.Walked, ends, all.Report.Segments-all.Report.Walked)
		}
		if plan.Base != all.Base || plan.Next != all.Next || plan.epoch != all.epoch || plan.micros != all.micros ||
			plan.Report.Records != next || all.Report.Records != next || !reflect.DeepEqual(plan.Steps, all.Steps) {
			t.Errorf("%s: by the ends\n%+v\nin full\n%+v", mode, plan, all)
		}
		if all.Report.Scanned < whole {
			t.Errorf("%s: VerifyAll read %d of %d bytes", mode, all.Report.Scanned, whole)
		}
		if limit := 3*newest + int64(len(plan.Segments))*(walkWindowBytes+2*blockBytes); read == 0 || read > limit {
			t.Errorf("%s: %d bytes read, at most %d expected", mode, read, limit)
		}
	}
}

// An index that is missing, short, torn, longer or wrong where it is looked at is written anew, byte
// for byte, below a checkpoint as elsewhere.
func TestIndexBelowACheckpointIsRebuilt(t *testing.T) { // LOG-14
	files, o, next := sealedImage(t, FsyncOnCommit)
	entry := func(base uint64, pos int64) []byte { return appendIndexEntry(nil, indexEntry{base, pos}) }
	for name, change := range map[string]func(b []byte) []byte{
		"missing":         nil,
		"empty":           func(b []byte) []byte { return nil },
		"header only":     func(b []byte) []byte { return b[:indexHeaderBytes] },
		"first only":      func(b []byte) []byte { return b[:indexHeaderBytes+indexEntryBytes] },
		"one short":       func(b []byte) []byte { return b[:len(b)-indexEntryBytes] },
		"torn":            func(b []byte) []byte { return b[:len(b)-1] },
		"zero entry":      func(b []byte) []byte { return append(b, make([]byte, 16)...) },
		"entry twice":     func(b []byte) []byte { return append(b, b[len(b)-16:]...) },
		"end as an entry": func(b []byte) []byte { return append(b, entry(1<<40, 1<<40)...) },
		"magic":           func(b []byte) []byte { b[0] ^= 1; return b },
		"base":            func(b []byte) []byte { b[15] ^= 1; return b },
		"first entry":     func(b []byte) []byte { b[indexHeaderBytes+15] ^= 64; return b },
		"last position":   func(b []byte) []byte { b[len(b)-1] ^= 64; return b },
		"last offset":     func(b []byte) []byte { b[len(b)-9] ^= 1; return b },
		"last unaligned":  func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"last negative":   func(b []byte) []byte { b[len(b)-8] ^= 0x80; return b },
		"another one's":   func(b []byte) []byte { return files[indexName(1)] },
	} {
		damaged := maps.Clone(files)
		sealed, rebuilt := 0, 0
		for id := range uint64(100) {
			b := files[indexName(id)]
			if b == nil {
				continue
			}
			sealed++
			if delete(damaged, indexName(id)); change != nil {
				damaged[indexName(id)] = change(bytes.Clone(b))
			}
			if !bytes.Equal(damaged[indexName(id)], b) {
				rebuilt++
			}
		}
		fs := restoreDir(t, damaged)
		o.FS = fs
		l, err := Open(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		after := snapshotDir(t, fs, testDir)
		for id := range uint64(sealed) {
			mustEqual(t, name+": "+indexName(id), after[indexName(id)], files[indexName(id)])
		}
		if r := l.Recovery(); r.RebuiltIndexes < rebuilt || r.Segments-r.Walked < sealed-rebuilt {
			t.Errorf("%s: %d of %d indexes rebuilt, want %d; %d segments by their ends", name, r.RebuiltIndexes, sealed, rebuilt, r.Segments-r.Walked)
		}
		checkRecords(t, l, 0, next)
		l.letGo()
	}
}

// What the index says between its ends is only a hint, and is not read at open: one that lies there
// misleads nobody, and VerifyAll finds it.
func TestLyingIndexBelowACheckpointMisleadsNobody(t *testing.T) { // LOG-14
	files, o, next := sealedImage(t, FsyncOnCommit)
	good := maps.Clone(files)
	b := bytes.Clone(files[indexName(1)])
	copy(b[indexHeaderBytes+16:], files[indexName(1)][indexHeaderBytes+48:indexHeaderBytes+64])
	copy(b[indexHeaderBytes+48:], files[indexName(1)][indexHeaderBytes+16:indexHeaderBytes+32]) // two change places
	files[indexName(1)] = b
	fs := restoreDir(t, files)
	o.FS = fs
	l := mustOpen(t, o)
	checkRecords(t, l, 0, next)
	for from := range next {
		p, err := l.Read(from, 500)
		if err != nil || p.Entries[0].Base != from {
			t.Fatalf("read from %d: %v", from, err)
		}
		at := p.Entries[0].TimeMicros
		p.Release()
		got, ok, err := l.OffsetForTime(at)
		if err != nil || !ok || got > from {
			t.Fatalf("offset for the time of %d: %d %v %v", from, got, ok, err)
		}
	}
	l.letGo()
	o.VerifyAll = true
	mustOpen(t, o).letGo()
	mustEqual(t, "the index after VerifyAll", readFile(t, fs, testDir+"/"+indexName(1)), good[indexName(1)])
}

// Damage in a sealed segment is never passed over in silence. What the end and the header can tell is
// told at open; what lies in between is told by VerifyAll at open, and to whoever reads it.
func TestDamageInASealedSegmentNamesItsPlace(t *testing.T) { // LOG-5, LOG-6
	files, o, next := sealedImage(t, FsyncOnCommit)
	seg := files[segmentName(2)]
	first := binary.BigEndian.Uint64(seg[16:])
	var starts []int
	for at := blockBytes; at < len(seg); at += int(be32(seg[at+8:])) {
		starts = append(starts, at)
	}
	last, middle := starts[len(starts)-1], starts[len(starts)/2]
	open := func(b []byte, verify bool) (*Log, *CorruptError, ring.FS) {
		t.Helper()
		damaged := maps.Clone(files)
		damaged[segmentName(2)] = b
		o := o
		fs := restoreDir(t, damaged)
		o.FS, o.VerifyAll = fs, verify
		l, err := Open(o)
		var c *CorruptError
		if err != nil && !errors.As(err, &c) {
			t.Fatal(err)
		}
		if c != nil && !reflect.DeepEqual(snapshotDir(t, fs, testDir), damaged) {
			t.Fatal("refused, but changed")
		}
		return l, c, fs
	}
	flip := func(at int) []byte {
		b := bytes.Clone(seg)
		b[at] ^= 4
		return b
	}
	for _, c := range []struct {
		what string
		b    []byte
		pos  int
	}{
		{"the last entry is cut off", seg[:last], last},
		{"the last entry is cut short", seg[:len(seg)-64], last},
		{"the header of the last entry", flip(last + 9), last},
		{"the header of the first entry", flip(blockBytes + 20), blockBytes},
		{"zeros for the last entry", append(bytes.Clone(seg[:last]), make([]byte, len(seg)-last)...), last},
		{"the segment's header", flip(17), 0},
	} {
		for _, verify := range []bool{false, true} {
			if _, err, _ := open(c.b, verify); err == nil || err.Segment != 2 || err.Pos != int64(c.pos) || err.Shard != o.Shard {
				t.Errorf("%s, verify all %v: %v, want byte %d of segment 2", c.what, verify, err, c.pos)
			}
		}
	}
	for _, c := range []struct {
		what string
		at   int
	}{{"a length", middle + 9}, {"a body", middle + 100}, {"a checksum", middle + 61}} {
		if _, err, _ := open(flip(c.at), true); err == nil || err.Segment != 2 || err.Pos != int64(middle) {
			t.Errorf("%s, verify all: %v, want byte %d of segment 2", c.what, err, middle)
		}
		l, err, _ := open(flip(c.at), false)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		got, rerr := readRecords(l, 0, 4000)
		var ce *CorruptError
		if !errors.As(rerr, &ce) || ce.Segment != 2 || ce.Pos != int64(middle) || uint64(len(got)) < first || uint64(len(got)) >= next {
			t.Errorf("%s: reading gives %d records and %v", c.what, len(got), rerr)
		}
		l.letGo()
	}
}

// Bytes behind the end of a sealed segment (power failed before it was cut) are cut off, as everywhere.
func TestBytesBehindASealedSegmentAreCut(t *testing.T) { // LOG-4
	files, o, next := sealedImage(t, FsyncOnCommit)
	good := maps.Clone(files)
	for id := range uint64(5) {
		files[segmentName(id)] = append(bytes.Clone(files[segmentName(id)]), bytes.Repeat([]byte{byte(id)}, int(64*id+id))...)
	}
	fs := restoreDir(t, files)
	o.FS = fs
	l := mustOpen(t, o)
	checkRecords(t, l, 0, next)
	for id := range uint64(5) {
		mustEqual(t, segmentName(id), readFile(t, fs, testDir+"/"+segmentName(id)), good[segmentName(id)])
	}
	if r := l.Recovery(); r.Segments-r.Walked < 5 {
		t.Errorf("%+v", r)
	}
	l.letGo()
}

// A segment whose header block was lost is damage with its place (it, or the end of the one before), wherever in the log it is; a file
// that was prepared, or is left of a failed attempt to prepare one, is not.
func TestBlankHeaderIsDamageWhereRecordsMayBeMissing(t *testing.T) { // LOG-5, LOG-7, HZ-6
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		for _, marked := range []bool{true, false} {
			for _, checked := range []bool{true, false} {
				files, o, _ := sealedImage(t, mode)
				if !marked {
					delete(files, markName)
				}
				if !checked {
					delete(files, checkpointName)
				}
				last := uint64(0)
				for id := uint64(0); files[segmentName(id)] != nil; id++ {
					if !allZero(files[segmentName(id)][:64]) {
						last = id
					}
				}
				blank := func(what string, id uint64, b []byte) {
					t.Helper()
					damaged := maps.Clone(files)
					damaged[segmentName(id)] = b
					fs := restoreDir(t, damaged)
					o := o
					o.FS = fs
					l, err := Open(o)
					var c *CorruptError
					if !errors.As(err, &c) || c.Segment != id && c.Segment != id-1 {
						t.Errorf("%s, mark %v, checkpoint %v: %s of segment %d: %v", mode, marked, checked, what, id, err)
					}
					if err == nil {
						l.letGo()
					} else if !reflect.DeepEqual(snapshotDir(t, fs, testDir), damaged) {
						t.Error("refused, but changed")
					}
				}
				for id := range last + 1 {
					b := bytes.Clone(files[segmentName(id)])
					clear(b[:blockBytes])
					blank("blank header", id, b)
					// In the other modes the end of what no mark covers may be lost, segment and all.
					if id < last-1 || id < last && (marked || mode == FsyncOnCommit) {
						blank("nothing but zeros", id, make([]byte, len(b)))
						blank("nothing", id, []byte{})
					}
				}
			}
		}
	}
}

// Blank files that hold nothing are removed: the newest, with zeros or what an older use left in it;
// one between two segments that meet; one before a segment that begins at offset 0.
func TestBlankFilesWithoutRecordsAreRemoved(t *testing.T) { // LOG-7, LOG-12
	files, o, next := sealedImage(t, FsyncOnCommit)
	old := bytes.Clone(files[segmentName(1)])
	clear(old[:blockBytes])
	renumber := func(from, to uint64, files map[string][]byte) {
		b := bytes.Clone(files[segmentName(from)])
		h, what := decodeSegmentHeader(b[:blockBytes])
		if what != "" {
			t.Fatal(what)
		}
		h.id = to
		copy(b, h.encode())
		delete(files, segmentName(from))
		files[segmentName(to)], files[indexName(to)] = b, files[indexName(from)]
		delete(files, indexName(from))
	}
	for what, b := range map[string][]byte{
		"nothing": nil, "short": make([]byte, 100), "a block": make([]byte, blockBytes),
		"written ahead": make([]byte, 32<<10), "used before": old,
	} {
		for _, where := range []string{"newest", "middle", "front"} {
			image := maps.Clone(files)
			id := uint64(99)
			switch where {
			case "middle": // its number is free: the segments above it moved up
				for from := uint64(30); from > 3; from-- {
					if s := image[segmentName(from)]; s != nil && !allZero(s[:64]) {
						renumber(from, from+1, image)
					}
				}
				delete(image, markName)
				id = 4
			case "front":
				if what == "used before" {
					continue // nothing was used before the first segment
				}
				for from := uint64(30); from+1 > 0; from-- {
					if s := image[segmentName(from)]; s != nil && !allZero(s[:64]) {
						renumber(from, from+1, image)
					}
				}
				delete(image, markName)
				id = 0
			}
			image[segmentName(id)] = b
			if b == nil {
				image[segmentName(id)] = []byte{}
			}
			fs := restoreDir(t, image)
			o.FS = fs
			l, err := Open(o)
			if err != nil {
				t.Errorf("%s, %s: %v", where, what, err)
				continue
			}
			checkRecords(t, l, 0, next)
			if _, err := fs.Stat(fmt.Sprintf("%s/%s", testDir, segmentName(id))); err == nil {
				t.Errorf("%s, %s: still there", where, what)
			}
			commitOne(t, l, 1, 10)
			l.letGo()
		}
	}
}

// An open tells what it reads, and ends with what it is told, in the middle of a segment as well, before
// anything was changed. The next one comes to the same end.
func TestOpenStopsAtAnyRead(t *testing.T) { // HZ-18, LOG-4
	files, o, next := sealedImage(t, FsyncOnCommit)
	delete(files, indexName(1))
	delete(files, indexName(3))
	files[segmentName(99)] = make([]byte, blockBytes)
	stop := errors.New("a signal came")
	calls, told := 0, int64(0)
	fs := restoreDir(t, files)
	o.FS = fs
	o.Interrupt = func(n int64) error {
		calls++
		told += n
		return nil
	}
	l := mustOpen(t, o)
	want := snapshotDir(t, fs, testDir)
	if read := l.Recovery().Scanned; told < read || read == 0 || calls < 20 {
		t.Errorf("%d of %d bytes told in %d calls", told, read, calls)
	}
	l.letGo()
	for at := range calls {
		fs = restoreDir(t, files)
		o.FS = fs
		n := 0
		o.Interrupt = func(int64) error {
			if n++; n > at {
				return stop
			}
			return nil
		}
		if _, err := Open(o); !errors.Is(err, stop) {
			t.Fatalf("ended at call %d: %v", at, err)
		}
		if !reflect.DeepEqual(snapshotDir(t, fs, testDir), files) {
			t.Fatalf("ended at call %d: something was changed", at)
		}
		o.Interrupt = nil
		l := mustOpen(t, o)
		checkRecords(t, l, 0, next)
		if after := snapshotDir(t, fs, testDir); !reflect.DeepEqual(after, want) {
			t.Fatalf("ended at call %d: the next open comes to another end", at)
		}
		l.letGo()
	}
}
