package serve

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// claimed waits until so many publishes have been claimed since the start.
func (w *world) claimed(n uint64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprint(n, " publishes are claimed"), func() bool { return w.broker.Status().Executors[0].Claimed == n })
}

// gone closes the client's connection and waits until the broker has let go of it.
func (c *client) gone() {
	c.w.t.Helper()
	before := c.w.srv.Stats().ConnsOpen
	c.nc.CloseWithError(netio.CloseShutdown, "gone")
	eventually(c.w.t, "the connection is gone", func() bool { return c.w.srv.Stats().ConnsOpen < before })
}

// PUB-11, BUG-10: the client of a publish goes away between its claim and its sync. Nobody sees the record
// before it is flushed: no cursor, page or event goes past what is. Later publishes are written, and the
// record is delivered.
func TestPublishOfAGoneClientIsDelivered(t *testing.T) {
	w, release := holdSync(t, nil)
	dying := w.dial()
	dying.login().write(publish(wire.FlagAcked, 1, "d", "of the gone client"))
	w.claimed(2) // one made the first segment
	dying.gone()

	c := w.dial()
	r := c.login()
	const target = `"tenant_id":"t1","namespace":"default","stream":"d"`
	m := subscribeTo("d")
	m.Start = &wire.Start{Kind: wire.StartEarliest}
	r.send(m)
	if s := r.recvSubscribed(); *s.StartOffset != 0 || *s.LiveOffset != 1 {
		t.Errorf("subscribed from %d, live at %d", *s.StartOffset, *s.LiveOffset)
	}
	ev := c.events()
	ev.recv() // hello
	ev.wantRecords("the log has its first segment")
	m.Start = &wire.Start{Kind: wire.StartOffset, Offset: 2}
	r.send(m)
	r.wantJSON(`{"type":"subscribe_cursor_error","reason":"in_future","requested":2,"available":1}`)
	r.sendJSON(`{"type":"stream_read",` + target + `,"shard":0,"from":1,"request_id":9}`)
	r.wantJSON(`{"type":"stream_records","records":[],"next_offset":1,"request_id":9}`)
	r.write(publish(wire.FlagAcked, 2, "d", "later"))
	w.claimed(3)
	ev.wantQuiet()

	release()
	if a := r.wantOK(2); a.Offset != 2 {
		t.Errorf("the later publish is at %d", a.Offset)
	}
	ev.wantRecords("of the gone client", "later")
	if a := r.mustPublish(3, "d", "next"); a.Offset != 3 {
		t.Errorf("the next publish is at %d", a.Offset)
	}
}

// BUG-17: an idempotent publish is cancelled in flight, its client gone. Sent again it is answered as what
// became of the first: when that was written, as its duplicate, and not before it is on the disk; when it
// failed, it is written now. The producer's next batch is a batch of its own either way.
func TestCancelledIdempotentPublishIsNotAnsweredFromMemory(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails=", fails), func(t *testing.T) {
			fs := ringtest.NewFS(nil)
			w := newWorld(t, worldOptions{durable: true, core: func(o *core.Options) { o.FS = fs }})
			w.stream(core.StreamDef{Stream: "d", Durable: true})
			w.dial().login().mustPublish(1, "d", "the log has its first segment")
			entered, hang := make(chan struct{}, 8), make(chan struct{})
			rule := ringtest.Rule{Kind: ringtest.Write, Path: ".seg", Entered: entered, Wait: hang}
			if fails {
				rule.Err = syscall.ENOSPC
			}
			fs.Add(rule)
			batch := func(id, sequence int, payload string) string {
				return fmt.Sprintf(`{"type":"publish_idempotent","tenant_id":"t1","namespace":"default","stream":"d",`+
					`"payloads":[%q],"request_id":%d,"producer_id":77,"sequence":%d}`, payload, id, sequence)
			}
			dying := w.dial()
			dying.login().sendJSON(batch(1, 0, "eA=="))
			<-entered
			dying.gone()

			c := w.dial()
			r := c.login()
			r.sendJSON(batch(2, 0, "eA=="))
			if !fails {
				r.sendJSON(batch(3, 1, "eQ=="))
			}
			eventually(t, "the resend waits", func() bool {
				st := w.broker.Status()
				return st.Outstanding >= 2 && st.Executors[0].Claimed >= 3
			})
			r.wantOpen() // neither is answered
			close(hang)
			if fails {
				// It shared the fate of the first, and is told so; the client sends it again.
				m := r.recvMessage()
				refused, ok := m.(*wire.PublishError)
				if !ok {
					t.Fatalf("%#v; want publish_error", m)
				}
				if err := refused.Err(); !errors.Is(err, wire.ErrOverloaded) {
					t.Fatalf("the resend failed with %v", err)
				}
				r.sendJSON(batch(4, 0, "eA=="))
				r.wantJSON(`{"type":"publish_ok","request_id":4,"offset":1}`)
				r.sendJSON(batch(3, 1, "eQ=="))
			} else {
				r.wantJSON(`{"type":"publish_ok","request_id":2,"offset":1}`)
			}
			r.wantJSON(`{"type":"publish_ok","request_id":3,"offset":2}`)
			r.sendJSON(`{"type":"stream_read","tenant_id":"t1","namespace":"default","stream":"d","shard":0,"from":1,"request_id":9}`)
			records, ok := r.recvMessage().(*wire.StreamRecords)
			if !ok || len(records.Records) != 2 || string(records.Records[0].Payload) != "x" || string(records.Records[1].Payload) != "y" {
				t.Fatalf("the log holds %+v", records)
			}
		})
	}
}
