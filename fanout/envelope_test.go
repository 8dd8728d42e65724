package fanout

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/wire"
)

// TestEveryShapeSaysTheSame compares the frames of random envelopes, in every shape and in a random
// order of first use, with the naive loop; twice, since the second time they come from the cache.
func TestEveryShapeSaysTheSame(t *testing.T) { // SUB-1
	pool := wire.NewPool(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		durable := rapid.Bool().Draw(t, "durable")
		ps := drawPublishes(t)
		e := envelope(pool, durable, ps...)
		order := rapid.Permutation(everyShape()).Draw(t, "shapes")
		for range 2 {
			for _, shape := range order {
				got, _ := decode(t, e.Frames(shape))
				if diff := cmp.Diff(naive(durable, shape, 0, ps...), got); diff != "" {
					t.Fatalf("shape %#x (-want +got):\n%s", shape, diff)
				}
			}
		}
		from := rapid.Uint64Range(0, e.Next()).Draw(t, "from")
		for _, shape := range order {
			// A skip count describes what lies before the first record of its part only.
			want := naive(durable, shape, from, ps...)
			got, _ := decode(t, e.encodedFrom(shape, from).frames)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("shape %#x from %d (-want +got):\n%s", shape, from, diff)
			}
		}
		e.Release()
		if pool.Stats().InUse != 0 {
			t.Fatalf("%d Bufs in use", pool.Stats().InUse)
		}
	})
}

// drawPublishes draws publishes in offset order, some after a gap.
func drawPublishes(t *rapid.T) []publish {
	next := rapid.Uint64Range(0, 100).Draw(t, "base")
	ps := make([]publish, rapid.IntRange(1, 8).Draw(t, "publishes"))
	for i := range ps {
		p := &ps[i]
		if rapid.IntRange(0, 3).Draw(t, "gap?") == 0 {
			p.skipped = rapid.Uint64Range(0, 3).Draw(t, "skipped")
		}
		p.base = next + p.skipped
		p.publisher = rapid.SampledFrom([]string{"", "", "a", "bob", strings.Repeat("x", wire.PublisherMax)}).Draw(t, "publisher")
		p.micros = rapid.Uint64().Draw(t, "time")
		p.prefix = rapid.SampledFrom([]int{0, 1, 9, 40, 300}).Draw(t, "prefix")
		p.noBuf = rapid.IntRange(0, 5).Draw(t, "no buf?") == 0
		p.records = make([]string, rapid.IntRange(0, 40).Draw(t, "records"))
		for j := range p.records {
			p.records[j] = strings.Repeat("r", rapid.IntRange(0, 9).Draw(t, "len"))
		}
		next = p.base + uint64(len(p.records))
	}
	return ps
}

// TestEncodedOncePerShape: a hundred readers that ask for a shape at the same time get the same
// bytes, encoded once.
func TestEncodedOncePerShape(t *testing.T) { // SUB-1
	pool := wire.NewPool(1 << 20)
	for range 50 {
		e := envelope(pool, true,
			publish{base: 0, publisher: "p", micros: 1, prefix: 20, records: numbers(0, 8)},
			publish{base: 8, publisher: "p", micros: 2, prefix: 20, records: numbers(8, 8)})
		for _, shape := range everyShape() {
			var got [100][][]byte
			var wg sync.WaitGroup
			for i := range got {
				wg.Go(func() { got[i] = e.Frames(shape) })
			}
			wg.Wait()
			for i := range got {
				if &got[i][0] != &got[0][0] {
					t.Fatalf("shape %#x was encoded twice", shape)
				}
			}
		}
		e.Release()
	}
	checkPool(t, pool)
}

// TestFirstShapeIsOneSliceOfThePublishersBytes: header and records are contiguous in the frame
// memory of the publish, and further shapes share the records.
func TestFirstShapeIsOneSliceOfThePublishersBytes(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	p := publish{base: 7, publisher: "p", prefix: 20, records: numbers(7, 5)}
	part := p.part(pool)
	e := NewEnvelope(true, []Part{part})
	records := part.Section[4:]

	first := e.Frames(offsets)
	if len(first) != 1 {
		t.Fatalf("%d slices", len(first))
	}
	if tail := first[0][len(first[0])-len(records):]; &tail[0] != &records[0] {
		t.Error("the records were copied")
	}
	second := e.Frames(plain)
	if len(second) != 2 || &second[1][0] != &records[0] {
		t.Errorf("the second shape has %d slices and does not share the records", len(second))
	}
	copied := bytes.Clone(first[0])
	e.Frames(allOf)
	if !bytes.Equal(copied, first[0]) {
		t.Error("a later shape changed an earlier one")
	}
	e.Release()
	checkPool(t, pool)
}

