package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ringcast/ringcast/wire"
)

func at(n uint64) wire.Start { return wire.Start{Kind: wire.StartOffset, Offset: n} }

var (
	latest   = wire.Start{Kind: wire.StartLatest}
	earliest = wire.Start{Kind: wire.StartEarliest}
)

// SUB-11: a start that the shard does not hold is a typed answer with the usable offset; the tail
// itself is valid.
func TestStartOutsideTheLogIsTyped(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	for range 5 {
		publish(t, b, st, "x")
	}
	var cursor *CursorError
	_, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: at(6)})
	if !errors.As(err, &cursor) || cursor.TooOld || cursor.Available != 5 || cursor.Requested != 6 {
		t.Fatalf("beyond the tail: %v", err)
	}
	sub, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: at(5)})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := sub.StartOffset(); n != 5 {
		t.Fatalf("start %d", n)
	}
	sub.Close()
	_, err = b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Shard: 1})
	if !errors.Is(err, wire.ErrInvalidRequest) {
		t.Fatalf("shard out of range: %v", err)
	}
}

// SUB-13: the wanted queue length is clamped to 1..max and granted.
func TestQueueCapacityIsClamped(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true, SubscriberQueue: 7, SubscriberQueueMax: 9})
	st := stream(t, b, StreamDef{})
	for want, ask := range map[uint32]*uint32{7: nil, 1: new(uint32(0)), 4: new(uint32(4)), 9: new(^uint32(0))} {
		sub, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, QueueCapacity: ask})
		if err != nil {
			t.Fatal(err)
		}
		if got := sub.QueueCapacity(); got != want {
			t.Errorf("asked %v: granted %d, want %d", ask, got, want)
		}
		sub.Close()
		sub.Close()
	}
}

// SUB-8, HZ-14: with a publisher flat out, readers that join at random times from random offsets
// get exactly the contiguous range from their start: nothing twice, nothing missing.
func TestResumeUnderLoadHasNoGapAndNoDuplicate(t *testing.T) {
	const readers, records = 40, 3000
	b := openTest(t, Options{RingRecords: 32}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(records) {
			r := request(b, st, fmt.Sprint(i))
			r.Reply, r.Tag = res, i
			if err := b.Publish(t.Context(), r); err != nil {
				t.Errorf("publish %d: %v", i, err)
				return
			}
		}
	})
	for n := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			res.wait(t, rng.Uint64N(records*9/10))
			tail := st.shards[0].visible.Load()
			from := rng.Uint64N(tail + 1)
			if n%3 == 0 {
				from = tail
			}
			r := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Start: at(from), QueueCapacity: new(uint32(4096))}, r)
			for i, e := range r.wait(records - int(from)) {
				if want := from + uint64(i); e.offset != want || e.payload != fmt.Sprint(want) {
					t.Errorf("reader from %d: event %d is %+v", from, i, e)
					return
				}
			}
		})
	}
	wg.Wait()
}

// SUB-17, BUG-26: a reader at the latest record never gets one below its start offset.
func TestLatestDeliversNothingBelowItsStart(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 500 {
			publish(t, b, st, "x")
		}
	})
	for range 20 {
		r := newReader(t, wire.FlagEvOffsets)
		sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, r)
		start, _ := sub.StartOffset()
		live, _ := sub.LiveOffset()
		if start != live {
			t.Errorf("start %d, live %d", start, live)
		}
		if start < 480 {
			if e := r.wait(1)[0]; e.offset != start {
				t.Errorf("first event %d, start offset %d", e.offset, start)
			}
		}
		sub.stop()
	}
	wg.Wait()
}

// The position that a subscription is shown at follows the reader, through history and live.
func TestPositionFollowsTheReader(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	for range 5 {
		publish(t, b, st, "x", "y")
	}
	r := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: at(3)}, r)
	r.wait(7)
	for range 5 {
		publish(t, b, st, "x")
	}
	r.wait(12)
	eventually(t, "the reader is at the tail", func() bool {
		info := b.Subscriptions()[0]
		return info.Live && info.Position == 15 && info.Tail == 15
	})
}

