// Hot path.

package fanout

import (
	"sync"
	"sync/atomic"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/wire"
)

// Part is one publish in an envelope.
type Part struct {
	Base       uint64 // offset of the first record; on an in-memory stream a number that is not sent
	Skipped    uint64 // offsets directly before Base that hold no events
	Count      uint32 // records; a part without any is not delivered
	TimeMicros uint64 // append time, on a durable stream
	Publisher  string // "" = not recorded; at most wire.PublisherMax bytes
	// Section is four bytes that are not looked at, the count word of a publish, and the records.
	// The records are never changed.
	Section []byte
	// Buf holds Section at Bytes()[Pos]. The bytes before the records, those four and what is in
	// front of them, may be overwritten by a frame header: nobody else reads them any more. nil =
	// Section is ordinary memory that does not change.
	Buf *wire.Buf
	Pos int
}

// Envelope is one delivered batch: the publishes of one claim, or a page of history. It is shared
// by everyone it is delivered to and counted: born with one reference, whoever stores it retains
// it, whoever stored it releases it. With the last reference its Bufs are released and it is used
// again.
//
// It is encoded when the first feeder asks for a shape, once per shape (SUB-1). The first shape
// asked for has its headers written into the frame memory, directly before the records, so that
// header and records are one slice. The memory before the records has room for one header only, so
// the headers of further shapes are beside it, in memory of the encoding, and share the records.
type Envelope struct {
	refs    atomic.Int32
	durable bool
	parts   []Part
	base    uint64
	next    uint64
	records int
	size    int64
	// optional parts of the shape that any of the parts has
	has wire.Flags

	// ready has a bit for each shape of encs that is complete. Written with mu held; read first, so
	// that a feeder that asks for what is there takes no lock.
	ready atomic.Uint32
	// mu is held while a shape is encoded, and by nobody longer than that. It guards encs and
	// inPlace.
	mu      sync.Mutex
	encs    [shapes]*encoding
	inPlace bool // the bytes before the records are taken
}

// envelopes keeps released envelopes, with the memory of their slices. Not in invariants builds: a
// stale pointer then stays dead and its use panics.
var envelopes = sync.Pool{New: func() any { return new(Envelope) }}

// NewEnvelope returns an envelope of parts, in offset order, with one reference. It takes over one
// reference of each part's Buf and copies parts. On an in-memory stream (durable false) no shape
// has offsets or times.
func NewEnvelope(durable bool, parts []Part) *Envelope {
	var e *Envelope
	if invariants.Enabled {
		e = new(Envelope)
	} else {
		e = envelopes.Get().(*Envelope)
	}
	e.durable = durable
	if len(parts) > 0 {
		e.base = parts[0].Base
		e.next = e.base
	}
	for i := range parts {
		e.add(&parts[i])
	}
	e.refs.Store(1)
	return e
}

// add takes over one part.
func (e *Envelope) add(p *Part) {
	if p.Count == 0 {
		if p.Buf != nil {
			p.Buf.Release()
		}
		return
	}
	if invariants.Enabled && p.Base < e.next {
		panic("fanout: parts are not in offset order")
	}
	if len(e.parts) == 0 {
		e.base = p.Base
	}
	e.next = p.Base + uint64(p.Count)
	e.records += int(p.Count)
	switch n := len(e.parts); {
	case p.Buf == nil:
		e.size += int64(len(p.Section))
	case n == 0 || e.parts[n-1].Buf != p.Buf:
		e.size += int64(p.Buf.Size())
	}
	if p.Skipped != 0 {
		e.has |= wire.FlagEvSkipped
	}
	if p.Publisher != "" {
		e.has |= wire.FlagEvPublisher
	}
	e.parts = append(e.parts, *p)
}

// Base is the offset of the first record.
func (e *Envelope) Base() uint64 { return e.base }

// Next is the offset after the last record.
func (e *Envelope) Next() uint64 { return e.next }

// Records is the number of records.
func (e *Envelope) Records() int { return e.records }

