package log

import (
	"errors"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
)

// A bad mark is no mark; one that speaks of a segment that is gone is damage.
func TestMarkIsDerivedButBinding(t *testing.T) {
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	torn := m.segment()[:m.ends[4]+10]
	for name, mark := range map[string][]byte{
		"empty": {}, "short": make([]byte, 31), "zeros": make([]byte, 32),
		"long": append(appendMark(nil, Mark{0, int64(m.ends[5])}), 0),
	} {
		files := m.with(torn, 0)
		files[markName] = mark
		m.check(t, FsyncOnCommit, name, files, verdict{entries: 4})
	}
	files := m.with(m.segment(), 0)
	files[markName] = appendMark(nil, Mark{Segment: 1, Bytes: 5000})
	fs := restoreDir(t, files)
	var c *CorruptError
	if _, err := Open(testOptions(fs)); !errors.As(err, &c) || c.Segment != 1 {
		t.Errorf("mark of a missing segment: %v", err)
	}
}

// The mark never leads: after every single operation of a script, what it says is on the disk.
func TestMarkNeverLeads(t *testing.T) {
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		fs := crashfs.New()
		seen := 0
		fs.OnOp(func(n int, op, path string) {
			after := fs.Crash(crashfs.SeedLoseAll)
			kept := fs.Crash(crashfs.SeedKeepAll) // the mark as the process sees it
			f, err := kept.Open(testDir+"/"+markName, 0, 0)
			if err != nil {
				return
			}
			b := make([]byte, 40)
			k, _ := readFull(f, b, 0)
			mark, ok := decodeMark(b[:k])
			if !ok {
				return
			}
			seen++
			size := -1
			if g, err := after.Open(testDir+"/"+segmentName(mark.Segment), 0, 0); err == nil {
				n, _ := g.Size()
				size = int(n)
			}
			if int64(size) < mark.Bytes {
				t.Fatalf("%s: before operation %d (%s %s) the mark says segment %d, %d bytes; %d are on the disk", mode, n, op, path, mark.Segment, mark.Bytes, size)
			}
		})
		o := testOptions(fs, withMode(mode), withSegment(16<<10))
		l := mustOpen(t, o)
		for i := range 60 {
			commitOne(t, l, 2, 700)
			if op := l.Tick(); op != nil && i%3 == 0 {
				runHere(op)
				l.OpDone(op)
				pump(l)
			} else if op != nil {
				op.Err = nil
				runHere(op)
				l.OpDone(op)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if seen == 0 {
			t.Errorf("%s: no mark was ever written", mode)
		}
		want := Mark{Segment: l.newest.Segment, Bytes: l.newest.Bytes}
		if got, ok := decodeMark(readFile(t, fs, testDir+"/"+markName)); !ok || got != want {
			t.Errorf("%s: mark after Close %+v, want %+v", mode, got, want)
		}
	}
}
