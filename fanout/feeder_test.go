package fanout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/wire"
)

// feeding is a feeder that runs.
type feeding struct {
	cause  EndCause
	resume uint64
	err    error
	done   chan struct{}
}

func feed(ctx context.Context, s *Subscriber, sink Sink, l Limits) *feeding {
	f := &feeding{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.cause, f.resume, f.err = Feed(ctx, s, sink, l)
	}()
	return f
}

type sinkFunc func(frames [][]byte) error

func (f sinkFunc) WriteFrames(frames [][]byte) error { return f(frames) }

// TestFanoutAgainstALoop publishes random envelopes to random subscribers whose feeders run, ends
// them, and compares what each reader saw with the naive loop over the publishes.
func TestFanoutAgainstALoop(t *testing.T) { // SUB-6, SUB-7, SUB-20
	pool := wire.NewPool(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		durable := rapid.Bool().Draw(t, "durable")
		r := NewRegistry()
		type reader struct {
			s     *Subscriber
			sink  memorySink
			shape wire.Flags
			from  uint64
			f     *feeding
		}
		readers := make([]*reader, rapid.IntRange(1, 5).Draw(t, "readers"))
		for i := range readers {
			rd := &reader{
				shape: rapid.SampledFrom(everyShape()).Draw(t, "shape"),
				from:  rapid.SampledFrom([]uint64{0, 0, 3, 50}).Draw(t, "from"),
			}
			rd.s = NewSubscriber(SubscriberOptions{Shape: rd.shape, From: rd.from, Capacity: 1000})
			rd.f = feed(context.Background(), rd.s, &rd.sink, Limits{})
			r.Add(rd.s)
			readers[i] = rd
		}
		var all []publish
		next := uint64(0)
		for range rapid.IntRange(0, 10).Draw(t, "envelopes") {
			ps := drawPublishes(t)
			shift := next - (ps[0].base - ps[0].skipped)
			for i := range ps {
				ps[i].base += shift
			}
			e := envelope(pool, durable, ps...)
			next = e.Next()
			r.Publish(e)
			e.Release()
			all = append(all, ps...)
		}
		for _, rd := range readers {
			r.Remove(rd.s)
			rd.s.End(EndStopped)
			<-rd.f.done
			if rd.f.cause != EndStopped || rd.f.err != nil {
				t.Fatalf("ended with %v, %v", rd.f.cause, rd.f.err)
			}
			got, _ := decode(t, [][]byte{rd.sink.stream})
			want := naive(durable, rd.shape, rd.from, all...)
			if rd.shape&wire.FlagEvOffsets == 0 || !durable {
				got, want = stripSkips(got), stripSkips(want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("shape %#x from %d (-want +got):\n%s", rd.shape, rd.from, diff)
			}
			if st := rd.s.Stats(); st.DeliveredRecords != uint64(len(want)) || st.Bytes != uint64(len(rd.sink.stream)) {
				t.Fatalf("stats %+v for %d records in %d bytes", st, len(want), len(rd.sink.stream))
			}
		}
		if n := pool.Stats().InUse; n != 0 {
			t.Fatalf("%d Bufs in use", n)
		}
	})
}

func stripSkips(events []event) []event {
	for i := range events {
		events[i].Skipped = 0
	}
	return events
}

// TestEverythingQueuedBeforeTheEndIsDelivered, and nothing after it is lost from the books.
func TestEverythingQueuedBeforeTheEndIsDelivered(t *testing.T) { // SUB-7, BUG-8
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{Shape: offsets})
	r.Add(s)
	for i := range uint64(100) {
		e := numbered(pool, i, 1)
		r.Publish(e)
		e.Release()
	}
	r.Remove(s)
	s.End(EndMoved)
	s.End(EndDeleted) // too late
	var sink memorySink
	cause, resume, err := Feed(t.Context(), s, &sink, Limits{})
	if cause != EndMoved || resume != 100 || err != nil {
		t.Errorf("%v at %d, %v", cause, resume, err)
	}
	if got := data(sink.events(t)); got != joined(numbers(0, 100)) {
		t.Errorf("delivered %s", got)
	}
	checkEquation(t, s, 100, 100)
	checkPool(t, pool)
}

