// Hot path.

package log

import "github.com/cespare/xxhash/v2"

// Digest is what tells two batches of one sequence number apart: xxhash64 of the records section
// as it was received. It is kept in the entry and never leaves the broker.
func Digest(section []byte) uint64 { return xxhash.Sum64(section) }

// Verdict is the answer to an idempotent batch (broker.md 1.9).
type Verdict uint8

const (
	ProducerAppend    Verdict = iota + 1 // the expected batch: append it, then Add
	ProducerDuplicate                    // remembered, same payload: answer with its offset
	ProducerReused                       // remembered, other payload
	ProducerGap                          // above the expected sequence
	ProducerExpired                      // older than what is remembered
	ProducerUnknown                      // nobody knows the producer, and it is not its first batch
)

// Producers is the state of the idempotent producers of one shard: for each the next sequence and
// the last 64 batches; at most 4096 producers, of which the one whose newest batch is oldest is
// forgotten first. One goroutine owns it. A durable shard's is derived from its log.
type Producers struct {
	byID map[uint64]*producer
	// oldest and newest end a list in the order of the producers' newest batches.
	oldest, newest *producer
	max            int
	// frozen: rings with a generation other than gen are shared with a frozen state, which a job
	// reads. They are copied before they change, each once.
	frozen bool
	gen    uint32
}

type producer struct {
	id         uint64
	next       uint64 // sequence that is expected
	last       uint64 // offset of the newest batch
	ring       []producerBatch
	gen        uint32 // of ring, see Producers
	head, held int    // ring[head] is the oldest of held batches; their sequences end at next-1
	prev, foll *producer
}

type producerBatch struct {
	offset, digest uint64
	count          uint32
}

// NewProducers returns an empty state.
func NewProducers() *Producers {
	return &Producers{byID: make(map[uint64]*producer), max: producersMax}
}

// Len is how many producers are remembered.
func (p *Producers) Len() int { return len(p.byID) }

// Check says what to do with a batch. offset is that of the remembered batch for duplicates and
// reused sequences, expected the sequence that would be taken.
func (p *Producers) Check(id, seq, digest uint64) (v Verdict, offset, expected uint64) {
	q := p.byID[id]
	switch {
	case q == nil && seq == 0:
		return ProducerAppend, 0, 0
	case q == nil:
		return ProducerUnknown, 0, 0
	case seq == q.next:
		return ProducerAppend, 0, seq
	case seq > q.next:
		return ProducerGap, 0, q.next
	case q.next-seq > uint64(q.held):
		return ProducerExpired, 0, q.next
	}
	b := q.at(q.held - int(q.next-seq))
	if b.digest != digest {
		return ProducerReused, b.offset, q.next
	}
	return ProducerDuplicate, b.offset, q.next
}

// Add remembers a batch that was given offset. Adding the newest batch again changes nothing.
// Offsets must not fall.
func (p *Producers) Add(id, seq, digest, offset uint64, count uint32) {
	q := p.byID[id]
	switch {
	case q == nil:
		if len(p.byID) >= p.max {
			p.forget(p.oldest)
		}
		q = &producer{id: id, next: seq}
		p.byID[id] = q
	case q.held > 0 && seq+1 == q.next && q.at(q.held-1).offset == offset:
		return
	default:
		p.unlink(q)
		if seq != q.next {
			// A producer that was forgotten and began anew. What is remembered is not its.
			q.next, q.held, q.head = seq, 0, 0
		}
	}
	q.own(p)
	q.push(producerBatch{offset: offset, digest: digest, count: count})
	q.next++
	q.last = offset
	p.linkNewest(q)
}

// Truncate forgets every batch at or above offset from: they were staged and never written. A
// batch that an untimely one had pushed out does not come back; its resend is answered as expired
// until the next open, and appends nothing.
func (p *Producers) Truncate(from uint64) {
	for q := p.newest; q != nil && q.last >= from; {
		older := q.prev
		for q.held > 0 && q.at(q.held-1).offset >= from {
			q.held--
			q.next--
		}
		p.unlink(q)
		switch {
		case q.held > 0:
			q.last = q.at(q.held - 1).offset
			p.linkSorted(q)
		case q.next == 0:
			delete(p.byID, q.id)
		default:
			q.last = 0
			p.linkSorted(q)
		}
		q = older
	}
}

