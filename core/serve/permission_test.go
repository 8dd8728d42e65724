package serve

import (
	"fmt"
	"testing"

	"github.com/ringcast/ringcast/wire"
)

// A token of one tenant is refused on every request that names another, in the form of
// wire.md 3.2.1, and nothing happens (OPS-3).
func TestOtherTenantIsRefusedOnEveryOperation(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	watch := c.subscribe(c.login(), "s", 0)
	r := c.loginAs(w.token(), offerFlags, offerWindow)
	const target = `"tenant_id":"t2","namespace":"default","stream":"s"`
	const entry = `"tenant_id":"t2","namespace":"default","cache":"c","key":"k"`
	for _, request := range []string{
		`{"type":"publish",` + target + `,"payload":"eA==","request_id":1}`,
		`{"type":"publish",` + target + `,"payload":"eA=="}`,
		`{"type":"publish_batch",` + target + `,"payloads":["eA=="],"request_id":1}`,
		`{"type":"publish_idempotent",` + target + `,"payloads":["eA=="],"request_id":1,"producer_id":1,"sequence":0}`,
		`{"type":"publish_if",` + target + `,"payloads":["eA=="],"expected_offset":0,"request_id":1}`,
		`{"type":"commit",` + target + `,"entity_key":"eA==","event":"eA==","request_id":1}`,
		`{"type":"state_get",` + target + `,"entity_key":"eA==","key":"k","request_id":1}`,
		`{"type":"subscribe",` + target + `}`,
		`{"type":"stream_read",` + target + `,"shard":0,"from":0,"request_id":1}`,
		`{"type":"offset_for_time",` + target + `,"shard":0,"at_micros":0,"request_id":1}`,
		`{"type":"cache_put",` + entry + `,"value":"eA==","ttl_ms":null,"request_id":1}`,
		`{"type":"cache_get",` + entry + `,"request_id":1}`,
		`{"type":"cache_delete",` + entry + `,"request_id":1}`,
		`{"type":"stream_shards",` + target + `,"request_id":1}`,
		`{"type":"cache_shards","tenant_id":"t2","namespace":"default","cache":"c","request_id":1}`,
		`{"type":"shard_owners","tenant_id":"t2","namespace":"default","name":"s","kind":"stream","request_id":1}`,
	} {
		r.sendJSON(request)
		r.wantJSON(`{"type":"error","message":"tenant mismatch","code":"forbidden","retry":"fatal"}`)
	}
	r.write(publishAs(wire.FlagAcked, 5, "t2", "s", "x"))
	r.wantRefused(5, wire.CodeForbidden, wire.RetryFatal, "tenant mismatch")
	r.write(publishAs(wire.FlagAcked|wire.FlagIdempotent, 6, "t2", "s", "x"))
	r.wantJSON(`{"type":"publish_error","request_id":6,"message":"tenant mismatch","code":"forbidden","retry":"fatal"}`)
	r.wantOpen()
	r.write(publishAs(0, 0, "t2", "s", "x")) // unacked: no answer, the stream ends
	r.wantEnd()
	watch.wantQuiet()
	if got := w.srv.Stats().Forbidden; got != 19 {
		t.Errorf("counted %d refusals, want 19", got)
	}
}

