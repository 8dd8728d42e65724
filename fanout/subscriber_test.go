package fanout

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/wire"
)

// TestSubscriberQueueModel compares random offers and takes with a slice: order, bounds in envelopes
// and bytes, what is dropped, the first dropped offset, and every reference given back.
func TestSubscriberQueueModel(t *testing.T) { // SUB-6, HZ-40
	pool := wire.NewPool(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		o := SubscriberOptions{
			Capacity:      rapid.IntRange(1, 40).Draw(t, "capacity"),
			CapacityBytes: rapid.Int64Range(1, 8000).Draw(t, "bytes"),
			From:          rapid.Uint64Range(0, 20).Draw(t, "from"),
			EndOnDrop:     rapid.Bool().Draw(t, "end on drop"),
		}
		s := NewSubscriber(o)
		type queued struct {
			base uint64
			size int64
		}
		var model []queued
		var bytes int64
		var batches, records, droppedRecords uint64
		first, lagging := int64(-1), false
		next := uint64(0)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "do") == 0 {
				e := s.q.peek()
				if (e == nil) != (len(model) == 0) {
					t.Fatalf("peek %v with %d queued", e, len(model))
				}
				if e == nil {
					continue
				}
				if e.base != model[0].base {
					t.Fatalf("offset %d at the head, want %d", e.base, model[0].base)
				}
				s.take(e)
				e.Release()
				bytes -= model[0].size
				model = model[1:]
				continue
			}
			n := rapid.IntRange(1, 4).Draw(t, "records")
			e := envelope(pool, true, publish{base: next, records: numbers(next, n), prefix: rapid.SampledFrom([]int{0, 3000}).Draw(t, "prefix")})
			next = e.next
			room := !lagging && len(model) < o.Capacity && (bytes+e.size <= o.CapacityBytes || len(model) == 0)
			want := offerQueued
			switch {
			case e.next <= o.From:
				want = offerPassed
			case !room:
				want = offerDropped
			}
			e.Retain()
			if got := s.offer(e); got != want {
				t.Fatalf("offer %d with %d queued (%d bytes): %d, want %d", e.base, len(model), bytes, got, want)
			}
			if want != offerPassed {
				batches++
				records += e.recordsFrom(o.From)
			}
			switch want {
			case offerQueued:
				model = append(model, queued{e.base, e.size})
				bytes += e.size
			default:
				e.Release()
			}
			if want == offerDropped {
				droppedRecords += e.recordsFrom(o.From)
				lagging = o.EndOnDrop
				if first < 0 {
					first = int64(max(e.base, o.From))
				}
			}
			e.Release()
			if s.Queued() != len(model) || s.Dropped() != droppedRecords {
				t.Fatalf("queued %d, dropped %d; want %d, %d", s.Queued(), s.Dropped(), len(model), droppedRecords)
			}
			if got, ok := s.FirstDropped(); ok != (first >= 0) || ok && got != uint64(first) {
				t.Fatalf("first dropped %d, %v; want %d", got, ok, first)
			}
			if lag := s.state.Load()&stateLagged != 0; lag != lagging {
				t.Fatalf("lagged %v, want %v", lag, lagging)
			}
		}
		s.Close()
		if st := s.Stats(); st.Queued != 0 || st.Accepted+st.DroppedBatches != batches || st.AbandonedBatches != uint64(len(model)) {
			t.Fatalf("after Close: %+v, offered %d", st, batches)
		}
		if n := pool.Stats().InUse; n != 0 {
			t.Fatalf("%d Bufs in use after Close", n)
		}
	})
}

// TestQueueGrowsInPlace: one producer, one consumer, a queue that grows from its first size to its
// capacity while both are at work: nothing is lost, doubled or reordered.
func TestQueueGrowsInPlace(t *testing.T) { // SUB-6
	for round := range 20 {
		var q queue
		q.init()
		const n = 5000
		envs := make([]Envelope, n)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range envs {
				envs[i].base = uint64(i)
				for q.len() >= 64<<(round%4) {
					runtime.Gosched()
				}
				q.push(&envs[i])
			}
		})
		for want := uint64(0); want < n; {
			e := q.peek()
			if e == nil {
				runtime.Gosched()
				continue
			}
			if e.base != want {
				t.Fatalf("got %d, want %d", e.base, want)
			}
			q.drop()
			want++
		}
		wg.Wait()
		if q.len() != 0 || q.peek() != nil {
			t.Fatal("not empty")
		}
	}
}

// TestOversizedEnvelopeIsTakenByAnEmptyQueue: otherwise a subscriber could never get it.
func TestOversizedEnvelopeIsTakenByAnEmptyQueue(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{CapacityBytes: 10})
	r.Add(s)
	for i := range uint64(2) {
		e := numbered(pool, i, 1)
		queued, dropped := r.Publish(e)
		if queued != int(1-i) || dropped != int(i) {
			t.Errorf("envelope %d: queued %d, dropped %d", i, queued, dropped)
		}
		e.Release()
	}
	s.Close()
	checkPool(t, pool)
}

