package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// spot is a Place with an owner that counts.
type spot struct {
	Place
	asked, admitted atomic.Int32
	no              bool // it does not let its publish stand in line
}

func newSpot() *spot {
	s := &spot{}
	s.Owner = s
	return s
}

func (s *spot) Park() bool { s.asked.Add(1); return !s.no }
func (s *spot) Admitted()  { s.admitted.Add(1) }

// PUB-14, PUB-15: a publish that finds no room in its shard's queue stands in line without keeping its
// caller: later publishes to the same shard come behind it, one to a shard with room is written
// meanwhile, and everything is answered in the order in which it was sent.
func TestParkedPublishKeepsItsPlaceAndNobodyElse(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true, CoreShards: 2, PublishQueueDepth: 4, PublishQueueFactor: 1})
	st := stream(t, b, StreamDef{Shards: 2})
	full, other := st.shards[0], st.shards[1]
	live := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
	release := hold(t, full.exec)
	res := newResults()
	const sent = 50
	spots := make([]*spot, sent)
	for i := range uint64(sent) {
		spots[i] = newSpot()
		r := request(b, st, fmt.Sprint(i))
		r.Reply, r.Tag, r.Place = res, i, &spots[i].Place
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if st := b.Status(); st.Parked != sent-4 || st.Executors[0].Waiting != sent-4 || st.Outstanding != sent {
		t.Fatalf("parked %d, waiting %d, outstanding %d", st.Parked, st.Executors[0].Waiting, st.Outstanding)
	}
	r := request(b, st, "elsewhere")
	r.Shard = other.num
	if got := publishRequest(t, b, r); got.Err != nil {
		t.Fatal(got.Err)
	}
	if n := res.count(); n != 0 {
		t.Fatalf("%d answers of the held shard", n)
	}
	for i, s := range spots {
		if n := s.admitted.Load(); n == 1 != (i < 4) {
			t.Fatalf("publish %d was admitted %d times", i, n)
		}
	}
	release()
	for i := range uint64(sent) {
		if got := res.wait(t, i); got.Err != nil {
			t.Fatalf("publish %d: %v", i, got.Err)
		}
	}
	for i, tag := range res.tags {
		if tag != uint64(i) {
			t.Fatalf("answer %d is that of publish %d", i, tag)
		}
	}
	for i, e := range live.wait(sent) {
		if e.payload != fmt.Sprint(i) {
			t.Fatalf("event %d is %q", i, e.payload)
		}
	}
	for i, s := range spots {
		if s.admitted.Load() != 1 || s.asked.Load() != int32(min(i/4, 1)) {
			t.Fatalf("publish %d: asked %d times, admitted %d times", i, s.asked.Load(), s.admitted.Load())
		}
	}
}

// A publish that is withdrawn from the line is answered and gives everything back; one that has been let
// in cannot be withdrawn; a Place serves one publish after another. Who waited too long was refused, who
// is gone was not: an acked one counts as withdrawn, an unacked one as dropped (PUB-30, HZ-40).
func TestWithdrawnPublishGivesEverythingBack(t *testing.T) {
	b := openTest(t, Options{
		AutoCreate: true, PublishQueueDepth: 1, PublishQueueFactor: 1, IngressWait: true, PublishConnTotalInflightBytes: 20 << 20,
	})
	st := stream(t, b, StreamDef{})
	release := hold(t, b.executors[0])
	res := newResults()
	account := b.NewIdentity(b.NewAccount())
	send := func(tag uint64, acked bool, at *spot) {
		t.Helper()
		r := request(b, st, "payload")
		r.Acked, r.Reply, r.Tag, r.Place, r.Account = acked, res, tag, &at.Place, account
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	first, at := newSpot(), newSpot()
	if b.Withdraw(&at.Place, ClientGone) {
		t.Fatal("withdrawn before it was ever used")
	}
	send(0, true, first)
	used := account.Used()
	tag := uint64(1)
	for _, acked := range []bool{true, false} {
		for _, why := range []Withdrawal{WaitedTooLong, ClientGone} {
			send(tag, acked, at)
			if account.Used() != 2*used || account.conn.Used() != 2*used || b.inflight.Used() != 2*used {
				t.Fatal("a parked publish does not keep its bytes")
			}
			if !b.Withdraw(&at.Place, why) || b.Withdraw(&at.Place, why) {
				t.Fatal("not withdrawn, once")
			}
			if got := res.wait(t, tag); !errors.Is(got.Err, wire.ErrOverloaded) || got.Err.Reason != "publish_queue_full" || got.Err.RetryAfterMS == 0 {
				t.Fatalf("answered %+v", got)
			}
			if account.Used() != used || b.inflight.Used() != used || b.outstanding.Load() != 1 {
				t.Fatal("something is still taken")
			}
			tag++
		}
	}
	if ts := b.Status().Tenants[0]; ts.RefusedQueueFull != 1 || ts.WithdrawnQueueFull != 1 || ts.DroppedQueueFull != 2 {
		t.Fatalf("counted %+v", ts)
	}
	send(tag, true, at)
	release()
	if got := res.wait(t, tag); got.Err != nil {
		t.Fatal(got.Err)
	}
	if b.Withdraw(&at.Place, WaitedTooLong) || at.admitted.Load() != 1 {
		t.Fatal("withdrawn after it was let in")
	}
}

// Withdrawals race with grants: every publish has exactly one outcome, the accepted ones in order, and
// nothing stays taken (PUB-6, PUB-15, HZ-40).
func TestWithdrawalsRaceWithGrants(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true, PublishQueueDepth: 2, PublishQueueFactor: 1})
	st := stream(t, b, StreamDef{})
	res := newResults()
	const sent = 5000
	places := make(chan *spot, 64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for at := range places {
			b.Withdraw(&at.Place, WaitedTooLong)
		}
	}()
	for i := range uint64(sent) {
		at := newSpot()
		r := request(b, st, "x")
		r.Reply, r.Tag, r.Place = res, i, &at.Place
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if at.asked.Load() > 0 {
			places <- at
		}
	}
	close(places)
	<-done
	last, refused := uint64(0), 0
	for i := range uint64(sent) {
		if got := res.wait(t, i); got.Err != nil {
			refused++
		}
	}
	for _, tag := range res.tags {
		if res.got[tag].Err != nil {
			continue
		}
		if tag < last {
			t.Fatalf("publish %d was answered after %d", tag, last)
		}
		last = tag
	}
	if n := b.Status().Tenants[0].RefusedQueueFull; n != uint64(refused) {
		t.Errorf("%d refused, counted %d", refused, n)
	}
}

