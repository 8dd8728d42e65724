package serve

import (
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
