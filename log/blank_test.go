package log

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// A lost header block is damage wherever it lies, also at the head of the log, where no neighbour misses
// what was behind it, and whether or not retention has deleted what was before. Zeroing the newest
// segment altogether is what a prepared file looks like, and damage as far as the mark can tell.
func TestBlankHeaderIsDamageWhereAHeaderWas(t *testing.T) { // LOG-5, LOG-7, HZ-6
	fs := crashfs.New()
	o, l, _ := segmentedLog(t, fs)
	segs, next := l.view.Load().segs, l.Next()
	files := snapshotDir(t, fs, testDir)
	l.letGo()
	for gone := range len(segs) {
		for at := gone; at < len(segs); at++ {
			for _, whole := range []bool{false, true} {
				what := fmt.Sprintf("%d segments deleted, header %d blank (whole file: %v)", gone, at, whole)
				image := maps.Clone(files)
				for _, s := range segs[:gone] {
					delete(image, segmentName(s.id))
					delete(image, indexName(s.id))
				}
				b := bytes.Clone(image[segmentName(segs[at].id)])
				if clear(b[:blockBytes]); whole {
					clear(b)
				}
				image[segmentName(segs[at].id)] = b
				bo := o
				bo.FS = restoreDir(t, image)
				_, err := Open(bo)
				var c *CorruptError
				if !errors.As(err, &c) {
					t.Fatalf("%s: opens (%v)", what, err)
				}
				// The hole is named, or for one that is found by the segment before it, that one's end, or the
				// mark that covers it.
				if c.Segment != segs[at].id && (at == gone || c.Segment != segs[at-1].id) {
					t.Errorf("%s: %v", what, err)
				}
				if after := snapshotDir(t, bo.FS, testDir); !reflect.DeepEqual(after, image) {
					t.Errorf("%s: refused, but changed", what)
				}
			}
		}
		// Behind all segments a blank file is a prepared one.
		image := maps.Clone(files)
		for _, s := range segs[:gone] {
			delete(image, segmentName(s.id))
		}
		image[segmentName(99)] = make([]byte, 3*blockBytes)
		bo := o
		bo.FS = restoreDir(t, image)
		k := mustOpen(t, bo)
		checkRecords(t, k, segs[gone].base, next)
		if _, ok := snapshotDir(t, bo.FS, testDir)[segmentName(99)]; ok {
			t.Error("the prepared file is still there")
		}
		k.letGo()
	}
}

// What could not be unlinked is taken for the next attempt, so that no blank file is left below a
// segment: with the segments before it deleted it could not be told from a loss.
func TestFailedUnlinkLeavesNoBlankBelowASegment(t *testing.T) { // LOG-12
	inner := crashfs.New()
	fs := ringtest.NewFS(inner)
	l := mustOpen(t, testOptions(fs, withSegment(16<<10)))
	commitOne(t, l, 1, 100)
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: segmentName(1), Err: syscall.ENOSPC, Times: 3})
	fs.Add(ringtest.Rule{Kind: ringtest.Remove, Path: segmentName(1), Err: syscall.EIO, Times: 3})
	for len(l.view.Load().segs) < 4 {
		appendOne(t, l, 1, 900)
		pump(l)
	}
	if l.Stats().OpenErrors == 0 {
		t.Fatal("nothing failed")
	}
	for i, s := range l.view.Load().segs {
		if s.id != uint64(i) {
			t.Errorf("segment %d has the number %d", i, s.id)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Files that wait to be used again and a checkpoint that was not finished go, for good.
func TestLeftoversAreRemoved(t *testing.T) { // LOG-4
	fs := crashfs.New()
	o, l, _ := segmentedLog(t, fs)
	next := l.Next()
	files := snapshotDir(t, fs, testDir)
	l.letGo()
	files[fmt.Sprintf("%020d.free", 3)] = bytes.Clone(files[segmentName(1)])
	files[fmt.Sprintf("%020d.free", 77)] = make([]byte, 8<<10)
	files[checkpointTemp] = []byte("half a check")
	files["something.else"] = []byte("not ours")
	o.FS = restoreDir(t, files).Crash(crashfs.SeedKeepAll)
	k := mustOpen(t, o)
	checkRecords(t, k, 0, next)
	if k.Recovery().Removed != 3 || k.nextID < 78 {
		t.Errorf("%+v, next number %d", k.Recovery(), k.nextID)
	}
	k.letGo()
	after := o.FS.(*crashfs.FS).Crash(crashfs.SeedLoseAll)
	if names, err := after.ReadDir(testDir); err != nil {
		t.Fatal(err)
	} else {
		for _, name := range names {
			if name == checkpointTemp || len(name) > 5 && name[len(name)-5:] == ".free" {
				t.Errorf("%s comes back with a power cut", name)
			}
		}
	}
}

// An open that is told to stop does so between two segments, with nothing changed.
func TestOpenStopsBetweenSegments(t *testing.T) { // HZ-18
	fs := crashfs.New()
	o, l, _ := segmentedLog(t, fs)
	next := l.Next()
	files := snapshotDir(t, fs, testDir)
	delete(files, checkpointName) // so that there is something to change
	l.letGo()
	stop := errors.New("told to stop")
	for after := range len(l.view.Load().segs) {
		so := o
		so.FS = restoreDir(t, files)
		asked := 0
		so.Interrupt = func(int64) error {
			if asked++; asked > after {
				return stop
			}
			return nil
		}
		if _, err := Open(so); !errors.Is(err, stop) || asked != after+1 {
			t.Fatalf("stopped before segment %d: %v, asked %d times", after, err, asked)
		}
		if !reflect.DeepEqual(files, snapshotDir(t, so.FS, testDir)) {
			t.Fatalf("stopped before segment %d: changed", after)
		}
	}
	so := o
	so.FS = restoreDir(t, files)
	checkRecords(t, mustOpen(t, so), 0, next)
}
