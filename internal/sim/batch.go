package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Batch is the records of one publish. Every publish that is no resend is a batch of its own, and
// its records say which.
type Batch struct {
	BatchID
	// Count is how many records it has, Size how large each is, but for the first bytes that every
	// record needs, and for a last one that is empty when Hollow and not the only one.
	Count  int
	Size   int
	Hollow bool
	// Idempotent: Publisher is a producer and Number its sequence.
	Idempotent bool

	at int // offset of its first record, -1 when it is in no log
}

// BatchID names a batch.
type BatchID struct {
	Publisher, Number uint32
	// Variant tells batches apart that an idempotent producer sent under one sequence, which it must
	// not.
	Variant uint8
}

func (id BatchID) String() string {
	return fmt.Sprintf("%d/%d.%d", id.Publisher, id.Number, id.Variant)
}

// recordHead is what every record begins with that is not empty: its batch, and its place there.
const recordHead = 4 + 4 + 1 + 2

// AppendRecord appends the bytes of record k.
func (b *Batch) AppendRecord(dst []byte, k int) []byte {
	if b.Hollow && k > 0 && k == b.Count-1 {
		return dst
	}
	at := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, b.Publisher)
	dst = binary.BigEndian.AppendUint32(dst, b.Number)
	dst = append(dst, b.Variant)
	dst = binary.BigEndian.AppendUint16(dst, uint16(k))
	for n := b.Size - (len(dst) - at); n > 0; n -= len(filler) {
		dst = append(dst, filler[:min(n, len(filler))]...)
	}
	return dst
}

// filler is what makes records large.
var filler = bytes.Repeat([]byte("ringcast"), 512)

// Batches are all batches of a simulation.
type Batches struct {
	byID    map[BatchID]*Batch
	scratch []byte
}

// NewBatches returns none.
func NewBatches() *Batches { return &Batches{byID: map[BatchID]*Batch{}} }

// Add makes a batch known, or returns the one of its name.
func (bs *Batches) Add(b Batch) *Batch {
	if there := bs.byID[b.BatchID]; there != nil {
		return there
	}
	b.at = -1
	bs.byID[b.BatchID] = &b
	return &b
}

// find is the batch that a first record belongs to, nil when it is none.
func (bs *Batches) find(payload []byte) *Batch {
	if len(payload) < recordHead {
		return nil
	}
	return bs.byID[BatchID{
		Publisher: binary.BigEndian.Uint32(payload), Number: binary.BigEndian.Uint32(payload[4:]), Variant: payload[8],
	}]
}

// is says whether payload is record k of b, byte for byte.
func (bs *Batches) is(b *Batch, k int, payload []byte) bool {
	bs.scratch = b.AppendRecord(bs.scratch[:0], k)
	return bytes.Equal(bs.scratch, payload)
}
