// Hot path.

package fanout

import (
	"sync"

	"github.com/ringcast/ringcast/wire"
)

// batch is what a feeder writes in one call: the slices, and the envelopes that own them. Feeders
// borrow it for as long as they have something to write, so that an idle one holds no memory.
type batch struct {
	held   []*Envelope
	out    [][]byte
	size   int    // bytes of out; of the open frame, as if its runs went out alone
	events int    // records in it
	frames int    // in it
	full   bool   // the next envelope must wait for the next write
	from   uint64 // the feeder's next offset before it

	// open are the runs of the frame that may still grow: one goes out as it is cached, several get
	// one header together, in headers.
	open      []openRun
	openCount uint32
	openBody  int
	headers   []byte
}

type openRun struct {
	c *encoding
	r *run
}

// batchSlicesMax is the most slices that a pooled batch holds on to.
const batchSlicesMax = 4096

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(from uint64) *batch {
	b := batches.Get().(*batch)
	b.from = from
	return b
}

// add appends an encoding's frames and joins the first to the open one if it continues it.
func (b *batch) add(c *encoding, shape wire.Flags, l *Limits) {
	for i := range c.runs {
		r := &c.runs[i]
		if n := len(b.open); n > 0 {
			if !b.open[n-1].r.continues(r, shape) ||
				int(b.openCount)+int(r.count) > l.EventsMax || b.openBody+r.bodyLen > l.BytesMax {
				b.close(shape)
			}
		}
		b.open = append(b.open, openRun{c, r})
		b.openCount += r.count
		b.openBody += r.bodyLen
		b.events += int(r.count)
	}
	b.size += c.size
}

// close puts the open frame among those to be written.
func (b *batch) close(shape wire.Flags) {
	if len(b.open) == 0 {
		return
	}
	b.frames++
	first := &b.open[0]
	if len(b.open) == 1 {
		b.out = append(b.out, first.c.frames[first.r.first:first.r.end]...)
	} else {
		at := len(b.headers)
		for range first.r.headerLen {
			b.headers = append(b.headers, 0)
		}
		header := b.headers[at:len(b.headers):len(b.headers)]
		wire.PutEventHeader(header, first.r.shape, &wire.EventHeader{
			Base:      first.r.base,
			Skipped:   first.r.skipped,
			Publisher: first.r.publisher,
			Count:     b.openCount,
		}, b.openBody)
		b.out = append(b.out, header)
		b.size += len(header)
		for i := range b.open {
			o := &b.open[i]
			b.size -= o.r.headerLen
			frames := o.c.frames[o.r.first:o.r.end]
			if body := frames[0][o.r.headerLen:]; len(body) > 0 {
				b.out = append(b.out, body)
			}
			b.out = append(b.out, frames[1:]...)
		}
	}
	clear(b.open)
	b.open = b.open[:0]
	b.openCount, b.openBody = 0, 0
}

// reset makes b ready for the next write. Its envelopes have been released.
func (b *batch) reset(from uint64) {
	clear(b.held)
	clear(b.out)
	*b = batch{held: b.held[:0], out: b.out[:0], open: b.open[:0], headers: b.headers[:0], from: from}
}

// free gives b back.
func (b *batch) free() {
	if cap(b.out) > batchSlicesMax {
		return
	}
	b.reset(0)
	batches.Put(b)
}
