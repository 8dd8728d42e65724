package serve

import (
	"context"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// fullWorld returns a world with two executors. That of stream d holds two publishes, whose disk stands
// still until release; that of stream s is free.
func fullWorld(t *testing.T, changeCore func(*core.Options), change func(*Options)) (w *world, release func()) {
	fs := ringtest.NewFS(nil)
	w = newWorld(t, worldOptions{
		durable: true, serve: change,
		core: func(o *core.Options) {
			o.FS, o.CoreShards, o.PublishQueueDepth, o.PublishQueueFactor = fs, 2, 2, 1
			if changeCore != nil {
				changeCore(o)
			}
		},
	})
	w.stream(core.StreamDef{Stream: "d", Durable: true}) // its shard is the sixth, that of s the first
	r := w.dial().login()
	r.mustPublish(1, "d", "the log has its first segment")
	eventually(t, "the broker is at rest", func() bool { return w.broker.Status().Outstanding == 0 })
	hold := make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: ".seg", Times: -1, Wait: hold})
	held := true
	release = func() {
		if held {
			held = false
			close(hold)
		}
	}
	t.Cleanup(release)
	for range 2 {
		r.write(publish(0, 0, "d", "fills the queue"))
	}
	eventually(t, "the queue is full", func() bool { return w.broker.Status().Executors[1].Admitted == 2 })
	return w, release
}

func (w *world) parked() (parked uint64, waiting int64) {
	st := w.broker.Status()
	return st.Parked, st.Executors[1].Waiting
}

// records waits until stream d has n records, the first one included.
func (w *world) records(n int) {
	w.t.Helper()
	eventually(w.t, "everything is in the log", func() bool {
		info, _ := w.broker.GetStream("t1", "default", "d")
		return info.ShardInfo[0].Tail == uint64(n)
	})
}

// PUB-14: sixteen unacked publishes of a stream stand in line while it is read on; the seventeenth stops
// the reader of this stream, and of no other.
func TestSeventeenthParkedUnackedStopsTheReader(t *testing.T) {
	w, release := fullWorld(t, func(o *core.Options) { o.IngressWait = true }, nil)
	c := w.dial()
	r := c.login()
	for range 16 {
		r.write(publish(0, 0, "d", "parked"))
	}
	r.wantOpen()
	r.mustPublish(1, "s", "a queue with room is reached")
	if parked, waiting := w.parked(); parked != 16 || waiting != 16 {
		t.Fatalf("%d parked, %d wait", parked, waiting)
	}
	r.write(publish(0, 0, "d", "the seventeenth"))
	r.send(&wire.ProducerInit{RequestID: 17})
	eventually(t, "it waits, too", func() bool { _, waiting := w.parked(); return waiting == 17 })
	r.wantQuiet()
	c.login().mustPublish(2, "s", "a sibling stream goes on")
	if parked, _ := w.parked(); parked != 16 {
		t.Fatalf("%d parked", parked)
	}
	release()
	if m, ok := r.recvMessage().(*wire.ProducerInitOK); !ok || m.RequestID != 17 {
		t.Fatalf("%v; want producer_init_ok", m)
	}
	w.records(1 + 2 + 17)
	for _, ts := range w.broker.Status().Tenants {
		if ts.DroppedQueueFull != 0 || ts.Lost != 0 {
			t.Errorf("dropped: %+v", ts)
		}
	}
	// The places come free, one after another, and are used again.
	for range 100 {
		r.write(publish(0, 0, "d", "again"))
	}
	w.records(1 + 2 + 17 + 100)
}

