package serve

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// records reads n records off an event stream, whatever their frames.
func (r *raw) records(n int) []string {
	r.t.Helper()
	var got []string
	for len(got) < n {
		flags, body := r.recv()
		if flags&wire.FlagEventsShared == 0 {
			r.t.Fatalf("flags %#x, %s; want events", uint16(flags), body)
		}
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(flags, body, &e); err != nil {
			r.t.Fatal(err)
		}
		for {
			rec, _, ok := e.Next()
			if !ok {
				break
			}
			got = append(got, string(rec))
		}
	}
	return got
}

func (r *raw) wantRecords(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.records(len(want))); diff != "" {
		r.t.Fatalf("records (-want +got):\n%s", diff)
	}
}

// subscribe subscribes to a shard of t1/default/stream from now on and returns the event stream
// behind its hello.
func (c *client) subscribe(r *raw, stream string, shard uint32) *raw {
	c.w.t.Helper()
	r.send(&wire.Subscribe{TenantID: "t1", Namespace: "default", Stream: stream, Shard: &shard})
	m, ok := r.recvMessage().(*wire.Subscribed)
	if !ok {
		c.w.t.Fatalf("not subscribed: %v", m)
	}
	ev := c.events()
	ev.want(&wire.EventStreamHello{SubscriptionID: m.SubscriptionID})
	return ev
}

// Every form reaches the subscriber, and is answered in its own encoding or not at all
// (wire.md 5.2, broker.md 1.1).
func TestEveryPublishFormIsDeliveredAndAnswered(t *testing.T) {
	const names = `"tenant_id":"t1","namespace":"default","stream":"s"`
	forms := []struct {
		name string
		send []byte
		want string // JSON answer; "ack" = binary; "" = none
	}{
		{"binary plain", publish(0, 0, "s", "x"), ""},
		{"binary keyed", publish(wire.FlagKeyed, 0, "s", "x"), ""},
		{"binary acked", publish(wire.FlagAcked, 9, "s", "x"), "ack"},
		{"binary acked keyed", publish(wire.FlagAcked|wire.FlagKeyed, 9, "s", "x"), "ack"},
		{"binary idempotent", publish(wire.FlagAcked|wire.FlagIdempotent, 9, "s", "x"), `{"type":"publish_ok","request_id":9}`},
		{"JSON without ack and id", jsonFrame(`{"type":"publish",` + names + `,"payload":"eA=="}`), ""},
		{"JSON none with id", jsonFrame(`{"type":"publish",` + names + `,"payload":"eA==","ack":"none","request_id":9}`), ""},
		{"JSON id alone", jsonFrame(`{"type":"publish",` + names + `,"payload":"eA==","request_id":9}`), `{"type":"publish_ok","request_id":9}`},
		{"JSON per_message", jsonFrame(`{"type":"publish",` + names + `,"payload":"eA==","ack":"per_message","request_id":9}`), `{"type":"publish_ok","request_id":9}`},
		{"JSON per_batch", jsonFrame(`{"type":"publish",` + names + `,"payload":"eA==","key":"","ack":"per_batch","request_id":9}`), `{"type":"publish_ok","request_id":9}`},
		{"JSON batch", jsonFrame(`{"type":"publish_batch",` + names + `,"payloads":["eA=="],"request_id":9}`), `{"type":"publish_ok","request_id":9}`},
		{"JSON batch fire and forget", jsonFrame(`{"type":"publish_batch",` + names + `,"payloads":["eA=="]}`), ""},
		{"JSON idempotent", jsonFrame(`{"type":"publish_idempotent",` + names + `,"payloads":["eA=="],"request_id":9,"producer_id":18446744073709551615,"sequence":0}`), `{"type":"publish_ok","request_id":9}`},
	}
	for _, feats := range []wire.Features{offerAll, offerWindow} {
		w := newWorld(t, worldOptions{quic: feats == offerAll})
		c := w.dial()
		r := c.loginAs(w.token(), offerFlags, feats)
		ev := c.subscribe(r, "s", 0)
		for _, f := range forms {
			t.Run(fmt.Sprintf("%v/%s", feats.Has(wire.FeaturePublishPipeline), f.name), func(t *testing.T) {
				r.write(f.send)
				switch f.want {
				case "":
				case "ack":
					r.wantOK(9)
				default:
					r.wantJSON(f.want)
				}
				ev.wantRecords("x")
				r.wantOpen() // and nothing else was answered
			})
		}
		if got := w.srv.Stats().JSONPublishes; got != 8 {
			t.Errorf("counted %d JSON publishes, want 8", got)
		}
	}
}

