package log

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// checkCursors reads at every edge with several caps: below the base is a TrimmedError that names
// the base, at and above the tail is an empty page, and everything between is there.
func checkCursors(t *testing.T, l *Log, base, next uint64) {
	t.Helper()
	cursors := []uint64{0, base - 1, base, base + 1, next - 1, next, next + 1, math.MaxUint64}
	for _, s := range starts(l) {
		cursors = append(cursors, s-1, s, s+1)
	}
	for _, from := range cursors {
		for _, size := range []int{1, 900, 5000, 1 << 20} {
			p, err := l.Read(from, size)
			var trimmed *TrimmedError
			switch {
			case from < base:
				if !errors.As(err, &trimmed) || trimmed.Requested != from || trimmed.Oldest != base {
					t.Errorf("read at %d, base %d: %v", from, base, err)
				}
			case err != nil:
				t.Errorf("read at %d: %v", from, err)
			case from >= next && (p.Next != from || len(p.Entries) != 0):
				t.Errorf("read at %d, tail %d: a page to %d", from, next, p.Next)
			case from < next && (len(p.Entries) == 0 || p.Entries[0].Base != from || p.Next <= from):
				t.Errorf("read at %d: a page to %d of %d entries", from, p.Next, len(p.Entries))
			}
			if p != nil {
				p.Release()
			}
		}
	}
}

// Being behind the edge of what is kept never looks like being caught up (HZ-15).
func TestReadsAtEveryEdgeOfATrimmedLog(t *testing.T) { // LOG-15, HZ-15
	fs := crashfs.New()
	l, o := makeSegments(t, fs, 60)
	l.SetRetention(Retention{Bytes: 24 << 10})
	for round := range 4 {
		trim(t, l, 0)
		base, next := l.Base(), l.Committed()
		if base == 0 {
			t.Fatal("nothing was deleted")
		}
		checkCursors(t, l, base, next)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, o)
		checkCursors(t, l, base, next)
		l.SetRetention(Retention{Bytes: 24 << 10})
		for range 10 + round {
			commitOne(t, l, 1, 900)
		}
	}
	l.letGo()
}

// A reader that took its view before the segment went reads on if it has the file, and is told that
// its offset was trimmed if it has not: never that a file is missing, also when the name goes
// between the look at the view and the open.
func TestReaderThatIsOvertakenByRetention(t *testing.T) { // LOG-15, HZ-15
	fs := ringtest.NewFS(crashfs.New())
	l, _ := makeSegments(t, fs, 60)
	old := l.view.Load()
	h, err := l.files.get(old.segs[0])
	if err != nil {
		t.Fatal(err)
	}
	entered, hang := make(chan struct{}, 1), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: segmentName(old.segs[1].id), Entered: entered, Wait: hang})
	var opener sync.WaitGroup
	opener.Go(func() {
		_, err := l.Read(old.segs[1].base, 100)
		var trimmed *TrimmedError
		if !errors.As(err, &trimmed) || trimmed.Requested != old.segs[1].base || trimmed.Oldest != l.Base() {
			t.Errorf("a reader whose file went while it opened it: %v", err)
		}
	})
	select {
	case <-entered:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody opens")
	}
	l.SetRetention(Retention{Bytes: 20 << 10})
	// The base has moved before anybody is told that a segment is gone.
	l.files.mu.Lock()
	var retain sync.WaitGroup
	retain.Go(func() { l.Retain(0, l.Committed()) })
	for deadline := time.Now().Add(10 * time.Second); l.Base() == 0 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if l.Base() == 0 {
		t.Error("segments are taken from readers who do not see a new base")
	}
	l.files.mu.Unlock()
	retain.Wait()
	// From here on nobody begins to use them, although their names are there.
	for i, s := range old.segs[:3] {
		if _, err := l.files.get(s); !errors.Is(err, errGone) {
			t.Errorf("segment %d: a reader with an old view: %v", i, err)
		}
	}
	var unused []bool
	for j := l.TakeJob(); j != nil; j = l.TakeJob() {
		if j.kind == jobTrim {
			unused = append(unused, j.unused)
		}
		j.Run()
		l.JobDone(j)
	}
	if len(unused) < 4 || unused[0] || unused[1] || !unused[2] || !unused[3] {
		t.Errorf("files that nobody uses: %v; the first is read, the second being opened", unused)
	}
	close(hang)
	opener.Wait()
	var b [entryHeaderBytes]byte
	if n, err := readFull(h.file, b[:], blockBytes); err != nil || n != len(b) {
		t.Errorf("the file was closed under its reader: %v", err)
	}
	h.done()
	if _, err := h.file.Size(); !errors.Is(err, ring.ErrClosed) {
		t.Errorf("the last reference left the file open: %v", err)
	}
	for _, s := range old.segs[:2] {
		if !l.files.unused(s) {
			t.Error("still in use after its last reader")
		}
	}
	l.letGo()
}

