package serve

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

const dTarget = `"tenant_id":"t1","namespace":"default","stream":"d"`

// durableWorld is a world with the durable streams d (one shard) and dwide (four).
func durableWorld(t *testing.T, quic bool) *world {
	w := newWorld(t, worldOptions{durable: true, quic: quic})
	w.stream(core.StreamDef{Stream: "d", Durable: true, Fsync: "none"})
	w.stream(core.StreamDef{Stream: "dwide", Durable: true, Fsync: "none", Shards: 4})
	return w
}

// exchange sends requests one after another and expects the answer beside each.
func (r *raw) exchange(rows [][2]string) {
	r.t.Helper()
	for _, row := range rows {
		r.sendJSON(row[0])
		r.wantJSON(row[1])
	}
}

func errorJSON(message, code, retry string) string {
	return fmt.Sprintf(`{"type":"error","message":%q,"code":%q,"retry":%q}`, message, code, retry)
}

// PUB-25: a conditional publish is answered with its offset, whatever flags were offered, or with the tail
// that the shard has; everything else that is wrong with it is an error, and the stream goes on.
func TestConditionalPublishOnTheWire(t *testing.T) {
	w := durableWorld(t, true)
	w.stream(core.StreamDef{Stream: "m"})
	r := w.dial().loginAs(w.token(), 0, offerAll) // no ACK_OFFSET
	publishIf := func(stream, payloads string, expected, id int) string {
		return fmt.Sprintf(`{"type":"publish_if","tenant_id":"t1","namespace":"default","stream":%q,"payloads":[%s],"expected_offset":%d,"request_id":%d}`, stream, payloads, expected, id)
	}
	const condition = "a conditional publish needs a stream with a log and at least one record"
	r.exchange([][2]string{
		{publishIf("d", `"YQ==","Yg=="`, 0, 1), `{"type":"publish_ok","request_id":1,"offset":0}`},
		{publishIf("d", `"Yw=="`, 0, 2), `{"type":"publish_refused","request_id":2,"message":"offset mismatch: the next offset is 2","reason":{"offset_mismatch":{"tail":2}}}`},
		{publishIf("d", `"Yw=="`, 7, 3), `{"type":"publish_refused","request_id":3,"message":"offset mismatch: the next offset is 2","reason":{"offset_mismatch":{"tail":2}}}`},
		{publishIf("d", `"Yw=="`, 2, 4), `{"type":"publish_ok","request_id":4,"offset":2}`},
		{publishIf("d", ``, 3, 5), errorJSON(condition, "invalid_request", "fatal")},
		{publishIf("m", `"YQ=="`, 0, 6), errorJSON(condition, "invalid_request", "fatal")},
		{publishIf("nope", `"YQ=="`, 0, 7), errorJSON("stream not found: t1/default/nope", "not_found", "retry_after")},
		{`{"type":"publish_if","tenant_id":"t1","namespace":"default","stream":"dwide","key":"azE=","payloads":["eA=="],"expected_offset":0,"request_id":8}`, `{"type":"publish_ok","request_id":8,"offset":0}`},
		{`{"type":"stream_read",` + dTarget + `,"shard":0,"from":3,"request_id":9}`, `{"type":"stream_records","records":[],"next_offset":3,"request_id":9}`},
	})
	var want [4]uint64
	want[wire.ShardOf([]byte("k1"), true, 4, wire.RoutingModulo)] = 1
	if tails := w.tails("dwide"); tails != want {
		t.Errorf("tails %v, want %v", tails, want)
	}
	r.sendJSON(`{"type":"publish_if",` + dTarget + `,"payloads":["!"],"expected_offset":0,"request_id":1}`)
	r.wantEnd()
}

func (w *world) tails(stream string) (tails [4]uint64) {
	w.t.Helper()
	info, ok := w.broker.GetStream("t1", "default", stream)
	if !ok {
		w.t.Fatal("no stream " + stream)
	}
	for i, s := range info.ShardInfo {
		tails[i] = s.Tail
	}
	return tails
}

