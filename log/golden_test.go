package log

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
)

// readGolden reads hex bytes; what follows a # on a line is for people.
func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for f := range strings.FieldsSeq(line) {
			digits.WriteString(f)
		}
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

func mustEqual(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d is %02x, want %02x (lengths %d and %d)\n%s", what, i, got[i], want[i], len(got), len(want), hex.Dump(got[:min(len(got), 256)]))
		}
	}
	t.Fatalf("%s: %d bytes, want %d\n%s", what, len(got), len(want), hex.Dump(got))
}

// The bytes on the disk are those of docs/formats/log.md, written out by hand in testdata.
func TestGoldenBytes(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, func(o *Options) {
		o.CatalogueID, o.Shard, o.Epoch = 0x0102030405060708, 9, 2
		o.NowMicros = func() uint64 { return 0x0005F5E100000001 }
		o.nonce = func() uint64 { return 0xA1A2A3A4A5A6A7A8 }
	})
	l := mustOpen(t, o)
	e := entryOf([][]byte{[]byte("hi"), []byte("golden")})
	e.HasProducer, e.ProducerID, e.Sequence, e.Digest = true, 0x1111111122222222, 3, 0x4444444455555555
	e.Publisher = "ann"
	for _, e := range []*Entry{e, entryOf([][]byte{nil})} {
		if _, err := l.Append(e, 0x0005F5E100000002); err != nil {
			t.Fatal(err)
		}
	}
	pump(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seg := readFile(t, fs, testDir+"/"+segmentName(0))
	header := readGolden(t, "segment-header.hex")
	mustEqual(t, "segment header", seg[:blockBytes], append(header, make([]byte, blockBytes-len(header))...))
	mustEqual(t, "entries", seg[blockBytes:], append(readGolden(t, "entry-full.hex"), readGolden(t, "entry-plain.hex")...))
	mustEqual(t, "index", readFile(t, fs, testDir+"/"+indexName(0)), readGolden(t, "index.hex"))
	mustEqual(t, "mark", readFile(t, fs, testDir+"/"+markName), readGolden(t, "mark.hex"))
}

// The entry of an atomic commit is that of docs/formats/log.md, too.
func TestGoldenCommitBytes(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, func(o *Options) {
		o.Epoch, o.nonce = 2, func() uint64 { return 0xA1A2A3A4A5A6A7A8 }
	}))
	for _, e := range []*Entry{entryOf([][]byte{nil, nil, nil}), commitEntry(t, goldenEvent, goldenChanges)} {
		if _, err := l.Append(e, 0x0005F5E100000002); err != nil {
			t.Fatal(err)
		}
	}
	pump(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seg := readFile(t, fs, testDir+"/"+segmentName(0))
	const before = 128 // bytes of the entry in front
	mustEqual(t, "commit", seg[blockBytes+before:], readGolden(t, "entry-commit.hex"))
}
