package core

import "github.com/ringcast/ringcast/wire"

// errReset is what publishes get whose shard's log was reset while they waited for it. Their records
// may have been on the disk for a while, and on that of a replica for longer.
var errReset = wire.NewError(wire.CodeUnacknowledged, "the shard's log was reset: the outcome is unknown")

// Reset gives up what the shard has claimed and its log has not committed: those publishes fail with
// unacknowledged, reach no ring and no reader, and their offsets are given out again (PUB-27). It is for
// a shard whose log is adopted, cut or rebuilt; what is queued behind is claimed afterwards, so fence the
// shard first if that may not be. Reset returns when the log has begun; with a write in flight the
// publishes are answered when that has ended and was cut off.
//
// What a replicated shard has committed and a majority does not hold yet stays on the log and becomes
// readable when they do; its publishes are answered now.
func (b *Broker) Reset(st *Stream, shard uint32) error {
	s, err := st.shard(shard)
	if err != nil {
		return err
	}
	return s.exec.call(s.reset)
}

func (s *shard) reset() {
	if s.gone {
		return
	}
	s.exec.settle() // what was committed until now counts
	if r := s.replica.Load(); r != nil {
		r.abandon(s, errReset)
	}
	if s.log != nil {
		s.ended(s.log.Reset())
	}
}
