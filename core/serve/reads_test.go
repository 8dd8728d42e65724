package serve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

const readTarget = `"tenant_id":"t1","namespace":"default","stream":"d"`

// readWorld has a durable stream "d" of two shards, in segments of 64 KiB, with the clock at 7 s.
func readWorld(t *testing.T, quic bool) *world {
	w := newWorld(t, worldOptions{quic: quic, durable: true, core: func(o *core.Options) {
		o.SegmentBytes, o.AutoCreate = 64<<10, true
		o.Now = func() time.Time { return time.UnixMicro(7_000_000) }
	}, serve: func(o *Options) { o.RecordPublishers = true }})
	w.stream(core.StreamDef{Stream: "d", Durable: true, Fsync: "none", Shards: 2})
	return w
}

// trimD bounds stream "d" so that its oldest segments go, and returns the oldest offset then.
func (w *world) trimD(bytes int64) uint64 {
	w.t.Helper()
	w.stream(core.StreamDef{Stream: "d", Durable: true, Fsync: "none", Shards: 2, RetentionBytes: &bytes})
	info, _ := w.broker.GetStream("t1", "default", "d")
	return info.ShardInfo[0].Base
}

// The answers of stream_read and offset_for_time byte for byte, and their refusals; none of them
// ends the stream or makes one (wire.md 4.7).
func TestReadsOverTheWire(t *testing.T) {
	w := readWorld(t, false)
	r := w.dial().login()
	r.mustPublish(1, "d", "a", "bc")
	r.mustPublish(2, "d", "def")
	const stamp = `"publisher":"alice","timestamp_micros":7000000}`
	record := func(offset int, payload string) string {
		return fmt.Sprintf(`{"offset":%d,"payload":%q,`, offset, payload) + stamp
	}
	a, bc, def := record(0, "YQ=="), record(1, "YmM="), record(2, "ZGVm")
	refused := func(code, retry, text string) string {
		return fmt.Sprintf(`{"type":"error","message":%q,"code":%q,"retry":%q}`, text, code, retry)
	}
	cursor := `{"type":"subscribe_cursor_error","reason":"in_future","requested":%d,"available":3}`
	records := func(next int, records ...string) string {
		return fmt.Sprintf(`{"type":"stream_records","records":[%s],"next_offset":%d,"request_id":9}`, strings.Join(records, ","), next)
	}
	for _, row := range []struct{ send, want string }{
		{`"shard":0,"from":0`, records(3, a, bc, def)},
		{`"shard":0,"from":0,"end":null,"max_records":0,"max_bytes":0`, records(3, a, bc, def)},
		{`"shard":0,"from":1,"end":2`, records(2, bc)},
		{`"shard":0,"from":1,"end":100`, records(3, bc, def)},
		{`"shard":0,"from":1,"end":1`, records(1)},
		{`"shard":0,"from":2,"end":0`, records(2)},
		{`"shard":0,"from":0,"max_records":2`, records(2, a, bc)},
		{`"shard":0,"from":0,"max_bytes":3`, records(2, a, bc)},
		{`"shard":0,"from":2,"max_bytes":1`, records(3, def)}, // larger than the budget, so alone
		{`"shard":0,"from":3`, records(3)},
		{`"shard":1,"from":0`, records(0)},
		{`"shard":0,"from":4`, fmt.Sprintf(cursor, 4)},
		{`"shard":0,"from":18446744073709551615`, fmt.Sprintf(cursor, uint64(18446744073709551615))},
		{`"shard":2,"from":0`, refused("invalid_request", "fatal", "shard 2: the stream has 2")},
	} {
		r.sendJSON(`{"type":"stream_read",` + readTarget + `,` + row.send + `,"request_id":9}`)
		r.wantJSON(row.want)
	}
	for _, row := range []struct{ send, want string }{
		{`"shard":0,"at_micros":0`, `{"type":"offset_value","offset":0,"request_id":9}`},
		{`"shard":0,"at_micros":7000000`, `{"type":"offset_value","offset":0,"request_id":9}`},
		{`"shard":0,"at_micros":7000001`, `{"type":"offset_value","request_id":9}`},
		{`"shard":1,"at_micros":0`, `{"type":"offset_value","request_id":9}`},
		{`"shard":2,"at_micros":0`, refused("invalid_request", "fatal", "shard 2: the stream has 2")},
	} {
		r.sendJSON(`{"type":"offset_for_time",` + readTarget + `,` + row.send + `,"request_id":9}`)
		r.wantJSON(row.want)
	}
	for name, want := range map[string]string{
		"s":  refused("invalid_request", "fatal", "the stream is in memory: it has no log to read"),
		"no": refused("not_found", "retry_after", "stream not found: t1/default/no"),
	} {
		for _, request := range []string{`"stream_read","from":0`, `"offset_for_time","at_micros":0`} {
			r.sendJSON(fmt.Sprintf(`{"type":%s,"tenant_id":"t1","namespace":"default","stream":%q,"shard":0,"request_id":9}`, request, name))
			r.wantJSON(want)
		}
	}
	if _, ok := w.broker.GetStream("t1", "default", "no"); ok {
		t.Error("a read made a stream")
	}
	r.wantOpen()
}

