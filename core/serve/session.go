package serve

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// verdict is what becomes of a stream after a frame.
type verdict uint8

const (
	// goOn: read the next frame.
	goOn verdict = iota
	// endStream: read no more; answer what is owed, then FIN.
	endStream
	// holdStream: read no more and stay silent until the connection closes.
	holdStream
	// loseStream: the connection is gone, nothing more can be written.
	loseStream
)

// session is one bidirectional stream of a client. Its reader handles one frame at a time, its
// writer writes; both end before run returns.
type session struct {
	author
	st netio.Stream
	fr *netio.FrameReader

	// What the client offered. Set by auth, before the first publish, and never changed after:
	// the reader writes, reader and writer read.
	flags wire.Flags
	feats wire.Features
	// ackOnQueue: an ack promises admission only.
	ackOnQueue bool

	ans   answers
	clock sweepClock
	w     writer
}

func newSession(c *conn, st netio.Stream) *session {
	s := &session{author: author{srv: c.srv, c: c, preauth: true}, st: st}
	o := &c.srv.o
	s.fr = netio.NewFrameReader(st, o.Pool)
	s.fr.SetMax(o.PreauthMaxFrameBytes)
	s.w = writer{
		st: st, ans: &s.ans, enc: s, count: &c.srv.count, clock: &s.clock,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), dead: make(chan struct{}),
		onDead: func() { st.CancelRead(netio.ResetNone) },
	}
	s.ans.init(o.UnansweredMax, &c.srv.count, s.w.wake)
	s.ans.clock, s.ans.broker = &s.clock, o.Broker
	s.clock.init(o.AckWait, o.QueueWait)
	s.clock.busy = func() bool { return s.ans.unanswered.Load() > 0 }
	s.clock.wake = s.w.wakeUp
	s.clock.overdue = func() {
		c.srv.count.overdue.Add(1)
		s.w.abort()
	}
	return s
}

// run serves the stream to its end. The caller has taken a preauth place, which run gives back.
func (s *session) run() {
	s.c.add(s)
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		s.w.run()
	}()

	ctx := s.c.nc.Context()
	// A reader that waits for room would not see the end of the connection.
	stop := context.AfterFunc(ctx, s.w.abort)
	defer stop()
	v := s.read(ctx)
	s.leavePreauth()
	if v == holdStream {
		<-ctx.Done()
	}
	if v == loseStream || ctx.Err() != nil {
		s.w.abort()
	} else {
		s.w.finish()
	}
	<-writer
	s.clock.stop()
	s.ans.withdrawAll()
	s.parked.settle(ctx, s.srv.o.Broker)
	s.c.remove(s)
}

// read handles frames until the stream ends. On return nothing of the receiving direction is left.
func (s *session) read(ctx context.Context) verdict {
	if t := s.srv.o.AuthTimeout; t > 0 {
		// A failure shows in the first read.
		_ = s.st.SetReadDeadline(time.Now().Add(t))
	}
	for {
		h, buf, err := s.fr.Next()
		if err != nil {
			if err != io.EOF {
				s.st.CancelRead(netio.ResetNone)
				s.srv.countReadError(err, s.id != nil)
			}
			if _, _, reset := netio.ResetCode(err); !reset && netio.IsClosed(err) {
				return loseStream
			}
			return endStream
		}
		if v := s.frame(ctx, h, buf); v != goOn {
			s.st.CancelRead(netio.ResetNone)
			return v
		}
	}
}

// countReadError counts what a peer did wrong. Errors of the connection are not faults.
func (s *Server) countReadError(err error, authenticated bool) {
	switch {
	case errors.Is(err, wire.ErrMagic):
		s.count.fault(faultMagic)
	case errors.Is(err, wire.ErrVersion):
		s.count.fault(faultVersion)
	case errors.Is(err, io.ErrUnexpectedEOF):
		s.count.fault(faultTruncated)
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.count.streamAuthTimeouts.Add(1)
	default:
		if _, ok := errors.AsType[*netio.FrameTooLargeError](err); !ok {
			return
		}
		if authenticated {
			s.count.fault(faultTooLarge)
		} else {
			s.count.fault(faultTooLargePreauth)
		}
	}
}

// reply queues an answer that is not a publish answer. It is false when the stream ended.
func (s *session) reply(m wire.Message) bool {
	if !s.w.hasRoom() && !s.w.wait(s.w.hasRoom) {
		return false
	}
	s.w.reply(m)
	return true
}

// refuse answers with an error message; code and class go to streams that offered them.
func (s *session) refuse(e *wire.Error) {
	s.reply(wire.NewErrorMessage(e, s.feats))
}