// A commit is answered with the offset of its event, which is the version of what it wrote; state_get says
// what there is, null where there is nothing, and as of when.
func TestCommitOnTheWire(t *testing.T) {
	w := durableWorld(t, true)
	r := w.dial().login()
	commit := func(id int, rest string) string {
		return fmt.Sprintf(`{"type":"commit",%s,"entity_key":"","event":"ZXZlbnQ=","request_id":%d%s}`, dTarget, id, rest)
	}
	state := func(id int, key string) string {
		return fmt.Sprintf(`{"type":"state_get",%s,"entity_key":"YW55","key":%q,"request_id":%d}`, dTarget, key, id)
	}
	r.exchange([][2]string{
		{state(1, "k"), `{"type":"state_value","value":null,"request_id":1}`},
		{commit(2, ``), `{"type":"commit_ok","request_id":2,"offset":0}`},
		{state(3, "k"), `{"type":"state_value","value":null,"as_of":0,"request_id":3}`},
		{commit(4, `,"changes":[{"op":"put","key":"k","value":"dg=="},{"op":"put","key":"empty","value":""},{"op":"put","key":"gone","value":"eA=="},{"op":"delete","key":"gone"}]`), `{"type":"commit_ok","request_id":4,"offset":1}`},
		{state(5, "k"), `{"type":"state_value","value":"dg==","version":1,"as_of":1,"request_id":5}`},
		{state(6, "empty"), `{"type":"state_value","value":"","version":1,"as_of":1,"request_id":6}`},
		{state(7, "gone"), `{"type":"state_value","value":null,"as_of":1,"request_id":7}`},
		{commit(8, `,"expected_offset":1,"changes":[{"op":"put","key":"k","value":"eA=="}]`), `{"type":"publish_refused","request_id":8,"message":"offset mismatch: the next offset is 2","reason":{"offset_mismatch":{"tail":2}}}`},
		{commit(9, `,"expected_offset":2,"changes":[{"op":"delete","key":"k"}]`), `{"type":"commit_ok","request_id":9,"offset":2}`},
		{state(10, "k"), `{"type":"state_value","value":null,"as_of":2,"request_id":10}`},
		{`{"type":"state_get","tenant_id":"t1","namespace":"default","stream":"nope","entity_key":"","key":"k","request_id":1}`, errorJSON("stream not found: t1/default/nope", "not_found", "retry_after")},
		{`{"type":"state_get","tenant_id":"t1","namespace":"default","stream":"s","entity_key":"","key":"k","request_id":1}`, errorJSON("the stream is in memory: it has no log to read", "invalid_request", "fatal")},
		{`{"type":"commit","tenant_id":"t1","namespace":"default","stream":"s","entity_key":"","event":"","request_id":1}`, errorJSON("the stream is in memory: an atomic commit needs a log", "invalid_request", "fatal")},
		{`{"type":"commit","tenant_id":"t1","namespace":"default","stream":"nope","entity_key":"","event":"","request_id":1}`, errorJSON("stream not found: t1/default/nope", "not_found", "retry_after")},
	})
	r.send(&wire.StreamRead{TenantID: "t1", Namespace: "default", Stream: "d", RequestID: 1})
	if m, ok := r.recvMessage().(*wire.StreamRecords); !ok || len(m.Records) != 3 || string(m.Records[1].Payload) != "event" || m.NextOffset != 3 {
		t.Errorf("history: %+v", m)
	}
}

// COM-2: a commit writes one stream. One that names a second, where its own is named or in one of its
// changes, is refused whole: no event, no state, no offset.
func TestSecondStreamInACommitIsRefused(t *testing.T) {
	w := durableWorld(t, false)
	c := w.dial()
	const change = `{"op":"put","key":"k","value":"dg=="}`
	foreign := strings.TrimSuffix(change, "}") + `,"stream":"dwide"}`
	own := strings.TrimSuffix(change, "}") + `,"stream":"d"}`
	r := c.login()
	request := func(target string, changes ...string) string {
		return `{"type":"commit",` + target + `,"entity_key":"","event":"ZQ==","request_id":1,"changes":[` + strings.Join(changes, ",") + `]}`
	}
	for _, changes := range [][]string{{foreign}, {change, foreign}, {own, foreign, change}} {
		r.sendJSON(request(dTarget, changes...))
		r.wantJSON(errorJSON(errSecondStream.Message, "invalid_request", "fatal"))
	}
	for _, bad := range []string{
		request(dTarget+`,"stream":"dwide"`, change),
		request(dTarget, change+`,{"op":"put","key":"k"}`),
		request(dTarget, `{"op":"increment","key":"k","value":"dg=="}`),
		request(dTarget, `{"op":"put","key":7,"value":"dg=="}`),
	} {
		ended := c.login()
		ended.sendJSON(bad)
		ended.wantEnd()
	}
	if d, wide := w.tails("d"), w.tails("dwide"); d != [4]uint64{} || wide != [4]uint64{} {
		t.Fatalf("written: %v %v", d, wide)
	}
	r.exchange([][2]string{
		{`{"type":"state_get",` + dTarget + `,"entity_key":"","key":"k","request_id":2}`, `{"type":"state_value","value":null,"request_id":2}`},
		{request(dTarget, own), `{"type":"commit_ok","request_id":1,"offset":0}`},
	})
}

