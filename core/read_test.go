package core

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// fill publishes records "0", "1", ... in batches of 1 to 4 and returns how many.
func fill(t testing.TB, b *Broker, st *Stream, batches int) (n uint64) {
	t.Helper()
	for i := range batches {
		var records []string
		for range 1 + i%4 {
			records = append(records, fmt.Sprint(n))
			n++
		}
		r := request(b, st, records...)
		r.Publisher = fmt.Sprintf("p%d", i%2)
		if res := publishRequest(t, b, r); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	return n
}

// A page holds what was asked for within its caps, goes on from anywhere, also inside a publish, and
// ends at the tail; outside of what is kept it is a typed error with the offset that is.
func TestReadPage(t *testing.T) { // HZ-15, LOG-15
	o := Options{}.in(t.TempDir())
	b := openTest(t, o)
	def := StreamDef{Durable: true, Fsync: "none", Shards: 2}
	n := fill(t, b, stream(t, b, def), 40)
	for range 2 { // before and after a restart
		st := stream(t, b, def)
		for from := uint64(0); from <= n; from++ {
			for _, end := range []*uint64{nil, new(uint64(0)), new(from), new(from + 3), new(uint64(math.MaxUint64))} {
				for _, caps := range [][2]uint64{{0, 0}, {1, 0}, {7, 0}, {0, 1}, {0, 5}, {math.MaxUint32, math.MaxUint64}} {
					want := n
					if end != nil {
						want = max(from, min(n, *end))
					}
					p, err := b.ReadPage(&ReadRequest{Stream: st, From: from, End: end, MaxRecords: uint32(caps[0]), MaxBytes: caps[1]})
					if err != nil {
						t.Fatal(err)
					}
					size := 0
					for i, r := range p.Records {
						if r.Offset != from+uint64(i) || string(r.Payload) != fmt.Sprint(r.Offset) || r.TimeMicros == 0 || r.Publisher[0] != 'p' {
							t.Fatalf("record %d of the page at %d: %+v", i, from, r)
						}
						size += len(r.Payload)
					}
					got := uint64(len(p.Records))
					switch {
					case p.Next != from+got || p.Next > want:
						t.Fatalf("page at %d to %d: %d records, next %d", from, want, got, p.Next)
					case caps[0] != 0 && got > caps[0], caps[1] != 0 && got > 1 && uint64(size) > caps[1]:
						t.Fatalf("page at %d: %d records, %d bytes with caps %v", from, got, size, caps)
					case from < want && got == 0, caps == [2]uint64{} && p.Next != want:
						t.Fatalf("page at %d ends at %d, want %d", from, p.Next, want)
					case caps[0] == 7 && got != min(7, want-from):
						t.Fatalf("page at %d: %d records of 7", from, got)
					}
					p.Release()
				}
			}
		}
		for _, from := range []uint64{n + 1, math.MaxUint64} {
			_, err := b.ReadPage(&ReadRequest{Stream: st, From: from})
			var cursor *CursorError
			if !errors.As(err, &cursor) || cursor.TooOld || cursor.Requested != from || cursor.Available != n {
				t.Errorf("page at %d: %v", from, err)
			}
		}
		if p, err := b.ReadPage(&ReadRequest{Stream: st, Shard: 1}); err != nil || p.Next != 0 || len(p.Records) != 0 {
			t.Errorf("page of an empty shard: %+v, %v", p, err)
		}
		for _, r := range []*ReadRequest{{Stream: st, Shard: 2}, {Stream: stream(t, b, StreamDef{Stream: "memory"})}} {
			_, err := b.ReadPage(r)
			_, _, terr := b.OffsetForTime(r.Stream, r.Shard, 0)
			for _, err := range []error{err, terr} {
				var refused *wire.Error
				if !errors.As(err, &refused) || refused.Code != wire.CodeInvalidRequest || refused.Retry != wire.RetryFatal {
					t.Errorf("shard %d: %v", r.Shard, err)
				}
			}
		}
		closeTest(t, b)
		b = openTest(t, o)
	}
	if _, err := b.FindStream("t", "n", "nobody made it"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("unknown stream: %v", err)
	}
	if _, ok := b.GetStream("t", "n", "nobody made it"); ok {
		t.Error("a look made a stream")
	}
}

// One record above the budget comes alone, and the process's own caps hold whatever is asked for.
func TestReadPageCaps(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none"})
	big := string(bytes.Repeat([]byte{'b'}, 6<<20))
	small := string(bytes.Repeat([]byte{'s'}, 1<<20))
	for _, records := range [][]string{{small, small, small}, {small, small, big}, {small}} {
		if res := publish(t, b, st, records...); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	for from, want := range []int{4, 4, 3, 2, 1, 1, 1} {
		p, err := b.ReadPage(&ReadRequest{Stream: st, From: uint64(from), MaxBytes: math.MaxUint64})
		if err != nil || len(p.Records) != want || p.Next != uint64(from+want) {
			t.Fatalf("page at %d: %d records, want %d; %v", from, len(p.Records), want, err)
		}
		p.Release()
	}
	empty := make([]string, 15_000)
	if res := publish(t, b, st, empty...); res.Err != nil {
		t.Fatal(res.Err)
	}
	p, err := b.ReadPage(&ReadRequest{Stream: st, From: 7, MaxRecords: math.MaxUint32})
	if err != nil || len(p.Records) != ReadRecordsMax {
		t.Errorf("%d records, %v", len(p.Records), err)
	}
	p.Release()
}

// Pages and look-ups by time while retention runs: each is right, or says what the oldest is.
func TestReadPageWhileRetentionRuns(t *testing.T) { // HZ-15
	o := smallSegments(Options{}.in(t.TempDir()))
	o.RetentionInterval = time.Millisecond
	b := openTest(t, o)
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none", RetentionBytes: new(int64(150 << 10))})
	done := make(chan struct{})
	go func() {
		defer close(done)
		bulk(t, b, st, 200)
	}()
	overtaken := 0
	for at, ended := uint64(0), false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if offset, ok, err := b.OffsetForTime(st, 0, 0); err != nil || ok && offset > base(st) {
			t.Fatalf("oldest by time: %d %v %v", offset, ok, err)
		}
		p, err := b.ReadPage(&ReadRequest{Stream: st, From: at, MaxBytes: 20_000})
		var cursor *CursorError
		if errors.As(err, &cursor) && cursor.TooOld && cursor.Requested == at && cursor.Available > at {
			overtaken++
			at = cursor.Available
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range p.Records {
			if r.Offset != at+uint64(i) || len(r.Payload) != 8<<10 {
				t.Fatalf("page at %d, record %d: offset %d", at, i, r.Offset)
			}
		}
		if at = p.Next; len(p.Records) == 0 {
			at = 0 // at the tail: from the start again, which may be gone
		}
		p.Release()
	}
	if overtaken == 0 {
		t.Error("retention did nothing")
	}
}

// What is never delivered takes offsets and is stepped over.
func TestPageStepsOverWhatIsNotDelivered(t *testing.T) {
	section := wire.AppendSection(nil, []byte("a"), []byte("b"))
	page := &log.Page{Next: 7, Entries: []log.PageEntry{
		{Base: 3, Count: 1, Kind: log.KindEpoch, Records: wire.AppendSection(nil, make([]byte, 8))[4:]},
		{Base: 4, Count: 2, Kind: log.KindRecords, Records: section[4:]},
		{Base: 6, Count: 1, Kind: log.KindEpoch, Records: wire.AppendSection(nil, make([]byte, 8))[4:]},
	}}
	for _, row := range []struct {
		end           uint64
		records, want int
		next          uint64
	}{{7, 10, 2, 7}, {6, 10, 2, 6}, {5, 10, 1, 5}, {4, 10, 0, 4}, {7, 1, 1, 5}} {
		w := pageWriter{page: &ReadPage{Next: 3}, end: row.end, records: row.records, bytes: 100}
		w.take(page)
		if len(w.page.Records) != row.want || w.page.Next != row.next {
			t.Errorf("to %d: %d records, next %d; want %d, %d", row.end, len(w.page.Records), w.page.Next, row.want, row.next)
		}
	}
}