// A token without the permission is refused in the form that the request's table row names; the
// stream stays open where there was an answer to give.
func TestMissingPermissionIsRefused(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	token := w.token("stream.publish:stream:t1/default/other*", "stream.subscribe:stream:t1/default/other",
		"cache.read:cache:t1/default/c/pub*", "cache.write:cache:t1/default/c/mine")
	r := c.loginAs(token, offerFlags, offerAll)
	const target = `"tenant_id":"t1","namespace":"default","stream":"s"`
	const forbidden = `"message":"forbidden","code":"forbidden","retry":"fatal"}`
	for _, row := range []struct{ send, want string }{
		{`{"type":"publish",` + target + `,"payload":"eA==","request_id":1}`, `{"type":"publish_error","request_id":1,` + forbidden},
		{`{"type":"publish",` + target + `,"payload":"eA=="}`, `{"type":"error",` + forbidden},
		{`{"type":"publish_batch",` + target + `,"payloads":["eA=="],"request_id":1}`, `{"type":"publish_error","request_id":1,` + forbidden},
		{`{"type":"publish_idempotent",` + target + `,"payloads":["eA=="],"request_id":1,"producer_id":1,"sequence":0}`, `{"type":"publish_error","request_id":1,` + forbidden},
		{`{"type":"publish_if",` + target + `,"payloads":["eA=="],"expected_offset":0,"request_id":1}`, `{"type":"publish_error","request_id":1,` + forbidden},
		{`{"type":"commit",` + target + `,"entity_key":"eA==","event":"eA==","request_id":1}`, `{"type":"publish_error","request_id":1,` + forbidden},
		{`{"type":"state_get",` + target + `,"entity_key":"eA==","key":"k","request_id":1}`, `{"type":"publish_error","request_id":1,` + forbidden},
		{`{"type":"subscribe",` + target + `}`, `{"type":"error",` + forbidden},
		{`{"type":"stream_read",` + target + `,"shard":0,"from":0,"request_id":1}`, `{"type":"error",` + forbidden},
		{`{"type":"offset_for_time",` + target + `,"shard":0,"at_micros":0,"request_id":1}`, `{"type":"error",` + forbidden},
	} {
		r.sendJSON(row.send)
		r.wantJSON(row.want)
	}
	r.write(publish(wire.FlagAcked, 5, "s", "x"))
	r.wantRefused(5, wire.CodeForbidden, wire.RetryFatal, "forbidden")

	// Grants of keys (OPS-4).
	for _, row := range []struct {
		op, key string
		ok      bool
	}{
		{"cache_get", "public", true}, {"cache_get", "pub", true}, {"cache_get", "pu", false}, {"cache_get", "mine", false},
		{"cache_put", "mine", true}, {"cache_put", "mine2", false}, {"cache_put", "public", false},
		{"cache_delete", "mine", true}, {"cache_delete", "public", false},
	} {
		value := ""
		if row.op == "cache_put" {
			value = `,"value":"eA=="`
		}
		r.sendJSON(fmt.Sprintf(`{"type":%q,"tenant_id":"t1","namespace":"default","cache":"c","key":%q%s,"request_id":2}`, row.op, row.key, value))
		if m, refused := r.recvMessage().(*wire.ErrorMessage); refused == row.ok {
			t.Errorf("%s %s: refused %v: %v", row.op, row.key, refused, m)
		}
	}
	// Any valid token may ask what exists.
	r.sendJSON(`{"type":"stream_shards","tenant_id":"t1","namespace":"default","stream":"wide","request_id":3}`)
	r.wantJSON(`{"type":"stream_shards_view","shards":4,"request_id":3}`)
	r.wantOpen()

	r.write(publish(0, 0, "s", "x"))
	r.wantEnd()
	for _, send := range [][]byte{publish(0, 0, "s", "x"), jsonFrame(`{"type":"publish",` + target + `,"payload":"eA=="}`)} {
		u := c.openOneWay()
		u.send(&wire.Auth{TenantID: "t1", Token: token})
		u.write(send)
		u.wantStopped()
	}
}

// A token that is not accepted gets `auth failed` and FIN, with the code if this same auth offered
// codes (wire.md 3.1).
func TestRefusedTokenEndsTheStream(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	for _, row := range []struct{ name, tenant, token string }{
		{"garbage", "t1", "not a token"},
		{"empty", "t1", ""},
		{"of another tenant", "t1", w.tokenOf("t2", "alice")},
		{"for another tenant", "t2", w.token()},
		{"of an unknown tenant", "t3", w.tokenOf("t3", "alice")},
	} {
		r := c.open()
		r.sendAuth(row.tenant, row.token, offerFlags, offerAll)
		r.wantJSON(`{"type":"error","message":"auth failed","code":"unauthenticated","retry":"fatal"}`)
		r.wantEnd()
		r = c.open()
		r.send(&wire.Auth{TenantID: row.tenant, Token: row.token})
		r.wantJSON(`{"type":"error","message":"auth failed"}`)
		r.wantEnd()
	}
	c.login().wantOpen()
	if st := w.srv.Stats(); st.AuthFailed != 10 || st.AuthOK != 1 {
		t.Errorf("%d failed, %d accepted; want 10, 1", st.AuthFailed, st.AuthOK)
	}
}

