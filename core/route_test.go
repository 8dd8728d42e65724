package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// cluster is a Router and a Forwarder that do what the test says.
type cluster struct {
	mu     sync.Mutex
	routes map[uint32]Route // by shard
	asked  int
	sent   chan sent
}

// sent is a publish that was forwarded and is not answered.
type sent struct {
	owner   *wire.Owner
	records string
	done    func(PublishResult)
}

func newCluster() *cluster {
	return &cluster{routes: map[uint32]Route{}, sent: make(chan sent, 64)}
}

func (c *cluster) set(shard uint32, r Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routes[shard] = r
}

func (c *cluster) Route(_ *Stream, shard uint32) Route {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.routes[shard]
}

func (c *cluster) Forward(owner *wire.Owner, r *PublishRequest, done func(PublishResult)) {
	var text string
	rest := r.Buf.Bytes()[r.Pos+4 : r.Pos+r.SectionLen]
	for {
		rec, after, ok := wire.NextRecord(rest)
		if !ok {
			break
		}
		text += string(rec)
		rest = after
	}
	c.sent <- sent{owner, text, done}
}

// wait returns the next publish that was forwarded.
func (c *cluster) wait(t testing.TB) sent {
	t.Helper()
	select {
	case s := <-c.sent:
		return s
	case <-time.After(waitMax):
		t.Fatal("nothing was forwarded")
		return sent{}
	}
}

func (o Options) routed(c *cluster) Options {
	o.Router, o.Forwarder = c, c
	return o
}

var elsewhere = &wire.Owner{NodeID: "node-2", Addr: "10.0.0.2:7000", Generation: 3}

// PUB-5: with one executor, a forward to a peer that never answers delays no publish to another shard,
// which is written and answered meanwhile. What is queued behind it on its own lane waits, also a publish
// that is for this broker by now, and goes on in order when the peer answers.
func TestForwardHoldsItsLaneAlone(t *testing.T) {
	c := newCluster()
	b := openTest(t, Options{}.in(t.TempDir()).routed(c))
	st := stream(t, b, StreamDef{Durable: true, Shards: 2})
	c.set(0, Route{Kind: RouteForward, Owner: elsewhere})
	remote, local := newSender(t, b), newSender(t, b)
	remote.records(st, "0")
	remote.records(st, "1")
	first := c.wait(t)
	c.set(0, Route{})
	remote.records(st, "2")
	for i := range 20 {
		r := request(b, st, fmt.Sprint(i))
		r.Shard = 1
		local.send(r)
	}
	for i, offset := range local.offsets() {
		if offset != uint64(i) {
			t.Fatalf("local publish %d is at %d", i, offset)
		}
	}
	if err := b.Reset(st, 0); err != nil { // something of its log ends meanwhile
		t.Fatal(err)
	}
	if err := st.shards[0].exec.call(func() {}); err != nil {
		t.Fatal(err)
	}
	if n := remote.res.count(); n != 0 || len(c.sent) != 0 {
		t.Fatalf("%d answered, %d forwarded behind one that is under way", n, len(c.sent))
	}
	if first.owner != elsewhere || first.records != "0" {
		t.Errorf("forwarded %+v", first)
	}
	first.done(PublishResult{Offset: 70, HasOffset: true})
	second := c.wait(t)
	if second.records != "1" {
		t.Errorf("forwarded %+v", second)
	}
	moved := &wire.Owner{NodeID: "node-3"}
	second.done(PublishResult{Err: wire.ErrLeadershipLost, Owner: moved})
	want := []PublishResult{
		{Offset: 70, HasOffset: true, Owner: elsewhere},
		{Err: wire.ErrLeadershipLost, Owner: moved},
		{Offset: 0, HasOffset: true},
	}
	for tag, want := range want {
		if diff := cmp.Diff(want, remote.res.wait(t, uint64(tag))); diff != "" {
			t.Errorf("publish %d (-want +got):\n%s", tag, diff)
		}
	}
	if c.asked != 23 {
		t.Errorf("the router was asked %d times", c.asked)
	}
}

// PUB-5, PUB-8: a publish that is to be forwarded is claimed alone and waits until what was claimed here
// before it on its lane is answered.
func TestForwardWaitsForWhatWasClaimedBefore(t *testing.T) {
	for _, durable := range []bool{true, false} {
		c, engine := newCluster(), ringtest.NewEngine(8)
		b := openTest(t, Options{}.in(t.TempDir()).scripted(engine).routed(c))
		st := stream(t, b, StreamDef{Durable: durable})
		s := newSender(t, b)
		release := hold(t, st.shards[0].exec)
		s.records(st, "here")
		s.records(st, "here")
		c.set(0, Route{Kind: RouteForward, Owner: elsewhere})
		s.records(st, "there")
		c.set(0, Route{})
		s.records(st, "here")
		release()
		if durable {
			op := pending(t, engine, 1)[0]
			if n, sizes := claims(b); n != 1 || sizes[1] != 1 || len(c.sent) != 0 {
				t.Errorf("%d claims by size %v, %d forwarded", n, sizes, len(c.sent))
			}
			engine.Run(op)
		}
		f := c.wait(t)
		if n := s.res.count(); n != 2 {
			t.Errorf("durable %t: %d answers", durable, n)
		}
		f.done(PublishResult{})
		pump(t, engine)
		s.offsets()
		for i, tag := range s.res.tags {
			if tag != uint64(i) {
				t.Errorf("durable %t: answer %d is that of publish %d", durable, i, tag)
			}
		}
		closeTest(t, b)
	}
}

