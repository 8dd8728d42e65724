package serve

import (
	"context"
	"io"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// oneWay is a publish-only stream: authentication, then publishes that nobody hears about. There
// is nothing to answer on, so whatever is wrong ends it (wire.md 1.2, 2.4).
type oneWay struct {
	author
	st netio.ReceiveStream
	fr *netio.FrameReader
}

func newOneWay(c *conn, st netio.ReceiveStream) *oneWay {
	u := &oneWay{author: author{srv: c.srv, c: c, preauth: true}, st: st}
	u.fr = netio.NewFrameReader(st, c.srv.o.Pool)
	u.fr.SetMax(c.srv.o.PreauthMaxFrameBytes)
	return u
}

// run serves the stream to its end. The caller has taken a preauth place, which run gives back.
func (u *oneWay) run() {
	u.c.addOneWay(u)
	ctx := u.c.nc.Context()
	u.read(ctx)
	u.leavePreauth()
	u.parked.settle(ctx, u.srv.o.Broker)
	u.c.removeOneWay(u)
}

func (u *oneWay) read(ctx context.Context) {
	if t := u.srv.o.AuthTimeout; t > 0 {
		// A failure shows in the first read.
		_ = u.st.SetReadDeadline(time.Now().Add(t))
	}
	for {
		h, buf, err := u.fr.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			u.srv.countReadError(err, u.id != nil)
		} else if u.frame(ctx, h, buf) {
			continue
		}
		u.st.CancelRead(netio.ResetNone)
		return
	}
}

// frame handles one frame, takes over buf, and says whether the stream goes on.
func (u *oneWay) frame(ctx context.Context, h wire.Header, buf *wire.Buf) bool {
	count := &u.srv.count
	if h.Flags.FromClient() != nil {
		buf.Release()
		count.fault(faultFlags)
		return false
	}
	if h.Flags == 0 {
		m, err := wire.DecodeMessage(buf.Bytes())
		buf.Release()
		if err != nil {
			count.fault(faultJSON)
			return false
		}
		return u.message(ctx, m)
	}
	if u.id == nil || h.Flags&wire.FlagAcked != 0 {
		buf.Release()
		count.fault(faultOneWay)
		return false
	}
	if err := wire.DecodePublish(h.Flags, buf.Bytes(), &u.binary); err != nil {
		buf.Release()
		count.fault(faultPublishUnacked)
		return false
	}
	var c command
	u.decoded(&c, buf)
	return u.send(ctx, &c) == nil
}

func (u *oneWay) message(ctx context.Context, m wire.Message) bool {
	a, isAuth := m.(*wire.Auth)
	if isAuth != (u.id == nil) {
		u.srv.count.fault(faultOneWay)
		return false
	}
	if isAuth {
		return u.authenticate(ctx, a)
	}
	var c command
	var payloads [][]byte
	ok := false
	switch m := m.(type) {
	case *wire.Publish:
		payloads, ok = [][]byte{m.Payload}, c.one(m)
	case *wire.PublishBatch:
		payloads, ok = m.Payloads, c.batch(m)
	}
	if !ok || c.acked {
		u.srv.count.fault(faultOneWay) // another request, or one that wants an answer
		return false
	}
	u.srv.count.jsonPublishes.Add(1)
	c.section(u.srv.o.Pool, payloads)
	return u.send(ctx, &c) == nil
}

// authenticate accepts the token; what the client offers is of no use here.
func (u *oneWay) authenticate(ctx context.Context, m *wire.Auth) bool {
	if u.srv.draining.Load() {
		u.srv.count.authDraining.Add(1)
		return false
	}
	if u.login(ctx, m) != nil {
		return false
	}
	u.fr.SetMax(u.srv.o.MaxFrameBytes)
	// A failure shows in the next read.
	_ = u.st.SetReadDeadline(time.Time{})
	return true
}