// A named shard is honoured by every form that can name one, in place of the key, whether or not the client
// offered a second feature word; one that the stream does not have is invalid_request (wire.md 9).
func TestEveryFormHonoursANamedShard(t *testing.T) {
	const wide = `"tenant_id":"t1","namespace":"default","stream":"dwide"`
	key := "key-of-shard-" // on a shard other than the named one
	for n := 0; wire.ShardOf([]byte(key), true, 4, wire.RoutingModulo) == 2; n++ {
		key = fmt.Sprint("key-of-shard-", n)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	forms := []struct{ name, request, answer, refusal string }{
		{"publish", `{"type":"publish",` + wide + `,"payload":"eA==","key":"` + encoded + `","shard":%d,"request_id":9}`,
			`{"type":"publish_ok","request_id":9,"offset":%d}`, "publish_error"},
		{"publish_batch", `{"type":"publish_batch",` + wide + `,"payloads":["eA=="],"key":"` + encoded + `","shard":%d,"request_id":9}`,
			`{"type":"publish_ok","request_id":9,"offset":%d}`, "publish_error"},
		{"publish_idempotent", `{"type":"publish_idempotent",` + wide + `,"payloads":["eA=="],"key":"` + encoded + `","shard":%d,"producer_id":%[2]d,"sequence":0,"request_id":9}`,
			`{"type":"publish_ok","request_id":9,"offset":%d}`, "publish_error"},
		{"publish_if", `{"type":"publish_if",` + wide + `,"payloads":["eA=="],"key":"` + encoded + `","shard":%d,"expected_offset":%[2]d,"request_id":9}`,
			`{"type":"publish_ok","request_id":9,"offset":%d}`, "error"},
		{"commit", `{"type":"commit",` + wide + `,"entity_key":"` + encoded + `","event":"eA==","changes":[{"op":"put","key":"k","value":"dg=="}],"shard":%d,"request_id":9}`,
			`{"type":"commit_ok","request_id":9,"offset":%d}`, "error"},
	}
	for _, feats := range []wire.Features{offerAll, wire.FeatureErrorCodes, offerWindow} {
		w := durableWorld(t, false)
		r := w.dial().loginAs(w.token(), offerFlags, feats)
		// A publish of any form may create the segment of its log; a held answer is not what is tested.
		for offset, f := range forms {
			request := func(shard int) string {
				text := f.request
				if strings.Contains(text, "%[2]d") {
					return fmt.Sprintf(strings.Replace(text, "%d", "%[1]d", 1), shard, offset)
				}
				return fmt.Sprintf(text, shard)
			}
			r.sendJSON(request(4))
			id := ""
			if f.refusal == "publish_error" {
				id = `"request_id":9,`
			}
			r.wantJSON(fmt.Sprintf(`{"type":%q,%s"message":"shard 4: the stream has 4","code":"invalid_request","retry":"fatal"}`, f.refusal, id))
			r.sendJSON(request(2))
			r.wantJSON(fmt.Sprintf(f.answer, offset))
			if got, want := w.tails("dwide"), [4]uint64{2: uint64(offset + 1)}; got != want {
				t.Fatalf("%s: tails %v, want %v", f.name, got, want)
			}
		}
		state := `{"type":"state_get",` + wide + `,"entity_key":"` + encoded + `","key":"k","request_id":9%s}`
		r.exchange([][2]string{
			{fmt.Sprintf(state, `,"shard":2`), `{"type":"state_value","value":"dg==","version":4,"as_of":4,"request_id":9}`},
			{fmt.Sprintf(state, ``), `{"type":"state_value","value":null,"request_id":9}`},
			{fmt.Sprintf(state, `,"shard":4`), errorJSON("shard 4: the stream has 4", "invalid_request", "fatal")},
		})
		// Nobody hears of an unacked one: it is written where it says, or dropped and counted.
		r.sendJSON(`{"type":"publish",` + wide + `,"payload":"eA==","key":"` + encoded + `","shard":4}`)
		r.sendJSON(`{"type":"publish",` + wide + `,"payload":"eA==","key":"` + encoded + `","shard":3}`)
		eventually(t, "the unacked publish is written", func() bool { return w.tails("dwide") == [4]uint64{2: 5, 3: 1} })
		if n := w.srv.Stats().UnackedLost; n != 1 {
			t.Errorf("%d unacked publishes were dropped", n)
		}
	}
}

// Conditional publishes and commits are no part of the pipeline: their answers wait for no publish, no
// publish waits for theirs, and what takes too long is an error of unknown outcome (wire.md 6.3).
func TestConditionalAnswersAreNotPartOfThePipeline(t *testing.T) {
	fs := ringtest.NewFS(nil)
	w := newWorld(t, worldOptions{durable: true, core: func(o *core.Options) { o.FS = fs }, serve: func(o *Options) { o.AckWait = time.Minute }})
	r := w.dial().loginAs(w.token(), offerFlags, offerWindow)
	for id, stream := range []string{"d", "free"} {
		w.stream(core.StreamDef{Stream: stream, Durable: true})
		r.mustPublish(uint64(id), stream, "the log has its first segment")
	}
	info, _ := w.broker.GetStream("t1", "default", "d")
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: fmt.Sprintf("%016x", info.ID), Times: -1, Wait: hold})
	r.write(publish(wire.FlagAcked, 1, "d", "slow"))
	r.sendJSON(`{"type":"commit",` + dTarget + `,"entity_key":"","event":"","request_id":2}`)
	r.write(publish(wire.FlagAcked, 3, "s", "fast, behind 1"))
	r.sendJSON(`{"type":"publish_if",` + dTarget + `,"payloads":["eA=="],"expected_offset":0,"request_id":4}`)
	const free = `{"type":"publish_if","tenant_id":"t1","namespace":"default","stream":"free","payloads":["eA=="],"expected_offset":%d,"request_id":%d}`
	r.exchange([][2]string{
		{fmt.Sprintf(free, 0, 5), `{"type":"publish_refused","request_id":5,"message":"offset mismatch: the next offset is 1","reason":{"offset_mismatch":{"tail":1}}}`},
		{fmt.Sprintf(free, 1, 6), `{"type":"publish_ok","request_id":6,"offset":1}`},
	})
	r.wantQuiet()
	release()
	seen := map[string]bool{}
	var order []uint64
	for range 4 {
		flags, body := r.recv()
		if flags == 0 {
			seen[string(body)] = true
			continue
		}
		a, err := wire.DecodeAck(flags, body)
		if err != nil || a.Err != nil {
			t.Fatalf("%v, %+v", err, a)
		}
		order = append(order, a.RequestID)
	}
	const lost = `{"type":"publish_refused","request_id":4,"message":"offset mismatch: the next offset is 3","reason":{"offset_mismatch":{"tail":3}}}`
	if !seen[`{"type":"commit_ok","request_id":2,"offset":2}`] || !seen[lost] || fmt.Sprint(order) != "[1 3]" {
		t.Errorf("answers %v and acks %v", seen, order)
	}
	r.wantOpen()
}

