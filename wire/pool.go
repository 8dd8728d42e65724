// Hot path.

package wire

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ringcast/ringcast/internal/invariants"
)

// Size classes: capacities 512, 768, 1 Ki, 1.5 Ki, ... 12 Mi, 16 Mi (+ slack), so that a frame
// wastes at most a third. What does not fit is allocated and left to the collector.
const (
	classMin   = 512
	classCount = 31
	classSlack = 64 << 10 // on the largest class: a whole frame and what surrounds it
	classNone  = -1
)

// Pool hands out Bufs by size class from bounded free lists. Safe for concurrent use.
//
// What it retains is bounded twice: in total (maxRetained), and per class to half of that, so that
// no spike of one size can own the pool. When the total is reached, the class that was released to
// last wins: free Bufs of the other classes are dropped, the largest first. Trim gives back what a
// past spike left behind.
//
// The free list of a class is an intrusive list under a mutex of its own, not a sync.Pool and not
// a channel: only a list can bound what it retains by size and let an idle class be emptied in
// favour of a busy one. A sync.Pool keeps a spike for two collections whatever its size. On the
// two-core VM, best of six runs of BenchmarkFreeList, ns per Get and Release from one goroutine
// and from two: list 30 and 20, channel 60 and 92, sync.Pool 20 and 16. So the bound and all
// counters cost about ten nanoseconds per frame.
type Pool struct {
	maxRetained int64
	// pooled is the memory in all free lists. Written with the class's mutex held, by any class.
	pooled  atomic.Int64
	classes [classCount]class
	// Bufs of no class: handed out since the start, in use, and the memory in use.
	largeGets  atomic.Uint64
	largeInUse atomic.Int64
	largeBytes atomic.Int64
}

// class is one free list. All fields are guarded by mu.
type class struct {
	mu     sync.Mutex
	head   *Buf
	free   int // length of the list
	low    int // smallest free since the last Trim: these were not needed
	inUse  int
	gets   uint64
	misses uint64
	_      [64]byte // keeps neighbours off this line
}

// PoolStats is a snapshot. Only the fields of one class are consistent with each other.
type PoolStats struct {
	InUse       int    // Bufs handed out and not back, of any size
	InUseBytes  int64  // their memory, headroom included
	PooledBytes int64  // memory in the free lists
	Gets        uint64 // Bufs handed out since the start
	Misses      uint64 // of those, newly allocated
}

// NewPool returns a pool that retains at most maxRetainedBytes of free memory. Zero retains
// nothing.
func NewPool(maxRetainedBytes int64) *Pool {
	return &Pool{maxRetained: maxRetainedBytes}
}

// Get returns a Buf of length n with one reference. Its bytes are not zeroed.
func (p *Pool) Get(n int) *Buf {
	i := classOf(n)
	if i == classNone {
		return p.getLarge(n)
	}
	c := &p.classes[i]
	c.mu.Lock()
	c.gets++
	c.inUse++
	b := c.head
	if b == nil {
		c.misses++
		c.mu.Unlock()
		b = &Buf{mem: make([]byte, Headroom+classCap(i)), pool: p, class: int8(i)}
	} else {
		c.head = b.next
		b.next = nil
		c.free--
		c.low = min(c.low, c.free)
		p.pooled.Add(-int64(len(b.mem)))
		c.mu.Unlock()
		if invariants.Enabled {
			b.exhume()
		}
	}
	b.n = n
	b.refs.Store(1)
	return b
}

// getLarge allocates what no class can hold.
func (p *Pool) getLarge(n int) *Buf {
	b := &Buf{mem: make([]byte, Headroom+n), n: n, pool: p, class: classNone}
	b.refs.Store(1)
	p.largeGets.Add(1)
	p.largeInUse.Add(1)
	p.largeBytes.Add(int64(len(b.mem)))
	return b
}

// put takes b, whose last reference is gone.
func (p *Pool) put(b *Buf) {
	size := int64(len(b.mem))
	if invariants.Enabled {
		b = b.bury()
	}
	if b.class == classNone {
		p.largeInUse.Add(-1)
		p.largeBytes.Add(-size)
		return
	}
	c := &p.classes[b.class]
	c.mu.Lock()
	c.inUse--
	if int64(c.free+1)*size > p.maxRetained/2 {
		c.mu.Unlock()
		return
	}
	b.next = c.head
	c.head = b
	c.free++
	over := p.pooled.Add(size) > p.maxRetained
	c.mu.Unlock()
	if over {
		p.evict(int(b.class))
	}
}

// evict drops free Bufs, those of the largest class first and those of class keep last, until the
// pool is within its bound.
func (p *Pool) evict(keep int) {
	for i := classCount - 1; i >= 0; i-- {
		if i != keep {
			p.evictClass(i)
		}
	}
	p.evictClass(keep)
}

func (p *Pool) evictClass(i int) {
	c := &p.classes[i]
	c.mu.Lock()
	for c.head != nil && p.pooled.Load() > p.maxRetained {
		p.drop(c)
	}
	c.mu.Unlock()
}

// drop leaves the first free Buf of c to the collector. c.mu is held.
func (p *Pool) drop(c *class) {
	b := c.head
	c.head = b.next
	b.next = nil
	c.free--
	c.low = min(c.low, c.free)
	p.pooled.Add(-int64(len(b.mem)))
}

// Trim drops, of each class, half of the free Bufs that nobody needed since the last Trim. Called
// every few seconds it lets the memory of a spike go without emptying lists that are in use.
func (p *Pool) Trim() {
	for i := range p.classes {
		c := &p.classes[i]
		c.mu.Lock()
		for n := (c.low + 1) / 2; n > 0; n-- {
			p.drop(c)
		}
		c.low = c.free
		c.mu.Unlock()
	}
}

// Stats returns what the pool has counted.
func (p *Pool) Stats() PoolStats {
	large := p.largeGets.Load()
	s := PoolStats{
		InUse:       int(p.largeInUse.Load()),
		InUseBytes:  p.largeBytes.Load(),
		PooledBytes: p.pooled.Load(),
		Gets:        large,
		Misses:      large,
	}
	for i := range p.classes {
		c := &p.classes[i]
		c.mu.Lock()
		s.InUse += c.inUse
		s.InUseBytes += int64(c.inUse) * int64(Headroom+classCap(i))
		s.Gets += c.gets
		s.Misses += c.misses
		c.mu.Unlock()
	}
	return s
}

// classOf returns the smallest class that holds n bytes.
func classOf(n int) int {
	switch {
	case n <= classMin:
		return 0
	case n > classCap(classCount-2):
		if n > classCap(classCount-1) {
			return classNone
		}
		return classCount - 1
	}
	k := bits.Len(uint(n - 1)) // 1<<(k-1) < n <= 1<<k
	if n <= 3<<(k-2) {
		return 2*(k-10) + 1
	}
	return 2 * (k - 9)
}

// classCap returns the capacity of class i.
func classCap(i int) int {
	n := classMin << (i / 2)
	switch {
	case i == classCount-1:
		return n + classSlack
	case i%2 == 1:
		return n + n/2
	}
	return n
}
