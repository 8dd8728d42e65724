package serve

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// A header that announces 16 MiB on streams that have not authenticated reserves nothing: the
// streams end on the header alone (OPS-1, BUG-22).
func TestGiantLengthBeforeAuthReservesNothing(t *testing.T) {
	w := newWorld(t, worldOptions{})
	before := w.pool.Stats()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	c := w.pair(1 << 16)
	const streams = 200
	for range streams {
		r := c.open()
		r.write(badHeader(0x464C5831, 1, 16<<20))
		r.wantEnd()
	}
	runtime.ReadMemStats(&m1)
	if n := w.pool.Stats().Gets - before.Gets; n != 0 {
		t.Errorf("%d Bufs were taken", n)
	}
	if n := (m1.TotalAlloc - m0.TotalAlloc) / streams; n > 64<<10 {
		t.Errorf("%d bytes allocated per stream", n)
	}
	if got := w.srv.Stats().BadInput["too_large_preauth"]; got != streams {
		t.Errorf("counted %d, want %d", got, streams)
	}
}

// A connection on which nobody authenticates is closed with code 1; one on which somebody did, even
// on a publish-only stream, is not (OPS-2).
func TestUnauthenticatedConnectionIsClosed(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true, serve: func(o *Options) { o.AuthTimeout = 100 * time.Millisecond }})
	silent, talking := w.dial(), w.dial()
	talking.open().write(badHeader(0x464C5831, 1, 100)) // a frame that never comes whole
	good := w.dial()
	r := good.openOneWay()
	r.send(&wire.Auth{TenantID: "t1", Token: w.token()})
	for _, c := range []*client{silent, talking} {
		select {
		case <-c.nc.Context().Done():
		case <-time.After(patience):
			t.Fatal("not closed")
		}
		_, err := c.nc.AcceptUniStream(t.Context())
		if code, remote, ok := netio.CloseCode(err); !ok || !remote || code != netio.CloseAuthTimeout {
			t.Errorf("closed with %v", err)
		}
	}
	good.login().wantOpen()
	if got := w.srv.Stats().AuthTimeouts; got != 2 {
		t.Errorf("counted %d, want 2", got)
	}
}

// A stream that does not authenticate in time is given up though its connection has (HZ-31).
func TestUnauthenticatedStreamIsGivenUp(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true, serve: func(o *Options) { o.AuthTimeout = 100 * time.Millisecond }})
	c := w.dial()
	r := c.login()
	idle := c.open()
	idle.write([]byte("FL")) // the broker sees a stream with its first bytes
	idle.wantEnd()
	oneWay := c.openOneWay()
	oneWay.write([]byte("FL"))
	oneWay.wantStopped()
	eventually(t, "both are counted", func() bool { return w.srv.Stats().StreamAuthTimeouts == 2 })
	r.wantOpen()
}

// At most so many unauthenticated streams are read at a time; the others wait and are served when
// places come free (wire.md 1.3).
func TestUnauthenticatedStreamsWaitForAPlace(t *testing.T) {
	w := newWorld(t, worldOptions{serve: func(o *Options) { o.PreauthStreams = 2 }})
	c := w.dial()
	first, second := c.open(), c.open()
	eventually(t, "both are read", func() bool { return w.srv.Stats().StreamsOpen == 2 })
	third := c.open()
	third.sendAuth("t1", w.token(), offerFlags, offerAll)
	third.wantQuiet()
	first.sendAuth("t1", w.token(), offerFlags, offerAll)
	first.recvMessage()
	third.recvMessage()
	third.wantOpen()
	second.fin()
	second.wantEnd()
	for range 20 { // places come back from whatever becomes of a stream
		r := c.open()
		r.write(badHeader(0, 1, 0))
		r.wantEnd()
		c.login().wantOpen()
	}
}

// Streams that stop in the middle of a frame hold neither the connection's window nor its readers:
// a publish on another stream is acked within a second (HZ-31).
func TestHalfFramesDoNotStopTheConnection(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	c := w.dial()
	half := publish(wire.FlagAcked, 1, "s", string(make([]byte, 20_000)))
	for i := range 200 {
		r := c.login()
		r.write(half[:len(half)/2])
		if i%2 == 0 {
			r.tx.CancelWrite(netio.ResetNone)
		}
	}
	r := c.login()
	start := time.Now()
	r.mustPublish(2, "s", "x")
	if d := time.Since(start); d > time.Second {
		t.Errorf("acked after %v", d)
	}
}

