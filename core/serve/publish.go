// Hot path.

package serve

import (
	"context"
	"errors"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// publishBinary handles a frame with the publish bit. It takes over buf.
func (s *session) publishBinary(ctx context.Context, f wire.Flags, buf *wire.Buf) verdict {
	if err := wire.DecodePublish(f, buf.Bytes(), &s.binary); err != nil {
		buf.Release()
		return s.malformed(f, err)
	}
	var c command
	s.decoded(&c, buf)
	if c.acked {
		return s.publish(ctx, &c)
	}
	if s.send(ctx, &c) != nil {
		return endStream // there is nothing to answer
	}
	return goOn
}

// malformed answers a publish batch that could not be decoded (wire.md 5.1).
func (s *session) malformed(f wire.Flags, err error) verdict {
	switch {
	case errors.Is(err, wire.ErrPublishPrefix):
		s.srv.count.fault(faultPublishPrefix)
		return endStream
	case f&wire.FlagAcked == 0:
		s.srv.count.fault(faultPublishUnacked)
		return endStream
	}
	s.srv.count.fault(faultPublishAcked)
	answer := formBinary
	if f&wire.FlagIdempotent != 0 {
		answer = formIdempotent
	}
	sl := s.slot(s.binary.RequestID, answer)
	if sl == nil {
		return loseStream
	}
	sl.refuse(wire.AsError(err))
	return goOn
}

// publish carries out an acked publish and takes over its buf. Its slot is answered whatever
// happens.
func (s *session) publish(ctx context.Context, c *command) verdict {
	sl := s.slot(c.requestID, c.form)
	if sl == nil {
		c.buf.Release()
		return loseStream
	}
	var req core.PublishRequest
	if err := s.route(c, &req); err != nil {
		c.buf.Release()
		sl.refuse(err)
		return goOn
	}
	req.Reply, req.Place = sl, &sl.place
	req.AckOnQueue = s.ackOnQueue && !c.idempotent && !c.conditional
	if err := s.srv.o.Broker.Publish(ctx, &req); err != nil {
		sl.refuse(wire.AsError(err))
	}
	return goOn
}

// slot returns the slot of an acked publish, waiting while the window is full. nil: the stream
// ended.
func (s *session) slot(requestID uint64, f form) *slot {
	if !s.ans.hasRoom() && !s.w.wait(s.ans.hasRoom) {
		return nil
	}
	sl := s.ans.take(requestID, f, s.clock.now())
	s.clock.arm()
	return sl
}

// appendAnswer encodes the outcome of a publish as its request asked (wire.md 5.2). It implements
// encoder; only the writer calls it.
func (s *session) appendAnswer(dst []byte, sl *slot, r *core.PublishResult) []byte {
	if sl.form == formBinary {
		a := wire.Ack{RequestID: sl.requestID, Err: r.Err, Owner: r.Owner, HasOffset: r.HasOffset, Offset: r.Offset}
		return wire.AppendAck(dst, &a, s.flags, s.feats)
	}
	if !sl.form.pipelined() {
		return s.appendConditionalAnswer(dst, sl, r)
	}
	return s.appendJSONAnswer(dst, sl, r)
}

// unacknowledged is the outcome of a publish that took too long.
var unacknowledged = core.PublishResult{
	Err: wire.NewError(wire.CodeUnacknowledged, "publish outcome unknown: not confirmed in time"),
}