func TestCommitThatTakesTooLongIsUnacknowledged(t *testing.T) {
	for _, feats := range []wire.Features{offerAll, offerWindow} {
		w, release := holdSync(t, func(o *Options) { o.AckWait = 400 * time.Millisecond })
		r := w.dial().loginAs(w.token(), offerFlags, feats)
		r.sendJSON(`{"type":"commit",` + dTarget + `,"entity_key":"","event":"","changes":[{"op":"put","key":"k","value":"dg=="}],"request_id":1}`)
		r.wantJSON(errorJSON(unacknowledged.Err.Message, "unacknowledged", "outcome_unknown"))
		r.sendJSON(`{"type":"state_get",` + dTarget + `,"entity_key":"","key":"k","request_id":2}`)
		r.wantJSON(`{"type":"state_value","value":null,"request_id":2}`) // the event is not readable either
		release()
		eventually(t, "the late outcome is counted", func() bool { return w.srv.Stats().LateOutcomes == 1 })
		r.sendJSON(`{"type":"state_get",` + dTarget + `,"entity_key":"","key":"k","request_id":3}`)
		r.wantJSON(`{"type":"state_value","value":"dg==","version":1,"as_of":1,"request_id":3}`)
	}
}

// A state that is not built yet is shard_unavailable, not_ready, for reads and commits; the stream goes on.
func TestStateThatIsNotReadyOnTheWire(t *testing.T) {
	dir := t.TempDir()
	before, err := core.Open(t.Context(), core.Options{DataDir: dir, Engine: "portable", AutoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := before.Stream("t1", "default", "d")
	if err == nil {
		err = before.Commit(t.Context(), &core.PublishRequest{Stream: st}, nil, []core.Change{{Op: log.ChangePut, Key: "k", Value: []byte("v")}})
	}
	if err = errors.Join(err, before.Drain(t.Context()), before.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	fs := ringtest.NewFS(nil)
	w := newWorld(t, worldOptions{durable: true, core: func(o *core.Options) {
		o.DataDir, o.FS, o.PublishQueueWait = dir, fs, 10*time.Millisecond
	}})
	r := w.dial().login()
	release := make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Read, Path: ".seg", Wait: release})
	const notReady = `{"type":"error","message":"the state of the shard is being read from its log","code":"shard_unavailable","retry":"retry","detail":{"reason":"not_ready","retry_after_ms":100}}`
	r.exchange([][2]string{
		{`{"type":"state_get",` + dTarget + `,"entity_key":"","key":"k","request_id":1}`, notReady},
		{`{"type":"commit",` + dTarget + `,"entity_key":"","event":"","request_id":1}`, notReady},
	})
	close(release)
	eventually(t, "the state is built", func() bool { return w.broker.Status().StateBytes > 0 })
	r.exchange([][2]string{
		{`{"type":"state_get",` + dTarget + `,"entity_key":"","key":"k","request_id":1}`, `{"type":"state_value","value":"dg==","version":0,"as_of":0,"request_id":1}`},
	})
}

// State values of any size come back; one that no answer could carry is refused when it is written. A
// connection whose large answers nobody takes has few of them.
func TestLargeStateValues(t *testing.T) { // HZ-47
	w := durableWorld(t, false)
	r := w.dial().login()
	value := bytes.Repeat([]byte{0xA5}, 1<<20)
	r.send(&wire.Commit{TenantID: "t1", Namespace: "default", Stream: "d", EntityKey: []byte{}, Event: []byte{}, RequestID: 1,
		Changes: []wire.Change{{Op: wire.ChangePut, Key: "large", Value: value}}})
	r.want(&wire.CommitOK{RequestID: 1})
	get := &wire.StateGet{TenantID: "t1", Namespace: "default", Stream: "d", EntityKey: []byte{}, Key: "large", RequestID: 2}
	r.send(get)
	if m, ok := r.recvMessage().(*wire.StateValue); !ok || !bytes.Equal(m.Value, value) || *m.Version != 0 {
		t.Fatalf("%T", m)
	}
	r.send(&wire.Commit{TenantID: "t1", Namespace: "default", Stream: "d", EntityKey: []byte{}, Event: []byte{}, RequestID: 3,
		Changes: []wire.Change{{Op: wire.ChangePut, Key: "larger", Value: make([]byte, readPayloadMax/4*3+3)}}})
	r.wantJSON(errorJSON("a state value is larger than an answer can carry", "limit_exceeded", "fatal"))
	r.send(&wire.Commit{TenantID: "t1", Namespace: "default", Stream: "d", EntityKey: []byte{}, Event: []byte{}, RequestID: 4,
		Changes: slices.Repeat([]wire.Change{{Op: wire.ChangeDelete, Key: "k"}}, core.CommitChangesMax+1)})
	r.wantJSON(errorJSON("a commit may hold 4096 state changes", "limit_exceeded", "fatal"))
	if tails := w.tails("d"); tails[0] != 1 {
		t.Errorf("tails %v", tails)
	}
	c := w.pair(1000)
	greedy := make([]*raw, 8)
	for i := range greedy {
		greedy[i] = c.login()
		greedy[i].send(get)
	}
	held := func() (n int) {
		w.srv.mu.Lock()
		defer w.srv.mu.Unlock()
		for c := range w.srv.conns {
			n += len(c.reads)
		}
		return n
	}
	eventually(t, "all places are taken", func() bool { return held() == readsPerConn })
	for i, r := range greedy {
		if m, ok := r.recvMessage().(*wire.StateValue); !ok || len(m.Value) != len(value) {
			t.Errorf("stream %d: %T", i, m)
		}
	}
	eventually(t, "no place is taken", func() bool { return held() == 0 })
}
