package serve

import (
	"testing"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

const cacheEntry = `"tenant_id":"t1","namespace":"default","cache":"c","key":"k"`

// put, get and delete over the wire, with request ids: `value` is always there, null for nothing
// (CACHE-1, wire.md 4.5).
func TestCacheRequestsAreAnswered(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	r := w.dial().login()
	for _, row := range [][2]string{
		{`{"type":"cache_get",` + cacheEntry + `,"request_id":1}`, `{"type":"cache_value",` + cacheEntry + `,"value":null,"request_id":1}`},
		{`{"type":"cache_put",` + cacheEntry + `,"value":"aGVsbG8=","ttl_ms":null,"request_id":2}`, `{"type":"cache_ok","request_id":2}`},
		{`{"type":"cache_get",` + cacheEntry + `,"request_id":3}`, `{"type":"cache_value",` + cacheEntry + `,"value":"aGVsbG8=","request_id":3}`},
		{`{"type":"cache_put",` + cacheEntry + `,"value":"","ttl_ms":0,"request_id":4}`, `{"type":"cache_ok","request_id":4}`},
		{`{"type":"cache_get",` + cacheEntry + `,"request_id":5}`, `{"type":"cache_value",` + cacheEntry + `,"value":"","request_id":5}`},
		{`{"type":"cache_delete",` + cacheEntry + `,"request_id":6}`, `{"type":"cache_value",` + cacheEntry + `,"value":"","request_id":6}`},
		{`{"type":"cache_delete",` + cacheEntry + `,"request_id":7}`, `{"type":"cache_value",` + cacheEntry + `,"value":null,"request_id":7}`},
	} {
		r.sendJSON(row[0])
		r.wantJSON(row[1])
	}
	r.sendJSON(`{"type":"cache_put",` + cacheEntry + `,"value":"eA==","ttl_ms":1,"request_id":8}`)
	r.wantJSON(`{"type":"cache_ok","request_id":8}`)
	eventually(t, "it expires", func() bool {
		r.sendJSON(`{"type":"cache_get",` + cacheEntry + `,"request_id":9}`)
		return r.recvMessage().(*wire.CacheValue).Value == nil
	})
}

// A request without a request id is a single shot: one answer, then FIN, refusals included.
func TestSingleShotCacheRequestEndsItsStream(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	for _, row := range [][2]string{
		{`{"type":"cache_put",` + cacheEntry + `,"value":"eA=="}`, `{"type":"ok"}`},
		{`{"type":"cache_get",` + cacheEntry + `}`, `{"type":"cache_value",` + cacheEntry + `,"value":"eA=="}`},
		{`{"type":"cache_delete",` + cacheEntry + `}`, `{"type":"cache_value",` + cacheEntry + `,"value":"eA=="}`},
		{`{"type":"cache_get","tenant_id":"t1","namespace":"default","cache":"nope","key":"k"}`, `{"type":"error","message":"cache scope not found: t1/default/nope","code":"not_found","retry":"retry_after"}`},
	} {
		r := c.login()
		r.sendJSON(row[0])
		r.wantJSON(row[1])
		r.wantEnd()
	}
}

// Refusals on a cache stream keep it open: an official client would lose that worker for good
// (wire.md 8.3). A cache that was deleted and made again starts empty.
func TestCacheStreamSurvivesRefusals(t *testing.T) {
	w := newWorld(t, worldOptions{})
	r := w.dial().loginAs(w.token("cache.write:cache:t1/default/*"), offerFlags, offerAll)
	r.sendJSON(`{"type":"cache_get",` + cacheEntry + `,"request_id":1}`)
	r.wantJSON(`{"type":"error","message":"forbidden","code":"forbidden","retry":"fatal"}`)
	r.sendJSON(`{"type":"cache_put","tenant_id":"t1","namespace":"default","cache":"nope","key":"k","value":"eA==","request_id":2}`)
	r.wantJSON(`{"type":"error","message":"cache scope not found: t1/default/nope","code":"not_found","retry":"retry_after"}`)
	r.sendJSON(`{"type":"cache_put",` + cacheEntry + `,"value":"eA==","request_id":3}`)
	r.wantJSON(`{"type":"cache_ok","request_id":3}`)
	if err := w.broker.DeleteCache("t1", "default", "c"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.broker.CreateCache(core.CacheDef{Tenant: "t1", Namespace: "default", Cache: "c"}); err != nil {
		t.Fatal(err)
	}
	r.sendJSON(`{"type":"cache_delete",` + cacheEntry + `,"request_id":4}`)
	r.wantJSON(`{"type":"cache_value",` + cacheEntry + `,"value":null,"request_id":4}`)
}

// With AUTO_CREATE a publish, a subscribe and a cache access make what they name; discovery never
// does (design.md 11).
func TestAutoCreateMakesWhatIsUsedAndNotWhatIsAsked(t *testing.T) {
	w := newWorld(t, worldOptions{core: func(o *core.Options) { o.AutoCreate = true }})
	c := w.dial()
	r := c.login()
	for _, row := range [][2]string{
		{`{"type":"stream_shards","tenant_id":"t1","namespace":"default","stream":"new","request_id":1}`, `{"type":"stream_shards_view","shards":0,"request_id":1}`},
		{`{"type":"cache_shards","tenant_id":"t1","namespace":"default","cache":"new","request_id":2}`, `{"type":"cache_shards_view","shards":0,"request_id":2}`},
		{`{"type":"shard_owners","tenant_id":"t1","namespace":"default","name":"new","kind":"stream","request_id":3}`, `{"type":"shard_owners_view","owners":[],"request_id":3}`},
		{`{"type":"cache_get","tenant_id":"t1","namespace":"default","cache":"new","key":"k","request_id":4}`, `{"type":"cache_value","tenant_id":"t1","namespace":"default","cache":"new","key":"k","value":null,"request_id":4}`},
		{`{"type":"cache_shards","tenant_id":"t1","namespace":"default","cache":"new","request_id":5}`, `{"type":"cache_shards_view","shards":1,"request_id":5}`},
	} {
		r.sendJSON(row[0])
		r.wantJSON(row[1])
	}
	ev := c.subscribe(r, "new", 0)
	r.mustPublish(6, "new", "x")
	ev.wantRecords("x")
	r.mustPublish(7, "new2", "x")
}

// A single broker answers discovery honestly: it holds every shard and has no other node to name.
func TestDiscoveryOfASingleBroker(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.stream(core.StreamDef{Stream: "jump", Shards: 3, Routing: "jump_hash"})
	r := w.dial().login()
	for _, row := range [][2]string{
		{`{"type":"topology"}`, `{"type":"topology_view","brokers":[]}`},
		{`{"type":"stream_shards","tenant_id":"t1","namespace":"default","stream":"s","request_id":1}`, `{"type":"stream_shards_view","shards":1,"request_id":1}`},
		{`{"type":"stream_shards","tenant_id":"t1","namespace":"default","stream":"wide","request_id":2}`, `{"type":"stream_shards_view","shards":4,"request_id":2}`},
		{`{"type":"stream_shards","tenant_id":"t1","namespace":"default","stream":"jump","request_id":3}`, `{"type":"stream_shards_view","shards":3,"request_id":3,"routing":"jump_hash"}`},
		{`{"type":"stream_shards","tenant_id":"t1","namespace":"other","stream":"s","request_id":4}`, `{"type":"stream_shards_view","shards":0,"request_id":4}`},
		{`{"type":"cache_shards","tenant_id":"t1","namespace":"default","cache":"c","request_id":5}`, `{"type":"cache_shards_view","shards":1,"request_id":5}`},
		{`{"type":"shard_owners","tenant_id":"t1","namespace":"default","name":"jump","kind":"stream","request_id":6}`, `{"type":"shard_owners_view","owners":[{"shard":0,"generation":0},{"shard":1,"generation":0},{"shard":2,"generation":0}],"request_id":6}`},
		{`{"type":"shard_owners","tenant_id":"t1","namespace":"default","name":"c","kind":"cache","request_id":7}`, `{"type":"shard_owners_view","owners":[{"shard":0,"generation":0}],"request_id":7}`},
		{`{"type":"shard_owners","tenant_id":"t1","namespace":"default","name":"c","kind":"stream","request_id":8}`, `{"type":"shard_owners_view","owners":[],"request_id":8}`},
	} {
		r.sendJSON(row[0])
		r.wantJSON(row[1])
	}
	seen := map[uint64]bool{}
	for id := range uint64(100) {
		r.send(&wire.ProducerInit{RequestID: id})
		m, ok := r.recvMessage().(*wire.ProducerInitOK)
		if !ok || m.RequestID != id || seen[m.ProducerID] {
			t.Fatalf("%+v", m)
		}
		seen[m.ProducerID] = true
	}
}