// TestLaggedReaderIsToldAtOnce: after the first drop nothing more is queued; what was queued is
// written, and the feeder ends with the first dropped offset without another publish.
func TestLaggedReaderIsToldAtOnce(t *testing.T) { // SUB-16, BUG-24
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{Shape: offsets, Capacity: 3, EndOnDrop: true})
	r.Add(s)
	sink := memorySink{gate: make(chan struct{})}
	f := feed(t.Context(), s, &sink, Limits{})
	publishOne := func(i uint64) (queued int) {
		e := numbered(pool, 2*i, 2)
		defer e.Release()
		queued, _ = r.Publish(e)
		return queued
	}
	publishOne(0)
	eventually(t, "the feeder took the first", func() bool { return s.Queued() == 0 })
	for i := range uint64(3) {
		if publishOne(1+i) != 1 {
			t.Fatal("dropped below the capacity")
		}
	}
	for i := range uint64(5) {
		if publishOne(4+i) != 0 {
			t.Fatal("queued after the first drop")
		}
	}
	sink.gate <- struct{}{}
	sink.gate <- struct{}{}
	<-f.done
	if f.cause != EndLagged || f.resume != 8 || f.err != nil {
		t.Errorf("%v at %d, %v", f.cause, f.resume, f.err)
	}
	if got := data(sink.events(t)); got != joined(numbers(0, 8)) {
		t.Errorf("delivered %s", got)
	}
	checkEquation(t, s, 9, 18)
	checkPool(t, pool)
}

// TestLaggedWinsOverMoved when both apply.
func TestLaggedWinsOverMoved(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{Capacity: 1, EndOnDrop: true})
	r.Add(s)
	for i := range uint64(2) {
		e := numbered(pool, i, 1)
		r.Publish(e)
		e.Release()
	}
	s.End(EndMoved)
	if cause, resume, _ := Feed(t.Context(), s, &memorySink{}, Limits{}); cause != EndLagged || resume != 1 {
		t.Errorf("%v at %d", cause, resume)
	}
	checkPool(t, pool)
}

// TestHoleIsVisibleWithoutTheLaggedEnd: the reader goes on, and the offsets jump by what was dropped.
func TestHoleIsVisibleWithoutTheLaggedEnd(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{Shape: offsets, Capacity: 2})
	r.Add(s)
	var sink memorySink
	publishRange := func(from, to uint64) {
		for i := from; i < to; i++ {
			e := numbered(pool, i, 1)
			r.Publish(e)
			e.Release()
		}
	}
	publishRange(0, 5)
	f := feed(t.Context(), s, &sink, Limits{})
	eventually(t, "the queue is empty", func() bool { return s.Stats().DeliveredRecords == 2 })
	publishRange(5, 6)
	s.End(EndStopped)
	<-f.done
	events := sink.events(t)
	if got := data(events); got != "0 1 5" || events[2].Offset != 5 {
		t.Errorf("delivered %s", got)
	}
	checkEquation(t, s, 6, 6)
	checkPool(t, pool)
}

// TestHistoryThenLiveWithoutDoubles: history is cut where it was delivered already, and overlaps
// with the queue are cut there too.
func TestHistoryThenLiveWithoutDoubles(t *testing.T) { // SUB-8, SUB-10
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{Shape: offsets, From: 20})
	r.Add(s)
	for i := uint64(16); i < 40; i += 8 { // 16-23 holds 20
		e := numbered(pool, i, 8)
		r.Publish(e)
		e.Release()
	}
	var sink memorySink
	f := NewFeeder(s, &sink, Limits{})
	f.SkipTo(5)
	err := f.Deliver(numbered(pool, 0, 10), numbered(pool, 8, 6), numbered(pool, 3, 4), numbered(pool, 14, 8))
	if err != nil {
		t.Fatal(err)
	}
	if f.Next() != 22 {
		t.Errorf("next is %d", f.Next())
	}
	s.End(EndStopped)
	if cause, resume, err := f.Run(t.Context()); cause != EndStopped || resume != 40 || err != nil {
		t.Errorf("%v at %d, %v", cause, resume, err)
	}
	events := sink.events(t)
	if got := data(events); got != joined(numbers(5, 35)) {
		t.Errorf("delivered %s", got)
	}
	for i, e := range events {
		if e.Offset != uint64(5+i) {
			t.Fatalf("event %d has offset %d", i, e.Offset)
		}
	}
	checkEquation(t, s, 3, 20)
	checkPool(t, pool)
}

