package serve

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/ringcast/ringcast/wire"
)

// badRow is one row of the tables of wire.md 2.4, 3.1, 5.1 and 6.2: what arrives on a stream, what
// is answered, whether the stream goes on, and what is counted.
type badRow struct {
	name string
	// auth: "" = none, "all" = everything offered, "plain" = client_flags alone, "legacy" = nothing.
	auth  string
	send  []byte
	fin   bool // finish behind it
	want  []wire.Message
	ack   *wire.Error // a failed binary ack for request 9
	open  bool
	fault fault
}

const noFault = faultCount

func errorCoded(e *wire.Error) wire.Message { return wire.NewErrorMessage(e, offerAll) }
func errorPlain(text string) wire.Message   { return &wire.ErrorMessage{Message: text} }

func jsonFrame(text string) []byte { return frame(0, []byte(text)) }

func badHeader(magic uint32, version uint16, length uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	b = binary.BigEndian.AppendUint16(b, version)
	b = binary.BigEndian.AppendUint16(b, 0)
	return binary.BigEndian.AppendUint32(b, length)
}

func badRows() []badRow {
	const magic = 0x464C5831
	const flagsText = "unsupported frame flags"
	badBatch := &wire.Error{Code: wire.CodeInvalidRequest, Retry: wire.RetryFatal, Message: "malformed publish batch"}
	idempotent := publish(wire.FlagAcked|wire.FlagIdempotent, 9, "s", "x")
	return []badRow{
		// 2.1, 2.2
		{name: "wrong magic", auth: "all", send: badHeader(0x464C5832, 1, 0), fault: faultMagic},
		{name: "wrong magic before auth", send: badHeader(0, 1, 0), fault: faultMagic},
		{name: "wrong version", auth: "all", send: badHeader(magic, 2, 0), fault: faultVersion},
		{name: "length over the limit", auth: "all", send: badHeader(magic, 1, wire.MaxFrameBytes+1), fault: faultTooLarge},
		{name: "length 2^32-1", auth: "all", send: badHeader(magic, 1, 1<<32-1), fault: faultTooLarge},
		{name: "length over the limit before auth", send: badHeader(magic, 1, wire.PreauthMaxFrameBytes+1), fault: faultTooLargePreauth},
		{name: "finished inside a header", auth: "all", send: badHeader(magic, 1, 0)[:7], fin: true, fault: faultTruncated},
		{name: "finished inside a body", auth: "all", send: badHeader(magic, 1, 10), fin: true, fault: faultTruncated},

		// 2.4
		{name: "reserved flag bit", auth: "all", send: frame(0x8000, []byte("body")), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, flagsText))}, open: true, fault: faultFlags},
		{name: "reserved flag bit on a publish", auth: "all", send: frame(0x8009, publish(wire.FlagAcked, 9, "s", "x")[12:]), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, flagsText))}, open: true, fault: faultFlags},
		{name: "reserved flag bit, nothing offered", auth: "legacy", send: frame(0x8000, nil), want: []wire.Message{errorPlain(flagsText)}, open: true, fault: faultFlags},
		{name: "publish with an event bit", auth: "all", send: frame(0x0021, nil), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, flagsText))}, open: true, fault: faultFlags},
		{name: "publish with an ack bit", auth: "all", send: frame(0x0011, nil), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, flagsText))}, open: true, fault: faultFlags},
		{name: "no publish bit, another bit", auth: "all", send: frame(0x0008, []byte(`{"type":"topology"}`)), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, flagsText))}, open: true, fault: faultFlags},
		{name: "idempotent without acked", auth: "all", send: frame(0x0101, idempotent[12:]), fault: faultIdempotent},

		// 3.1
		{name: "publish before auth", send: publish(wire.FlagAcked, 9, "s", "x"), want: []wire.Message{errorPlain("auth required")}, fault: faultBeforeAuth},
		{name: "request before auth", send: jsonFrame(`{"type":"cache_get","tenant_id":"t1","namespace":"default","cache":"c","key":"k","request_id":1}`), want: []wire.Message{errorPlain("auth required")}, fault: faultBeforeAuth},
		{name: "discovery before auth", send: jsonFrame(`{"type":"topology"}`), want: []wire.Message{errorPlain("not authenticated")}, fault: faultBeforeAuth},
		{name: "producer_init before auth", send: jsonFrame(`{"type":"producer_init","request_id":1}`), want: []wire.Message{errorPlain("not authenticated")}, fault: faultBeforeAuth},
		{name: "unknown type before auth", send: jsonFrame(`{"type":"hello"}`), fault: faultType},
		{name: "malformed JSON before auth", send: jsonFrame(`{"type":`), fault: faultJSON},
		{name: "second auth", auth: "all", send: jsonFrame(`{"type":"auth","tenant_id":"t1","token":"x"}`), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, "auth already established"))}, fault: faultSecondAuth},
		{name: "client_features beyond u32", send: jsonFrame(`{"type":"auth","tenant_id":"t1","token":"x","client_features":4294967296}`), fault: faultJSON},

		// 4.0, 6.2
		{name: "not JSON", auth: "all", send: jsonFrame("hello"), fault: faultJSON},
		{name: "empty payload", auth: "all", send: jsonFrame(""), fault: faultJSON},
		{name: "not an object", auth: "all", send: jsonFrame(`["publish"]`), fault: faultJSON},
		{name: "no type", auth: "all", send: jsonFrame(`{"request_id":1}`), fault: faultJSON},
		{name: "invalid UTF-8", auth: "all", send: jsonFrame("{\"type\":\"producer_init\",\"request_id\":1,\"x\":\"\xff\"}"), fault: faultJSON},
		{name: "wrong field type", auth: "all", send: jsonFrame(`{"type":"producer_init","request_id":"1"}`), fault: faultJSON},
		{name: "fraction for an integer", auth: "all", send: jsonFrame(`{"type":"producer_init","request_id":1.0}`), fault: faultJSON},
		{name: "missing member", auth: "all", send: jsonFrame(`{"type":"producer_init"}`), fault: faultJSON},
		{name: "duplicate member", auth: "all", send: jsonFrame(`{"type":"producer_init","request_id":1,"request_id":1}`), fault: faultJSON},
		{name: "invalid base64", auth: "all", send: jsonFrame(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"s","payload":"aGk","request_id":9}`), fault: faultJSON},
		{name: "unknown type", auth: "all", send: jsonFrame(`{"type":"frobnicate","request_id":5}`), want: []wire.Message{&wire.Unsupported{RequestType: "frobnicate", RequestID: ptr[uint64](5)}}, open: true, fault: faultType},
		{name: "unknown type, nothing offered", auth: "plain", send: jsonFrame(`{"type":"frobnicate","request_id":5}`), fault: faultType},
		{name: "extension", auth: "all", send: jsonFrame(`{"type":"extension","name":"warp","request_id":6,"body":{"a":[1]}}`), want: []wire.Message{&wire.Unsupported{RequestType: "extension", Extension: "warp", RequestID: ptr[uint64](6)}}, open: true, fault: noFault},
		{name: "broker-only type", auth: "all", send: jsonFrame(`{"type":"ok"}`), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, "unexpected message type"))}, fault: faultBrokerOnly},
		{name: "error from a client", auth: "all", send: jsonFrame(`{"type":"error","message":"x"}`), fault: faultBrokerOnly},
		{name: "acked publish without request id", auth: "all", send: jsonFrame(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"s","payload":"aGk=","ack":"per_message"}`), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, "missing request_id for acked publish"))}, open: true, fault: faultRequestID},
		{name: "unknown stream, subscribe", auth: "all", send: jsonFrame(`{"type":"subscribe","tenant_id":"t1","namespace":"default","stream":"nope"}`), want: []wire.Message{errorCoded(wire.NewError(wire.CodeNotFound, "stream not found: t1/default/nope"))}, open: true, fault: noFault},
		{name: "unknown stream, JSON publish", auth: "all", send: jsonFrame(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"nope","payload":"aGk=","request_id":9}`), want: []wire.Message{wire.NewPublishError(9, wire.NewError(wire.CodeNotFound, "stream not found: t1/default/nope"), offerAll)}, open: true, fault: noFault},
		{name: "unknown stream, acked publish", auth: "all", send: publish(wire.FlagAcked, 9, "nope", "x"), ack: wire.NewError(wire.CodeNotFound, "stream not found: t1/default/nope"), open: true, fault: noFault},
		{name: "unknown stream, unacked publish", auth: "all", send: publish(0, 0, "nope", "x"), open: true, fault: noFault},
		{name: "shard out of range, subscribe", auth: "all", send: jsonFrame(`{"type":"subscribe","tenant_id":"t1","namespace":"default","stream":"wide","shard":4}`), want: []wire.Message{errorCoded(wire.NewError(wire.CodeInvalidRequest, "shard 4: the stream has 4"))}, open: true, fault: noFault},
		{name: "shard out of range, publish", auth: "all", send: jsonFrame(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"wide","shard":4,"payload":"aGk=","request_id":9}`), want: []wire.Message{wire.NewPublishError(9, wire.NewError(wire.CodeInvalidRequest, "shard 4: the stream has 4"), offerAll)}, open: true, fault: noFault},
		{name: "unknown cache", auth: "all", send: jsonFrame(`{"type":"cache_get","tenant_id":"t1","namespace":"default","cache":"nope","key":"k","request_id":9}`), want: []wire.Message{errorCoded(wire.NewError(wire.CodeNotFound, "cache scope not found: t1/default/nope"))}, open: true, fault: noFault},
		{name: "bad kind of shard_owners", auth: "all", send: jsonFrame(`{"type":"shard_owners","tenant_id":"t1","namespace":"default","name":"s","kind":"group","request_id":9}`), fault: faultJSON},

		// 5.1
		{name: "acked batch shorter than its prefix", auth: "all", send: frame(0x0009, unhex("0000000000000009")), fault: faultPublishPrefix},
		{name: "unknown ack mode", auth: "all", send: frame(0x0009, unhex("000000000000000903")), fault: faultPublishPrefix},
		{name: "acked batch cut off", auth: "all", send: frame(0x0009, unhex("00000000000000090100027431")), ack: badBatch, open: true, fault: faultPublishAcked},
		{name: "acked batch with an absurd count", auth: "all", send: frame(0x0009, unhex("00000000000000090100027431000764656661756c74000173ffffffff")), ack: badBatch, open: true, fault: faultPublishAcked},
		{name: "acked batch with invalid UTF-8", auth: "all", send: frame(0x0009, unhex("0000000000000009010002ff3100016400017300000000")), ack: badBatch, open: true, fault: faultPublishAcked},
		{name: "idempotent batch cut off", auth: "all", send: frame(0x0109, unhex("000000000000000901")), want: []wire.Message{wire.NewPublishError(9, badBatch, offerAll)}, open: true, fault: faultPublishAcked},
		{name: "unacked batch cut off", auth: "all", send: frame(0x0001, unhex("00027431")), fault: faultPublishUnacked},
		{name: "unacked batch with an absurd count", auth: "all", send: frame(0x0001, unhex("00027431000764656661756c74000173ffffffff")), fault: faultPublishUnacked},
	}
}