// TestRegistryListsWhoIsThere, in order, and says so.
func TestRegistryListsWhoIsThere(t *testing.T) { // SUB-21
	r := NewRegistry()
	var subs []*Subscriber
	for range 5 {
		s := NewSubscriber(SubscriberOptions{})
		subs = append(subs, s)
		r.Add(s)
	}
	before := r.Snapshot()
	if !r.Remove(subs[2]) || r.Remove(subs[2]) {
		t.Error("Remove does not say whether it removed")
	}
	if got := r.Snapshot(); len(got) != 4 || got[1] != subs[1] || got[2] != subs[3] {
		t.Errorf("snapshot %v", got)
	}
	if len(before) != 5 || before[2] != subs[2] {
		t.Error("an older snapshot changed")
	}
	r.Add(subs[2])
	if got := r.Snapshot(); got[4] != subs[2] {
		t.Error("the newest is not the last")
	}
	defer func() {
		if recover() == nil {
			t.Error("added twice: no panic")
		}
	}()
	r.Add(subs[2])
}

// TestStalledSubscriberLosesOnlyItsOwn: a subscriber that takes nothing fills its queue, and the
// publish neither waits nor drops for its neighbour.
func TestStalledSubscriberLosesOnlyItsOwn(t *testing.T) { // SUB-2, HZ-39
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	stalled := NewSubscriber(SubscriberOptions{Capacity: 4})
	healthy := NewSubscriber(SubscriberOptions{Capacity: 8})
	r.Add(stalled)
	r.Add(healthy)
	for i := range uint64(100) {
		e := numbered(pool, i, 1)
		r.Publish(e)
		e.Release()
		got := healthy.q.peek()
		if got == nil || got.base != i {
			t.Fatalf("the healthy one did not get %d", i)
		}
		healthy.take(got)
		got.Release()
	}
	if healthy.Dropped() != 0 || stalled.Dropped() != 96 || stalled.Queued() != 4 {
		t.Errorf("healthy dropped %d, stalled dropped %d with %d queued", healthy.Dropped(), stalled.Dropped(), stalled.Queued())
	}
	if first, _ := stalled.FirstDropped(); first != 4 {
		t.Errorf("first dropped %d", first)
	}
	stalled.Close()
	checkPool(t, pool)
}

// TestPublishAllocatesNothing once the queues have their length, also when they are full.
func TestPublishAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("race builds allocate")
	}
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	subs := make([]*Subscriber, 10)
	for i := range subs {
		subs[i] = NewSubscriber(SubscriberOptions{Capacity: 16})
		r.Add(subs[i])
	}
	e := numbered(pool, 0, 1)
	drain := func() {
		for _, s := range subs[1:] { // the first one is always full
			for e := s.q.peek(); e != nil; e = s.q.peek() {
				s.take(e)
				e.Release()
			}
		}
	}
	for range 100 {
		r.Publish(e)
	}
	if got := testing.AllocsPerRun(100, func() { drain(); r.Publish(e) }); got != 0 {
		t.Errorf("%v allocations per publish", got)
	}
	for _, s := range subs {
		s.Close()
	}
	e.Release()
	checkPool(t, pool)
}

// BenchmarkRegistryPublish is the executor's cost of a publish, per subscriber: the feeders are
// awake (their queues are emptied between publishes by the same goroutine, untimed work excluded by
// the awake flag) or the queue is full.
func BenchmarkRegistryPublish(b *testing.B) {
	pool := wire.NewPool(64 << 20)
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("awake/subs=%d", n), func(b *testing.B) {
			r := NewRegistry()
			subs := make([]*Subscriber, n)
			for i := range subs {
				subs[i] = NewSubscriber(SubscriberOptions{Capacity: 4096})
				r.Add(subs[i])
			}
			e := numbered(pool, 0, 1)
			drain := func() {
				for _, s := range subs {
					for e := s.q.peek(); e != nil; e = s.q.peek() {
						s.take(e)
						e.Release()
					}
				}
			}
			for range 4096 {
				r.Publish(e)
			}
			drain()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i++; i%4096 == 0 {
					b.StopTimer()
					drain()
					b.StartTimer()
				}
				r.Publish(e)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/sub")
			b.StopTimer()
			for _, s := range subs {
				if s.Dropped() != 0 {
					b.Fatal("dropped")
				}
				s.Close()
			}
			e.Release()
		})
		b.Run(fmt.Sprintf("full/subs=%d", n), func(b *testing.B) {
			r := NewRegistry()
			subs := make([]*Subscriber, n)
			for i := range subs {
				subs[i] = NewSubscriber(SubscriberOptions{Capacity: 16})
				r.Add(subs[i])
			}
			e := numbered(pool, 0, 1)
			b.ReportAllocs()
			for b.Loop() {
				r.Publish(e)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/sub")
			for _, s := range subs {
				s.Close()
			}
			e.Release()
		})
	}
}
