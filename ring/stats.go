// Hot path.

package ring

import "sync/atomic"

// counters are an engine's Stats while they grow. The first line is written by Submit, the
// second by the goroutines that end operations; both are read by anyone.
type counters struct {
	submits atomic.Uint64
	_       [56]byte

	ops, bytes, syncs, errors       atomic.Uint64
	shortWrites, retries, overflows atomic.Uint64
	strays                          atomic.Uint64
}

// end settles an operation's outcome and counts it.
func (c *counters) end(op *Op, err error) {
	op.Err = err
	if err != nil && op.Kind == OpWriteDirect && op.Written == vecLen(op.Vec) {
		op.Written = 0 // it has no sync that could have failed: that the bytes are there is not known
	}
	c.ops.Add(1)
	if op.Written > 0 {
		c.bytes.Add(uint64(op.Written))
	}
	if err != nil {
		c.errors.Add(1)
	}
}

func (c *counters) read() Stats {
	return Stats{
		Submits:     c.submits.Load(),
		Ops:         c.ops.Load(),
		Bytes:       c.bytes.Load(),
		Syncs:       c.syncs.Load(),
		Errors:      c.errors.Load(),
		ShortWrites: c.shortWrites.Load(),
		Retries:     c.retries.Load(),
		Overflows:   c.overflows.Load(),
		Strays:      c.strays.Load(),
	}
}
