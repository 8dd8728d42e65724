// Hot path.

package fanout

import (
	"github.com/ringcast/ringcast/wire"
)

// shapes is the number of sets of the four optional parts of an event batch.
const shapes = 16

// shapeIndex numbers the shapes.
func shapeIndex(shape wire.Flags) int {
	i := 0
	if shape&wire.FlagEvOffsets != 0 {
		i |= 1
	}
	if shape&wire.FlagEvSkipped != 0 {
		i |= 2
	}
	if shape&wire.FlagEvPublisher != 0 {
		i |= 4
	}
	if shape&wire.FlagEvTimes != 0 {
		i |= 8
	}
	return i
}

// encoding is an envelope, or the end of one, in one shape. Once laid out it does not change.
//
// It is built in two steps. add cuts the parts into pieces and joins these to runs; a run is one
// frame. layOut then knows how much memory the headers take and places them:
//
//	in place    [..publish prefix.. header|count|records]            one slice of the frame memory
//	beside      [header|count] [records] [records]                   records shared with other shapes
//	timed       [header|count|time|record|time|record|...]           the one shape that is copied
//
// A run of several pieces has one count; the pieces' own count words are left out.
type encoding struct {
	frames  [][]byte
	runs    []run
	pieces  []piece
	mem     []byte // headers that are beside, and timed records
	size    int    // bytes of all frames
	inPlace bool   // some header was written in place
}

// piece is a stretch of records of one part.
type piece struct {
	part    *Part
	records []byte // without the count word
	pos     int    // of records, in the part's Section
	count   uint32
}

// run is one frame.
type run struct {
	shape     wire.Flags // what this frame has of the encoding's shape
	base      uint64
	skipped   uint64
	publisher string
	count     uint32
	bodyLen   int // bytes after the count word
	headerLen int // bytes of frames[first] up to and including the count word
	// pieces[piece:pieceEnd] before layOut, frames[first:end] after it
	piece, pieceEnd int
	first, end      int
}

// next is the offset after the run.
func (r *run) next() uint64 { return r.base + uint64(r.count) }

// add appends the records of p from offset from on.
func (c *encoding) add(p *Part, shape wire.Flags, from uint64) {
	pc := piece{part: p, records: p.Section[4:], pos: 4, count: p.Count}
	base, skipped := p.Base, p.Skipped
	for base < from && pc.count > 0 {
		_, rest, _ := wire.NextRecord(pc.records)
		pc.pos += len(pc.records) - len(rest)
		pc.records = rest
		pc.count--
		base, skipped = base+1, 0
	}
	if pc.count == 0 {
		return
	}
	for {
		whole := fit(&pc, shape, len(p.Publisher))
		c.join(whole, base, skipped, shape)
		if whole.count == pc.count {
			return
		}
		pc.records = pc.records[len(whole.records):]
		pc.pos += len(whole.records)
		pc.count -= whole.count
		base, skipped = base+uint64(whole.count), 0
	}
}

// fit returns as much of pc as a frame can hold: all of it but for a publish near the frame limit.
// A record beyond RecordMax goes alone.
func fit(pc *piece, shape wire.Flags, publisherLen int) piece {
	room := wire.MaxFrameBytes - (wire.EventHeaderSize(shape, publisherLen) - wire.HeaderSize)
	if bodyLen(shape, pc.count, len(pc.records)) <= room {
		return *pc
	}
	part := *pc
	part.count = 0
	rest := pc.records
	for n := 0; ; part.count++ {
		_, after, ok := wire.NextRecord(rest)
		n += bodyLen(shape, 1, len(rest)-len(after))
		if !ok || n > room && part.count > 0 {
			break
		}
		rest = after
	}
	part.records = pc.records[:len(pc.records)-len(rest)]
	return part
}

// bodyLen is the bytes that count records, with their lengths n bytes, take in a frame.
func bodyLen(shape wire.Flags, count uint32, n int) int {
	if shape&wire.FlagEvTimes != 0 {
		return wire.TimedRecordsSize(count, n)
	}
	return n
}

