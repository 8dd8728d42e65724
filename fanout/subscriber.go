// Hot path.

package fanout

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// EndCause says why a subscriber ended.
type EndCause uint32

const (
	// EndClosed: Close, or the context ended. What was queued was not delivered.
	EndClosed EndCause = iota + 1
	// EndSink: the sink failed; the reader is gone. What was queued was not delivered.
	EndSink
	// EndLagged: the queue overflowed and the subscriber asked to be told.
	EndLagged
	// EndDeleted: the stream was deleted.
	EndDeleted
	// EndRevoked: the credential behind the subscription was revoked.
	EndRevoked
	// EndStopped: the broker stops.
	EndStopped
	// EndMoved: the shard is served elsewhere from now on.
	EndMoved
)

func (c EndCause) String() string {
	switch c {
	case EndClosed:
		return "closed"
	case EndSink:
		return "sink"
	case EndLagged:
		return "lagged"
	case EndDeleted:
		return "deleted"
	case EndRevoked:
		return "revoked"
	case EndStopped:
		return "stopped"
	case EndMoved:
		return "moved"
	}
	return "none"
}

// SubscriberOptions describe one subscriber. Zero values are the defaults.
type SubscriberOptions struct {
	// Shape is the set of optional parts that its frames have.
	Shape wire.Flags
	// Capacity bounds the queue in envelopes.
	Capacity int
	// CapacityBytes bounds it in bytes of retained frames. An envelope larger than that is taken
	// when the queue is empty.
	CapacityBytes int64
	// From is the first offset it gets from the registry: envelopes that end at or before it are
	// passed over, which is no drop, and one that holds it is delivered from there (SUB-17).
	From uint64
	// EndOnDrop ends the subscriber at its first drop: nothing is queued from there on, what is
	// queued is delivered, then it ends with EndLagged and the first dropped offset (SUB-16).
	// Without it the subscriber goes on with a hole.
	EndOnDrop bool
}

// Subscriber is the queue between the executor that publishes and the one feeder that delivers. A
// full queue drops what comes, for this subscriber alone, and counts it: the only place on the way
// to a reader where anything is dropped (HZ-43). In batches, at any time,
//
//	offered  = accepted + dropped (+ passed over, which is not counted)
//	accepted = delivered + abandoned + queued
//
// Only the publishing executor pushes and only the feeder takes. Third parties end or close the
// subscriber: they set bits of state and wake the feeder.
//
// Taking is guarded by the token consumer, since a subscriber can be closed with no feeder there: a
// Close, and a push that finds the subscriber closed afterwards, both try to empty it. Who gets the
// token does. Who does not leaves it to the holder, who looks again after he gave it back. So every
// reference in the queue is released, whatever the order (HZ-40).
type Subscriber struct {
	opts SubscriberOptions
	wake chan struct{} // of capacity 1: a token for a feeder that sleeps

	_ [cacheLine]byte

	// Written by the producer. lagging: something was dropped and EndOnDrop is set. bytesIn is what
	// was pushed, bytesSeen what bytesOut was when the producer last looked.
	lagging      bool
	bytesIn      int64
	bytesSeen    int64
	firstDropped uint64 // set before dropped.batches leaves 0, never changed
	dropped      struct{ batches, records atomic.Uint64 }
	q            queue // its last line is the consumer's

	// bytesOut is what was taken, in bytes. Written by the consumer.
	bytesOut atomic.Int64
	// Written by the consumer, once per write.
	delivered struct{ batches, records, bytes, frames, writes atomic.Uint64 }
	abandoned struct{ batches, records atomic.Uint64 }
	history   atomic.Uint64 // records that did not come through the queue

	_ [cacheLine]byte

	// state is a set of the bits below. Written by the producer (lagged), the feeder (sleeping) and
	// whoever ends the subscriber; read by the producer after every push.
	state atomic.Uint32
	// cause is set once, before stateEnded.
	cause atomic.Uint32
	// consumer is 1 while somebody takes from the queue.
	consumer atomic.Uint32

	_ [cacheLine - 12]byte
}

const (
	stateSleeping uint32 = 1 << iota // the feeder waits for a token
	stateEnded                       // cause is set: deliver what is queued, then end
	stateLagged                      // as ended, with EndLagged
	stateClosed                      // deliver nothing more
)

// NewSubscriber returns a subscriber with an empty queue. It gets nothing before Registry.Add.
func NewSubscriber(o SubscriberOptions) *Subscriber {
	if o.Capacity <= 0 {
		o.Capacity = QueueCapacity
	}
	if o.CapacityBytes <= 0 {
		o.CapacityBytes = QueueBytesMax
	}
	s := &Subscriber{opts: o, wake: make(chan struct{}, 1)}
	s.q.init()
	return s
}