// PUB-14, PUB-15: acked publishes stand in line up to 1024 of a stream; the next one stops the reader. All
// are answered in the order in which they were sent, with offsets in that order.
func TestAckedPublishesParkUpTo1024(t *testing.T) {
	w, release := fullWorld(t, func(o *core.Options) { o.PublishQueueWait = time.Minute }, func(o *Options) {
		o.PublishWindow, o.QueueWait, o.AckWait = 4000, time.Minute, time.Minute
	})
	r := w.dial().loginAs(w.token(), offerFlags, offerWindow)
	for id := range uint64(1024) {
		r.write(publish(wire.FlagAcked, id, "d", "x"))
	}
	r.wantOpen()
	if parked, waiting := w.parked(); parked != 1024 || waiting != 1024 {
		t.Fatalf("%d parked, %d wait", parked, waiting)
	}
	r.write(publish(wire.FlagAcked, 1024, "d", "x"))
	r.send(&wire.ProducerInit{RequestID: 99})
	eventually(t, "it waits, too", func() bool { _, waiting := w.parked(); return waiting == 1025 })
	r.wantQuiet()
	release()
	sawInit := false
	for id := uint64(0); id <= 1024; {
		flags, body := r.recv()
		if flags == 0 {
			sawInit = true
			continue
		}
		a, err := wire.DecodeAck(flags, body)
		if err != nil || a.Err != nil || a.RequestID != id || a.Offset != 3+id {
			t.Fatalf("answer %d: %+v, %v", id, a, err)
		}
		id++
	}
	if !sawInit {
		r.recvMessage()
	}
	if parked, _ := w.parked(); parked != 1024 {
		t.Errorf("%d parked", parked)
	}
}

// PUB-30: an acked publish that stands in line for longer than the queue wait is answered
// publish_queue_full with a hint, it alone, and is not written; its stream goes on.
func TestParkedPublishThatWaitsTooLongIsRefused(t *testing.T) {
	for _, feats := range []wire.Features{offerAll, offerWindow} {
		w, release := fullWorld(t, nil, func(o *Options) { o.QueueWait, o.AckWait = 100*time.Millisecond, time.Minute })
		r := w.dial().loginAs(w.token(), offerFlags, feats)
		for id := range uint64(5) {
			r.write(publish(wire.FlagAcked, id, "d", "waits too long"))
		}
		for id := range uint64(5) {
			a := r.wantAck(id)
			if a.Err == nil || a.Err.Code != wire.CodeOverloaded || a.Err.Reason != "publish_queue_full" || a.Err.RetryAfterMS == 0 || a.Err.Retry != wire.RetryAfter {
				t.Fatalf("answer %d: %+v", id, a.Err)
			}
		}
		st := w.broker.Status()
		if parked, waiting := w.parked(); parked != 5 || waiting != 0 || st.Outstanding != 2 {
			t.Fatalf("%d parked, %d wait, %d outstanding", parked, waiting, st.Outstanding)
		}
		for _, ts := range st.Tenants {
			if ts.Tenant == "t1" && ts.RefusedQueueFull != 5 {
				t.Errorf("counted %+v", ts)
			}
		}
		release()
		w.records(1 + 2)
		if a := r.mustPublish(9, "d", "has room"); a.Offset != 3 {
			t.Fatalf("offset %d", a.Offset)
		}
	}
}

// A publish that stands in line is not timed as one that is queued: its ack wait begins when it gets in
// (broker.md 1.3).
func TestAckWaitBeginsAtAdmission(t *testing.T) {
	a, _ := newAnswers(0, 4)
	a.clock = &sweepClock{}
	s := a.take(1, formBinary, 0)
	if !s.Park() || a.parked.Load() != 1 {
		t.Fatal("not parked")
	}
	a.clock.tick.Store(500)
	s.Admitted()
	if a.parked.Load() != 0 {
		t.Fatal("still parked")
	}
	if got, _ := a.swept(509, 10, 1000); got != "" {
		t.Fatalf("answered %q", got)
	}
	if got, _ := a.swept(510, 10, 1000); got != "1!unacknowledged" {
		t.Fatalf("answered %q", got)
	}
}

// A connection that ends takes what stands in line with it: all permits come back, and nobody is counted as
// refused who was not there to be told. What was queued is written (HZ-40, PUB-11).
func TestEndOfConnectionWithdrawsWhatIsParked(t *testing.T) {
	w, release := fullWorld(t, func(o *core.Options) { o.IngressWait = true }, func(o *Options) { o.QueueWait, o.AckWait = time.Minute, time.Minute })
	atRest := w.broker.Status().InflightBytes
	streams := w.srv.Stats().StreamsOpen
	c := w.dial()
	r := c.login()
	one := c.openOneWay()
	one.send(&wire.Auth{TenantID: "t1", Token: w.token()})
	for id := range uint64(7) {
		r.write(publish(wire.FlagAcked, id, "d", "x"))
	}
	for range 17 { // the last one stops its reader
		r.write(publish(0, 0, "d", "x"))
	}
	for range 3 {
		one.write(publish(0, 0, "d", "x"))
	}
	one.fin()
	eventually(t, "all wait", func() bool { _, waiting := w.parked(); return waiting == 7+17+3 })
	c.nc.CloseWithError(0, "")
	eventually(t, "everything is given back", func() bool {
		_, waiting := w.parked()
		st := w.broker.Status()
		return waiting == 0 && st.Outstanding == 2 && st.InflightBytes == atRest && w.srv.Stats().StreamsOpen == streams
	})
	for _, ts := range w.broker.Status().Tenants {
		if ts.Tenant == "t1" && (ts.RefusedQueueFull != 0 || ts.WithdrawnQueueFull != 7 || ts.DroppedQueueFull != 17+3) {
			t.Errorf("counted %+v", ts)
		}
	}
	release()
	w.records(1 + 2)
	eventually(t, "nothing is left", func() bool { return w.broker.Status().Outstanding == 0 })
}

