package crashfs

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/ring"
)

func openDirect(t *testing.T, f *FS, name string, sync bool) ring.File {
	t.Helper()
	file, err := f.OpenDirect(name, sync)
	must(t, err)
	return file
}

func block(n int, fill byte) []byte {
	b := ring.AlignedBytes(n * ring.DirectAlign)
	copy(b, bytes.Repeat([]byte{fill}, len(b)))
	return b
}

// A direct write that returned is on disk with the length that it needs, after every seed, and it
// makes nothing else of the file durable: neither bytes before it, nor behind it, nor its name.
func TestSyncedDirectWriteSurvivesEverySeedAndNothingElseDoes(t *testing.T) {
	f := New()
	file := open(t, f, "a")
	must(t, f.SyncDir("."))
	write(t, file, 0, bytes.Repeat([]byte("b"), 4*ring.DirectAlign)) // in memory only
	d := openDirect(t, f, "a", true)
	write(t, d, ring.DirectAlign, block(1, 'd'))
	if got := read(t, f, "a"); got[ring.DirectAlign] != 'd' || got[0] != 'b' {
		t.Fatalf("a reader sees %q and %q", got[ring.DirectAlign], got[0])
	}
	others := 0
	for seed := range uint64(300) {
		got := read(t, f.Crash(seed), "a")
		if len(got) < 2*ring.DirectAlign || !bytes.Equal(got[ring.DirectAlign:2*ring.DirectAlign], block(1, 'd')) {
			t.Fatalf("seed %d: the direct write is gone (%d bytes)", seed, len(got))
		}
		if bytes.Count(got, []byte("b")) == 3*ring.DirectAlign {
			others++
		}
	}
	if others == 0 || others == 300 {
		t.Errorf("the other bytes survived %d of 300 cuts", others)
	}
	lost := read(t, f.Crash(SeedLoseAll), "a")
	if len(lost) != 2*ring.DirectAlign || bytes.IndexByte(lost, 'b') >= 0 {
		t.Errorf("%d bytes, and some were never synced", len(lost))
	}
	if kept := read(t, f.Crash(SeedKeepAll), "a"); bytes.Count(kept, []byte("b")) != 3*ring.DirectAlign {
		t.Error("what the disk had done is gone")
	}

	nameless := New()
	open(t, nameless, "n")
	write(t, openDirect(t, nameless, "n", true), 0, block(1, 'd'))
	if read(t, nameless.Crash(SeedLoseAll), "n") != nil {
		t.Error("a data sync made a name durable")
	}
}

// The cut hits a direct write: its sectors are each old or new, in every mixture, and the length is
// the old one, the new one or between. Nothing outside it moves.
func TestInterruptedDirectWriteIsTornAtSectors(t *testing.T) {
	const blocks, sectors = 2, 2 * ring.DirectAlign / sectorSize
	f := New()
	file := open(t, f, "a")
	write(t, file, 0, bytes.Repeat([]byte("o"), (blocks+1)*ring.DirectAlign))
	must(t, file.Sync())
	must(t, f.SyncDir("."))
	d := openDirect(t, f, "a", true)
	f.CutAt(f.Ops() + 1)
	if n, err := d.WriteAt(block(blocks, 'n'), 0); n != 0 || !errors.Is(err, ErrPowerCut) {
		t.Fatalf("%d, %v", n, err)
	}
	var olds, news, first, last int
	for seed := range uint64(300) {
		got := read(t, f.Crash(seed), "a")
		if len(got) != (blocks+1)*ring.DirectAlign || bytes.Count(got[blocks*ring.DirectAlign:], []byte("o")) != ring.DirectAlign {
			t.Fatalf("seed %d: the write touched what it did not cover", seed)
		}
		n := 0
		for s := range sectors {
			sector := got[s*sectorSize : (s+1)*sectorSize]
			switch {
			case bytes.Count(sector, []byte("n")) == sectorSize:
				n++
			case bytes.Count(sector, []byte("o")) != sectorSize:
				t.Fatalf("seed %d: sector %d is torn", seed, s)
			}
		}
		switch {
		case n == 0:
			olds++
		case n == sectors:
			news++
		case got[0] == 'n':
			first++
		default:
			last++ // a later sector without an earlier one
		}
	}
	if olds == 0 || news == 0 || first == 0 || last == 0 {
		t.Errorf("all old %d, all new %d, from the front %d, not from the front %d", olds, news, first, last)
	}
}

// Without sync a direct write is no more durable than any other, until the file is synced.
func TestUnsyncedDirectWriteNeedsASync(t *testing.T) {
	f := New()
	file := open(t, f, "a")
	must(t, f.SyncDir("."))
	write(t, openDirect(t, f, "a", false), 0, block(1, 'd'))
	if got := read(t, f.Crash(SeedLoseAll), "a"); len(got) != 0 {
		t.Errorf("%d bytes survived", len(got))
	}
	must(t, file.Sync())
	if got := read(t, f.Crash(SeedLoseAll), "a"); !bytes.Equal(got, block(1, 'd')) {
		t.Errorf("%d bytes after the sync", len(got))
	}
}

func TestDirectFilesRefuseWhatADiskRefuses(t *testing.T) {
	f := New()
	if _, err := f.OpenDirect("a", true); !errors.Is(err, ring.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	open(t, f, "a")
	d := openDirect(t, f, "a", true)
	two := block(2, 'x')
	for what, w := range map[string]struct {
		b   []byte
		off int64
	}{
		"offset": {two, sectorSize}, "length": {two[:ring.DirectAlign+1], 0}, "memory": {two[sectorSize : sectorSize+ring.DirectAlign], 0},
	} {
		if n, err := d.WriteAt(w.b, w.off); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	if _, err := d.ReadAt(two, 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("read through a file opened for writes: %v", err)
	}
	if got := read(t, f, "a"); len(got) != 0 {
		t.Errorf("%d bytes written", len(got))
	}
	must(t, d.Close())
	if _, err := d.WriteAt(two, 0); !errors.Is(err, ring.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// The ring's engines run direct writes on these files as one write each, also when it is gathered:
// a cut may leave a later slice without an earlier one.
func TestGatheredDirectWriteIsTornAsOne(t *testing.T) {
	e, err := ring.OpenPortable(ring.PortableOptions{Depth: 1})
	must(t, err)
	defer e.Close()
	f := New()
	open(t, f, "a")
	must(t, f.SyncDir("."))
	d := openDirect(t, f, "a", true)
	f.CutAt(f.Ops() + 1)
	done := make(ended, 1)
	op := &ring.Op{Kind: ring.OpWriteDirect, File: d, Vec: [][]byte{block(1, '1'), block(1, '2')}, Owner: done}
	e.Submit([]*ring.Op{op})
	if <-done; !errors.Is(op.Err, ErrPowerCut) || op.Written != 0 {
		t.Fatalf("%v, %d bytes", op.Err, op.Written)
	}
	for seed := range uint64(300) {
		got := read(t, f.Crash(seed), "a")
		if bytes.IndexByte(got, '1') < 0 && bytes.IndexByte(got, '2') >= 0 {
			return
		}
	}
	t.Error("no cut left the second slice without the first")
}

type ended chan *ring.Op

func (c ended) OpDone(op *ring.Op) { c <- op }
