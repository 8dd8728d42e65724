package serve

import (
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// PUB-26, BUG-35: on the wire, too, every request for a shard that is not served is answered with
// shard_unavailable, its reason and its hint, and the stream goes on.
func TestUnservedShardSaysWhyOnTheWire(t *testing.T) {
	w := newWorld(t, worldOptions{durable: true})
	w.stream(core.StreamDef{Stream: "d", Durable: true})
	st, err := w.broker.FindStream("t1", "default", "d")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.broker.Fence(st, 0, core.Moving); err != nil {
		t.Fatal(err)
	}
	r := w.dial().login()
	const text = `"message":"the shard is moving to another broker","code":"shard_unavailable","retry":"retry",` +
		`"detail":{"reason":"moving","retry_after_ms":100}}`
	const target = `"tenant_id":"t1","namespace":"default","stream":"d"`
	r.write(publish(wire.FlagAcked, 1, "d", "x"))
	want := &wire.Error{
		Code: wire.CodeShardUnavailable, Retry: wire.RetryNow, Message: "the shard is moving to another broker",
		Reason: "moving", RetryAfterMS: 100,
	}
	if diff := cmp.Diff(want, r.wantAck(1).Err); diff != "" {
		t.Error(diff)
	}
	for _, row := range []struct{ send, want string }{
		{`{"type":"publish",` + target + `,"payload":"eA==","request_id":2}`, `{"type":"publish_error","request_id":2,` + text},
		{`{"type":"publish_idempotent",` + target + `,"payloads":["eA=="],"request_id":3,"producer_id":1,"sequence":0}`, `{"type":"publish_error","request_id":3,` + text},
		{`{"type":"subscribe",` + target + `}`, `{"type":"error",` + text},
		{`{"type":"stream_read",` + target + `,"shard":0,"from":0,"request_id":4}`, `{"type":"error",` + text},
	} {
		r.sendJSON(row.send)
		r.wantJSON(row.want)
	}
	r.write(publish(0, 0, "d", "unacked"))
	r.wantOpen()
	if err := w.broker.Fence(st, 0, core.Served); err != nil {
		t.Fatal(err)
	}
	if a := r.mustPublish(5, "d", "x"); a.Offset != 0 {
		t.Errorf("served again, at %d", a.Offset)
	}
}

// away is a Router and a Forwarder: stream "s" belongs to another broker, which refuses every other
// publish.
type away struct {
	owner *wire.Owner
	n     atomic.Int64
}

func (a *away) Route(st *core.Stream, _ uint32) core.Route {
	if st.Shards() == 1 {
		return core.Route{Kind: core.RouteForward, Owner: a.owner}
	}
	return core.Route{}
}

func (a *away) Forward(_ *wire.Owner, _ *core.PublishRequest, done func(core.PublishResult)) {
	if a.n.Add(1)%2 == 1 {
		done(core.PublishResult{Offset: 41, HasOffset: true})
	} else {
		done(core.PublishResult{Err: wire.ErrQuorumTimeout})
	}
}

// The binary answer to a forwarded publish names its owner, on success and on failure, to a stream that
// offered it; JSON answers have no place for it. An idempotent publish is refused with the owner
// (PUB-5, wire.md 5.3).
func TestForwardedPublishIsAnsweredWithItsOwner(t *testing.T) {
	a := &away{owner: &wire.Owner{NodeID: "node-2", Addr: "10.0.0.2:7000", Generation: 3}}
	w := newWorld(t, worldOptions{core: func(o *core.Options) { o.Router, o.Forwarder = a, a }})
	r := w.dial().loginAs(w.token(), offerFlags, offerWindow)
	r.write(publish(wire.FlagAcked, 1, "s", "x"))
	if diff := cmp.Diff(wire.Ack{RequestID: 1, Owner: a.owner, HasOffset: true, Offset: 41}, r.wantAck(1)); diff != "" {
		t.Error(diff)
	}
	r.write(publish(wire.FlagAcked, 2, "s", "x"))
	if ack := r.wantAck(2); ack.Err == nil || ack.Err.Code != wire.CodeQuorumTimeout || *ack.Owner != *a.owner {
		t.Errorf("%+v", ack)
	}
	r.sendJSON(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"s","payload":"eA==","request_id":3}`)
	r.wantJSON(`{"type":"publish_ok","request_id":3,"offset":41}`)
	r.sendJSON(`{"type":"publish_idempotent","tenant_id":"t1","namespace":"default","stream":"s","payloads":["eA=="],"request_id":4,"producer_id":1,"sequence":0}`)
	r.wantJSON(`{"type":"publish_refused","request_id":4,"message":"not leader: node-2 leads the shard",` +
		`"reason":{"not_leader":{"node_id":"node-2","addr":"10.0.0.2:7000"}}}`)
	if ack := r.mustPublish(5, "wide", "x"); ack.Owner != nil {
		t.Errorf("a local publish names %+v", ack.Owner)
	}
	plain := w.dial().loginAs(w.token(), uint16(wire.FlagsOriginal), 0)
	plain.write(publish(wire.FlagAcked, 6, "s", "x"))
	if flags, _ := plain.recv(); flags != wire.FlagAck {
		t.Errorf("flags %#x to a stream that offered none", uint16(flags))
	}
}
