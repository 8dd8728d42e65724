package serve

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// The last frame of an event stream says why it ended, to those that offered it; others see the
// FIN alone (broker.md 2.7).
func TestEndOfAnEventStreamNamesItsCause(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	pub := w.dial().login()
	ends := []struct {
		name string
		end  func(stream string)
		last func(id uint64) wire.Message
	}{
		{"deleted", func(stream string) {
			if err := w.broker.DeleteStream(t.Context(), "t1", "default", stream); err != nil {
				t.Error(err)
			}
		}, func(id uint64) wire.Message { return &wire.StreamDeleted{SubscriptionID: id} }},
		{"revoked", func(string) { w.broker.Revoke("t1", "alice") }, func(uint64) wire.Message {
			return wire.NewErrorMessage(wire.NewError(wire.CodeRevoked, "credential revoked"), offerAll)
		}},
	}
	for _, e := range ends {
		t.Run(e.name, func(t *testing.T) {
			w.stream(core.StreamDef{Stream: e.name})
			c := w.dial()
			r := c.login()
			r.send(subscribeTo(e.name))
			id := r.recvSubscribed().SubscriptionID
			ev := c.events()
			ev.recvMessage()
			legacy := c.subscribe(c.loginAs(w.token(), offerFlags, 0), e.name, 0)
			pub.mustPublish(1, e.name, "before the end")
			e.end(e.name)
			ev.wantRecords("before the end")
			ev.want(e.last(id))
			ev.wantEnd()
			legacy.wantRecords("before the end")
			if e.name == "revoked" {
				legacy.want(errorPlain("credential revoked"))
			}
			legacy.wantEnd()
			eventually(t, "both are counted", func() bool { return w.srv.Stats().SubscriptionEnds[e.name] == 2 })
		})
	}
}

// An event stream whose reader takes nothing is reset after the stall timeout where one is set: a
// reset says "interrupted", a FIN would say "over".
func TestStalledReaderIsReset(t *testing.T) {
	w := newWorld(t, worldOptions{serve: func(o *Options) { o.StallTimeout = 20 * time.Millisecond }})
	pub := w.dial().login()
	c := w.pair(1000)
	ev := c.subscribe(c.login(), "s", 0)
	pub.mustPublish(1, "s", strings.Repeat("x", 5000))
	eventually(t, "it is counted", func() bool { return w.srv.Stats().SubscriptionEnds["stalled"] == 1 })
	_, _, err := ev.next(patience)
	if code, _, ok := netio.ResetCode(err); !ok || code != netio.ResetInterrupted {
		t.Errorf("error %v, want a reset with code 1", err)
	}
}

// A subscription whose reader takes nothing delays no other subscription of its connection, and no
// publisher (SUB-2, SUB-4, HZ-39).
func TestBlockedSubscriptionDelaysNobody(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc, err := netio.Dial(ctx, w.listener.Addr().String(), netio.DialOptions{RootCAs: w.roots, StreamWindow: 64 << 10, ConnWindow: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := w.newClient(nc)
	r := c.login()
	c.subscribe(r, "s", 0) // never read
	reading := c.subscribe(r, "s", 0)
	pub := w.dial().login()
	record := strings.Repeat("x", 10_000)
	for id := range uint64(200) { // 2 MB, far beyond the stream's window
		pub.mustPublish(id, "s", record)
		reading.wantRecords(record)
	}
	r.wantOpen()
}
