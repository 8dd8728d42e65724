// Hot path.

package client

import "github.com/ringcast/ringcast/wire"

// cursor is where a subscription stands: the one place that decides which records of a frame are
// new, which were seen and which are missing. It is a plain struct without I/O.
type cursor struct {
	start wire.Start // what the caller asked for
	next  uint64     // first offset not yet handed to the reader's queue
	known bool       // next is valid: the stream has offsets
	moved bool       // something was received since the subscription was (re)opened
	began bool       // something was received at all
	holes int        // reopened at this place because of a hole, in a row
}

// request is the start to send with the next subscribe.
func (c *cursor) request() wire.Start {
	if c.known {
		return wire.Start{Kind: wire.StartOffset, Offset: c.next}
	}
	return c.start
}

// subscribed takes the broker's answer to the request. A stream without a log names no offsets.
func (c *cursor) subscribed(startOffset *uint64) {
	c.moved = false
	if startOffset != nil && !c.known {
		c.next, c.known = *startOffset, true
	}
}

// frameVerdict is what a frame of events means at the cursor.
type frameVerdict uint8

const (
	frameTake   frameVerdict = iota // deliver from record skip on
	frameSeen                       // all of it was delivered before
	frameHole                       // records before it are missing
	frameBroken                     // offsets vanished from a stream that has them
)

// frame judges a frame of count records. base is the offset of the first one; skipped counts the
// offsets right before it that were never events. skip is how many records at its front were
// delivered before.
func (c *cursor) frame(hasBase bool, base, skipped uint64, count uint32) (v frameVerdict, skip uint32) {
	if !hasBase {
		if c.known {
			return frameBroken, 0
		}
		c.moved, c.began = true, true
		return frameTake, 0
	}
	end := base + uint64(count)
	if end < base {
		return frameBroken, 0
	}
	if !c.known {
		c.next, c.known = base, true
	}
	switch {
	case end <= c.next:
		return frameSeen, count
	case base > c.next && base-c.next > skipped:
		return frameHole, 0
	case base < c.next:
		skip = uint32(c.next - base)
	}
	c.next, c.moved, c.began, c.holes = end, true, true, 0
	return frameTake, skip
}

// lagged takes the broker's word that it dropped what comes next. Resuming behind the last record
// received is exact; its offset is for a subscription that has received nothing and was told none.
func (c *cursor) lagged(resumeFrom uint64) {
	switch {
	case !c.known:
		c.resumeAt(resumeFrom)
	case !c.began && c.start.Kind == wire.StartEarliest:
		c.known = false // what was the oldest record is gone: it asks for the oldest again
	}
}

// resumeAt moves the cursor to where the broker says that the rest is, if that is further on than
// what was received; it never moves back.
func (c *cursor) resumeAt(offset uint64) {
	if !c.known || offset > c.next {
		c.next, c.known = offset, true
	}
}