// PUB-29: a shutdown waits for what was acknowledged when it was queued and for what still stands in line
// for room, and loses none of it.
func TestDrainWaitsForQueuedAndParked(t *testing.T) {
	dir := t.TempDir()
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{PublishQueueDepth: 8, PublishQueueFactor: 1, IngressWait: true}.in(dir).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	const queued, parked = 8, 20
	res := newResults()
	for i := range uint64(queued + parked) {
		r := request(b, st, fmt.Sprint(i))
		r.AckOnQueue, r.Acked = i < queued, i%2 == 0 || i < queued
		r.Reply, r.Tag, r.Place = res, i, &newSpot().Place
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if n := res.count(); n != queued {
		t.Fatalf("%d were answered when they were queued", n)
	}
	drained := make(chan error, 1)
	go func() { drained <- b.Drain(context.Background()) }()
	eventually(t, "the broker drains", b.draining.Load)
	if err := b.Publish(t.Context(), request(b, st, "late")); !errors.Is(err, wire.ErrDraining) {
		t.Fatalf("a publish after the drain began: %v", err)
	}
	select {
	case err := <-drained:
		t.Fatalf("drained with %d publishes outstanding: %v", b.outstanding.Load(), err)
	default:
	}
	stop := pump(t, engine)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	stop()
	for i := range uint64(queued + parked) {
		if got := res.wait(t, i); got.Err != nil {
			t.Fatalf("publish %d: %v", i, got.Err)
		}
	}
	closing := pump(t, engine)
	closeTest(t, b)
	closing()
	b = openTest(t, Options{}.in(dir))
	replay := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: stream(t, b, StreamDef{Durable: true}), Start: earliest}, replay)
	for i, e := range replay.wait(queued + parked) {
		if e != (event{uint64(i), fmt.Sprint(i)}) {
			t.Fatalf("record %d is %+v", i, e)
		}
	}
}

// An owner that lets nothing stand in line has Publish wait, for an acked publish as long as there is
// patience; and it is told when its publish has room.
func TestRefusedPlaceWaitsInline(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true, PublishQueueDepth: 1, PublishQueueFactor: 1, PublishQueueWait: time.Millisecond})
	st := stream(t, b, StreamDef{})
	release := hold(t, b.executors[0])
	at := newSpot()
	at.no = true
	if err := b.Publish(t.Context(), request(b, st, "has room")); err != nil {
		t.Fatal(err)
	}
	r := request(b, st, "waits")
	r.Place = &at.Place
	if err := b.Publish(t.Context(), r); !errors.Is(err, wire.ErrOverloaded) || at.asked.Load() != 1 || at.admitted.Load() != 0 {
		t.Fatalf("%v; asked %d, admitted %d", err, at.asked.Load(), at.admitted.Load())
	}
	release()
	b.executors[0].call(func() {})
	eventually(t, "there is room", func() bool { return b.outstanding.Load() == 0 })
	r = request(b, st, "has room, too")
	r.Place = &at.Place
	if got := publishRequest(t, b, r); got.Err != nil || at.admitted.Load() != 1 {
		t.Fatalf("%+v, admitted %d", got, at.admitted.Load())
	}
}

// PUB-29, HZ-40: a broker that closes without a drain answers what is queued and what stands in line, each
// once: the places of those that are thrown out go to those that wait.
func TestClosingBrokerAnswersWhatIsParked(t *testing.T) {
	b, err := Open(t.Context(), Options{AutoCreate: true, PublishQueueDepth: 4, PublishQueueFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
	st := stream(t, b, StreamDef{})
	release := hold(t, b.executors[0])
	res := newResults()
	const sent = 40
	for i := range uint64(sent) {
		r := request(b, st, "x")
		r.Reply, r.Tag, r.Place = res, i, &newSpot().Place
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closeTest(t, b)
	}()
	eventually(t, "the broker closes", b.draining.Load)
	release()
	<-closed
	written := 0
	for i := range uint64(sent) {
		switch got := res.wait(t, i); {
		case got.Err == nil:
			written++
		case !errors.Is(got.Err, wire.ErrDraining):
			t.Fatalf("publish %d: %v", i, got.Err)
		}
	}
	if n := b.Status().Tenants[0].PublishedRecords; n != uint64(written) {
		t.Errorf("%d were acknowledged, %d written", written, n)
	}
}
