package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "/data/logs/streams/1/0"

var testPool = wire.NewPool(64 << 20)

// testOptions are small segments and a repeatable nonce.
func testOptions(fs ring.FS, change ...func(*Options)) Options {
	nonces := rand.New(rand.NewPCG(7, 7))
	o := Options{
		FS: fs, Dir: testDir, CatalogueID: 0xC0FFEE, Shard: 3, SegmentBytes: 64 << 10, IndexSpacing: 1024,
		Pool: testPool, NowMicros: func() uint64 { return 1_000_000 },
		nonce: func() uint64 { return nonces.Uint64() | 1 },
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

func withMode(m FsyncMode) func(*Options)  { return func(o *Options) { o.Mode = m } }
func withSegment(n int64) func(*Options)   { return func(o *Options) { o.SegmentBytes = n } }
func withDirect(on bool) func(*Options)    { return func(o *Options) { o.Direct = on } }
func withGroup(entries int) func(*Options) { return func(o *Options) { o.GroupEntriesMax = entries } }

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l
}

// pump does the owner's duties until nothing is left, running operations and jobs in place.
func pump(l *Log) []Outcome {
	var outs []Outcome
	l.Rest()
	for {
		if j := l.TakeJob(); j != nil {
			j.Run()
			outs = append(outs, l.JobDone(j))
		} else if op := l.NextOp(); op != nil {
			runHere(op)
			outs = append(outs, l.OpDone(op))
		} else {
			return outs
		}
	}
}

// workUntil appends entries of 900 bytes and does the owner's duties until a job of the kind is due, and
// returns that without running it.
func workUntil(t testing.TB, l *Log, kind jobKind) *Job {
	t.Helper()
	for range 3000 {
		for j := l.TakeJob(); j != nil; j = l.TakeJob() {
			if j.kind == kind {
				return j
			}
			j.Run()
			if out := l.JobDone(j); out.Err != nil {
				t.Fatal(out.Err)
			}
		}
		if op := l.NextOp(); op != nil {
			runHere(op)
			if out := l.OpDone(op); out.Err != nil {
				t.Fatal(out.Err)
			}
		} else {
			appendOne(t, l, 1, 900)
		}
	}
	t.Fatalf("no job of kind %d", kind)
	return nil
}

// records makes n records that say which offset they are for.
func recordsAt(first uint64, n, size int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = recordAt(first+uint64(i), size)
	}
	return out
}

// recordAt is size bytes (at least 8) that only offset can have.
func recordAt(offset uint64, size int) []byte {
	b := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(b, offset)
	for i := 8; i < len(b); i++ {
		b[i] = byte(offset*31 + uint64(i)*7)
	}
	return b
}

func entryOf(records [][]byte) *Entry {
	return &Entry{Kind: KindRecords, Count: uint32(len(records)), Section: wire.AppendSection(nil, records...)}
}

// appendOne stages one entry of n records, pumping where there is no room.
func appendOne(t testing.TB, l *Log, n, size int) uint64 {
	t.Helper()
	for range 100 {
		first, err := l.Append(entryOf(recordsAt(l.Next(), n, size)), 100+l.Next())
		if err == nil {
			return first
		}
		if !errors.Is(err, ErrGroupFull) {
			t.Fatalf("append: %v", err)
		}
		pump(l)
	}
	t.Fatal("append: no room after 100 pumps")
	return 0
}

// commitOne appends an entry and commits it.
func commitOne(t testing.TB, l *Log, n, size int) uint64 {
	t.Helper()
	first := appendOne(t, l, n, size)
	for _, out := range pump(l) {
		if out.Err != nil {
			t.Fatalf("outcome: %v", out.Err)
		}
	}
	if want := first + uint64(n); l.Committed() != want {
		t.Fatalf("committed %d, want %d", l.Committed(), want)
	}
	return first
}

// readRecords reads all records from an offset on and checks that the offsets are contiguous.
func readRecords(l *Log, from uint64, maxBytes int) ([][]byte, error) {
	var out [][]byte
	for at := from; ; {
		p, err := l.Read(at, maxBytes)
		if err != nil {
			return out, err
		}
		if p.Next == at {
			if len(p.Entries) != 0 {
				return out, fmt.Errorf("page at %d goes nowhere but has entries", at)
			}
			p.Release()
			return out, nil
		}
		if len(p.Entries) == 0 {
			return out, fmt.Errorf("page at %d moves to %d without entries", at, p.Next)
		}
		for _, e := range p.Entries {
			if e.Base != at {
				return out, fmt.Errorf("entry at %d, want %d", e.Base, at)
			}
			section := e.Buf.Bytes()[e.Pos-4 : e.Pos+len(e.Records)]
			if n, _, err := wire.CheckSection(section); err != nil || n != e.Count {
				return out, fmt.Errorf("section of entry %d: %d records, count %d: %v", e.Base, n, e.Count, err)
			}
			rest := e.Records
			for range e.Count {
				var rec []byte
				rec, rest, _ = wire.NextRecord(rest)
				out = append(out, bytes.Clone(rec))
			}
			at += uint64(e.Count)
		}
		if p.Next != at {
			return out, fmt.Errorf("page ends at %d, its entries at %d", p.Next, at)
		}
		p.Release()
	}
}

// checkRecords fails unless the log holds exactly the records that recordAt gives for [base, next).
func checkRecords(t testing.TB, l *Log, base, next uint64) {
	t.Helper()
	if l.Base() != base || l.Committed() != next {
		t.Fatalf("log holds [%d, %d), want [%d, %d)", l.Base(), l.Committed(), base, next)
	}
	got, err := readRecords(l, base, 1<<20)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if uint64(len(got)) != next-base {
		t.Fatalf("%d records, want %d", len(got), next-base)
	}
	for i, rec := range got {
		if want := recordAt(base+uint64(i), len(rec)); !bytes.Equal(rec, want) {
			t.Fatalf("record %d is not what was written", base+uint64(i))
		}
	}
}

// snapshotDir returns every file of the log's directory.
func snapshotDir(t testing.TB, fs ring.FS, dir string) map[string][]byte {
	t.Helper()
	names, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for _, name := range names {
		out[name] = readFile(t, fs, dir+"/"+name)
	}
	return out
}

func readFile(t testing.TB, fs ring.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := readFull(f, b, 0); err != nil || int64(n) != size {
		t.Fatalf("read %s: %d of %d bytes, %v", name, n, size, err)
	}
	return b
}

// writeFile replaces a file.
func writeFile(t testing.TB, fs ring.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFull(f, b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// restoreDir makes a file layer that holds these files.
func restoreDir(t testing.TB, files map[string][]byte) *crashfs.FS {
	t.Helper()
	fs := crashfs.New()
	if err := fs.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		writeFile(t, fs, testDir+"/"+name, b)
	}
	return fs
}