// Readers on other goroutines read from the base, from the middle and by time while segments go
// under them: every record they get is right and in order, and where they are overtaken they are
// told the base.
func TestReadersReadWhileRetentionDeletes(t *testing.T) { // LOG-15, HZ-15
	fs := crashfs.New()
	o := testOptions(fs, withSegment(8<<10), withMode(FsyncNone))
	l := mustOpen(t, o)
	l.SetRetention(Retention{Bytes: 40 << 10})
	for range 30 {
		commitOne(t, l, 1, 900)
	}
	var done atomic.Bool
	var read, overtaken atomic.Uint64
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			at := uint64(0)
			for !done.Load() {
				seen := l.Base()
				p, err := l.Read(at, 1000*r+1)
				var trimmed *TrimmedError
				switch {
				case errors.As(err, &trimmed):
					if trimmed.Requested != at || trimmed.Oldest <= at || trimmed.Oldest < seen {
						t.Errorf("reader %d at %d: %v", r, at, err)
						return
					}
					overtaken.Add(1)
					at = trimmed.Oldest
					continue
				case err != nil:
					t.Errorf("reader %d at %d: %v", r, at, err)
					return
				}
				for _, e := range p.Entries {
					if e.Base != at || string(e.Records[4:]) != string(recordAt(at, 900)) {
						t.Errorf("reader %d: entry at %d, want %d", r, e.Base, at)
					}
					at += uint64(e.Count)
					read.Add(1)
				}
				caughtUp := p.Next >= l.Committed()
				p.Release()
				if r == 2 {
					// By time: times are the offsets and 100.
					base := l.Base()
					got, ok, err := l.OffsetForTime(100 + base)
					if err != nil || !ok || got < base {
						t.Errorf("record of time %d: %d %v %v", 100+base, got, ok, err)
						return
					}
				}
				if caughtUp {
					at = seen // history again, from a base that may be gone
				}
			}
		})
	}
	for n := range 3000 {
		commitOne(t, l, 1, 900)
		if n%5 == 0 {
			trim(t, l, 0)
		}
	}
	done.Store(true)
	readers.Wait()
	if read.Load() == 0 || overtaken.Load() == 0 || l.Stats().Trimmed < 100 {
		t.Errorf("%d records read, overtaken %d times, %d segments deleted", read.Load(), overtaken.Load(), l.Stats().Trimmed)
	}
	checkRecords(t, l, l.Base(), l.Committed())
	base := l.Base()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if names := segmentFiles(t, fs); len(names) > 10 {
		t.Errorf("files that are left: %v", names)
	}
	l = mustOpen(t, o)
	if l.Base() != base {
		t.Errorf("base %d after a restart, was %d", l.Base(), base)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// The first offset of a time, for every time there is: with several records of one time, before the
// first, after the last, and when what was first is gone.
func TestOffsetForTimeInATrimmedLog(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, withSegment(8<<10), withGroup(4))
	l := mustOpen(t, o)
	defer func() { l.letGo() }()
	var times []uint64 // of each record
	for i := range 60 {
		micros := uint64(1000 + i/17*10) // runs that reach across segments
		if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 900)), micros); err != nil {
			t.Fatal(err)
		}
		times = append(times, micros)
		pump(l)
	}
	check := func(base uint64) {
		t.Helper()
		for at := uint64(990); at <= 1050; at++ {
			want, found := uint64(0), false
			for i := base; i < uint64(len(times)) && !found; i++ {
				want, found = i, times[i] >= at
			}
			got, ok, err := l.OffsetForTime(at)
			if err != nil || ok != found || ok && got != want {
				t.Errorf("base %d, time %d: offset %d %v %v, want %d %v", base, at, got, ok, err, want, found)
			}
		}
		for _, at := range []uint64{0, math.MaxUint64} {
			if got, ok, err := l.OffsetForTime(at); err != nil || ok != (at == 0) || ok && got != base {
				t.Errorf("base %d, time %d: %d %v %v", base, at, got, ok, err)
			}
		}
	}
	check(0)
	for kept := 50; kept > 10; kept -= 10 {
		l.SetRetention(Retention{Bytes: int64(kept) << 10})
		trim(t, l, 0)
		check(l.Base())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, o)
		check(l.Base())
	}
	if l.Base() == 0 {
		t.Error("nothing was deleted")
	}
	// A look-up in a view that is old by now goes on in the new one.
	var old *view
	for i := range 40 {
		if i == 20 {
			old = l.view.Load()
		}
		if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 900)), uint64(2000+i)); err != nil {
			t.Fatal(err)
		}
		pump(l)
	}
	l.SetRetention(Retention{Bytes: 1})
	trim(t, l, 0)
	asked := 0
	for _, s := range old.segs[:len(old.segs)-1] {
		if first, last := s.firstMicros.Load(), s.lastMicros.Load(); first < last {
			asked++
			if _, _, err := l.seekTime(old, last, math.MaxUint64); !errors.Is(err, errGone) {
				t.Errorf("in the old view: %v", err)
			}
		}
	}
	if asked == 0 {
		t.Error("no segment of the old view holds two times")
	}
	if got, ok, err := l.OffsetForTime(0); err != nil || !ok || got != l.Base() {
		t.Errorf("oldest: %d %v %v, base %d", got, ok, err, l.Base())
	}
}

// A look-up by time whose segment goes while it opens it begins again with what is left.
func TestLookUpByTimeThatIsOvertakenByRetention(t *testing.T) {
	fs := ringtest.NewFS(crashfs.New())
	l, _ := makeSegments(t, fs, 60)
	defer l.letGo()
	s := l.view.Load().segs[1]
	entered, hang := make(chan struct{}, 1), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: segmentName(s.id), Entered: entered, Wait: hang})
	type answer struct {
		offset uint64
		ok     bool
		err    error
	}
	found := make(chan answer, 1)
	go func() {
		offset, ok, err := l.OffsetForTime(100 + s.base + 1)
		found <- answer{offset, ok, err}
	}()
	select {
	case <-entered:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody opens")
	}
	l.SetRetention(Retention{Bytes: 20 << 10})
	trim(t, l, 0)
	close(hang)
	if a := <-found; a.err != nil || !a.ok || a.offset != l.Base() {
		t.Errorf("%+v, the oldest is %d", a, l.Base())
	}
}