// TestFailedSinkReleasesEverything, in history and live, and the reader can resume where it ended.
func TestFailedSinkReleasesEverything(t *testing.T) { // HZ-40
	pool := wire.NewPool(1 << 20)
	broken := errors.New("stopped by the reader")
	s := NewSubscriber(SubscriberOptions{})
	sink := memorySink{err: broken}
	f := NewFeeder(s, &sink, Limits{})
	if err := f.Deliver(numbered(pool, 0, 5), numbered(pool, 5, 5)); !errors.Is(err, broken) || f.Next() != 0 {
		t.Errorf("Deliver: %v, next %d", err, f.Next())
	}
	checkPool(t, pool)

	r := NewRegistry()
	r.Add(s)
	for i := range uint64(3) {
		e := numbered(pool, i, 1)
		r.Publish(e)
		e.Release()
	}
	cause, resume, err := f.Run(t.Context())
	if cause != EndSink || resume != 0 || !errors.Is(err, broken) {
		t.Errorf("%v at %d, %v", cause, resume, err)
	}
	e := numbered(pool, 3, 1) // nobody removed it yet
	r.Publish(e)
	e.Release()
	checkEquation(t, s, 4, 4)
	checkPool(t, pool)
	if cause, _, _ := f.Run(t.Context()); cause != EndClosed {
		t.Errorf("a second Run ended with %v", cause)
	}
}

// TestEndedContextStopsTheFeeder, asleep or not, without delivering what is left.
func TestEndedContextStopsTheFeeder(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	s := NewSubscriber(SubscriberOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	f := feed(ctx, s, &memorySink{}, Limits{})
	eventually(t, "it sleeps", func() bool { return s.state.Load()&stateSleeping != 0 })
	cancel()
	<-f.done
	if f.cause != EndClosed || !errors.Is(f.err, context.Canceled) {
		t.Errorf("%v, %v", f.cause, f.err)
	}
	r := NewRegistry()
	s = NewSubscriber(SubscriberOptions{})
	r.Add(s)
	e := numbered(pool, 0, 1)
	r.Publish(e)
	e.Release()
	var sink memorySink
	if cause, _, err := Feed(ctx, s, &sink, Limits{}); cause != EndClosed || err == nil || len(sink.stream) != 0 {
		t.Errorf("%v, %v, %d bytes", cause, err, len(sink.stream))
	}
	checkEquation(t, s, 1, 1)
	checkPool(t, pool)
}

// TestCloseWakesASleepingFeeder.
func TestCloseWakesASleepingFeeder(t *testing.T) {
	s := NewSubscriber(SubscriberOptions{})
	f := feed(t.Context(), s, &memorySink{}, Limits{})
	eventually(t, "it sleeps", func() bool { return s.state.Load()&stateSleeping != 0 })
	s.Close()
	<-f.done
	if f.cause != EndClosed || f.err != nil {
		t.Errorf("%v, %v", f.cause, f.err)
	}
}

// TestWritesGrowWhileTheSinkIsBlocked: single records are joined, in one frame and one write, up to
// the limits, and no write is larger than it needs to be.
func TestWritesGrowWhileTheSinkIsBlocked(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	for _, c := range []struct {
		name            string
		records, size   int
		lim             Limits
		frames, writes  int
		shape           wire.Flags
		publisherPerRec bool
	}{
		{name: "64 events in a frame", records: 100, size: 1, frames: 2, writes: 1},
		{name: "64 KiB in a write", records: 20, size: 10_000, frames: 4, writes: 4},
		{name: "own limits", records: 10, size: 1, lim: Limits{EventsMax: 3}, frames: 4, writes: 1},
		{name: "larger than a write", records: 2, size: 200_000, frames: 2, writes: 2},
		{name: "publishers alternate, unseen", records: 8, size: 1, frames: 1, writes: 1, publisherPerRec: true},
		{name: "publishers alternate, seen", records: 8, size: 1, frames: 8, writes: 1, publisherPerRec: true, shape: wire.FlagEvPublisher},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRegistry()
			s := NewSubscriber(SubscriberOptions{Shape: c.shape})
			r.Add(s)
			for i := range c.records {
				p := publish{base: uint64(i), prefix: 9, records: []string{strings.Repeat("x", c.size)}}
				if c.publisherPerRec {
					p.publisher = fmt.Sprint(i % 2)
				}
				e := envelope(pool, true, p)
				r.Publish(e)
				e.Release()
			}
			s.End(EndStopped)
			var sink memorySink
			Feed(t.Context(), s, &sink, c.lim)
			events, frames := decode(t, [][]byte{sink.stream})
			if len(events) != c.records || frames != c.frames || len(sink.writes) != c.writes {
				t.Errorf("%d events in %d frames in %d writes (%v)", len(events), frames, len(sink.writes), sink.writes)
			}
			if st := s.Stats(); st.Frames != uint64(frames) || st.Writes != uint64(len(sink.writes)) {
				t.Errorf("stats %+v", st)
			}
			checkPool(t, pool)
		})
	}
}