// What is granted follows what this stream offered, and only what works is advertised (wire.md 3.1,
// 3.3, 7).
func TestNegotiation(t *testing.T) {
	const memory = 0x400EFE24           // wire.md 7, in memory, without CACHE_CONDITIONAL
	const durable = memory | 0x34210000 // ATOMIC_COMMIT, SUBSCRIPTION_LAGGED, RECORD_TIMESTAMPS, PUBLISH_CONDITIONAL, STREAM_READ
	const window = `,"publish_window":256}`
	offer := func(flags, feats, hi string) string {
		return fmt.Sprintf(`"client_flags":%s,"client_features":%s,"client_features_hi":%s`, flags, feats, hi)
	}
	rows := []struct {
		name    string
		durable bool
		ports   []uint16
		window  int
		offer   string
		want    string
	}{
		{name: "nothing", offer: `"client_features":null`, want: `{"type":"ok"}`},
		{name: "features without flags", offer: `"client_features":4294967295,"client_features_hi":15`, want: `{"type":"ok"}`},
		{name: "flags alone", offer: `"client_flags":8191`, want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d}`, memory)},
		{name: "official client", offer: `"client_flags":8191,"client_features":2071461887`, want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d%s`, memory, window)},
		{name: "second word", offer: offer("32767", "2147516416", "2"), want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d,"server_features_hi":10%s`, memory|1<<31, window)},
		{name: "second word without the marker", offer: offer("32767", "2048", "2"), want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d}`, memory)},
		{name: "durable", durable: true, offer: `"client_flags":8191`, want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d}`, durable)},
		{name: "one port", ports: []uint16{5000}, offer: `"client_flags":0`, want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d}`, memory)},
		{name: "several ports", ports: []uint16{5000, 5001}, offer: `"client_flags":0,"client_features":32768`, want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d,"listener_ports":[5000,5001]%s`, memory, window)},
		{name: "no window here", window: -1, offer: `"client_flags":8191,"client_features":32768`, want: fmt.Sprintf(`{"type":"auth_ok","server_flags":32767,"server_features":%d}`, memory&^0x00028000)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, worldOptions{durable: row.durable, serve: func(o *Options) { o.ListenerPorts, o.PublishWindow = row.ports, row.window }})
			r := w.dial().open()
			r.sendJSON(fmt.Sprintf(`{"type":"auth","tenant_id":"t1","token":%q,%s}`, w.token(), row.offer))
			r.wantJSON(row.want)
			r.wantOpen()
		})
	}
}

// Streams of one connection may belong to different identities, each with its own rights.
func TestStreamsOfAConnectionAreIndependent(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	may := c.loginAs(w.token("stream.publish:stream:t1/default/s"), offerFlags, offerAll)
	mayNot := c.loginAs(w.tokenOf("t1", "bob", "stream.subscribe:stream:t1/default/s"), offerFlags, offerAll)
	other := c.open()
	other.sendAuth("t2", w.tokenOf("t2", "alice"), offerFlags, offerAll)
	other.recvMessage()
	ev := c.subscribe(mayNot, "s", 0)
	may.mustPublish(1, "s", "x")
	mayNot.write(publish(wire.FlagAcked, 2, "s", "y"))
	mayNot.wantRefused(2, wire.CodeForbidden, wire.RetryFatal, "forbidden")
	other.write(publish(wire.FlagAcked, 3, "s", "z"))
	other.wantRefused(3, wire.CodeForbidden, wire.RetryFatal, "tenant mismatch")
	ev.wantRecords("x")
	ev.wantQuiet()
}