// join puts a piece into the last run if it continues it, else into a new one.
func (c *encoding) join(pc piece, base, skipped uint64, shape wire.Flags) {
	c.pieces = append(c.pieces, pc)
	r := run{
		shape:     shape,
		base:      base,
		skipped:   skipped,
		publisher: pc.part.Publisher,
		count:     pc.count,
		bodyLen:   bodyLen(shape, pc.count, len(pc.records)),
		piece:     len(c.pieces) - 1,
		pieceEnd:  len(c.pieces),
	}
	if n := len(c.runs); n > 0 {
		last := &c.runs[n-1]
		if last.continues(&r, shape) && last.count+r.count <= JoinEventsMax && last.bodyLen+r.bodyLen <= JoinBytesMax {
			last.count += r.count
			last.bodyLen += r.bodyLen
			last.pieceEnd = r.pieceEnd
			return
		}
	}
	if skipped == 0 {
		r.shape &^= wire.FlagEvSkipped
	}
	if r.publisher == "" {
		r.shape &^= wire.FlagEvPublisher
	}
	r.headerLen = wire.EventHeaderSize(r.shape, len(r.publisher))
	c.runs = append(c.runs, r)
}

// continues says whether next can be in one frame with r: offsets go on without a break, and where
// the shape names the publisher it is the same one (SUB-22).
func (r *run) continues(next *run, shape wire.Flags) bool {
	return r.next() == next.base && next.skipped == 0 &&
		(shape&wire.FlagEvPublisher == 0 || r.publisher == next.publisher)
}

// layOut writes the headers, in place where that is allowed and there is room, and collects the
// frames.
func (c *encoding) layOut(shape wire.Flags, inPlace bool) {
	timed := shape&wire.FlagEvTimes != 0
	mem := 0
	for i := range c.runs {
		r := &c.runs[i]
		if timed {
			mem += r.headerLen + r.bodyLen
		} else if !inPlace || !c.pieces[r.piece].room(r.headerLen) {
			mem += r.headerLen
		}
		c.size += r.headerLen + r.bodyLen
	}
	if cap(c.mem) < mem {
		c.mem = make([]byte, 0, mem)
	}
	for i := range c.runs {
		r := &c.runs[i]
		r.first = len(c.frames)
		header := wire.EventHeader{Base: r.base, Skipped: r.skipped, Publisher: r.publisher, Count: r.count}
		pieces := c.pieces[r.piece:r.pieceEnd]
		var frame []byte
		if !timed && inPlace && pieces[0].room(r.headerLen) {
			pc := &pieces[0]
			n := len(pc.records)
			frame = pc.part.Buf.Before(pc.part.Pos+pc.pos+n, r.headerLen+n)
			c.inPlace = true
			pieces = pieces[1:]
		} else {
			at := len(c.mem)
			c.mem = c.mem[:at+r.headerLen]
			if timed {
				for j := range pieces {
					c.mem = wire.AppendTimedRecords(c.mem, pieces[j].records, pieces[j].part.TimeMicros)
				}
				pieces = nil
			}
			frame = c.mem[at:len(c.mem):len(c.mem)]
		}
		wire.PutEventHeader(frame, r.shape, &header, r.bodyLen)
		c.frames = append(c.frames, frame)
		for j := range pieces {
			c.frames = append(c.frames, pieces[j].records)
		}
		r.end = len(c.frames)
	}
}

// room says whether a header of n bytes can be written directly before the piece's records: only
// the start of a publish has bytes before it that nobody needs.
func (pc *piece) room(n int) bool {
	return pc.part.Buf != nil && pc.pos == 4 && n <= wire.Headroom+pc.part.Pos+pc.pos
}

// reset forgets everything but a bounded amount of memory.
func (c *encoding) reset() {
	clear(c.frames)
	clear(c.runs)
	clear(c.pieces)
	c.frames, c.runs, c.pieces = c.frames[:0], c.runs[:0], c.pieces[:0]
	if cap(c.mem) > keepMemMax {
		c.mem = nil
	}
	c.mem = c.mem[:0]
	c.size = 0
	c.inPlace = false
}