// Below what retention has left a read is refused with the oldest offset, at it and above it answered
// (HZ-15); by time the oldest is what is found.
func TestReadsOfATrimmedStreamOverTheWire(t *testing.T) {
	w := readWorld(t, false)
	r := w.dial().login()
	for id := range uint64(40) {
		r.mustPublish(id, "d", strings.Repeat("x", 8<<10))
	}
	oldest := w.trimD(100 << 10)
	if oldest == 0 || oldest >= 40 {
		t.Fatalf("the oldest is %d", oldest)
	}
	read := func(from uint64) wire.Message {
		r.send(&wire.StreamRead{TenantID: "t1", Namespace: "default", Stream: "d", From: from, RequestID: 3})
		return r.recvMessage()
	}
	for _, from := range []uint64{0, oldest - 1} {
		m, ok := read(from).(*wire.SubscribeCursorError)
		if !ok || *m != (wire.SubscribeCursorError{Reason: wire.CursorTooOld, Requested: from, Available: oldest}) {
			t.Errorf("read at %d: %+v", from, m)
		}
	}
	r.send(&wire.StreamRead{TenantID: "t1", Namespace: "default", Stream: "d", From: 1, End: new(uint64), RequestID: 3})
	r.want(&wire.SubscribeCursorError{Reason: wire.CursorTooOld, Requested: 1, Available: oldest}) // not an empty page
	m, ok := read(oldest).(*wire.StreamRecords)
	if !ok || uint64(len(m.Records)) != 40-oldest || m.Records[0].Offset != oldest || m.NextOffset != 40 {
		t.Errorf("read at %d: %+v", oldest, m)
	}
	r.send(&wire.OffsetForTime{TenantID: "t1", Namespace: "default", Stream: "d", RequestID: 4})
	r.want(&wire.OffsetValue{Offset: &oldest, RequestID: 4})
}

// A record that no answer can carry is refused and never cut; the ones around it are served.
func TestRecordTooLargeForAPage(t *testing.T) {
	w := readWorld(t, true)
	r := w.dial().login()
	r.mustPublish(1, "d", "before")
	r.mustPublish(2, "d", strings.Repeat("x", 13<<20))
	r.mustPublish(3, "d", strings.Repeat("y", 11<<20))
	read := &wire.StreamRead{TenantID: "t1", Namespace: "default", Stream: "d", RequestID: 3}
	for from, size := range []int{6, 0, 11 << 20} {
		read.From = uint64(from)
		r.send(read)
		switch m := r.recvMessage().(type) {
		case *wire.StreamRecords:
			if len(m.Records) != 1 || len(m.Records[0].Payload) != size || m.NextOffset != read.From+1 {
				t.Errorf("page at %d: %d records to %d", from, len(m.Records), m.NextOffset)
			}
		case *wire.ErrorMessage:
			if size != 0 || m.Code != wire.CodeLimitExceeded.String() {
				t.Errorf("page at %d: %+v", from, m)
			}
		default:
			t.Errorf("page at %d: %T", from, m)
		}
	}
}

