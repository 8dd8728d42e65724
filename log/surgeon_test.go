package log

import (
	"bytes"
	"maps"
	"os"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
)

// The image surgeon (T12): a directory as a stopped broker leaves it, of several segments with entries
// of one size, and cuts into it whose place and cost are known without asking the code under test.

const (
	surgeonRecord = 500
	// surgeonEntry is its entry: header, section of one record, checksum, padding.
	surgeonEntry = 576
)

// patient is the directory of a log that was closed, or killed.
type patient struct {
	files map[string][]byte
	mode  FsyncMode
	next  uint64
}

// makePatient writes n entries of one record each, in groups of one.
func makePatient(t testing.TB, mode FsyncMode, n int, closed bool) patient {
	t.Helper()
	fs := crashfs.New()
	o := testOptions(fs, withMode(mode), withSegment(8<<10))
	l := mustOpen(t, o)
	for range n {
		commitOne(t, l, 1, surgeonRecord)
	}
	if !closed {
		defer l.letGo()
		return patient{snapshotDir(t, fs, testDir), mode, uint64(n)}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return patient{snapshotDir(t, fs, testDir), mode, uint64(n)}
}

func (p patient) options(fs *crashfs.FS) Options {
	return testOptions(fs, withMode(p.mode), withSegment(8<<10))
}

// entries is how many entries segment id has, by the size of its file.
func (p patient) entries(id uint64) uint64 {
	return uint64(len(p.files[segmentName(id)])-blockBytes) / surgeonEntry
}

// base is the offset that segment id begins with, by the sizes of those before it.
func (p patient) base(id uint64) (n uint64) {
	for i := range id {
		n += p.entries(i)
	}
	return n
}

// at is the byte at which entry i of a segment begins.
func at(i int) int64 { return blockBytes + int64(i)*surgeonEntry }

// cutInto returns the files after an operation on copies of them.
func (p patient) cutInto(operate func(files map[string][]byte)) map[string][]byte {
	files := maps.Clone(p.files)
	for name, b := range files {
		files[name] = bytes.Clone(b)
	}
	operate(files)
	return files
}

// operation is one kind of damage, and what is known about it without looking.
type operation struct {
	name    string
	operate func(files map[string][]byte)
	kind    DamageKind
	segment uint64
	pos     int64
	next    uint64 // the offset at which everything before the damage ends
	opens   bool   // the broker starts with it all the same
}

// operations are damages of a closed on_commit patient with at least six segments of seven entries.
func (p patient) operations() []operation {
	seg := func(f map[string][]byte, id uint64) []byte { return f[segmentName(id)] }
	b := p.base
	last := uint64(5)
	return []operation{
		{"bit in the body of a sealed segment", func(f map[string][]byte) { seg(f, 2)[at(3)+200] ^= 4 }, DamageEntries, 2, at(3), b(2) + 3, true},
		{"bit in a length", func(f map[string][]byte) { seg(f, 2)[at(3)+9] ^= 1 }, DamageEntries, 2, at(3), b(2) + 3, false},
		{"bit in the first header of a segment", func(f map[string][]byte) { seg(f, 1)[at(0)+20] ^= 1 }, DamageEntries, 1, at(0), b(1), false},
		{"zeros over two entries", func(f map[string][]byte) { clear(seg(f, 3)[at(1):at(3)]) }, DamageEntries, 3, at(1), b(3) + 1, false},
		{"an entry twice", func(f map[string][]byte) { copy(seg(f, 3)[at(2):at(3)], seg(f, 3)[at(1):at(2)]) }, DamageEntries, 3, at(2), b(3) + 2, false},
		{"a sealed segment cut short", func(f map[string][]byte) { f[segmentName(2)] = seg(f, 2)[:at(4)+100] }, DamageEntries, 2, at(4), b(2) + 4, false},
		{"a segment deleted", func(f map[string][]byte) { delete(f, segmentName(2)) }, DamageGap, 1, int64(len(p.files[segmentName(1)])), b(2), false},
		{"the newest segment deleted", func(f map[string][]byte) { delete(f, segmentName(last)) }, DamageMark, last, 0, b(last), false},
		{"bit in a segment header", func(f map[string][]byte) { seg(f, 4)[17] ^= 1 }, DamageHeader, 4, 0, b(4), false},
		{"a segment header of zeros", func(f map[string][]byte) { clear(seg(f, last)[:blockBytes]) }, DamageHeader, last, 0, b(last), false},
		{"the oldest segment's header of zeros", func(f map[string][]byte) { clear(seg(f, 0)[:blockBytes]) }, DamageHeader, 0, 0, 0, false},
		{"two segments swapped", func(f map[string][]byte) {
			f[segmentName(2)], f[segmentName(3)] = seg(f, 3), seg(f, 2)
		}, DamageHeader, 2, 8, b(2), false},
		{"bit in the last entry", func(f map[string][]byte) { seg(f, last)[at(2)+300] ^= 1 }, DamageEntries, last, at(2), b(last) + 2, false},
		{"the newest segment cut below the mark", func(f map[string][]byte) { f[segmentName(last)] = seg(f, last)[:at(1)] }, DamageEntries, last, at(1), b(last) + 1, false},
	}
}

// surgeonPatient is what operations are made for: five full segments and three entries in the sixth.
func surgeonPatient(t testing.TB) patient {
	t.Helper()
	p := makePatient(t, FsyncOnCommit, 5*7+3, true)
	for id := range uint64(6) {
		want := uint64(7)
		if id == 5 {
			want = 3
		}
		if p.entries(id) != want {
			t.Fatalf("segment %d has %d entries, the surgeon expects %d", id, p.entries(id), want)
		}
	}
	return p
}

// restoreSynced is restoreDir with everything on the disk, for power cuts.
func restoreSynced(t testing.TB, files map[string][]byte) *crashfs.FS {
	t.Helper()
	fs := restoreDir(t, files)
	for name := range files {
		f, err := fs.Open(testDir+"/"+name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := fs.SyncDir(testDir); err != nil {
		t.Fatal(err)
	}
	return fs
}
