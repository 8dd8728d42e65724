package serve

import (
	"context"
	"testing"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// A drain answers what was accepted, refuses what comes now, delivers what is queued, and closes
// with code 0 and no FIN on event streams (PUB-29, HZ-34, wire.md 3.1).
func TestDrainFinishesWhatWasAccepted(t *testing.T) {
	w, release := holdSync(t, func(o *Options) { o.DrainLinger = 300 * time.Millisecond })
	c := w.pair(1 << 20)
	r := c.loginAs(w.token(), offerFlags, offerWindow)
	ev := c.subscribe(r, "d", 0)
	oneWay := c.openOneWay()
	oneWay.send(&wire.Auth{TenantID: "t1", Token: w.token()})
	oneWay.write(publish(0, 0, "s", "x"))
	late, mute := c.open(), c.open()
	eventually(t, "all streams are there", func() bool { return w.srv.Stats().StreamsOpen >= 4 })
	r.write(publish(wire.FlagAcked, 1, "d", "accepted"))
	eventually(t, "it is accepted", func() bool { return w.broker.Status().Outstanding == 1 })

	drained := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		drained <- w.srv.Drain(ctx)
	}()
	oneWay.wantStopped()
	r.write(publish(wire.FlagAcked, 2, "d", "too late"))
	r.send(subscribeTo("s"))
	r.wantJSON(`{"type":"error","message":"` + wire.ErrDraining.Message + `","code":"draining","retry":"retry"}`)
	late.sendAuth("t1", w.token(), offerFlags, offerAll)
	late.wantJSON(`{"type":"error","message":"` + wire.ErrDraining.Message + `","code":"draining","retry":"retry"}`)
	late.wantEnd()
	mute.send(&wire.Auth{TenantID: "t1", Token: w.token()})
	mute.wantQuiet()
	select {
	case err := <-drained:
		t.Fatalf("drained (%v) with a publish unanswered", err)
	default:
	}

	release()
	r.wantOK(1)
	r.wantRefused(2, wire.CodeDraining, wire.RetryNow, wire.ErrDraining.Message)
	ev.wantRecords("accepted")
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	_, _, err := ev.next(patience)
	if code, remote, ok := netio.CloseCode(err); !ok || !remote || code != netio.CloseShutdown {
		t.Errorf("the event stream ended with %v, want the connection's close with code 0", err)
	}
	if st := w.srv.Stats(); st.AuthDraining != 2 || st.SubscriptionEnds["stopped"] != 1 {
		t.Errorf("%d auths refused, %d subscriptions stopped; want 2, 1", st.AuthDraining, st.SubscriptionEnds["stopped"])
	}
}

// A drain whose budget ends says so and closes everything all the same.
func TestDrainKeepsItsBudget(t *testing.T) {
	w, release := holdSync(t, nil)
	c := w.dial()
	r := c.login()
	r.write(publish(wire.FlagAcked, 1, "d", "stuck"))
	eventually(t, "it is accepted", func() bool { return w.broker.Status().Outstanding == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := w.srv.Drain(ctx); err == nil {
		t.Error("a drain that left a publish unanswered reported success")
	}
	<-c.nc.Context().Done()
	release()
}

// Drain over QUIC: listeners refuse, and the last answers arrive though the connection closes right
// behind them.
func TestDrainOverQUIC(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true, serve: func(o *Options) { o.DrainLinger = 100 * time.Millisecond }})
	c := w.dial()
	r := c.login()
	ev := c.subscribe(r, "s", 0)
	for id := range uint64(100) {
		r.write(publish(wire.FlagAcked, id, "s", "x"))
	}
	r.wantOK(0)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.srv.Drain(ctx); err != nil {
		t.Errorf("drain: %v", err)
	}
	ev.next(patience)
	<-c.nc.Context().Done()
	if _, err := netio.Dial(ctx, w.listener.Addr().String(), netio.DialOptions{RootCAs: w.roots}); err == nil {
		t.Error("a connection was accepted after the drain")
	}
}

// Serve returns when its context ends, with every connection closed with code 0.
func TestServeEndsWithItsContext(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	r := c.login()
	c.subscribe(r, "s", 0)
	w.stop()
	select {
	case err := <-w.served:
		w.served <- err
	case <-time.After(patience):
		t.Fatal("Serve did not return")
	}
	<-c.nc.Context().Done()
	_, _, err := r.next(patience)
	if code, remote, ok := netio.CloseCode(err); !ok || !remote || code != netio.CloseShutdown {
		t.Errorf("closed with %v", err)
	}
}
