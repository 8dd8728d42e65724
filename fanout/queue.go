// Hot path.

package fanout

import "sync/atomic"

// queue is a ring of envelopes with one producer and one consumer, without a lock, that starts
// small and doubles when it must, up to a length that its user keeps to.
//
// Positions count envelopes from the start and never wrap in practice. Growing links a new ring
// behind the full one: the producer goes on in the new one at once, the consumer when it has taken
// everything before the new ring's first position. Nothing is copied and no one waits; a queue that
// once was long stays that large.
type queue struct {
	// Producer's line.
	tail     atomic.Uint64 // position of the next push; written by the producer
	headSeen uint64        // what head was when the producer last looked
	in       *ring

	_ [cacheLine - 24]byte

	// Consumer's line.
	head atomic.Uint64 // position of the next pop; written by the consumer
	out  *ring
}

// ring is one stage of a queue. slots[p&mask] holds position p, from position start on.
type ring struct {
	slots []*Envelope
	mask  uint64
	start uint64
	next  atomic.Pointer[ring] // written by the producer, once, before the tail that needs it
}

func newRing(size int, start uint64) *ring {
	return &ring{slots: make([]*Envelope, size), mask: uint64(size - 1), start: start}
}

func (q *queue) init() {
	q.in = newRing(queueLenMin, 0)
	q.out = q.in
}

// len is how many envelopes are queued. Exact for the producer as an upper bound and for the
// consumer as a lower one.
func (q *queue) len() int {
	head := q.head.Load() // first: the other order could see it beyond the tail
	return int(q.tail.Load() - head)
}

// push appends e. The producer has checked the length.
func (q *queue) push(e *Envelope) {
	at := q.tail.Load()
	r := q.in
	if at-max(q.headSeen, r.start) >= uint64(len(r.slots)) {
		q.headSeen = q.head.Load()
		if at-max(q.headSeen, r.start) >= uint64(len(r.slots)) {
			grown := newRing(2*len(r.slots), at)
			r.next.Store(grown)
			r, q.in = grown, grown
		}
	}
	r.slots[at&r.mask] = e
	q.tail.Store(at + 1)
}

// peek returns the oldest envelope, nil if there is none. Consumer only.
func (q *queue) peek() *Envelope {
	at := q.head.Load()
	if at == q.tail.Load() {
		return nil
	}
	if next := q.out.next.Load(); next != nil && at >= next.start {
		q.out = next
	}
	return q.out.slots[at&q.out.mask]
}

// drop takes out what peek returned. Consumer only.
func (q *queue) drop() {
	at := q.head.Load()
	q.out.slots[at&q.out.mask] = nil
	q.head.Store(at + 1)
}
