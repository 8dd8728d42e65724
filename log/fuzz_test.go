package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/wire"
)

func FuzzEntryHeader(f *testing.F) {
	f.Add(appendEntryHeader(nil, &entryHeader{version: 1, kind: KindRecords, length: 128, count: 1, section: 8}))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h entryHeader
		if !decodeEntryHeader(b, &h) {
			return
		}
		if again := appendEntryHeader(nil, &h); !bytes.Equal(again, b[:entryHeaderBytes]) {
			t.Fatalf("%+v encodes to other bytes", h)
		}
		if h.check() == "" && (int64(h.length) > entryBytesMax || int64(h.length)%unitBytes != 0 ||
			h.sectionPos()+int64(h.section)+entrySumBytes > int64(h.length) || h.option > optionMax) {
			t.Fatalf("%+v passes the check", h)
		}
	})
}

func FuzzMark(f *testing.F) {
	f.Add(appendMark(nil, Mark{Segment: 3, Bytes: 8192}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := decodeMark(b)
		if ok && (!bytes.Equal(appendMark(nil, m), b) || m.Bytes < 0) {
			t.Fatalf("%+v encodes to other bytes", m)
		}
	})
}

// An index file of any content: opened or not, it never leads a read to a wrong record.
func FuzzIndex(f *testing.F) {
	m := makeImage(f, FsyncOnCommit, 1, 2, 2)
	x := appendIndexHeader(nil, 0)
	f.Add(appendIndexEntry(x, indexEntry{base: 0, pos: blockBytes}))
	f.Add(appendIndexEntry(appendIndexEntry(x, indexEntry{base: 0, pos: blockBytes}), indexEntry{base: 1, pos: int64(m.ends[1])}))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := restoreDir(t, m.files)
		l, err := Open(testOptions(fs))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, fs, testDir+"/"+indexName(0), b)
		l.files.unpin(l.cur.seg) // readers take the file now
		if got, err := openIndexFile(fs, testDir+"/"+indexName(0), 0); err == nil && got != nil {
			if got.n < 0 || got.n > len(b)/indexEntryBytes {
				t.Fatalf("%d entries in %d bytes", got.n, len(b))
			}
			if e, ok := seek(got, 3); ok && e.base > 3 {
				t.Fatalf("seek of 3 gives %d", e.base)
			}
		}
		for from := range m.next[5] {
			if got, err := readRecords(l, from, 100); err != nil || uint64(len(got)) != m.next[5]-from || !bytes.Equal(got[0], recordAt(from, len(got[0]))) {
				t.Fatalf("from %d: %d records, %v", from, len(got), err)
			}
		}
	})
}

// Any bytes behind a good segment header, with or without a mark, in either mode: recovery does not
// panic, takes memory for what is there and not for what the bytes claim, and serves no entry
// whose checksums do not hold.
func FuzzRecover(f *testing.F) {
	m := makeImage(f, FsyncOnCommit, 1, 2, 2)
	body := m.segment()[blockBytes:]
	f.Add(body, uint16(0), false)
	f.Add(body, uint16(0), true)
	f.Add(body[:len(body)-70], uint16(200), false)
	f.Add(append(append([]byte(nil), body[:m.ends[2]-blockBytes]...), make([]byte, 300)...), uint16(0), true)
	p := makeImage(f, FsyncPeriodic, 2, 3)
	f.Add(p.segment()[blockBytes:], uint16(0), true)
	f.Fuzz(func(t *testing.T, b []byte, mark uint16, sums bool) {
		if len(b) > 1<<20 {
			return
		}
		if sums {
			b = append([]byte(nil), b...)
			fixSums(b, m.segment()[40:48])
		}
		seg := append(append([]byte(nil), m.segment()[:blockBytes]...), b...)
		files := map[string][]byte{segmentName(0): seg}
		if mark != 0 {
			files[markName] = appendMark(nil, Mark{Bytes: blockBytes + int64(mark)})
		}
		fs := restoreDir(t, files)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, err := Open(testOptions(fs))
		runtime.ReadMemStats(&after)
		if n := int64(after.TotalAlloc - before.TotalAlloc); n > 1<<20+8*int64(len(seg)) {
			t.Fatalf("recovery of %d bytes allocated %d", len(seg), n)
		}
		if err != nil {
			var c *CorruptError
			if !errors.As(err, &c) || !bytes.Equal(readFile(t, fs, testDir+"/"+segmentName(0)), seg) {
				t.Fatalf("refused and changed, or not typed: %v", err)
			}
			return
		}
		end := verifyEntries(t, seg, l.Committed())
		if mark != 0 && end < blockBytes+int(mark) {
			t.Fatalf("the data ends at byte %d, the mark was %d", end, blockBytes+int(mark))
		}
		if _, err := readRecords(l, 0, 1<<16); err != nil && l.Committed() > 0 {
			// A section that passes its checksum but is no section: only a writer makes that.
			var c *CorruptError
			if errors.As(err, &c) {
				t.Fatalf("recovered, but not readable: %v", err)
			}
		}
		l.letGo()
	})
}

