package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

func subscribeTo(stream string) *wire.Subscribe {
	return &wire.Subscribe{TenantID: "t1", Namespace: "default", Stream: stream}
}

func (r *raw) recvSubscribed() *wire.Subscribed {
	r.t.Helper()
	m := r.recvMessage()
	s, ok := m.(*wire.Subscribed)
	if !ok {
		r.t.Fatalf("%#v; want subscribed", m)
	}
	return s
}

func (w *world) subscribers() int64 { return w.srv.Stats().SubscriptionsOpen }

// The hello comes at once and first on each event stream, though nothing is published, so that no
// silent stream stops the ones behind it (wire.md 1.2).
func TestHelloIsFirstAndAtOnce(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	r := c.login()
	for range 5 {
		r.send(subscribeTo("s"))
		id := r.recvSubscribed().SubscriptionID
		c.events().want(&wire.EventStreamHello{SubscriptionID: id})
	}
}

// `subscribed` precedes history, and a history larger than every window does not deadlock with a
// client that reads its event stream only after the answer (SUB-9), nor is any of it lost.
func TestSubscribedPrecedesHistory(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true, durable: true})
	w.stream(core.StreamDef{Stream: "d", Durable: true})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc, err := netio.Dial(ctx, w.listener.Addr().String(), netio.DialOptions{RootCAs: w.roots, StreamWindow: 64 << 10, ConnWindow: 96 << 10})
	if err != nil {
		t.Fatal(err)
	}
	c := w.newClient(nc)
	r := c.login()
	record := strings.Repeat("x", 20_000)
	const records = 100 // 2 MB
	for id := range uint64(records) {
		r.write(publish(wire.FlagAcked, id, "d", record))
		r.wantOK(id)
	}
	const readers = 3
	done := make(chan error, readers)
	for range readers {
		m := subscribeTo("d")
		m.Start = &wire.Start{Kind: wire.StartEarliest}
		r.send(m)
		s := r.recvSubscribed() // nobody reads the event stream before this
		if s.StartOffset == nil || *s.StartOffset != 0 || s.LiveOffset == nil || *s.LiveOffset != records {
			t.Fatalf("start %v, live %v; want 0, %d", s.StartOffset, s.LiveOffset, records)
		}
		ev := c.events()
		go func() { done <- ev.readOffsets(records) }()
	}
	r.mustPublish(1000, "d", "live")
	for range readers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// readOffsets reads a hello and then every offset up to last, without a gap.
func (r *raw) readOffsets(last uint64) error {
	if _, _, err := r.next(patience); err != nil {
		return err
	}
	for next := uint64(0); next <= last; {
		flags, body, err := r.next(patience)
		if err != nil {
			return err
		}
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(flags, body, &e); err != nil {
			return err
		}
		if e.Base != next {
			return fmt.Errorf("offset %d, want %d", e.Base, next)
		}
		next += uint64(e.Count)
	}
	return nil
}

// The offsets in `subscribed` go together, only for durable streams and only to clients that read
// offsets; `latest` starts where it is live (wire.md 4.4, SUB-17).
func TestSubscribedOffersOffsetsWhereTheyMeanSomething(t *testing.T) {
	w := newWorld(t, worldOptions{durable: true})
	w.stream(core.StreamDef{Stream: "d", Durable: true})
	c := w.dial()
	r := c.login()
	r.mustPublish(1, "d", "a", "b", "c")

	r.send(subscribeTo("d"))
	s := r.recvSubscribed()
	if s.StartOffset == nil || s.LiveOffset == nil || *s.StartOffset != 3 || *s.LiveOffset != 3 {
		t.Errorf("latest on a durable stream: %+v", s)
	}
	r.send(subscribeTo("s"))
	if s := r.recvSubscribed(); s.StartOffset != nil || s.LiveOffset != nil {
		t.Errorf("in memory: %+v", s)
	}
	m := subscribeTo("d")
	m.Start = &wire.Start{Kind: wire.StartOffset, Offset: 1}
	r.send(m)
	if s := r.recvSubscribed(); *s.StartOffset != 1 || *s.LiveOffset != 3 {
		t.Errorf("offset 1: %+v", s)
	}
	plain := c.loginAs(w.token(), uint16(wire.FlagsOriginal), 0)
	plain.send(subscribeTo("d"))
	if s := plain.recvSubscribed(); s.StartOffset != nil || s.LiveOffset != nil {
		t.Errorf("offsets not offered: %+v", s)
	}
	m.Start = &wire.Start{Kind: wire.StartOffset, Offset: 4}
	r.send(m)
	r.wantJSON(`{"type":"subscribe_cursor_error","reason":"in_future","requested":4,"available":3}`)
	r.wantOpen()
}