// What a router refuses is refused with its reason and reaches no queue; idempotent and conditional publishes
// are never forwarded: the client is told who leads (broker.md 1.9, 1.10).
func TestRouterRefusals(t *testing.T) {
	c := newCluster()
	b := openTest(t, Options{}.in(t.TempDir()).routed(c))
	st := stream(t, b, StreamDef{Durable: true})
	for why, reason := range map[Unavailable]string{Served: "not_assigned", NotAssigned: "not_assigned", OwnerUnavailable: "owner_unavailable", Fenced: "fenced"} {
		c.set(0, Route{Kind: RouteRefused, Reason: why})
		unavailableFor(t, b.Publish(t.Context(), request(b, st, "x")), reason, 0)
	}
	c.set(0, Route{Kind: RouteForward, Owner: elsewhere})
	for _, conditional := range []bool{false, true} {
		r := request(b, st, "x")
		r.Idempotent, r.Conditional, r.ProducerID = !conditional, conditional, 1
		res := publishRequest(t, b, r)
		if res.Refused == nil || res.Refused.Kind != RefusedNotLeader || res.Refused.Owner != elsewhere {
			t.Errorf("conditional %t: %+v", conditional, res)
		}
	}
	r := request(b, st, "x")
	r.Idempotent, r.ProducerID = true, 1
	if err := b.Publish(t.Context(), r); !errors.Is(err, wire.ErrNotLeader) {
		t.Errorf("without a place for the answer: %v", err)
	}
	if n := b.Status().Outstanding; n != 0 || len(c.sent) != 0 {
		t.Errorf("%d outstanding, %d forwarded", n, len(c.sent))
	}
	if err := (Options{Router: c}).Validate(); err == nil {
		t.Error("a Router without a Forwarder is accepted")
	}
}

// BUG-30: a publish is acknowledged when it is queued, unless it is forwarded or the lease is about to end:
// then the answer comes after the write.
func TestEnqueueAckWaitsForTheWriteNearTheLeasesEnd(t *testing.T) {
	c, engine := newCluster(), ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine).routed(c))
	st := stream(t, b, StreamDef{Durable: true})
	s := newSender(t, b)
	queue := func() uint64 {
		r := request(b, st, "x")
		r.AckOnQueue = true
		return s.send(r)
	}
	if res := s.res.wait(t, queue()); res.HasOffset {
		t.Errorf("acknowledged when queued: %+v", res)
	}
	pending(t, engine, 1)
	c.set(0, Route{AfterWrite: true})
	late := queue()
	eventually(t, "it is claimed", func() bool { return b.Status().Executors[0].Claimed == 2 })
	if n := s.res.count(); n != 1 {
		t.Errorf("answered before it was written")
	}
	pump(t, engine)
	if res := s.res.wait(t, late); !res.HasOffset || res.Offset != 1 {
		t.Errorf("acknowledged after the write: %+v", res)
	}
	c.set(0, Route{Kind: RouteForward, Owner: elsewhere})
	away := queue()
	f := c.wait(t)
	if n := s.res.count(); n != 2 {
		t.Error("answered before its owner answered")
	}
	f.done(PublishResult{Offset: 9, HasOffset: true})
	if res := s.res.wait(t, away); res.Offset != 9 {
		t.Errorf("forwarded: %+v", res)
	}
	closeTest(t, b)
}

// PUB-29: a broker that stops waits for what was forwarded, and forwards nothing more. A stream that is
// deleted meanwhile goes when its forward has come back.
func TestStopWaitsForForwards(t *testing.T) {
	c := newCluster()
	b := openTest(t, Options{}.in(t.TempDir()).routed(c))
	st := stream(t, b, StreamDef{Durable: true})
	gone := stream(t, b, StreamDef{Stream: "gone", Durable: true})
	c.set(0, Route{Kind: RouteForward, Owner: elsewhere})
	s := newSender(t, b)
	s.records(gone, "gone")
	g := c.wait(t)
	deleted := make(chan error)
	go func() { deleted <- b.DeleteStream(context.Background(), "t", "n", "gone") }()
	eventually(t, "the stream is deleted", gone.deleted.Load)
	g.done(PublishResult{})
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	s.records(st, "under way")
	s.records(st, "waits")
	f := c.wait(t)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closeTest(t, b)
	}()
	eventually(t, "the broker drains", b.draining.Load)
	select {
	case <-closed:
		t.Error("closed with a publish under way")
	default:
	}
	eventually(t, "the executor stops", func() bool {
		var stopping bool
		_ = st.shards[0].exec.call(func() { stopping = st.shards[0].exec.stopping })
		return stopping
	})
	f.done(PublishResult{})
	<-closed
	for tag := range uint64(2) {
		if res := s.res.wait(t, tag); res.Err != nil {
			t.Errorf("publish %d: %+v", tag, res)
		}
	}
	if res := s.res.wait(t, 2); !errors.Is(res.Err, wire.ErrDraining) {
		t.Errorf("queued behind it: %+v", res)
	}
}
