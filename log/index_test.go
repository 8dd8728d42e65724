package log

import (
	"encoding/binary"
	"errors"
	"maps"
	"reflect"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
)

// An index that is missing, short, stale or wrong is rebuilt as it was written.
func TestIndexIsRebuiltByteIdentical(t *testing.T) { // LOG-14
	fs := crashfs.New()
	o := testOptions(fs, withSegment(32<<10))
	l := mustOpen(t, o)
	for i := range 150 {
		commitOne(t, l, 1+i%3, 150+i*7%500)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next := l.Next()
	files := snapshotDir(t, fs, testDir)
	for name, b := range files { // by the words of the format, not by its code
		id, ok := parseName(name, ".seg")
		if !ok {
			continue
		}
		want := appendIndexHeader(nil, binary.BigEndian.Uint64(b[16:]))
		last := -o.IndexSpacing
		for at := int64(blockBytes); at < int64(len(b)); at += int64(be32(b[at+8:])) {
			if at-last >= o.IndexSpacing {
				want = append(want, b[at+16:at+24]...)
				want = binary.BigEndian.AppendUint64(want, uint64(at))
				last = at
			}
		}
		mustEqual(t, "index of "+name, files[indexName(id)], want)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"missing":     nil,
		"empty":       func(b []byte) []byte { return nil },
		"torn":        func(b []byte) []byte { return b[:len(b)-5] },
		"stale":       func(b []byte) []byte { return b[:len(b)-32] },
		"longer":      func(b []byte) []byte { return append(b, make([]byte, 16)...) },
		"other magic": func(b []byte) []byte { b[0]++; return b },
		"wrong entry": func(b []byte) []byte { b[len(b)-1] ^= 0x40; return b },
	} {
		damaged := maps.Clone(files)
		count := 0
		for file, b := range files {
			if _, ok := parseName(file, ".idx"); !ok {
				continue
			}
			count++
			if delete(damaged, file); change != nil {
				damaged[file] = change(append([]byte(nil), b...))
			}
		}
		fs := restoreDir(t, damaged)
		l := mustOpen(t, testOptions(fs, withSegment(32<<10)))
		if r := l.Recovery(); r.RebuiltIndexes != count {
			t.Errorf("%s: %d of %d indexes rebuilt", name, r.RebuiltIndexes, count)
		}
		if after := snapshotDir(t, fs, testDir); !reflect.DeepEqual(after, files) {
			t.Errorf("%s: the directory is not what it was", name)
		}
		checkRecords(t, l, 0, next)
		l.letGo()
	}
}

// An index is never believed: with one that lies, reading still gives the right records.
func TestLyingIndexDoesNotMislead(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, withSegment(16<<10))
	l := mustOpen(t, o)
	for range 100 {
		commitOne(t, l, 1, 300)
	}
	next := l.Next()
	for _, s := range l.view.Load().segs[:3] { // behind the back of the running log
		b := readFile(t, fs, testDir+"/"+indexName(s.id))
		for i := indexHeaderBytes; i+16 <= len(b); i += 16 {
			binary.BigEndian.PutUint64(b[i+8:], 4096+uint64(i)*64)
		}
		writeFile(t, fs, testDir+"/"+indexName(s.id), b)
		l.files.unpin(s)
	}
	for from := range next {
		if got, err := readRecords(l, from, 500); err != nil || uint64(len(got)) != next-from {
			t.Fatalf("from %d: %d records, %v", from, len(got), err)
		}
	}
	for _, s := range l.view.Load().segs {
		if s.open == nil {
			fs.Remove(testDir + "/" + indexName(s.id))
		}
	}
	checkRecords(t, l, 0, next)
}

// Damage in a sealed segment's body is found when it is read, and told with its place.
func TestReadFindsDamage(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, withSegment(16<<10))
	l := mustOpen(t, o)
	for range 60 {
		commitOne(t, l, 1, 300)
	}
	name := testDir + "/" + segmentName(1)
	b := readFile(t, fs, name)
	b[blockBytes+3*448+200] ^= 1
	writeFile(t, fs, name, b)
	first := l.view.Load().segs[1].base
	got, err := readRecords(l, 0, 4000)
	var c *CorruptError
	if !errors.As(err, &c) || c.Segment != 1 || c.Pos%64 != 0 || c.Pos < blockBytes {
		t.Fatalf("%v", err)
	}
	if uint64(len(got)) < first || uint64(len(got)) > first+4 {
		t.Errorf("%d records before the damage, the segment begins at %d", len(got), first)
	}
	if errors.Is(err, ring.ErrIO) {
		t.Error("damage is not an input/output error")
	}
}