// queue_capacity is clamped to 1..max and echoed; absent means the default and no field (SUB-13).
func TestQueueCapacityIsClampedAndEchoed(t *testing.T) {
	w := newWorld(t, worldOptions{core: func(o *core.Options) { o.SubscriberQueueMax = 1000 }})
	r := w.dial().login()
	for _, row := range []struct {
		ask  *uint32
		want *uint32
	}{{nil, nil}, {ptr[uint32](0), ptr[uint32](1)}, {ptr[uint32](7), ptr[uint32](7)}, {ptr[uint32](1 << 31), ptr[uint32](1000)}} {
		m := subscribeTo("s")
		m.QueueCapacity = row.ask
		r.send(m)
		got := r.recvSubscribed().QueueCapacity
		if (got == nil) != (row.want == nil) || got != nil && *got != *row.want {
			t.Errorf("asked %v, granted %v, want %v", row.ask, got, row.want)
		}
	}
}

// A subscriber whose queue overflowed is told at once, though nothing more is published: what was
// queued, then subscription_lagged with the first dropped offset, then FIN (SUB-16, BUG-24).
func TestLaggedSubscriberIsToldWithoutAnotherPublish(t *testing.T) {
	w := newWorld(t, worldOptions{durable: true})
	w.stream(core.StreamDef{Stream: "d", Durable: true})
	pub := w.dial().login()
	c := w.pair(2000)
	r := c.login()
	m := subscribeTo("d")
	m.QueueCapacity = ptr[uint32](2)
	r.send(m)
	id := r.recvSubscribed().SubscriptionID
	ev := c.events()
	ev.want(&wire.EventStreamHello{SubscriptionID: id})

	const records = 20
	for i := range uint64(records) {
		pub.mustPublish(i, "d", strings.Repeat("x", 1000))
	}
	next := uint64(0)
	for {
		flags, body := ev.recv()
		if flags == 0 {
			m, err := wire.DecodeMessage(body)
			if err != nil {
				t.Fatal(err)
			}
			lagged, ok := m.(*wire.SubscriptionLagged)
			if !ok || lagged.SubscriptionID != id || lagged.ResumeFrom != next {
				t.Fatalf("%#v; want lagged, resume from %d", m, next)
			}
			break
		}
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(flags, body, &e); err != nil {
			t.Fatal(err)
		}
		if e.Base != next {
			t.Fatalf("offset %d, want %d", e.Base, next)
		}
		next += uint64(e.Count)
	}
	if next == 0 || next >= records {
		t.Errorf("resume from %d: the test must drop some and not all", next)
	}
	ev.wantEnd()
	if got := w.srv.Stats().SubscriptionEnds["lagged"]; got != 1 {
		t.Errorf("counted %d lagged ends", got)
	}

	// Resuming there misses nothing.
	m = subscribeTo("d")
	m.Start = &wire.Start{Kind: wire.StartOffset, Offset: next}
	r.send(m)
	r.recvSubscribed()
	ev = c.events()
	ev.recvMessage()
	ev.records(int(records - next))
}

// A client that stops its event stream frees the subscription at once, and so does one that goes
// away, though nothing is published (SUB-21).
func TestStoppedReaderFreesItsSubscription(t *testing.T) {
	for _, quic := range []bool{true, false} {
		w := newWorld(t, worldOptions{quic: quic})
		c := w.dial()
		r := c.login()
		stopped, kept := c.subscribe(r, "s", 0), c.subscribe(r, "s", 0)
		gone := w.dial()
		gone.subscribe(gone.login(), "s", 0)
		if n := w.subscribers(); n != 3 {
			t.Fatalf("%d subscriptions", n)
		}
		stopped.rx.CancelRead(netio.ResetNone)
		eventually(t, "the stopped one is freed", func() bool { return w.subscribers() == 2 && w.broker.Status().Subscriptions == 2 })
		gone.nc.CloseWithError(netio.CloseShutdown, "")
		eventually(t, "the disconnected one is freed", func() bool { return w.subscribers() == 1 && w.broker.Status().Subscriptions == 1 })
		r.mustPublish(1, "s", "x")
		kept.wantRecords("x")
	}
}

