package client

import "github.com/ringcast/ringcast/wire"

// sequencer is the half of an outbox that makes a publisher idempotent. The broker counts the
// batches of a producer id on a shard from 0 and takes each number once: a batch of unknown
// outcome is sent again under its old number, and the broker either appends it or answers with
// the first copy's offset.
//
// The numbers must have no holes. So a batch that fails for good breaks the sequence: whatever is
// in flight behind it comes back (refused for its gap, hence certainly not applied), then a new
// producer id is asked for and the batches are numbered from 0 again. A batch that may have been
// applied is never renumbered; it fails with an unknown outcome.
type sequencer struct {
	producer uint64
	known    bool   // producer was given by the broker
	next     uint64 // sequence of the next new batch
	renew    bool   // a new producer id is needed before anything is sent
	blocked  bool   // nothing may be sent: no producer yet, or renew
}

// assign numbers b unless it has its number already.
func (s *sequencer) assign(b *batch) {
	if !b.numbered {
		b.sequence, b.numbered = s.next, true
		s.next++
	}
}

// broken starts the change to a new producer id.
func (s *sequencer) broken() { s.renew, s.blocked = true, true }

// needsProducer says whether the sender has to ask the broker for a producer id now: there is
// none, or the sequence broke and nothing is in flight any more.
func (o *outbox) needsProducer() bool {
	return o.limits.idempotent && (!o.seq.known || o.seq.renew && o.flight.len() == 0)
}

// setProducer starts the sequence anew under id. Nothing is in flight.
func (o *outbox) setProducer(id uint64) {
	for i := 0; i < o.queue.len(); {
		b := o.queue.at(i)
		if b.maybe {
			o.fail(o.queue.take(b.number), unknown(o.lastErr))
			continue
		}
		b.numbered = false
		i++
	}
	o.seq = sequencer{producer: id, known: true}
}

// refusedSequence handles a publish_refused of an idempotent batch.
func (o *outbox) refusedSequence(m *wire.PublishRefused, now int64) error {
	b := o.flight.take(m.RequestID)
	if b == nil {
		return errNotInFlight(m.RequestID)
	}
	switch m.Reason.Kind {
	case wire.RefusedSequenceGap:
		// The broker knows this producer and expects a lower number: b was not applied, neither
		// now nor by an earlier copy.
		b.maybe = false
		if !o.unfinished(m.Reason.Expected) {
			// The number it waits for was answered long ago: it has lost what it acknowledged.
			o.seq.broken()
			o.holdUntil = max(o.holdUntil, now+int64(o.retry.next(0)))
		}
		o.queue.insert(b)
	case wire.RefusedUnknownProducer:
		if o.unfinished(0) {
			// Nothing of this producer was applied yet: b overtook the refused first batch.
			o.queue.insert(b)
			break
		}
		o.seq.broken()
		if b.maybe {
			o.fail(b, unknown(refusedError(m)))
			break
		}
		o.holdUntil = max(o.holdUntil, now+int64(o.retry.next(0)))
		o.queue.insert(b)
	case wire.RefusedSequenceExpired:
		// The number is below what the broker expects, and only we use it: an earlier copy was
		// applied, so long ago that its offset is forgotten.
		o.retry.reset()
		o.settle(b, Ack{Shard: o.shard}, nil)
	case wire.RefusedNotLeader:
		o.lastErr = wire.ErrNotLeader
		o.holdUntil = max(o.holdUntil, now+int64(o.retry.next(0)))
		o.queue.insert(b)
	default:
		o.fail(b, refusedError(m))
	}
	return nil
}

// unfinished says whether a batch of that sequence has no outcome yet.
func (o *outbox) unfinished(sequence uint64) bool {
	for _, q := range []*fifo{&o.flight, &o.queue} {
		for i := range q.len() {
			if b := q.at(i); b.numbered && b.sequence == sequence {
				return true
			}
		}
	}
	return false
}

func refusedError(m *wire.PublishRefused) *wire.Error {
	return wire.NewError(wire.CodeInvalidRequest, "%s", m.Message).WithReason(refusedName(m.Reason.Kind), 0)
}

// refusedName is the name of a reason on the wire, for the ones that end a batch.
func refusedName(k wire.RefusedKind) string {
	switch k {
	case wire.RefusedUnknownProducer:
		return "unknown_producer"
	case wire.RefusedSequenceReused:
		return "sequence_reused"
	case wire.RefusedOffsetMismatch:
		return "offset_mismatch"
	}
	return ""
}
