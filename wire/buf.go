// Hot path.

package wire

import (
	"sync/atomic"

	"github.com/ringcast/ringcast/internal/invariants"
)

// Headroom is the number of bytes in front of Bytes, so that a frame header can be written before
// any position without copying what follows.
const Headroom = 64

// Buf is counted frame memory from a Pool. It is born with one reference; whoever stores it
// retains it, and whoever stores it last releases it. The count may be changed from any goroutine;
// the bytes have one writer until they are shared.
//
// A count below zero panics in every build. In invariants builds a released Buf is filled with a
// pattern, remembers who released it, is never handed out again as the same Buf (so a stale
// pointer stays dead), and any use of it panics.
type Buf struct {
	mem  []byte // Headroom, then the class's capacity
	n    int
	pool *Pool
	next *Buf // free list; guarded by the class's mutex
	refs atomic.Int32
	// class is the index of the size class, classNone for memory that is not pooled.
	class int8
	last  *holder // invariants builds: who released it
}

// Bytes returns the n bytes that Get or SetLen asked for. They are not zeroed.
func (b *Buf) Bytes() []byte {
	if invariants.Enabled {
		b.mustLive("Bytes")
	}
	end := Headroom + b.n
	return b.mem[Headroom:end:end]
}

// Len is len(Bytes()).
func (b *Buf) Len() int { return b.n }

// Cap is the most that SetLen takes.
func (b *Buf) Cap() int { return len(b.mem) - Headroom }

// Size is the memory that b holds on to, headroom included: what a budget must count.
func (b *Buf) Size() int { return len(b.mem) }

// SetLen sets the length of Bytes. It panics beyond Cap.
func (b *Buf) SetLen(n int) {
	if invariants.Enabled {
		b.mustLive("SetLen")
	}
	if n < 0 || n > b.Cap() {
		panic("wire: Buf length out of range")
	}
	b.n = n
}

// Before returns the n bytes directly before Bytes()[pos]; n is at most Headroom+pos. Bytes of
// Bytes() that lie there are overwritten by who writes to it, so he must own them.
func (b *Buf) Before(pos, n int) []byte {
	if invariants.Enabled {
		b.mustLive("Before")
	}
	end := Headroom + pos
	return b.mem[end-n : end : end]
}

// Retain adds a reference. The caller must hold one.
func (b *Buf) Retain() {
	if b.refs.Add(1) <= 1 {
		b.misused("Retain of a released Buf")
	}
}

// Release gives a reference back; the last one returns the memory to its pool.
func (b *Buf) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.put(b)
	case n < 0:
		b.misused("Release of a released Buf")
	}
}