// A reader that is blocked by flow control is freed, too (HZ-33).
func TestStoppedReaderFreesABlockedWrite(t *testing.T) {
	w := newWorld(t, worldOptions{})
	pub := w.dial().login()
	c := w.pair(1000)
	ev := c.subscribe(c.login(), "s", 0)
	pub.mustPublish(1, "s", strings.Repeat("x", 5000))
	eventually(t, "the write is blocked", func() bool {
		h := ev.rx.(fakeStream).rx
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.buf) == h.window
	})
	ev.rx.CancelRead(netio.ResetNone)
	eventually(t, "it is freed", func() bool { return w.subscribers() == 0 })
}

// A subscription lives on after the stream that asked for it, which clients finish behind the
// request, and gets its answer and our FIN there (wire.md 1.2).
func TestSubscriptionOutlivesItsControlStream(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	r := c.login()
	r.send(subscribeTo("s"))
	r.fin()
	id := r.recvSubscribed().SubscriptionID
	r.wantEnd()
	ev := c.events()
	ev.want(&wire.EventStreamHello{SubscriptionID: id})
	eventually(t, "the control stream is gone", func() bool { return w.srv.Stats().StreamsOpen == 0 })
	c.login().mustPublish(1, "s", "later")
	ev.wantRecords("later")
}

// More subscriptions than an identity or a connection may have are refused limit_exceeded; the
// stream goes on, and a freed one makes room (OPS-10, wire.md 6.4).
func TestSubscriptionLimits(t *testing.T) {
	w := newWorld(t, worldOptions{serve: func(o *Options) { o.MaxSubscriptions, o.MaxSubscriptionsConn = 2, 3 }})
	c := w.dial()
	alice := c.login()
	bob := c.loginAs(w.tokenOf("t1", "bob"), offerFlags, offerAll)
	first := c.subscribe(alice, "s", 0)
	c.subscribe(alice, "s", 0)
	alice.send(subscribeTo("s"))
	alice.wantJSON(`{"type":"error","message":"2 subscriptions of this identity on this connection: that is the limit","code":"limit_exceeded","retry":"fatal"}`)
	c.subscribe(bob, "s", 0)
	bob.send(subscribeTo("s"))
	bob.wantJSON(`{"type":"error","message":"3 subscriptions on this connection: that is the limit","code":"limit_exceeded","retry":"fatal"}`)
	other := w.dial()
	other.subscribe(other.login(), "s", 0)
	first.rx.CancelRead(netio.ResetNone)
	eventually(t, "room", func() bool { return w.subscribers() == 3 })
	c.subscribe(bob, "s", 0)
	if got := w.srv.Stats().SubscriptionsRefused; got != 2 {
		t.Errorf("counted %d refused, want 2", got)
	}
}

// A client whose stream credit is used up is refused, not left hanging, and nothing of the
// subscription remains (HZ-32).
func TestNoStreamCreditIsATypedRefusal(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true, serve: func(o *Options) { o.OpenTimeout = 20 * time.Millisecond }})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc, err := netio.Dial(ctx, w.listener.Addr().String(), netio.DialOptions{RootCAs: w.roots, MaxUniStreams: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := w.newClient(nc)
	r := c.login()
	ev := c.subscribe(r, "s", 0)
	r.send(subscribeTo("s"))
	r.wantJSON(`{"type":"error","message":"the client grants no stream for the events","code":"overloaded","retry":"retry_after"}`)
	if n := w.broker.Status().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions registered, want 1", n)
	}
	r.mustPublish(1, "s", "x")
	ev.wantRecords("x")
}

// A client whose window has no room for the hello is refused, too: its control stream is not held up.
func TestNoRoomForTheHelloIsATypedRefusal(t *testing.T) {
	w := newWorld(t, worldOptions{serve: func(o *Options) { o.OpenTimeout = 20 * time.Millisecond }})
	c := w.pair(40)
	r := c.login()
	r.send(subscribeTo("s"))
	r.wantJSON(`{"type":"error","message":"the client grants no stream for the events","code":"overloaded","retry":"retry_after"}`)
	r.wantOpen()
	if n := w.broker.Status().Subscriptions; n != 0 {
		t.Errorf("%d subscriptions registered, want none", n)
	}
}
