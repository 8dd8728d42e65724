package serve

import (
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// holdSync returns a durable world in which syncs wait for the channel to be closed.
func holdSync(t *testing.T, change func(*Options)) (w *world, release func()) {
	fs := ringtest.NewFS(nil)
	w = newWorld(t, worldOptions{durable: true, core: func(o *core.Options) { o.FS = fs }, serve: change})
	w.stream(core.StreamDef{Stream: "d", Durable: true})
	c := w.dial()
	c.login().mustPublish(1, "d", "the log has its first segment")
	eventually(t, "the broker is at rest", func() bool { return w.broker.Status().Outstanding == 0 })
	hold := make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: ".seg", Times: -1, Wait: hold})
	done := false
	release = func() {
		if !done {
			done = true
			close(hold)
		}
	}
	t.Cleanup(release)
	return w, release
}

// A publish whose disk is slow holds back the answers of later ones on its pipelined stream, and
// of no other stream (PUB-20).
func TestSlowDiskHoldsBackOnlyItsOwnStream(t *testing.T) {
	w, release := holdSync(t, nil)
	c := w.dial()
	r := c.loginAs(w.token(), offerFlags, offerWindow)
	other := c.loginAs(w.token(), offerFlags, offerWindow)
	r.write(publish(wire.FlagAcked, 1, "d", "slow"))
	r.write(publish(wire.FlagAcked, 2, "s", "fast"))
	r.write(publish(wire.FlagAcked, 3, "nope", "refused"))
	r.wantOpen() // other answers pass
	other.mustPublish(4, "s", "not held back")
	r.wantQuiet()
	release()
	r.wantOK(1)
	r.wantOK(2)
	r.wantRefused(3, wire.CodeNotFound, wire.RetryAfter, "stream not found: t1/default/nope")
}

// A publish that the broker does not finish in time is answered unacknowledged, outcome unknown;
// the later outcome is not sent.
func TestPublishThatTakesTooLongIsUnacknowledged(t *testing.T) {
	for _, feats := range []wire.Features{offerAll, offerWindow} {
		w, release := holdSync(t, func(o *Options) { o.AckWait = 400 * time.Millisecond })
		r := w.dial().loginAs(w.token(), offerFlags, feats)
		r.write(publish(wire.FlagAcked, 1, "d", "slow"))
		r.write(publish(wire.FlagAcked, 2, "s", "fast"))
		if !feats.Has(wire.FeaturePublishPipeline) {
			r.wantOK(2)
		}
		r.wantRefused(1, wire.CodeUnacknowledged, wire.RetryUnknown, unacknowledged.Err.Message)
		if feats.Has(wire.FeaturePublishPipeline) {
			r.wantOK(2)
		}
		release()
		eventually(t, "the late outcome is counted", func() bool { return w.srv.Stats().LateOutcomes == 1 })
		r.mustPublish(3, "d", "after")
		r.wantOpen()
	}
}

// At the window the broker stops reading that stream; a sibling stream of the same connection goes
// on, and everything is answered in the end (wire.md 6.3).
func TestWindowStopsTheReaderOfItsStreamOnly(t *testing.T) {
	w, release := holdSync(t, func(o *Options) { o.PublishWindow = 8 })
	c := w.dial()
	r := c.loginAs(w.token(), offerFlags, offerWindow)
	sibling := c.loginAs(w.token(), offerFlags, offerWindow)
	for id := range uint64(20) {
		r.write(publish(wire.FlagAcked, id, "d", "x"))
	}
	eventually(t, "the window is full", func() bool { return w.broker.Status().Outstanding == 8 })
	sibling.mustPublish(1, "s", "x")
	eventually(t, "only the window's publishes are left", func() bool { return w.broker.Status().Outstanding == 8 })
	release()
	for id := range uint64(20) {
		r.wantOK(id)
	}
}

// FIN says "no more requests": everything owed is answered, in order, then our FIN (wire.md 1.2).
func TestFinishedStreamGetsAllItIsOwed(t *testing.T) {
	w, release := holdSync(t, nil)
	r := w.dial().loginAs(w.token(), offerFlags, offerWindow)
	for id := range uint64(50) {
		stream := "d"
		if id%2 == 1 {
			stream = "s"
		}
		r.write(publish(wire.FlagAcked, id, stream, "x"))
	}
	r.send(&wire.ProducerInit{RequestID: 99})
	r.fin()
	if m, ok := r.recvMessage().(*wire.ProducerInitOK); !ok || m.RequestID != 99 {
		t.Fatalf("%v; want producer_init_ok", m)
	}
	r.wantQuiet()
	release()
	for id := range uint64(50) {
		r.wantOK(id)
	}
	r.wantEnd()
}