// Capacity is the bound of the queue in envelopes.
func (s *Subscriber) Capacity() int { return s.opts.Capacity }

// offered says what became of an envelope.
type offered uint8

const (
	offerPassed offered = iota // it ends before From
	offerQueued                // the queue has the reference
	offerDropped
)

// offer queues e, taking over a reference that the caller has for it, or drops it. Called by the
// publishing executor.
func (s *Subscriber) offer(e *Envelope) offered {
	if e.next <= s.opts.From {
		return offerPassed
	}
	if s.lagging || !s.room(e.size) {
		s.drop(e)
		return offerDropped
	}
	s.bytesIn += e.size
	s.q.push(e)
	// The feeder sets sleeping and then looks at the queue; we pushed and now look at sleeping.
	// One of the two sees the other.
	if state := s.state.Load(); state&(stateSleeping|stateClosed) != 0 {
		s.rouse()
		if state&stateClosed != 0 {
			s.reap()
		}
	}
	return offerQueued
}

// room says whether an envelope of n bytes may be queued. What the consumer has done is looked at
// only when the queue seems full without it.
func (s *Subscriber) room(n int64) bool {
	tail := s.q.tail.Load()
	if tail-s.q.headSeen >= uint64(s.opts.Capacity) {
		s.q.headSeen = s.q.head.Load()
		if tail-s.q.headSeen >= uint64(s.opts.Capacity) {
			return false
		}
	}
	if s.bytesIn-s.bytesSeen+n <= s.opts.CapacityBytes {
		return true
	}
	s.bytesSeen = s.bytesOut.Load()
	return s.bytesIn-s.bytesSeen+n <= s.opts.CapacityBytes || tail == s.q.head.Load()
}

// drop counts e, and ends the subscriber if that is what it wants.
func (s *Subscriber) drop(e *Envelope) {
	if s.dropped.batches.Load() == 0 {
		s.firstDropped = max(e.base, s.opts.From)
	}
	s.dropped.records.Add(e.recordsFrom(s.opts.From))
	s.dropped.batches.Add(1)
	if s.opts.EndOnDrop && !s.lagging {
		s.lagging = true
		s.signal(stateLagged)
	}
}

// End ends the subscriber: what was queued before is delivered, then its feeder returns cause. It
// is called after Registry.Remove, so that nothing is queued any more. Only the first End counts.
// Safe for concurrent use; does not wait.
func (s *Subscriber) End(cause EndCause) {
	if s.cause.CompareAndSwap(0, uint32(cause)) {
		s.signal(stateEnded)
	}
}

// Close ends the subscriber without delivering what is queued. Safe for concurrent use; does not
// wait. May be called twice, and after the feeder has returned.
func (s *Subscriber) Close() {
	s.signal(stateClosed)
	s.reap()
}

// signal sets a bit of state and wakes the feeder.
func (s *Subscriber) signal(bit uint32) {
	s.state.Or(bit)
	s.rouse()
}

// rouse gives the feeder a token if it sleeps.
func (s *Subscriber) rouse() {
	if s.state.Load()&stateSleeping == 0 || s.state.And(^stateSleeping)&stateSleeping == 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // one is there, from a sleep that ended in another way
	}
}

// sleep waits until there is something to do: an envelope, an end, the end of ctx, or deadline if
// it is not nil. It may return without a reason. Feeder only.
func (s *Subscriber) sleep(ctx context.Context, deadline <-chan time.Time) {
	s.state.Or(stateSleeping)
	if s.q.peek() == nil && s.state.Load() == stateSleeping {
		select {
		case <-s.wake:
			return
		case <-ctx.Done():
		case <-deadline:
		}
	}
	s.state.And(^stateSleeping)
}

// take removes the envelope that peek returned and passes its reference to the caller. Consumer
// only.
func (s *Subscriber) take(e *Envelope) {
	s.q.drop()
	s.bytesOut.Store(s.bytesOut.Load() + e.size)
}

// reap empties a closed subscriber, unless somebody else is at it.
func (s *Subscriber) reap() {
	for s.q.len() > 0 && s.consumer.CompareAndSwap(0, 1) {
		for e := s.q.peek(); e != nil; e = s.q.peek() {
			s.take(e)
			s.abandon(e, s.opts.From)
		}
		s.consumer.Store(0)
	}
}

// abandon releases an envelope, the records of which from offset from on will not be delivered.
func (s *Subscriber) abandon(e *Envelope, from uint64) {
	s.abandoned.batches.Add(1)
	s.abandoned.records.Add(e.recordsFrom(from))
	e.Release()
}