// A client that pipelines requests and does not read their answers is stopped by flow control, not
// buffered without bound, and loses the stream when its answers stand still (wire.md 6.3, HZ-33).
func TestClientThatTakesNoAnswersLosesTheStream(t *testing.T) {
	w := newWorld(t, worldOptions{serve: func(o *Options) { o.AckWait, o.QueueWait = 50*time.Millisecond, 50*time.Millisecond }})
	sibling := w.dial().login()
	c := w.pair(4 << 10)
	r := c.login()
	request := wire.AppendMessage(nil, &wire.ShardOwners{TenantID: "t1", Namespace: "default", Name: "wide", RequestID: 1})
	sent := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = r.tx.Write(request)
		}
		sent <- err
	}()
	select {
	case err := <-sent:
		if !netio.IsClosed(err) {
			t.Errorf("write failed with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the stream was not ended")
	}
	eventually(t, "it is counted", func() bool { return w.srv.Stats().Overdue == 1 })
	sibling.mustPublish(1, "s", "x")
}

// A stream whose publishes never get an outcome stops its reader at twice the window, and ends with
// its connection all the same.
func TestStuckDiskDoesNotKeepADeadConnection(t *testing.T) {
	w, release := holdSync(t, func(o *Options) { o.PublishWindow, o.AckWait = 2, 400*time.Millisecond })
	c := w.dial()
	r := c.loginAs(w.token(), offerFlags, offerWindow)
	for id := range uint64(6) {
		r.write(publish(wire.FlagAcked, id, "d", "x"))
	}
	for id := range uint64(4) {
		r.wantRefused(id, wire.CodeUnacknowledged, wire.RetryUnknown, unacknowledged.Err.Message)
	}
	r.wantQuiet()
	open := w.srv.Stats().StreamsOpen
	c.nc.CloseWithError(0, "")
	eventually(t, "its stream is gone", func() bool { return w.srv.Stats().StreamsOpen == open-1 })
	release()
}

// Subscriptions, streams and identities come and go without leaving anything behind (HZ-40).
func TestGaugesReturnToZero(t *testing.T) {
	w := newWorld(t, worldOptions{quic: true})
	for i := range 10 {
		c := w.dial()
		for j := range 5 {
			r := c.loginAs(w.tokenOf("t1", fmt.Sprint("user", j%2)), offerFlags, offerWindow)
			ev := c.subscribe(r, "s", 0)
			r.mustPublish(1, "s", "x")
			switch (i + j) % 4 {
			case 0:
				ev.rx.CancelRead(0)
			case 1:
				r.fin()
			case 2:
				r.tx.CancelWrite(0)
				r.rx.CancelRead(0)
			}
		}
		if i%2 == 0 {
			c.nc.CloseWithError(0, "")
		}
	}
	for _, c := range w.srv.open() {
		c.close(0, "")
	}
	eventually(t, "all is gone", func() bool {
		st, b := w.srv.Stats(), w.broker.Status()
		return st.ConnsOpen == 0 && st.StreamsOpen == 0 && st.SubscriptionsOpen == 0 && b.Subscriptions == 0 && b.InflightBytes == 0
	})
}

func TestOptionsValidateNamesEveryProblem(t *testing.T) {
	w := newWorld(t, worldOptions{})
	good := w.srv.o
	if err := good.Validate(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	bad := good
	bad.PreauthMaxFrameBytes, bad.PublishWindow, bad.MaxSubscriptionsConn, bad.DrainLinger = bad.MaxFrameBytes+1, windowMax+1, 1, -1
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	if n := len(err.(interface{ Unwrap() []error }).Unwrap()); n != 4 {
		t.Errorf("%d problems named, want 4: %v", n, err)
	}
	if err := (Options{}).Validate(); err == nil {
		t.Error("nothing set was accepted")
	}
}