// TestChurnAgainstPublish subscribes and leaves as fast as it can while a publisher publishes:
// every reader sees a contiguous range, the equation holds for each, and no buffer is left.
func TestChurnAgainstPublish(t *testing.T) { // SUB-3, HZ-40, HZ-43
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	var stop atomic.Bool
	var published atomic.Uint64
	var publisher, churn sync.WaitGroup
	publisher.Go(func() {
		for i := uint64(0); !stop.Load(); i++ {
			e := numbered(pool, i, 1)
			r.Publish(e)
			e.Release()
			published.Store(i + 1)
			if i%16 == 0 {
				runtime.Gosched()
			}
		}
	})
	for g := range 4 {
		churn.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 100 {
				s := NewSubscriber(SubscriberOptions{Shape: offsets, Capacity: 1 + rng.IntN(64), EndOnDrop: rng.IntN(2) == 0})
				sink := &memorySink{}
				r.Add(s)
				ctx, cancel := context.WithCancel(t.Context())
				f := feed(ctx, s, sink, Limits{})
				for range rng.IntN(20) {
					runtime.Gosched()
				}
				how := rng.IntN(4)
				switch how {
				case 0: // orderly
					r.Remove(s)
					s.End(EndStopped)
				case 1: // the reader goes away
					sink.mu.Lock()
					sink.err = errors.New("gone")
					sink.mu.Unlock()
					cancel()
				case 2:
					s.Close()
				case 3:
					s.End(EndMoved) // still registered
				}
				<-f.done
				cancel()
				r.Remove(s)
				s.Close()
				last := uint64(0)
				for i, e := range sink.events(t) {
					if i > 0 && (e.Offset <= last || e.Offset != last+1 && s.Dropped() == 0) {
						t.Errorf("offset %d after %d", e.Offset, last)
					}
					last = e.Offset
				}
				// A publish that is under way may still offer one: wait for the next.
				now := published.Load()
				eventually(t, "the next publish", func() bool { return published.Load() >= now+2 })
				st := s.Stats()
				checkEquation(t, s, st.Accepted+st.DroppedBatches, st.Accepted+st.DroppedRecords)
				if st.Queued != 0 {
					t.Errorf("%d queued at rest", st.Queued)
				}
			}
		})
	}
	churn.Wait()
	stop.Store(true)
	publisher.Wait()
	checkPool(t, pool)
	if n := len(r.Snapshot()); n != 0 {
		t.Errorf("%d subscribers left", n)
	}
}

// TestNoWakeOfAFeederIsLost: a lone publish to a sleeping feeder is always delivered, attacked by
// publishing at every possible moment of its falling asleep.
func TestNoWakeOfAFeederIsLost(t *testing.T) { // SUB-14
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{})
	r.Add(s)
	sink := memorySink{tell: make(chan struct{}, 1)}
	f := feed(t.Context(), s, &sink, Limits{})
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for i := range uint64(5000) {
		e := numbered(pool, i, 1)
		r.Publish(e)
		e.Release()
		select {
		case <-sink.tell:
		case <-timeout.C:
			t.Fatalf("publish %d was never delivered", i)
		}
	}
	s.End(EndStopped)
	<-f.done
	checkPool(t, pool)
}

// TestAHundredReadersOneEncoding: with every reader's feeder running, each shape is encoded once
// and all readers of it are handed the same memory.
func TestAHundredReadersOneEncoding(t *testing.T) { // SUB-1
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	shapesUsed := []wire.Flags{plain, offsets, offsets | wire.FlagEvPublisher, allOf}
	var mu sync.Mutex
	seen := map[wire.Flags]map[*byte]bool{}
	var wg sync.WaitGroup
	var subs []*Subscriber
	for i := range 100 {
		shape := shapesUsed[i%len(shapesUsed)]
		s := NewSubscriber(SubscriberOptions{Shape: shape})
		r.Add(s)
		subs = append(subs, s)
		wg.Go(func() {
			Feed(t.Context(), s, sinkFunc(func(frames [][]byte) error {
				mu.Lock()
				defer mu.Unlock()
				if seen[shape] == nil {
					seen[shape] = map[*byte]bool{}
				}
				seen[shape][&frames[0][0]] = true
				return nil
			}), Limits{})
		})
	}
	e := envelope(pool, true, publish{base: 0, publisher: "p", micros: 9, prefix: 20, records: numbers(0, 64)})
	r.Publish(e)
	for _, s := range subs {
		s.End(EndStopped)
	}
	wg.Wait()
	for shape, headers := range seen {
		if len(headers) != 1 {
			t.Errorf("shape %#x was encoded %d times", shape, len(headers))
		}
	}
	if len(seen) != len(shapesUsed) {
		t.Errorf("%d shapes were delivered", len(seen))
	}
	e.Release()
	checkPool(t, pool)
}