func ptr[T any](v T) *T { return &v }

// neighbour publishes on a connection and stream of its own, as a witness that nobody else is hurt.
type neighbour struct {
	r  *raw
	id uint64
}

func (n *neighbour) publish() {
	n.r.t.Helper()
	n.id++
	n.r.mustPublish(n.id, "s", "still here")
}

// Every malformed or out-of-place input gets exactly the answer of wire.md, ends at most its own
// stream, moves exactly its own counter, and no neighbour notices (OPS-5, PUB-22).
func TestBadInputGetsTheAnswerOfTheTable(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	n := &neighbour{r: w.dial().login()}
	c := w.dial()
	sibling := &neighbour{r: c.login()}
	for _, row := range badRows() {
		t.Run(row.name, func(t *testing.T) {
			var r *raw
			switch row.auth {
			case "":
				r = c.open()
			case "legacy":
				r = c.open()
				r.send(&wire.Auth{TenantID: "t1", Token: w.token()})
				r.want(&wire.OK{})
			case "plain":
				r = c.loginAs(w.token(), 0x1FFF, 0)
			default:
				r = c.login()
			}
			r.t = t
			before := w.srv.Stats().BadInput
			r.write(row.send)
			if row.fin {
				r.fin()
			}
			r.want(row.want...)
			if row.ack != nil {
				r.wantRefused(9, row.ack.Code, row.ack.Retry, row.ack.Message)
			}
			if row.open {
				r.wantOpen()
				r.fin()
			}
			r.wantEnd()
			after := w.srv.Stats().BadInput
			for f := range faultCount {
				want := before[f.String()]
				if f == row.fault {
					want++
				}
				if got := after[f.String()]; got != want {
					t.Errorf("counter %s is %d, want %d", f, got, want)
				}
			}
			n.publish()
			sibling.publish()
		})
	}
}

