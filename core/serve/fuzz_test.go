package serve

import (
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// drainAll reads a stream until it ends or nothing comes any more, and checks that the broker sends
// whole, legal frames.
func (r *raw) drainAll() {
	r.t.Helper()
	for {
		flags, body, err := r.next(patience)
		if err != nil {
			if err != io.EOF && !netio.IsClosed(err) {
				r.t.Fatalf("the broker's answers end with %v", err)
			}
			return
		}
		if err := flags.FromBroker(wire.FlagsKnown); err != nil {
			r.t.Fatalf("the broker sent flags %#x: %v", uint16(flags), err)
		}
		if flags&wire.FlagAck != 0 {
			if _, err := wire.DecodeAck(flags, body); err != nil {
				r.t.Fatalf("the broker sent ack %x: %v", body, err)
			}
		} else if m, err := wire.DecodeMessage(body); err != nil || !wire.BrokerOnly(m) {
			r.t.Fatalf("the broker sent %q: %v", body, err)
		}
	}
}

// FuzzSession feeds arbitrary bytes to an authenticated stream, an unauthenticated one and a
// publish-only one: nothing panics, answers stay legal, each stream ends with its FIN, a neighbour
// publishes, and the connection leaves nothing behind (OPS-9).
func FuzzSession(f *testing.F) {
	for _, row := range badRows() {
		f.Add(row.send, false)
	}
	f.Add(publish(wire.FlagAcked, 1, "s", "a", "b"), true)
	f.Add(append(publish(0, 0, "s", "a"), publish(wire.FlagAcked|wire.FlagKeyed, 2, "wide", "b")...), true)
	f.Add(wire.AppendMessage(nil, subscribeTo("s")), false)
	f.Add(jsonFrame(`{"type":"cache_put",`+cacheEntry+`,"value":"eA==","request_id":1}`), true)
	const target = `"tenant_id":"t1","namespace":"default","stream":"s"`
	f.Add(jsonFrame(`{"type":"publish_if",`+target+`,"payloads":["eA=="],"shard":0,"expected_offset":0,"request_id":1}`), true)
	f.Add(jsonFrame(`{"type":"commit",`+target+`,"entity_key":"","event":"","changes":[{"op":"put","key":"k","value":""}],"request_id":1}`), true)
	f.Add(jsonFrame(`{"type":"state_get",`+target+`,"entity_key":"","key":"k","request_id":1}`), false)
	w := newWorld(f, worldOptions{})
	n := &neighbour{r: w.dial().login()}
	token := w.token()
	f.Fuzz(func(t *testing.T, input []byte, window bool) {
		feats := offerAll
		if window {
			feats = offerWindow
		}
		n.r.t = t
		here := *w
		here.t = t
		c := here.pair(1 << 16)
		r := c.loginAs(token, offerFlags, feats)
		bare := c.open()
		oneWay := c.openOneWay()
		oneWay.send(&wire.Auth{TenantID: "t1", Token: token})
		for _, r := range []*raw{r, bare, oneWay} {
			r.write(input)
			r.fin()
		}
		r.drainAll()
		bare.drainAll()
		n.publish()
		c.nc.CloseWithError(0, "")
		eventually(t, "the connection is gone", func() bool { return w.srv.Stats().ConnsOpen == 1 })
	})
}

// Random bytes in random pieces on any kind of stream: no panic, no harm, and no allocation beyond
// 64 KiB or four times what arrived (OPS-9).
func TestRandomBytesOnAnyStream(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	n := &neighbour{r: w.dial().login()}
	c := w.dial()
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 200 {
		input := make([]byte, rng.IntN(3000))
		for j := range input {
			input[j] = byte(rng.Uint32())
		}
		if i%2 == 0 { // a plausible header
			copy(input, wire.AppendHeader(nil, wire.Flags(rng.IntN(1<<16)), rng.IntN(1<<20)))
		}
		var r *raw
		switch i % 3 {
		case 0:
			r = c.login()
		case 1:
			r = c.open()
		default:
			r = c.openOneWay()
		}
		for len(input) > 0 {
			k := min(len(input), 1+rng.IntN(1000))
			r.write(input[:k])
			input = input[k:]
		}
		if r.rx == nil {
			r.tx.CancelWrite(0)
			continue
		}
		// It may have been ended already.
		_ = r.tx.Close()
		r.drainAll()
		n.publish()
	}
}

// A body is read into memory that grows with what arrives, whatever the header promised.
func TestMemoryFollowsTheBytesThatArrive(t *testing.T) {
	w := newWorld(t, worldOptions{})
	c := w.pair(1 << 20)
	r := c.login()
	r.write(wire.AppendHeader(nil, wire.FlagPublish|wire.FlagAcked, wire.MaxFrameBytes))
	body := make([]byte, 300<<10)
	for sent := 0; sent < len(body); sent += 30 << 10 {
		r.write(body[sent : sent+30<<10])
		arrived := int64(sent + 30<<10)
		eventually(t, "it is read", func() bool {
			h := r.tx.(fakeStream).tx
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.buf) == 0
		})
		if got, most := w.pool.Stats().InUseBytes, max(64<<10, 4*arrived)+arrived+4096; got > most {
			t.Errorf("%d bytes held when %d had arrived", got, arrived)
		}
	}
	r.fin()
	r.wantEnd()
}

// A writer joins what is queued into one write.
func TestAnswersAreGathered(t *testing.T) {
	w, release := holdSync(t, nil)
	c := w.pair(1 << 20)
	r := c.loginAs(w.token(), offerFlags, offerWindow)
	writes := func() int {
		h := r.rx.(fakeStream).rx
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.writes
	}
	before := writes()
	for id := range uint64(100) {
		r.write(publish(wire.FlagAcked, id, "d", "x"))
	}
	eventually(t, "all are taken", func() bool { return w.broker.Status().Outstanding == 100 })
	// On one CPU the executor answers all of a group before the writer runs; on two they may go in step.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	release()
	for id := range uint64(100) {
		r.wantOK(id)
	}
	if n := writes() - before; n > 20 {
		t.Errorf("%d writes for 100 answers", n)
	}
}

// An idle stream has no running timer: the sweep clock ticks only while something is owed.
func TestIdleStreamHasNoTimer(t *testing.T) {
	var c sweepClock
	busy := false
	woken := 0
	c.init(8*time.Millisecond, 8*time.Millisecond)
	c.busy, c.wake, c.overdue = func() bool { return busy }, func() { woken++ }, func() {}
	if c.armed.Load() {
		t.Error("armed at rest")
	}
	c.arm()
	eventually(t, "it goes back to rest", func() bool { return !c.armed.Load() })
	c.stop()
	c.arm()
	if tick := c.now(); tick == 0 {
		t.Error("it never ticked")
	}
	runtime.Gosched()
	if c.timer.Stop() {
		t.Error("armed again after its stop")
	}
	if woken != 0 {
		t.Error("it woke a writer that owes nothing")
	}
}
