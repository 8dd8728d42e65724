package serve

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

const eventShape = wire.FlagEvOffsets | wire.FlagEvSkipped | wire.FlagEvPublisher | wire.FlagEvTimes

// subscription is one subscription and its event stream. It belongs to the connection, not to the
// stream that asked for it, and lives on after that one.
type subscription struct {
	c     *conn
	who   *principal
	sub   *core.Subscription
	st    netio.SendStream
	flags wire.Flags
	feats wire.Features
}

// subscribe handles the request in the order of wire.md 6.4: register, open the event stream,
// hello, answer, and only then history. A client does not read the event stream before it has the
// answer, so that history ahead of it could fill every window and stop the answer too.
func (s *session) subscribe(ctx context.Context, m *wire.Subscribe) verdict {
	if e := s.mayRead(m.TenantID, m.Namespace, m.Stream); e != nil {
		s.refuse(e)
		return goOn
	}
	if e := s.c.addSub(s.who); e != nil {
		s.srv.count.subsRefused.Add(1)
		s.refuse(e)
		return goOn
	}
	sub, answer, err := s.openSubscription(ctx, m)
	if err != nil {
		s.c.removeSub(s.who)
		var cursor *core.CursorError
		if errors.As(err, &cursor) {
			s.reply(cursorError(cursor))
		} else {
			s.refuse(wire.AsError(err))
		}
		return goOn
	}
	s.srv.count.subs.Add(1)
	s.srv.count.subsOpen.Add(1)
	// The runner starts even if the answer can not be written any more: it finds its event stream
	// dead with the connection and cleans up.
	if s.reply(answer) {
		s.w.flush()
	}
	s.c.wg.Go(sub.run)
	return goOn
}