// On a publish-only stream there is nobody to answer: whatever is wrong ends it (wire.md 2.4, 3.1).
func TestPublishOnlyStreamEndsAtAnyFault(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	n := &neighbour{r: w.dial().login()}
	c := w.dial()
	rows := []struct {
		name  string
		auth  bool
		send  []byte
		fault fault
	}{
		{"wrong magic", true, badHeader(1, 1, 0), faultMagic},
		{"reserved flag bit", true, frame(0x8000, nil), faultFlags},
		{"acked publish", true, publish(wire.FlagAcked, 9, "s", "x"), faultOneWay},
		{"idempotent without acked", true, frame(0x0101, nil), faultFlags},
		{"publish before auth", false, publish(0, 0, "s", "x"), faultOneWay},
		{"malformed batch", true, frame(0x0001, []byte{1}), faultPublishUnacked},
		{"another request", true, jsonFrame(`{"type":"topology"}`), faultOneWay},
		{"second auth", true, wire.AppendMessage(nil, &wire.Auth{TenantID: "t1", Token: w.token()}), faultOneWay},
		{"JSON publish that wants an answer", true, jsonFrame(`{"type":"publish","tenant_id":"t1","namespace":"default","stream":"s","payload":"aGk=","request_id":9}`), faultOneWay},
		{"malformed JSON", true, jsonFrame(`{`), faultJSON},
		{"unknown type", true, jsonFrame(`{"type":"frobnicate"}`), faultJSON},
		{"token refused", false, wire.AppendMessage(nil, &wire.Auth{TenantID: "t1", Token: "x.y.z"}), noFault},
		{"another tenant", true, publishAs(0, 0, "t2", "s", "x"), noFault},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := c.openOneWay()
			r.t = t
			if row.auth {
				r.send(&wire.Auth{TenantID: "t1", Token: w.token()})
			}
			before := w.srv.Stats().BadInput
			r.write(row.send)
			r.wantStopped()
			if row.fault != noFault {
				if got := w.srv.Stats().BadInput[row.fault.String()]; got != before[row.fault.String()]+1 {
					t.Errorf("counter %s is %d, was %d", row.fault, got, before[row.fault.String()])
				}
			}
			n.publish()
		})
	}
}