func (q *producer) at(i int) *producerBatch { return &q.ring[(q.head+i)%len(q.ring)] }

// push adds the newest batch; the oldest goes when there are too many.
func (q *producer) push(b producerBatch) {
	if q.held == len(q.ring) && len(q.ring) < producerBatchesMax {
		q.grow()
	}
	if q.held == len(q.ring) {
		q.head = (q.head + 1) % len(q.ring)
		q.held--
	}
	q.held++
	*q.at(q.held - 1) = b
}

// grow doubles the ring, so that a producer of few batches takes little.
func (q *producer) grow() {
	ring := make([]producerBatch, min(max(4, 2*len(q.ring)), producerBatchesMax))
	for i := range q.held {
		ring[i] = *q.at(i)
	}
	q.ring, q.head = ring, 0
}

// own makes the ring q's alone.
func (q *producer) own(p *Producers) {
	if p.frozen && q.gen != p.gen {
		q.ring = append(make([]producerBatch, 0, len(q.ring)), q.ring...)
	}
	q.gen = p.gen
}

// frozenProducer is a producer at a moment. Its ring does not change while the state is frozen.
type frozenProducer struct {
	id, next, last uint64
	ring           []producerBatch
	head, held     int
}

func (q *frozenProducer) at(i int) *producerBatch { return &q.ring[(q.head+i)%len(q.ring)] }

// freeze returns the state as it is now, oldest newest-batch first, for another goroutine to read
// until thaw. It copies no batch: 4096 producers with 64 batches each are 6 MiB.
func (p *Producers) freeze() []frozenProducer {
	p.frozen = true
	p.gen++
	out := make([]frozenProducer, 0, len(p.byID))
	for q := p.oldest; q != nil; q = q.foll {
		out = append(out, frozenProducer{id: q.id, next: q.next, last: q.last, ring: q.ring, head: q.head, held: q.held})
	}
	return out
}

// thaw says that nobody reads a frozen state any more.
func (p *Producers) thaw() { p.frozen = false }

// restoreProducers makes the state that was frozen. It takes the rings over.
func restoreProducers(state []frozenProducer) *Producers {
	p := NewProducers()
	for i := range state {
		f := &state[i]
		q := &producer{id: f.id, next: f.next, last: f.last, ring: f.ring, head: f.head, held: f.held}
		p.byID[q.id] = q
		p.linkNewest(q)
	}
	return p
}

func (p *Producers) forget(q *producer) {
	p.unlink(q)
	delete(p.byID, q.id)
}

func (p *Producers) linkNewest(q *producer) { p.linkAfter(q, p.newest) }

// linkSorted puts q back where its newest batch belongs.
func (p *Producers) linkSorted(q *producer) {
	at := p.newest
	for at != nil && at.last > q.last {
		at = at.prev
	}
	p.linkAfter(q, at)
}

// linkAfter links q behind at, first when at is nil.
func (p *Producers) linkAfter(q, at *producer) {
	q.prev = at
	if at != nil {
		q.foll, at.foll = at.foll, q
	} else {
		q.foll, p.oldest = p.oldest, q
	}
	if q.foll != nil {
		q.foll.prev = q
	} else {
		p.newest = q
	}
}

func (p *Producers) unlink(q *producer) {
	if q.prev != nil {
		q.prev.foll = q.foll
	} else {
		p.oldest = q.foll
	}
	if q.foll != nil {
		q.foll.prev = q.prev
	} else {
		p.newest = q.prev
	}
	q.prev, q.foll = nil, nil
}

// ProducerState is one producer as Snapshot shows it.
type ProducerState struct {
	ID, Next uint64
	Batches  []ProducerBatch // oldest first
}

// ProducerBatch is one remembered batch.
type ProducerBatch struct {
	Offset, Digest uint64
	Count          uint32
}

// Snapshot copies the state, oldest newest-batch first, for inspection and comparison.
func (p *Producers) Snapshot() []ProducerState {
	out := make([]ProducerState, 0, len(p.byID))
	for q := p.oldest; q != nil; q = q.foll {
		s := ProducerState{ID: q.id, Next: q.next, Batches: make([]ProducerBatch, 0, q.held)}
		for i := range q.held {
			b := q.at(i)
			s.Batches = append(s.Batches, ProducerBatch{Offset: b.offset, Digest: b.digest, Count: b.count})
		}
		out = append(out, s)
	}
	return out
}