// fixSums makes the checksums of what looks like entries hold, so that fields of any value reach
// the code behind them.
func fixSums(b, nonce []byte) {
	for at := 0; at+64 <= len(b); at += 64 {
		if be32(b[at:]) != entryMagic {
			continue
		}
		copy(b[at+40:], nonce)
		binary.BigEndian.PutUint32(b[at+60:], crc32.Checksum(b[at:at+60], castagnoli))
		if size := int64(be32(b[at+8:])); size >= 68 && int64(at)+size <= int64(len(b)) {
			end := at + int(size) - 4
			binary.BigEndian.PutUint32(b[end:], crc32.Checksum(b[at+60:end], castagnoli))
		}
	}
}

// verifyEntries walks what recovery served, without its code, and returns where it ends.
func verifyEntries(t *testing.T, seg []byte, committed uint64) int {
	t.Helper()
	at, next := blockBytes, uint64(0)
	for next < committed {
		if len(seg) < at+64 || crc32.Checksum(seg[at:at+60], castagnoli) != be32(seg[at+60:]) {
			t.Fatalf("served an entry at byte %d whose header checksum fails", at)
		}
		size, count := int(be32(seg[at+8:])), be32(seg[at+12:])
		if at+size > len(seg) || crc32.Checksum(seg[at+60:at+size-4], castagnoli) != be32(seg[at+size-4:]) {
			t.Fatalf("served an entry at byte %d whose body checksum fails", at)
		}
		at += size
		next += uint64(count)
	}
	return at
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Whole files of any bytes: header, length, everything.
func FuzzRecoverFile(f *testing.F) {
	m := makeImage(f, FsyncOnCommit, 1, 1)
	f.Add(m.segment())
	f.Add(m.segment()[:100])
	f.Add(make([]byte, 5000))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := restoreDir(t, map[string][]byte{segmentName(0): b})
		l, err := Open(testOptions(fs))
		if err != nil {
			return
		}
		commitOne(t, l, 1, 10)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// What Read gives for any entry that Append took, through a page of any size.
func FuzzReadPage(f *testing.F) {
	f.Add([]byte("a record"), uint8(3), uint16(100))
	f.Fuzz(func(t *testing.T, rec []byte, n uint8, maxBytes uint16) {
		l, err := Open(testOptions(crashfs.New(), withSegment(16<<10)))
		if err != nil {
			t.Fatal(err)
		}
		var want [][]byte
		for i := range int(n)%20 + 1 {
			recs := make([][]byte, i%3+1)
			for j := range recs {
				recs[j] = rec[:len(rec)*(j+1)/len(recs)]
			}
			if _, err := l.Append(&Entry{Kind: KindRecords, Count: uint32(len(recs)), Section: wire.AppendSection(nil, recs...)}, 1); errors.Is(err, ErrGroupFull) {
				pump(l)
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			want = append(want, recs...)
		}
		pump(l)
		for from := range want {
			got, err := readRecords(l, uint64(from), int(maxBytes))
			if err != nil || len(got) != len(want)-from {
				t.Fatalf("%d records from %d, want %d: %v", len(got), from, len(want)-from, err)
			}
			for i := range got {
				if !bytes.Equal(got[i], want[from+i]) {
					t.Fatalf("record %d differs", from+i)
				}
			}
		}
		l.Close()
	})
}

// A segment of any content behind the header: Verify never panics, agrees with recovery, and after a
// truncation the log opens.
func FuzzVerifyAndRepair(f *testing.F) {
	m := makeImage(f, FsyncOnCommit, 1, 2, 2)
	f.Add(m.segment()[blockBytes:], uint32(0))
	f.Add(m.segment()[blockBytes:], uint32(m.ends[2]))
	f.Fuzz(func(t *testing.T, b []byte, mark uint32) {
		segment := append(bytes.Clone(m.segment()[:blockBytes]), b...)
		o := testOptions(restoreDir(t, m.with(segment, int(mark))))
		_, err := MakePlan(o)
		v := verify(t, o)
		if (err == nil) != (v.Damages == 0) {
			t.Fatalf("recovery: %v, verify: %+v", err, v.Damage)
		}
		r, err := PlanRepair(t.Context(), o, truncateAtDamage)
		if errors.Is(err, ErrNewer) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Apply(t.Context(), o, testBackup, nil); err != nil {
			t.Fatal(err)
		}
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		l.letGo()
	})
}