// Bytes is the memory that the envelope retains: its frames, whole.
func (e *Envelope) Bytes() int64 { return e.size }

// recordsFrom is the number of records at or above offset from.
func (e *Envelope) recordsFrom(from uint64) uint64 {
	if from <= e.base {
		return uint64(e.records)
	}
	n := uint64(0)
	for i := range e.parts {
		p := &e.parts[i]
		if end := p.Base + uint64(p.Count); end > from {
			n += end - max(p.Base, from)
		}
	}
	return n
}

// Retain adds a reference. The caller must hold one.
func (e *Envelope) Retain() { e.retain(1) }

func (e *Envelope) retain(n int32) {
	if e.refs.Add(n) <= n {
		panic("fanout: Retain of a released envelope")
	}
}

// Release gives a reference back.
func (e *Envelope) Release() { e.release(1) }

func (e *Envelope) release(n int32) {
	switch left := e.refs.Add(-n); {
	case left == 0:
		e.free()
	case left < 0:
		panic("fanout: Release of a released envelope")
	}
}

// free releases the Bufs and makes the envelope ready for its next use.
func (e *Envelope) free() {
	for i := range e.parts {
		if b := e.parts[i].Buf; b != nil {
			b.Release()
		}
	}
	if invariants.Enabled {
		e.parts = nil
		return
	}
	clear(e.parts)
	e.parts = e.parts[:0]
	for _, c := range e.encs {
		if c != nil {
			c.reset()
		}
	}
	e.base, e.next, e.records, e.size, e.has = 0, 0, 0, 0, 0
	e.ready.Store(0)
	e.inPlace = false
	envelopes.Put(e)
}

// Frames returns the envelope as frames of a shape, a set of wire.FlagEvOffsets, FlagEvSkipped,
// FlagEvPublisher and FlagEvTimes. The slices are to be written in this order; a frame may span
// several of them. They belong to the envelope, are not to be changed, and are valid for as long
// as the caller holds a reference. Safe for concurrent use.
//
// What the envelope does not have is left out of a shape: offsets and times in memory, skip counts
// that are zero, publishers that were not recorded.
func (e *Envelope) Frames(shape wire.Flags) [][]byte { return e.encoded(shape).frames }

// encoded returns the encoding of a shape.
func (e *Envelope) encoded(shape wire.Flags) *encoding {
	if invariants.Enabled && e.refs.Load() <= 0 {
		panic("fanout: use of a released envelope")
	}
	shape = e.mask(shape)
	i := shapeIndex(shape)
	if e.ready.Load()&(1<<i) != 0 {
		return e.encs[i]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready.Load()&(1<<i) != 0 {
		return e.encs[i]
	}
	if e.encs[i] == nil {
		e.encs[i] = new(encoding)
	}
	c := e.encs[i]
	for j := range e.parts {
		c.add(&e.parts[j], shape, 0)
	}
	c.layOut(shape, !e.inPlace)
	e.inPlace = e.inPlace || c.inPlace
	e.ready.Store(e.ready.Load() | 1<<i)
	return c
}

// encodedFrom returns an encoding of the records from offset from on, for one reader that starts
// in the middle. It is not kept, and nothing is written before its records: other readers need what
// is there.
func (e *Envelope) encodedFrom(shape wire.Flags, from uint64) *encoding {
	shape = e.mask(shape)
	c := new(encoding)
	for j := range e.parts {
		c.add(&e.parts[j], shape, from)
	}
	c.layOut(shape, false)
	return c
}

// mask takes out of a shape what no frame of the envelope can have.
func (e *Envelope) mask(shape wire.Flags) wire.Flags {
	if !e.durable {
		shape &^= wire.FlagEvOffsets | wire.FlagEvTimes
	}
	if shape&wire.FlagEvOffsets == 0 {
		shape &^= wire.FlagEvSkipped
	}
	return shape & (wire.FlagEvOffsets | wire.FlagEvTimes | e.has)
}
