package log

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// churn appends and deletes until segments are written into files of deleted ones.
func churn(t *testing.T, l *Log, rolls uint64) {
	t.Helper()
	for l.Stats().Rolls < rolls {
		commitOne(t, l, 1, 900)
		if l.Next()%16 == 0 {
			trim(t, l, 0)
		}
	}
}

// A deleted segment's file becomes the next segment, with its old entries behind the tail: nothing of
// them is ever read, and a process that dies at any moment finds its log.
func TestRecycledSegmentsServeNothingOld(t *testing.T) { // LOG-3, HZ-6
	for _, s := range setups {
		fs := crashfs.New()
		o := testOptions(fs, withMode(s.mode), withDirect(s.direct), withSegment(32<<10))
		l := mustOpen(t, o)
		l.SetRetention(Retention{Bytes: 96 << 10})
		churn(t, l, 12)
		if n := l.Stats().Recycled; n < 4 {
			t.Fatalf("%s: %d files were used again", s.name, n)
		}
		old := 0
		for range 40 {
			commitOne(t, l, 1, 900)
			seg := readFile(t, fs, testDir+"/"+segmentName(l.cur.seg.id))
			if behind := seg[min(int64(len(seg)), alignUp(l.cur.pos)):]; !allZero(behind) {
				old++
			}
			base, next := l.Base(), l.Committed()
			checkRecords(t, l, base, next)
			o.FS = fs.Crash(crashfs.SeedKeepAll)
			killed := mustOpen(t, o)
			checkRecords(t, killed, killed.Base(), next)
			if killed.Base() > base {
				t.Fatalf("base %d after a kill, %d before", killed.Base(), base)
			}
			killed.letGo()
		}
		if old == 0 {
			t.Fatalf("%s: never an old entry behind the tail: the test shows nothing", s.name)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for name := range snapshotDir(t, fs, testDir) {
			if strings.HasSuffix(name, freeExt) {
				t.Errorf("%s: Close leaves %s", s.name, name)
			}
		}
	}
}

// A torn write into a file of the past may leave the new header in front of the old body. Each holds by
// itself, and together they are nothing.
func TestNewHeaderBeforeAnOldBodyIsNoEntry(t *testing.T) { // LOG-3, HZ-6
	m := makeImage(t, FsyncOnCommit, 1)
	seg := bytes.Clone(m.segment())
	var h entryHeader
	if !decodeEntryHeader(seg[blockBytes:], &h) {
		t.Fatal("no entry")
	}
	for _, change := range []func(*entryHeader){
		func(h *entryHeader) { h.nonce ^= 0xFF00 }, func(h *entryHeader) { h.base -= 7 }, func(h *entryHeader) { h.micros-- },
	} {
		old := h
		change(&old)
		putHeader(seg, blockBytes, &old)                   // an entry of the past, whole
		copy(seg[blockBytes:], appendEntryHeader(nil, &h)) // and over it the header of a new one
		m.check(t, FsyncOnCommit, "a new header before an old body", m.with(seg, 0), verdict{entries: 0})
	}
}

// What fails while a file is made ready for another use costs that file at the most; only a failed
// sync of the directory is one of the log.
func TestFailedRecyclingCostsTheFile(t *testing.T) { // HZ-10, HZ-5
	for _, rule := range []ringtest.Rule{
		{Kind: ringtest.Open, Path: ".seg", Err: syscall.EMFILE},
		{Kind: ringtest.Rename, Err: syscall.EIO},
		{Kind: ringtest.Remove, Path: ".idx", Err: syscall.EIO},
		{Kind: ringtest.Size, Err: syscall.EIO},
		{Kind: ringtest.Write, Err: syscall.ENOSPC, Short: 100},
		{Kind: ringtest.Sync, Err: syscall.EIO},
	} {
		inner := crashfs.New()
		fs := ringtest.NewFS(inner)
		o := testOptions(fs, withSegment(32<<10))
		l := mustOpen(t, o)
		l.SetRetention(Retention{Bytes: 96 << 10})
		churn(t, l, 5)
		failed := 0
		for failed < 3 {
			commitOne(t, l, 1, 900)
			l.Retain(0, l.Committed())
			for j := l.TakeJob(); j != nil; j = l.TakeJob() {
				if recycling := j.kind == jobTrim && j.recycle; recycling {
					failed++
					fs.Add(rule)
				}
				j.Run()
				fs.Clear()
				if out := l.JobDone(j); out.Err != nil || l.Err() != nil {
					t.Fatalf("%s %v: %v, %v", rule.Kind, rule.Err, out.Err, l.Err())
				}
			}
			pump(l)
		}
		base, next := l.Base(), l.Committed()
		checkRecords(t, l, base, next)
		o.FS = inner.Crash(crashfs.SeedKeepAll)
		killed := mustOpen(t, o)
		checkRecords(t, killed, killed.Base(), next)
		killed.letGo()
		churn(t, l, l.Stats().Rolls+3)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		o.FS = inner
		l = mustOpen(t, o)
		checkRecords(t, l, l.Base(), l.Committed())
		l.letGo()
	}
}

// While somebody reads a deleted segment its file is not written over.
func TestFileInUseIsNotRecycled(t *testing.T) { // HZ-25
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, withSegment(32<<10)))
	l.SetRetention(Retention{Bytes: 64 << 10})
	for l.Stats().Rolls < 4 {
		commitOne(t, l, 1, 900)
	}
	h, err := l.files.get(l.view.Load().segs[0])
	if err != nil {
		t.Fatal(err)
	}
	before := make([]byte, 20<<10)
	if _, err := readFull(h.file, before, blockBytes); err != nil {
		t.Fatal(err)
	}
	churn(t, l, 14)
	if l.Stats().Recycled == 0 {
		t.Fatal("nothing was recycled")
	}
	after := make([]byte, len(before))
	if _, err := readFull(h.file, after, blockBytes); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("the file was used again under its reader: %v", err)
	}
	h.done()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
