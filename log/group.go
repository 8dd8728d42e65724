// Hot path.

package log

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// group is the entries of one write, staged in memory.
//
// The bytes of the write are not put together: the records sections stay in the frames that
// brought them, and everything else - headers, option parts, padding, body checksums - lies in one
// scratch buffer in the order of the file. What follows section i (padding, checksum) and what
// precedes section i+1 (header, options) are neighbours there, so n entries are 2n+1 slices:
//
//	scratch  |head 0|sum 0|head 1|sum 1|head 2|sum 2|
//	cuts            ^            ^            ^
//	write    head 0 SECTION 0 sum 0 head 1 SECTION 1 sum 1 head 2 SECTION 2 sum 2
//
// The slices are cut when the group is handed out, because scratch moves while it grows.
//
// An aligned group (for direct writes) is put together after all: a copy into slabs, in the pass that
// sums it. It begins with the start of the block that holds the end of data, as it is on the disk.
//
// Every write ends with zeros to the end of its block. So each block is written whole, and no write
// has to wait for the rest of one to be read from the disk.
//
// A log has two groups: one fills while the other is in flight. Both belong to the owner, but while
// it is in flight op and what it points to are the engine's.
type group struct {
	tail    *tail
	start   int64 // position of the first entry, and of the write
	size    int64 // bytes of the write
	first   uint64
	records uint64 // offsets taken
	entries int
	micros  uint64 // append times of the first and the last entry
	last    uint64

	scratch  []byte
	cuts     []int
	sections [][]byte
	bufs     []*wire.Buf // each retained
	slabs    slabs       // aligned: the bytes of the write
	index    []indexEntry

	op  ring.Op
	vec [][]byte
}

// begin makes an empty group one that starts at the staged end of t.
func (g *group) begin(t *tail, first, micros uint64) {
	g.tail, g.start, g.first, g.micros = t, t.pos, first, micros
	if t.aligned {
		g.slabs.write(t.block[:t.pos%blockBytes])
	}
}

// add stages an entry. h is complete but for what only the group knows.
func (g *group) add(e *Entry, h *entryHeader) {
	h.group = uint32(g.start / unitBytes)
	g.scratch = appendEntryHeader(g.scratch, h)
	option := len(g.scratch)
	if e.HasProducer {
		g.scratch = binary.BigEndian.AppendUint64(g.scratch, e.ProducerID)
		g.scratch = binary.BigEndian.AppendUint64(g.scratch, e.Sequence)
		g.scratch = binary.BigEndian.AppendUint64(g.scratch, e.Digest)
	}
	if e.Publisher != "" {
		g.scratch = append(g.scratch, byte(len(e.Publisher)))
		g.scratch = append(g.scratch, e.Publisher...)
	}
	sum := crc32.Update(0, castagnoli, g.scratch[option-entrySumBytes:])
	if g.tail.aligned {
		g.slabs.write(g.scratch)
		sum = g.slabs.writeSum(e.Section, sum)
		g.scratch = g.scratch[:0]
	} else {
		sum = crc32.Update(sum, castagnoli, e.Section)
		g.cuts = append(g.cuts, len(g.scratch))
		g.sections = append(g.sections, e.Section)
		if e.Buf != nil {
			e.Buf.Retain()
			g.bufs = append(g.bufs, e.Buf)
		}
	}

	pad := int64(h.length) - h.sectionPos() - int64(h.section) - entrySumBytes
	at := len(g.scratch)
	g.scratch = append(g.scratch, zeros[:pad]...)
	sum = crc32.Update(sum, castagnoli, g.scratch[at:])
	g.scratch = binary.BigEndian.AppendUint32(g.scratch, sum)
	if g.tail.aligned {
		g.slabs.write(g.scratch)
		g.scratch = g.scratch[:0]
	}

	t, pos := g.tail, g.start+g.size
	if indexDue(pos, t.indexed, t.mem.spacing) {
		g.index = append(g.index, indexEntry{base: h.base, pos: pos})
		t.indexed = pos
	}
	g.size += int64(h.length)
	g.records += uint64(h.count)
	g.last = h.micros
	g.entries++
	t.pos = pos + int64(h.length)
}

// zeros is the padding of entries and blocks; read-only.
var zeros [blockBytes]byte

// next is the offset after the group.
func (g *group) next() uint64 { return g.first + g.records }

// end is the position after the group.
func (g *group) end() int64 { return g.start + g.size }

// operation makes the group one write.
func (g *group) operation(kind ring.OpKind, owner ring.Owner) *ring.Op {
	t, op := g.tail, &g.op
	g.vec = g.vec[:0]
	op.Kind, op.File, op.Off, op.Owner = kind, t.file, g.start, owner
	pad := int(alignUp(g.end()) - g.end())
	if t.aligned {
		if n := int(g.end() % blockBytes); n > 0 {
			copy(t.block, g.slabs.tail(n))
		}
		g.slabs.zero(pad)
		g.vec = g.slabs.vec(g.vec)
		op.Off = alignDown(g.start)
		if t.direct != nil {
			op.Kind, op.File = ring.OpWriteDirect, t.direct
		}
	} else {
		at := 0
		for i, cut := range g.cuts {
			g.vec = append(g.vec, g.scratch[at:cut:cut], g.sections[i])
			at = cut
		}
		g.vec = append(g.vec, g.scratch[at:])
		if pad > 0 {
			g.vec = append(g.vec, zeros[:pad])
		}
	}
	t.ready = max(t.ready, alignUp(g.end()))
	op.Vec, op.Err, op.Written = g.vec, nil, 0
	return op
}

// bytes is how much the operation of the group writes.
func (g *group) bytes() int64 { return alignUp(g.end()) - g.op.Off }

// reset empties the group and releases its Bufs. The memory stays.
func (g *group) reset() {
	for i, b := range g.bufs {
		b.Release()
		g.bufs[i] = nil
	}
	clear(g.sections)
	clear(g.vec)
	g.slabs.free()
	g.tail, g.op.File, g.op.Vec = nil, nil, nil
	g.start, g.size, g.first, g.records, g.entries = 0, 0, 0, 0, 0
	g.scratch, g.cuts, g.sections = g.scratch[:0], g.cuts[:0], g.sections[:0]
	g.bufs, g.index, g.vec = g.bufs[:0], g.index[:0], g.vec[:0]
}
