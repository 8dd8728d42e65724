package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/wire"
)

// What testdata/entry-commit.hex holds.
var (
	goldenEvent   = []byte("paid")
	goldenChanges = []Change{{ChangePut, "state", []byte("paid")}, {Op: ChangeDelete, Key: "cart"}, {ChangePut, "", []byte{}}}
)

func commitEntry(t testing.TB, event []byte, changes []Change) *Entry {
	t.Helper()
	record, err := AppendCommitRecord(nil, event, changes)
	if err != nil {
		t.Fatal(err)
	}
	if n := CommitRecordSize(event, changes); n != len(record) {
		t.Fatalf("%d bytes, foretold were %d", len(record), n)
	}
	e := entryOf([][]byte{record})
	e.Kind = KindCommit
	return e
}

// changesOf collects the changes of a decoded record.
func changesOf(r CommitRecord) (changes []Change) {
	for {
		op, key, value, ok := r.Next()
		if !ok {
			return changes
		}
		changes = append(changes, Change{Op: op, Key: string(key), Value: value})
	}
}

// A commit comes back from the log as it went in, between records, also after a restart.
func TestCommitRecordIsReadBack(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs))
	for _, e := range []*Entry{entryOf([][]byte{[]byte("a"), []byte("b")}), commitEntry(t, goldenEvent, goldenChanges), commitEntry(t, nil, nil), entryOf([][]byte{[]byte("c")})} {
		if _, err := l.Append(e, 1); err != nil {
			t.Fatal(err)
		}
	}
	pump(l)
	for range 2 {
		for _, from := range []uint64{0, 1, 2, 3} {
			page, err := l.Read(from, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for i := range page.Entries {
				e := &page.Entries[i]
				r, err := e.CommitRecord()
				if (e.Kind == KindCommit) != (err == nil) {
					t.Errorf("entry at %d of kind %d: %v", e.Base, e.Kind, err)
				}
				if e.Kind != KindCommit {
					continue
				}
				found++
				want := goldenChanges
				if e.Base == 3 {
					want = nil
				}
				if diff := cmp.Diff(want, changesOf(r)); diff != "" || e.Base == 2 && !bytes.Equal(r.Event, goldenEvent) || int(r.Count) != len(want) {
					t.Errorf("commit at %d: event %q, %s", e.Base, r.Event, diff)
				}
			}
			if want := min(2, 4-int(from)); found != want {
				t.Errorf("from %d: %d commits, want %d", from, found, want)
			}
			page.Release()
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, testOptions(fs))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// What the format cannot hold is refused before a byte of it is kept, and every cut or wrong length of a
// record is noticed.
func TestMalformedCommitRecordIsRefused(t *testing.T) {
	for what, c := range map[string]Change{"long key": {ChangePut, strings.Repeat("k", ChangeKeyMax+1), nil}, "unknown op": {Op: 3}, "no op": {}} {
		if b, err := AppendCommitRecord([]byte("x"), nil, []Change{c}); !errors.Is(err, ErrCommitRecord) || string(b) != "x" {
			t.Errorf("%s: %q, %v", what, b, err)
		}
	}
	record, err := AppendCommitRecord(nil, goldenEvent, goldenChanges)
	if err != nil {
		t.Fatal(err)
	}
	for n := range record {
		if _, err := DecodeCommitRecord(record[:n]); !errors.Is(err, ErrCommitRecord) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := DecodeCommitRecord(append(bytes.Clone(record), 0)); err == nil {
		t.Error("a byte too many was taken")
	}
	lying := bytes.Clone(record)
	binary.BigEndian.PutUint32(lying[4+len(goldenEvent):], 1<<31)
	if _, err := DecodeCommitRecord(lying); err == nil {
		t.Error("a count that the bytes do not hold was taken")
	}
}

// Any bytes: no panic, no memory for what they claim, and what decodes encodes to the same bytes.
func FuzzCommitRecord(f *testing.F) {
	for _, changes := range [][]Change{nil, goldenChanges, {{ChangePut, "k", bytes.Repeat([]byte("v"), 300)}}} {
		record, err := AppendCommitRecord(nil, goldenEvent, changes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(record)
	}
	f.Add(make([]byte, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := DecodeCommitRecord(b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<16 {
			t.Fatalf("decoding %d bytes allocated %d", len(b), n)
		}
		if err != nil {
			return
		}
		changes := changesOf(r)
		if len(changes) != int(r.Count) {
			t.Fatalf("%d changes, the record says %d", len(changes), r.Count)
		}
		if again, err := AppendCommitRecord(nil, r.Event, changes); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("encodes to other bytes, %v", err)
		}
		e := PageEntry{Count: 1, Kind: KindCommit, Records: wire.AppendRecord(nil, b)}
		if _, err := e.CommitRecord(); err != nil {
			t.Fatal(err)
		}
	})
}