// openSubscription registers with the broker and opens the event stream.
func (s *session) openSubscription(ctx context.Context, m *wire.Subscribe) (*subscription, *wire.Subscribed, error) {
	if s.srv.draining.Load() {
		return nil, nil, wire.ErrDraining
	}
	b := s.srv.o.Broker
	stream, err := b.Stream(m.TenantID, m.Namespace, m.Stream)
	if err != nil {
		return nil, nil, err
	}
	offsets := stream.Durable() && s.flags&wire.FlagEvOffsets != 0
	req := &core.SubscribeRequest{
		Stream: stream, ID: m.SubscriptionID, QueueCapacity: m.QueueCapacity,
		Shape:  s.flags & eventShape,
		Lagged: offsets && s.feats.Has(wire.FeatureSubscriptionLagged),

		Principal: s.id.Subject, Peer: s.c.nc.RemoteAddr().String(), Conn: s.c.id,
	}
	if m.Shard != nil {
		req.Shard = *m.Shard
	}
	if m.Start != nil {
		req.Start = *m.Start
	}
	sub, err := b.Subscribe(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	st, err := s.openEvents(ctx, sub.ID())
	if err != nil {
		sub.Close()
		return nil, nil, err
	}
	answer := &wire.Subscribed{SubscriptionID: sub.ID()}
	if offsets {
		if start, ok := sub.StartOffset(); ok {
			live, _ := sub.LiveOffset()
			answer.StartOffset, answer.LiveOffset = &start, &live
		}
	}
	if m.QueueCapacity != nil {
		n := sub.QueueCapacity()
		answer.QueueCapacity = &n
	}
	return &subscription{c: s.c, who: s.who, sub: sub, st: st, flags: s.flags, feats: s.feats}, answer, nil
}

// openEvents opens an event stream and writes its first frame at once: a client takes its incoming
// streams one after another by their first frames. Both waits, for a stream and for room in the
// connection's window, are the client's to end and bounded here.
func (s *session) openEvents(ctx context.Context, id uint64) (netio.SendStream, error) {
	wait := s.srv.o.OpenTimeout
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	st, err := s.c.nc.OpenUniStream(ctx)
	if err != nil {
		return nil, errNoEventStream.WithCause(err)
	}
	err = st.SetWriteDeadline(time.Now().Add(wait))
	if err == nil {
		_, err = st.Write(wire.AppendMessage(nil, &wire.EventStreamHello{SubscriptionID: id}))
	}
	if err == nil {
		err = st.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		st.CancelWrite(netio.ResetInterrupted)
		return nil, errNoEventStream.WithCause(err)
	}
	return st, nil
}

// run delivers until the subscription ends, and ends its stream as the cause demands.
func (u *subscription) run() {
	srv := u.c.srv
	// The context ends when the client stops the stream, so that nothing is held for a reader
	// that has left although nothing is published (SUB-21).
	end, err := u.sub.Run(u.st.Context(), &sink{st: u.st, pool: srv.o.Pool, stall: srv.o.StallTimeout})
	u.sub.Close()
	u.c.removeSub(u.who)
	srv.count.subsOpen.Add(-1)
	srv.count.endings[u.end(end, err)].Add(1)
}

// end writes the last frame that the cause has, and FIN or reset. FIN says that the subscription
// is over; anything that interrupts it resets, so that the client resumes (wire.md 1.4). A broker
// that drains does neither: what was queued is still under way, and the connection's end says the
// rest (HZ-34).
func (u *subscription) end(e core.End, err error) ending {
	switch e.Cause {
	case core.EndLagged:
		u.finish(&wire.SubscriptionLagged{SubscriptionID: u.sub.ID(), ResumeFrom: e.ResumeFrom})
		return endingLagged
	case core.EndDeleted:
		if u.feats.Has(wire.FeatureStreamDeleted) {
			u.finish(&wire.StreamDeleted{SubscriptionID: u.sub.ID()})
		} else {
			u.finish(nil)
		}
		return endingDeleted
	case core.EndRevoked:
		u.finish(wire.NewErrorMessage(wire.ErrRevoked, u.feats))
		return endingRevoked
	case core.EndTrimmed:
		// Whoever resumes is told what is the oldest; who cannot read the last frame is interrupted.
		if u.feats.Has(wire.FeatureSubscriptionLagged) && u.flags&wire.FlagEvOffsets != 0 {
			u.finish(&wire.SubscriptionLagged{SubscriptionID: u.sub.ID(), ResumeFrom: e.ResumeFrom})
		} else {
			u.st.CancelWrite(netio.ResetInterrupted)
		}
		return endingTrimmed
	case core.EndStorage:
		u.st.CancelWrite(netio.ResetInterrupted)
		return endingInternal
	case core.EndStopped:
		if !u.c.srv.draining.Load() {
			u.st.CancelWrite(netio.ResetInterrupted)
		}
		return endingStopped
	}
	if u.c.nc.Context().Err() != nil {
		return endingReader
	}
	u.st.CancelWrite(netio.ResetInterrupted) // no more than a formality when the client stopped it
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return endingStalled
	}
	return endingReader
}

// finish writes a last frame, if there is one, and FIN.
func (u *subscription) finish(last wire.Message) {
	if last != nil {
		if _, err := u.st.Write(wire.AppendMessage(nil, last)); err != nil {
			u.st.CancelWrite(netio.ResetInterrupted)
			return
		}
	}
	if err := u.st.Close(); err != nil {
		u.st.CancelWrite(netio.ResetInterrupted)
	}
}

// mayRead says why the stream's token may not subscribe to a stream, nil if it may.
func (s *session) mayRead(tenant, namespace, stream string) *wire.Error {
	if tenant != s.id.Tenant {
		return s.forbid(errTenant)
	}
	if !s.id.AllowStream(auth.StreamSubscribe, namespace, stream) {
		return s.forbid(wire.ErrForbidden)
	}
	return nil
}

func cursorError(e *core.CursorError) *wire.SubscribeCursorError {
	m := &wire.SubscribeCursorError{Reason: wire.CursorInFuture, Requested: e.Requested, Available: e.Available}
	if e.TooOld {
		m.Reason = wire.CursorTooOld
	}
	return m
}
