// Hot path.

package client

import (
	"encoding/binary"

	"github.com/ringcast/ringcast/wire"
)

// recordOverhead is what a record costs beside its bytes, in frames and in the byte budget.
const recordOverhead = 4

// Positions of the parts of an acked publish frame that are known only when it is sent (wire.md
// 5.1): they stand in front of everything of variable length.
const (
	posRequestID = wire.HeaderSize
	posProducer  = wire.HeaderSize + 9
	posSequence  = wire.HeaderSize + 17
)

// emptySection is the records section of a batch that was just begun.
var emptySection = []byte{0, 0, 0, 0}

// batch is one publish frame, built in place: the records are appended where the wire wants
// them, and only the header, the count and the ids in front are patched when it is sent. It is
// owned by one outbox and guarded by the publisher's mutex, but for buf between begin and end of
// a write, which the sender reads.
type batch struct {
	buf     []byte // the whole frame, header included
	section int    // where the records section (its count word) starts in buf
	keyed   bool
	count   uint32
	cost    int64    // what the records took of the budget
	results []result // one per record, in order

	number   uint64 // position among the batches of the outbox, from 1; also the request id
	created  int64  // ns, when the first record came in
	sent     int64  // ns, last write; 0 = not sent since it was last queued
	sequence uint64 // idempotent producer; valid if numbered
	numbered bool
	maybe    bool // it was sent and the outcome is unknown
	holds    int  // 1 until its results are delivered, 1 while the sender reads buf; 0 = free
}

// result is how one record's publisher learns the outcome.
type result struct {
	done func(Ack, error) // nil if nobody asked
	wait *waiter          // nil unless a Publish is blocked on it
}

// begin starts a frame. p carries everything but request id, producer part and records.
func (b *batch) begin(p *wire.BinaryPublish, key []byte, keyed bool) {
	q := *p
	q.HasKey, q.Key, q.Section = keyed, key, emptySection
	if keyed {
		q.Flags |= wire.FlagKeyed
	}
	b.buf = wire.AppendPublish(b.buf[:0], &q)
	b.section = len(b.buf) - len(emptySection)
	b.keyed = keyed
}

// add appends one record; it copies rec.
func (b *batch) add(rec []byte, cost int64, r result) {
	b.buf = wire.AppendRecord(b.buf, rec)
	b.count++
	b.cost += cost
	b.results = append(b.results, r)
}

// seal makes the frame complete but for the ids. Nothing is added afterwards.
func (b *batch) seal() {
	binary.BigEndian.PutUint32(b.buf[b.section:], b.count)
	h, err := wire.ParseHeader(b.buf)
	if err != nil {
		panic("client: batch without a header: " + err.Error())
	}
	wire.PutHeader(b.buf, h.Flags, len(b.buf)-wire.HeaderSize)
}

// stamp writes the ids. producer is ignored unless the batch is numbered.
func (b *batch) stamp(acked bool, producer uint64) {
	if !acked {
		return
	}
	binary.BigEndian.PutUint64(b.buf[posRequestID:], b.number)
	if b.numbered {
		binary.BigEndian.PutUint64(b.buf[posProducer:], producer)
		binary.BigEndian.PutUint64(b.buf[posSequence:], b.sequence)
	}
}

// records is the records section without its count word.
func (b *batch) records() []byte { return b.buf[b.section+len(emptySection):] }

// reset makes b ready for the free list; memory is kept unless it is out of proportion.
func (b *batch) reset(keepMax int) {
	buf, results := b.buf[:0], b.results
	clear(results) // drop the callbacks
	if cap(buf) > keepMax {
		buf = nil
	}
	*b = batch{buf: buf, results: results[:0]}
}