// TestReaderInTheMiddleDisturbsNobody: a reader that starts inside a batch gets the rest of it and
// nothing is written over the records before.
func TestReaderInTheMiddleDisturbsNobody(t *testing.T) { // SUB-8, SUB-17
	pool := wire.NewPool(1 << 20)
	p := publish{base: 0, prefix: 20, records: numbers(0, 10)}
	e := envelope(pool, true, p)
	defer checkPool(t, pool)
	defer e.Release()
	for from := range uint64(10) {
		got, _ := decode(t, e.encodedFrom(offsets, from).frames)
		if want := naive(true, offsets, from, p); !cmp.Equal(want, got) {
			t.Errorf("from %d: %v", from, data(got))
		}
	}
	whole, _ := decode(t, e.Frames(offsets))
	if want := naive(true, offsets, 0, p); !cmp.Equal(want, whole) {
		t.Errorf("whole: %v", data(whole))
	}
}

// TestPublishersAreNotMixed: publishes of one claim are joined into one frame, but where the shape
// names the publisher a new one starts a new frame; so do a gap and the limits.
func TestPublishersAreNotMixed(t *testing.T) { // SUB-22, PUB-1
	pool := wire.NewPool(1 << 20)
	defer checkPool(t, pool)
	claim := []publish{
		{base: 0, publisher: "a", prefix: 9, records: numbers(0, 3)},
		{base: 3, publisher: "a", prefix: 9, records: numbers(3, 1)},
		{base: 4, publisher: "b", prefix: 9, records: numbers(4, 1)},
	}
	for _, c := range []struct {
		shape  wire.Flags
		frames int
	}{
		{plain, 1},
		{offsets, 1},
		{offsets | wire.FlagEvPublisher, 2},
		{allOf, 2},
	} {
		e := envelope(pool, true, claim...)
		events, frames := decode(t, e.Frames(c.shape))
		if frames != c.frames || len(events) != 5 {
			t.Errorf("shape %#x: %d frames, %d events; want %d frames", c.shape, frames, len(events), c.frames)
		}
		e.Release()
	}
	gap := envelope(pool, true,
		publish{base: 0, prefix: 9, records: numbers(0, 1)},
		publish{base: 3, skipped: 2, prefix: 9, records: numbers(3, 1)})
	if _, frames := decode(t, gap.Frames(offsets)); frames != 2 {
		t.Errorf("a gap in one frame: %d frames", frames)
	}
	gap.Release()
	for _, c := range []struct{ records, size, frames int }{
		{32, 1, 1}, {33, 1, 2}, {200, 1, 2}, {2, 15 << 10, 1}, {2, 40 << 10, 2},
	} {
		recs := make([]string, c.records)
		for i := range recs {
			recs[i] = strings.Repeat("z", c.size)
		}
		e := envelope(pool, true, publish{base: 0, records: recs}, publish{base: uint64(c.records), records: recs})
		if _, frames := decode(t, e.Frames(plain)); frames != c.frames {
			t.Errorf("two publishes of %d x %d: %d frames, want %d", c.records, c.size, frames, c.frames)
		}
		e.Release()
	}
}

// TestInMemoryStreamsHaveNeitherOffsetsNorTimes, whatever was asked for.
func TestInMemoryStreamsHaveNeitherOffsetsNorTimes(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	e := envelope(pool, false, publish{base: 5, skipped: 1, publisher: "p", micros: 3, records: []string{"x"}})
	h, err := wire.ParseHeader(e.Frames(allOf)[0])
	if err != nil || h.Flags != wire.FlagEventsShared|wire.FlagEvPublisher {
		t.Errorf("flags %#x, %v", h.Flags, err)
	}
	e.Release()
	checkPool(t, pool)
}

// TestPublishNearTheFrameLimitIsSplit: a batch that fits its publish frame but not one event frame
// of the shape goes out as several, the largest record that is taken in one.
func TestPublishNearTheFrameLimitIsSplit(t *testing.T) {
	pool := wire.NewPool(0)
	publisher := strings.Repeat("p", wire.PublisherMax)
	big := strings.Repeat("b", RecordMax)
	small := make([]string, 300_000) // 52 bytes each; 60 with the time
	for i := range small {
		small[i] = strings.Repeat("s", 48)
	}
	for name, p := range map[string]publish{
		"one record":      {records: []string{big}},
		"after a small":   {records: []string{"small", big}},
		"before a small":  {records: []string{big, "small"}},
		"many small ones": {records: small},
	} {
		t.Run(name, func(t *testing.T) {
			p.base, p.skipped, p.publisher, p.micros = 10, 2, publisher, 99
			e := envelope(pool, true, p)
			for _, shape := range []wire.Flags{plain, offsets, allOf} {
				got, frames := decode(t, e.Frames(shape)) // checks the limit
				want := naive(true, shape, 0, p)
				if len(got) != len(want) {
					t.Fatalf("shape %#x: %d events in %d frames, want %d", shape, len(got), frames, len(want))
				}
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("shape %#x: event %d differs", shape, i)
					}
				}
			}
			e.Release()
		})
	}
	checkPool(t, pool)
}