// A key picks the shard that the client computed, an absent key shard 0, an explicit shard itself.
func TestPublishReachesTheShardOfItsKey(t *testing.T) {
	w := newWorld(t, worldOptions{})
	c := w.dial()
	r := c.login()
	var shards []*raw
	for n := range uint32(4) {
		shards = append(shards, c.subscribe(r, "wide", n))
	}
	id := uint64(0)
	binary := func(flags wire.Flags, key string) {
		id++
		p := wire.BinaryPublish{Flags: wire.FlagPublish | wire.FlagAcked | flags, RequestID: id, AckMode: wire.AckPerBatch,
			Key: []byte(key), Tenant: []byte("t1"), Namespace: []byte("default"), Stream: []byte("wide"), Section: section(key)}
		r.write(wire.AppendPublish(nil, &p))
		r.wantOK(id)
	}
	binary(0, "")
	shards[0].wantRecords("")
	for _, key := range []string{"", "user-1", "k1", "order-12345"} {
		binary(wire.FlagKeyed, key)
		shards[wire.ShardOf([]byte(key), true, 4, wire.RoutingModulo)].wantRecords(key)
		id++
		r.send(&wire.Publish{TenantID: "t1", Namespace: "default", Stream: "wide", Key: []byte(key), Payload: []byte(key), RequestID: &id})
		r.want(&wire.PublishOK{RequestID: id})
		shards[wire.ShardOf([]byte(key), true, 4, wire.RoutingModulo)].wantRecords(key)
	}
	for n := range uint32(4) {
		id++
		r.send(&wire.PublishBatch{TenantID: "t1", Namespace: "default", Stream: "wide", Key: []byte("user-1"), Shard: &n,
			Payloads: [][]byte{[]byte("a"), []byte("b")}, RequestID: &id})
		r.want(&wire.PublishOK{RequestID: id})
		shards[n].wantRecords("a", "b")
	}
}

// Refusals of idempotent publishes are answered in JSON with their reason; a client that does not
// know sequence_reused is told ok, and nothing is written (PUB-24, wire.md 4.2).
func TestIdempotentRefusalsSayWhy(t *testing.T) {
	w := newWorld(t, worldOptions{})
	c := w.dial()
	r := c.login()
	ev := c.subscribe(r, "s", 0)
	send := func(r *raw, id, producer, seq uint64, payload string) {
		r.send(&wire.PublishIdempotent{TenantID: "t1", Namespace: "default", Stream: "s", Payloads: [][]byte{[]byte(payload)},
			RequestID: id, ProducerID: producer, Sequence: seq})
	}
	send(r, 1, 7, 3, "x")
	r.wantJSON(`{"type":"publish_refused","request_id":1,"message":"unknown producer","reason":"unknown_producer"}`)
	send(r, 2, 7, 0, "a")
	r.wantJSON(`{"type":"publish_ok","request_id":2}`)
	send(r, 3, 7, 0, "a")
	r.wantJSON(`{"type":"publish_ok","request_id":3}`)
	send(r, 4, 7, 0, "b")
	r.wantJSON(`{"type":"publish_refused","request_id":4,"message":"sequence was used with other payloads","reason":"sequence_reused"}`)
	send(r, 5, 7, 2, "c")
	r.wantJSON(`{"type":"publish_refused","request_id":5,"message":"sequence gap: expected 1","reason":{"sequence_gap":{"expected":1}}}`)
	old := c.loginAs(w.token(), offerFlags, offerAll&^wire.FeatureSequenceReused)
	send(old, 6, 7, 0, "b")
	old.wantJSON(`{"type":"publish_ok","request_id":6}`)
	for seq := uint64(1); seq <= 64; seq++ {
		send(r, seq, 7, seq, "d")
		r.recvMessage()
	}
	send(r, 7, 7, 0, "a")
	r.wantJSON(`{"type":"publish_refused","request_id":7,"message":"sequence is older than the remembered window","reason":"sequence_expired"}`)
	ev.wantRecords(append([]string{"a"}, repeat("d", 64)...)...)
}

func repeat(s string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = s
	}
	return list
}