// A client that asks for pages and takes none holds a few of them, and stops nobody but its own reads.
func TestUnreadPagesAreBounded(t *testing.T) { // HZ-47
	w := readWorld(t, false)
	pub := w.dial().login()
	record := strings.Repeat("x", 32<<10)
	for id := range uint64(100) {
		pub.mustPublish(id, "d", record)
	}
	read := &wire.StreamRead{TenantID: "t1", Namespace: "default", Stream: "d", RequestID: 3}
	c := w.pair(1000) // windows far below a page
	greedy := make([]*raw, 0, 12)
	for range cap(greedy) {
		r := c.login()
		r.send(read)
		greedy = append(greedy, r)
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
	other := w.dial().login()
	other.send(read)
	if m, ok := other.recvMessage().(*wire.StreamRecords); !ok || len(m.Records) != 100 {
		t.Errorf("another connection: %T", m)
	}
	more := c.login()
	more.mustPublish(1, "d", "the same connection")
	if n := held(); n != readsPerConn {
		t.Errorf("%d pages are held", n)
	}
	// They are answered as they are taken.
	for i, r := range greedy {
		if m, ok := r.recvMessage().(*wire.StreamRecords); !ok || len(m.Records) < 100 {
			t.Errorf("stream %d: %T", i, m)
		}
	}
	eventually(t, "no place is taken", func() bool { return held() == 0 })
}

// A subscriber that retention overtakes gets a last frame with the place to resume at, or a reset
// where it cannot read that, never an orderly end (HZ-15).
func TestOvertakenSubscriberIsTold(t *testing.T) {
	w := readWorld(t, false)
	pub := w.dial().login()
	for id := range uint64(100) {
		pub.mustPublish(id, "d", strings.Repeat("x", 8<<10))
	}
	earliest := subscribeTo("d")
	earliest.Start = &wire.Start{Kind: wire.StartOffset, Offset: 1}
	c := w.pair(20_000) // the feeder stands still in the first frames
	told := c.login()
	told.send(earliest)
	id := told.recvSubscribed().SubscriptionID
	ev := c.events()
	ev.recvMessage()
	reset := c.loginAs(w.token(), offerFlags, wire.FeatureErrorCodes)
	reset.send(earliest)
	reset.recvSubscribed()
	plain := c.events()
	plain.recvMessage()
	eventually(t, "both have begun", func() bool {
		n := 0
		for _, s := range w.broker.Subscriptions() {
			if s.Depth == 0 && !s.Live {
				n++
			}
		}
		return n == 2
	})
	oldest := w.trimD(100 << 10)
	next := uint64(1)
	for {
		flags, body := ev.recv()
		if flags == 0 {
			m, err := wire.DecodeMessage(body)
			if lagged, ok := m.(*wire.SubscriptionLagged); err != nil || !ok || lagged.SubscriptionID != id || lagged.ResumeFrom != next {
				t.Errorf("after %d: %s", next, body)
			}
			break
		}
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(flags, body, &e); err != nil || e.Base != next {
			t.Fatalf("event at %d, want %d: %v", e.Base, next, err)
		}
		next += uint64(e.Count)
	}
	ev.wantEnd()
	if next >= oldest {
		t.Errorf("it was not overtaken: next %d, oldest %d", next, oldest)
	}
	for {
		_, _, err := plain.next(patience)
		if err == nil {
			continue
		}
		if code, _, ok := netio.ResetCode(err); !ok || code != netio.ResetInterrupted {
			t.Errorf("error %v, want a reset with code 1", err)
		}
		break
	}
	eventually(t, "both are counted", func() bool { return w.srv.Stats().SubscriptionEnds["trimmed"] == 2 })
	told.send(&wire.Subscribe{TenantID: "t1", Namespace: "default", Stream: "d", Start: &wire.Start{Kind: wire.StartOffset, Offset: next}})
	told.want(&wire.SubscribeCursorError{Reason: wire.CursorTooOld, Requested: next, Available: oldest})
}