// TestEmptyPublishesAreNotDelivered and their memory is not kept.
func TestEmptyPublishesAreNotDelivered(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	e := envelope(pool, true, publish{base: 4}, publish{base: 4, records: []string{"x"}}, publish{base: 5})
	if n := pool.Stats().InUse; n != 1 {
		t.Errorf("%d Bufs retained", n)
	}
	if e.Base() != 4 || e.Next() != 5 || e.Records() != 1 {
		t.Errorf("base %d, next %d, %d records", e.Base(), e.Next(), e.Records())
	}
	e.Release()
	none := envelope(pool, true, publish{base: 9})
	if none.Records() != 0 || none.Next() != 9 || len(none.Frames(allOf)) != 0 {
		t.Error("an envelope without records has something to deliver")
	}
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{})
	r.Add(s)
	if queued, dropped := r.Publish(none); queued+dropped != 0 {
		t.Error("an envelope without records was queued")
	}
	none.Release()
	checkPool(t, pool)
}

// TestEnvelopeCountIsExact: the memory goes with the last reference and not before, and a reference
// too many or too few is not hidden.
func TestEnvelopeCountIsExact(t *testing.T) { // HZ-25
	pool := wire.NewPool(1 << 20)
	e := numbered(pool, 0, 1)
	e.Retain()
	e.Release()
	if pool.Stats().InUse != 1 {
		t.Error("released while a reference was held")
	}
	e.Release()
	checkPool(t, pool)
	// Outside of invariants builds e may have its next user by now: misuse is tried on others.
	for name, f := range map[string]func(*Envelope){
		"Release": (*Envelope).Release,
		"Retain":  (*Envelope).Retain,
		"Frames":  func(e *Envelope) { e.Frames(plain) },
	} {
		if name == "Frames" && !invariants.Enabled {
			continue
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of a released envelope: no panic", name)
				}
			}()
			f(new(Envelope))
		}()
	}
}

// TestEnvelopeAllocatesNothing in the steady state: making, encoding and releasing.
func TestEnvelopeAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariants builds do not reuse envelopes")
	}
	pool := wire.NewPool(1 << 20)
	parts := make([]Part, 1)
	p := publish{base: 0, prefix: 20, records: numbers(0, 64)}
	part := p.part(pool)
	for _, shape := range []wire.Flags{plain, offsets, allOf} {
		got := testing.AllocsPerRun(200, func() {
			part.Buf.Retain()
			parts[0] = part
			e := NewEnvelope(true, parts)
			e.Frames(shape)
			e.Release()
		})
		if got != 0 {
			t.Errorf("shape %#x: %v allocations", shape, got)
		}
	}
	part.Buf.Release()
	checkPool(t, pool)
}

func BenchmarkEnvelopeFrames(b *testing.B) {
	pool := wire.NewPool(64 << 20)
	for _, c := range []struct{ records, size int }{{1, 256}, {64, 256}, {64, 4096}} {
		recs := make([]string, c.records)
		for i := range recs {
			recs[i] = strings.Repeat("x", c.size)
		}
		p := publish{prefix: 40, publisher: "someone", records: recs}
		part := p.part(pool)
		for _, s := range []struct {
			name  string
			shape wire.Flags
		}{{"offsets", offsets}, {"publisher", offsets | wire.FlagEvPublisher}, {"times", allOf}} {
			b.Run(fmt.Sprintf("first/records=%d/size=%d/shape=%s", c.records, c.size, s.name), func(b *testing.B) {
				parts := make([]Part, 1)
				b.ReportAllocs()
				for b.Loop() {
					part.Buf.Retain()
					parts[0] = part
					e := NewEnvelope(true, parts)
					e.Frames(s.shape)
					e.Release()
				}
			})
		}
		b.Run(fmt.Sprintf("cached/records=%d/size=%d", c.records, c.size), func(b *testing.B) {
			part.Buf.Retain()
			e := NewEnvelope(true, []Part{part})
			defer e.Release()
			b.ReportAllocs()
			for b.Loop() {
				e.Frames(offsets)
			}
		})
		part.Buf.Release()
	}
}