// One refused publish in a row of publishes fails alone (PUB-21, BUG-9).
func TestRefusedPublishFailsAlone(t *testing.T) {
	for _, feats := range []wire.Features{offerAll, offerWindow} {
		w := newWorld(t, worldOptions{})
		r := w.dial().loginAs(w.token("stream.publish:stream:t1/default/s", "stream.publish:stream:t1/default/gone"), offerFlags, feats)
		var row []byte
		row = append(row, publish(wire.FlagAcked, 1, "s", "a")...)
		row = append(row, publish(wire.FlagAcked, 2, "gone", "b")...)
		row = append(row, publish(wire.FlagAcked, 3, "s", "c")...)
		row = append(row, publish(wire.FlagAcked, 4, "wide", "d")...)
		row = append(row, frame(0x0009, unhex("00000000000000050100"))...)
		row = append(row, publish(wire.FlagAcked, 6, "s", "e")...)
		r.write(row)
		got := map[uint64]string{}
		for i := range 6 {
			flags, body := r.recv()
			a, err := wire.DecodeAck(flags, body)
			if err != nil {
				t.Fatal(err)
			}
			if a.Err != nil {
				got[a.RequestID] = a.Err.Code.String()
			} else {
				got[a.RequestID] = "ok"
			}
			if feats.Has(wire.FeaturePublishPipeline) && a.RequestID != uint64(i+1) {
				t.Errorf("answer %d came %dth on a pipelined stream", a.RequestID, i+1)
			}
		}
		want := map[uint64]string{1: "ok", 2: "not_found", 3: "ok", 4: "forbidden", 5: "invalid_request", 6: "ok"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
		r.wantOpen()
	}
}

// Codes, class, detail and offset of an ack go only to streams that offered them; a client that
// negotiated nothing gets the original bytes (SUB-20, BUG-32, wire.md 5.3).
func TestAckHasOnlyWhatWasOffered(t *testing.T) {
	w := newWorld(t, worldOptions{durable: true})
	w.stream(core.StreamDef{Stream: "d", Durable: true})
	c := w.dial()
	rows := []struct {
		name  string
		flags uint16
		feats wire.Features
		ok    string // body of the ack of request 1, offset 0
		fail  wire.Flags
	}{
		{"everything", 0x1FFF, offerAll, "000000000000000001" + "0000" + "0000000000000000", wire.FlagAck | wire.FlagAckCode | wire.FlagAckDetail},
		{"flags alone", 0x1FFF, 0, "000000000000000001" + "0000" + "0000000000000000", wire.FlagAck},
		{"codes alone", 0x0007 | 0x0010, wire.FeatureErrorCodes, "000000000000000001" + "0000", wire.FlagAck},
		{"no detail", 0x0210, wire.FeatureErrorCodes, "000000000000000001" + "0000", wire.FlagAck | wire.FlagAckCode},
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := c.loginAs(w.token(), row.flags, row.feats)
			w.stream(core.StreamDef{Tenant: "t1", Namespace: "default", Stream: fmt.Sprint("d", i), Durable: true})
			r.write(publish(wire.FlagAcked, 1, fmt.Sprint("d", i), "x"))
			if flags, body := r.recv(); string(body) != string(unhex(row.ok)) {
				t.Errorf("flags %#x, body %x, want %s", uint16(flags), body, row.ok)
			}
			r.write(publish(wire.FlagAcked, 2, "nope", "x"))
			if flags, body := r.recv(); flags != row.fail {
				t.Errorf("flags %#x, want %#x; body %x", uint16(flags), uint16(row.fail), body)
			}
		})
	}
	r := c.open()
	r.send(&wire.Auth{TenantID: "t1", Token: w.token()})
	r.wantJSON(`{"type":"ok"}`)
	r.sendJSON(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"nope","payload":"eA==","request_id":3}`)
	r.wantJSON(`{"type":"publish_error","request_id":3,"message":"stream not found: t1/default/nope"}`)
	r.sendJSON(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"d","payload":"eA==","request_id":3}`)
	r.wantJSON(`{"type":"publish_ok","request_id":3}`)
}

// Broker-wide "ack when queued" answers without an offset; a client that offered ACK_ON_COMMIT gets
// write-then-ack all the same, and so do idempotent publishes (broker.md 1.7).
func TestAckOnQueueYieldsToTheClient(t *testing.T) {
	w := newWorld(t, worldOptions{durable: true, serve: func(o *Options) { o.AckOnQueue = true }})
	w.stream(core.StreamDef{Stream: "d", Durable: true})
	c := w.dial()
	queued := c.loginAs(w.token(), offerFlags, offerAll)
	if a := queued.mustPublish(1, "d", "x"); a.HasOffset {
		t.Error("an ack of a queued publish has an offset")
	}
	written := c.loginAs(w.token(), offerFlags, offerAll|wire.FeatureAckOnCommit)
	if a := written.mustPublish(2, "d", "x"); !a.HasOffset {
		t.Error("ACK_ON_COMMIT was offered and the ack has no offset")
	}
	queued.write(publish(wire.FlagAcked|wire.FlagIdempotent, 3, "d", "x"))
	if m, ok := queued.recvMessage().(*wire.PublishOK); !ok || m.Offset == nil {
		t.Errorf("idempotent: %+v", m)
	}
}

// The subject of the token travels with its records where the broker keeps it and the reader asked
// for it, and only there.
func TestPublisherIsRecordedWhereConfigured(t *testing.T) {
	for _, record := range []bool{true, false} {
		w := newWorld(t, worldOptions{serve: func(o *Options) { o.RecordPublishers = record }})
		c := w.dial()
		asked := c.subscribe(c.loginAs(w.token(), 0x7FFF, offerAll), "s", 0)
		plain := c.subscribe(c.loginAs(w.token(), offerFlags, offerAll), "s", 0)
		c.loginAs(w.tokenOf("t1", "bob"), offerFlags, offerAll).mustPublish(1, "s", "x")
		flags, body := asked.recv()
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(flags, body, &e); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "bob"}[record]; string(e.Publisher) != want {
			t.Errorf("record %v: publisher %q, want %q", record, e.Publisher, want)
		}
		if flags, _ := plain.recv(); flags&wire.FlagEvPublisher != 0 {
			t.Error("the publisher was sent to a reader that did not ask")
		}
	}
}