// Requests of later versions are decoded and answered unsupported with their request id, never
// executed and never a reason to end the stream.
func TestRequestsOfLaterVersionsAreUnsupported(t *testing.T) {
	w := newWorld(t, worldOptions{})
	r := w.dial().login()
	const target = `"tenant_id":"t1","namespace":"default","stream":"s"`
	const entry = `"tenant_id":"t1","namespace":"default","cache":"c","key":"k"`
	const group = target + `,"shard":0,"group":"g"`
	for typ, members := range map[string]string{
		"cache_put_if":       entry + `,"value":"aGk=","condition":"absent"`,
		"cache_delete_if":    entry + `,"version":1`,
		"counter_add":        entry + `,"delta":1`,
		"counter_get":        entry,
		"group_poll":         group + `,"max_records":1`,
		"group_ack":          group + `,"offset":1`,
		"group_nack":         group + `,"offset":1`,
		"group_extend":       group + `,"offset":1,"attempts":1,"extend_ms":5`,
		"group_dead_letter":  group + `,"offset":1`,
		"group_dead_letters": group,
		"group_discard":      group + `,"offset":1`,
		"group_redrive":      group + `,"offset":1`,
		"group_seek":         group + `,"start":"earliest"`,
		"group_describe":     group,
		"group_delete":       group,
		"shard_inspect":      `"tenant_id":"t1","namespace":"default","name":"s","kind":"stream","shard":0`,
		"subscriptions_list": `"limit":1`,
	} {
		r.sendJSON(fmt.Sprintf(`{"type":%q,%s,"request_id":18446744073709551615}`, typ, members))
		r.wantJSON(fmt.Sprintf(`{"type":"unsupported","request_type":%q,"request_id":18446744073709551615}`, typ))
	}
	r.sendJSON(`{"type":"cache_watch","tenant_id":"t1","namespace":"default","cache":"c","key":"k"}`)
	r.wantJSON(`{"type":"unsupported","request_type":"cache_watch"}`)
	r.wantOpen()
	if got := w.srv.Stats().Unsupported; got != 18 {
		t.Errorf("counted %d unsupported requests, want 18", got)
	}
}
