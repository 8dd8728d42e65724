package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/wire"
)

// stillPublisher is a publisher whose sender does not run: the benchmark takes its steps.
func stillPublisher(idempotent bool) (*Publisher, *sender) {
	cfg, err := newPublisherConfig("default", []PublisherOption{WithBatchRecords(64), WithBatchBytes(1 << 20)})
	if err != nil {
		panic(err)
	}
	cfg.limits.idempotent, cfg.limits.repeatable = idempotent, idempotent
	c := &Client{cfg: &config{tenant: "tenant", backoffBase: time.Millisecond, backoffMax: time.Second}}
	p := &Publisher{client: c, stream: "orders", cfg: cfg, epoch: time.Now(), done: make(chan struct{}),
		budget: budget{size: cfg.budget}, width: 1, senders: make([]*sender, 1), start: func(*sender) {}}
	p.waiters.New = newWaiter
	p.mu.Lock()
	s := p.sender(0)
	s.box.setWindow(256)
	if idempotent {
		s.box.setProducer(1)
	}
	p.mu.Unlock()
	return p, s
}

// publishFrame accepts one frame of records and settles it as the sender and the broker would.
func publishFrame(ctx context.Context, p *Publisher, s *sender, rec Record, done func(Ack, error)) error {
	for range 64 {
		if err := p.PublishAsync(ctx, rec, done); err != nil {
			return err
		}
	}
	t := s.turn()
	if t.batch == nil || t.batch.count != 64 {
		return errStop
	}
	p.mu.Lock()
	s.box.wrote(t.batch, nil)
	p.mu.Unlock()
	return s.acked(t.batch.number, 7, true)
}

// Publishing allocates nothing per record and nothing per frame once it is warm.
func TestPublishingAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("self-checks allocate")
	}
	for _, idempotent := range []bool{false, true} {
		p, s := stillPublisher(idempotent)
		rec := Record{Key: []byte("customer-4"), Value: make([]byte, 256)}
		done := func(Ack, error) {}
		ctx := context.Background()
		allocs := testing.AllocsPerRun(200, func() {
			if err := publishFrame(ctx, p, s, rec, done); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("idempotent %v: %v allocations for 64 records", idempotent, allocs)
		}
	}
}

// BenchmarkPublish is one record from PublishAsync into its frame, with a 64th of what a frame
// costs: release, answer, delivery of the outcome.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{64, 256, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			p, s := stillPublisher(false)
			rec := Record{Value: make([]byte, size)}
			done := func(Ack, error) {}
			ctx := context.Background()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			n := 0
			for b.Loop() {
				if n++; n%64 != 0 {
					continue
				}
				if err := publishFrame(ctx, p, s, rec, done); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// eventFrameOf is the payload of an event frame.
func eventFrameOf(count, size int, shape wire.Flags) (wire.Flags, []byte) {
	records := make([]byte, 0, count*(size+4))
	for range count {
		records = wire.AppendRecord(records, make([]byte, size))
	}
	if shape&wire.FlagEvTimes != 0 {
		records = wire.AppendTimedRecords(nil, records, 1_700_000_000_000_000)
	}
	publisher := ""
	if shape&wire.FlagEvPublisher != 0 {
		publisher = "somebody"
	}
	out := make([]byte, wire.EventHeaderSize(shape, len(publisher)))
	wire.PutEventHeader(out, shape, &wire.EventHeader{Publisher: publisher, Count: uint32(count)}, len(records))
	out = append(out, records...)
	h, err := wire.ParseHeader(out)
	if err != nil {
		panic(err)
	}
	return h.Flags, out[wire.HeaderSize:]
}

// readingSubscription is a subscription whose receiver is driven by hand.
func readingSubscription(shape wire.Flags) (*receiver, *Subscription, *wire.Pool) {
	cfg, err := newSubscribeConfig("default", nil)
	if err != nil {
		panic(err)
	}
	cfg.times, cfg.publisher = shape&wire.FlagEvTimes != 0, shape&wire.FlagEvPublisher != 0
	c := &Client{cfg: &config{tenant: "tenant", backoffBase: time.Millisecond, backoffMax: time.Second}}
	s := &Subscription{client: c, stream: "orders", cfg: cfg, queue: newFrameQueue(cfg.framesMax, cfg.bytesMax)}
	return newReceiver(s), s, wire.NewPool(1 << 20)
}

// receiveFrame takes one frame from the stream's side and reads all of its events.
func receiveFrame(ctx context.Context, r *receiver, s *Subscription, pool *wire.Pool, flags wire.Flags, payload []byte, count int) error {
	buf := pool.Get(len(payload))
	copy(buf.Bytes(), payload)
	r.cursor.next, r.cursor.known = 0, true
	if err := r.events(ctx, flags, &eventStream{}, buf); err != nil {
		return err
	}
	for range count {
		if _, err := s.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Receiving allocates nothing per event once it is warm.
func TestReceivingAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("self-checks allocate")
	}
	for _, shape := range []wire.Flags{wire.FlagEvOffsets, wire.FlagEvOffsets | wire.FlagEvTimes | wire.FlagEvPublisher} {
		r, s, pool := readingSubscription(shape)
		flags, payload := eventFrameOf(64, 256, shape)
		ctx := context.Background()
		allocs := testing.AllocsPerRun(200, func() {
			if err := receiveFrame(ctx, r, s, pool, flags, payload, 64); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 1 { // the stand-in for the event stream
			t.Errorf("shape %#x: %v allocations for 64 events", uint16(shape), allocs)
		}
	}
}

// BenchmarkReceive is one event from its frame to Next, with a 64th of what a frame costs.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{64, 256, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			r, s, pool := readingSubscription(wire.FlagEvOffsets)
			flags, payload := eventFrameOf(64, size, wire.FlagEvOffsets)
			ctx := context.Background()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			n := 0
			for b.Loop() {
				if n++; n%64 != 0 {
					continue
				}
				if err := receiveFrame(ctx, r, s, pool, flags, payload, 64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