// SUB-2, SUB-16, BUG-24: a reader that stops reading loses only its own records. On a durable stream
// one that asked for it is told where to resume, although nothing more is published; the others and
// the publisher notice nothing.
func TestStuckReaderIsToldWhereToResume(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	stuck := newReader(t, wire.FlagEvOffsets)
	stuck.gate = make(chan struct{})
	sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest, QueueCapacity: new(uint32(3)), Lagged: true}, stuck)
	healthy := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, healthy)
	for i := range 40 {
		if res := publish(t, b, st, fmt.Sprint(i)); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	for i, e := range healthy.wait(40) {
		if e.offset != uint64(i) {
			t.Fatalf("healthy reader: event %d is %+v", i, e)
		}
	}
	close(stuck.gate)
	end := sub.wait(t)
	if end.Cause != EndLagged {
		t.Fatalf("ended with %+v", end)
	}
	got := len(stuck.got)
	if got == 0 || uint64(got) != end.ResumeFrom {
		t.Fatalf("%d events delivered, resume from %d", got, end.ResumeFrom)
	}
	if st.Info().ShardInfo[0].Subscribers != 1 {
		t.Fatal("the ended reader is still registered") // SUB-21
	}
}

// On an in-memory stream a reader may start at what the replay ring still holds.
func TestInMemoryReplay(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true, RingRecords: 10})
	st := stream(t, b, StreamDef{})
	for i := range 25 {
		if res := publish(t, b, st, fmt.Sprint(i)); res.Err != nil || res.HasOffset {
			t.Fatalf("%+v", res)
		}
	}
	r := newReader(t, 0)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, r)
	publish(t, b, st, "25")
	for i, e := range r.wait(11) {
		if e.payload != fmt.Sprint(15+i) {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
}

// A deleted stream ends its readers after what was published, refuses publishes, and a new stream
// of the same name begins empty.
func TestDeletedStreamEndsItsReaders(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	live := newReader(t, wire.FlagEvOffsets)
	sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, live)
	eventually(t, "the reader has joined", sub.joined.Load) // history that is not read yet is cut short
	publish(t, b, st, "last")
	if err := b.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	if end := sub.wait(t); end.Cause != EndDeleted {
		t.Fatalf("ended with %+v", end)
	}
	if e := live.wait(1)[0]; e.payload != "last" {
		t.Fatalf("got %+v", e)
	}
	if err := b.Publish(t.Context(), request(b, st, "x")); !errors.Is(err, wire.ErrNotFound) {
		t.Fatalf("publish to the deleted stream: %v", err)
	}
	if _, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st}); !errors.Is(err, wire.ErrNotFound) {
		t.Fatalf("subscribe to the deleted stream: %v", err)
	}
	again := stream(t, b, StreamDef{Durable: true})
	if res := publish(t, b, again, "first"); res.Offset != 0 {
		t.Fatalf("the new stream begins at %+v", res)
	}
	if again.id == st.id {
		t.Fatal("an id was used twice")
	}
}

// A revoked principal's readers end with that cause, others go on.
func TestRevokeEndsThePrincipalsReaders(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true})
	st := stream(t, b, StreamDef{})
	mine := subscribe(t, b, &SubscribeRequest{Stream: st, Principal: "eve"}, newReader(t, 0))
	other := newReader(t, 0)
	subscribe(t, b, &SubscribeRequest{Stream: st, Principal: "bob"}, other)
	if n := b.Revoke("t", "eve"); n != 1 {
		t.Fatalf("%d revoked", n)
	}
	if end := mine.wait(t); end.Cause != EndRevoked {
		t.Fatalf("ended with %+v", end)
	}
	publish(t, b, st, "x")
	other.wait(1)
}

// HZ-47: all replay rings together keep no more alive than their budget, and a reader is served all
// the same: from the log.
func TestReplayRingsShareABudget(t *testing.T) {
	const budget = 256 << 10
	b := openTest(t, Options{RetainedBytes: budget}.in(t.TempDir()))
	big := string(make([]byte, 20<<10))
	var streams []*Stream
	for i := range 8 {
		streams = append(streams, stream(t, b, StreamDef{Stream: fmt.Sprint(i), Durable: true}))
	}
	for range 6 {
		for _, st := range streams {
			if res := publish(t, b, st, big); res.Err != nil {
				t.Fatal(res.Err)
			}
			if n := b.Status().RetainedBytes; n > budget {
				t.Fatalf("rings retain %d bytes, the budget is %d", n, budget)
			}
		}
	}
	for _, st := range streams {
		r := newReader(t, wire.FlagEvOffsets)
		subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, r)
		if got := r.wait(6); got[5].offset != 5 {
			t.Fatalf("got offset %d", got[5].offset)
		}
	}
}