// FIN says "no more": what a client sent before it and stands in line gets in all the same, from either
// kind of stream.
func TestFinishedStreamKeepsWhatIsParked(t *testing.T) {
	w, release := fullWorld(t, func(o *core.Options) { o.IngressWait = true }, nil)
	c := w.dial()
	r := c.login()
	one := c.openOneWay()
	one.send(&wire.Auth{TenantID: "t1", Token: w.token()})
	for range 3 {
		one.write(publish(0, 0, "d", "x"))
		r.write(publish(0, 0, "d", "x"))
	}
	one.fin()
	r.fin()
	eventually(t, "all stand in line", func() bool { _, waiting := w.parked(); return waiting == 6 })
	r.wantEnd()
	release()
	w.records(1 + 2 + 6)
	eventually(t, "only the first stream is left", func() bool { return w.srv.Stats().StreamsOpen == 1 })
}

// PUB-29: a graceful stop writes what was acknowledged when it was queued, and what stands in line: acked
// publishes get their answers.
func TestDrainWritesQueuedAndParked(t *testing.T) {
	w, release := fullWorld(t, func(o *core.Options) { o.IngressWait, o.PublishQueueDepth = true, 5 }, func(o *Options) {
		o.AckOnQueue, o.QueueWait, o.AckWait = true, time.Minute, time.Minute
	})
	c := w.dial()
	queued := c.login()
	for id := range uint64(3) {
		queued.mustPublish(id, "d", "acknowledged when it was queued")
	}
	queued.write(publish(wire.FlagAcked, 3, "d", "no room"))
	if a := queued.wantAck(3); a.Err == nil || a.Err.Reason != "publish_queue_full" {
		t.Fatalf("%+v", a)
	}
	r := c.loginAs(w.token(), offerFlags, offerWindow|wire.FeatureAckOnCommit)
	for id := range uint64(4) {
		r.write(publish(wire.FlagAcked, id, "d", "parked"))
		r.write(publish(0, 0, "d", "parked, unacked"))
	}
	eventually(t, "eight stand in line", func() bool { _, waiting := w.parked(); return waiting == 8 })
	drained := make(chan error, 1)
	go func() { drained <- w.srv.Drain(context.Background()) }()
	eventually(t, "the broker drains", func() bool { return w.broker.Status().Draining })
	release()
	for id := range uint64(4) {
		if a := r.wantOK(id); a.Offset != 1+2+3+2*id {
			t.Errorf("publish %d at offset %d", id, a.Offset)
		}
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	w.records(1 + 2 + 3 + 8)
}

// PUB-30: an unacked publish that never came into a queue is counted for its tenant.
func TestLostUnackedPublishIsCountedForItsTenant(t *testing.T) {
	w := newWorld(t, worldOptions{})
	c := w.dial()
	r := c.login()
	r.write(publish(0, 0, "nope", "x"))
	r.sendJSON(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"wide","payload":"eA==","shard":9,"ack":"none"}`)
	one := c.openOneWay()
	one.send(&wire.Auth{TenantID: "t1", Token: w.token()})
	one.write(publish(0, 0, "nope", "x"))
	r.wantOpen()
	eventually(t, "three are counted", func() bool {
		for _, ts := range w.broker.Status().Tenants {
			if ts.Tenant == "t1" {
				return ts.Lost == 3
			}
		}
		return false
	})
	if n := w.srv.Stats().UnackedLost; n != 3 {
		t.Errorf("the server counts %d", n)
	}
}
