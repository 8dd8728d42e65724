// Hot path.

package sched

import "context"

// SharedBudget is a Budget that tenants share: the bytes of all accepted, unfinished publishes of the
// process.
//
// A tenant that holds a quarter of it may not take the last eighth. So one whose disk hangs, and whose
// permits stay taken, leaves room in which everybody else goes on; it is to bytes what the last depth
// slots are to jobs (Admission).
//
// Each tenant has a line of its own, first come first served. Across tenants, one that holds a quarter
// passes nobody who waits; one that holds less passes, or a request that finds no room while another
// tenant's disk hangs would keep the rest out. Its price: a large request may wait for long while
// tenants with little in flight come and go.
type SharedBudget struct {
	gate
	size    int64
	fair    int64 // who holds so much is kept out of the reserve
	reserve int64
}

// NewSharedBudget returns a budget of size bytes, all free.
func NewSharedBudget(size int64) *SharedBudget {
	if size <= 0 {
		panic("sched: budget without bytes")
	}
	b := &SharedBudget{size: size, fair: max(1, size/4), reserve: size / 8}
	b.take = b.acquire
	return b
}

// Size is the whole budget.
func (b *SharedBudget) Size() int64 { return b.size }

// Used is how many bytes are taken.
func (b *SharedBudget) Used() int64 { return b.used.Load() }

// TryAcquire takes n bytes for t if it may have them and nobody waits who goes first. A request beyond
// the whole budget is one for the whole budget: it is let in alone (PUB-17).
func (b *SharedBudget) TryAcquire(t *Tenant, n int64) bool {
	n = clamp(n, b.size)
	if b.waiting.Load() == 0 {
		return b.acquire(t, n, false)
	}
	return t.waiting.Load() == 0 && b.acquire(t, n, true)
}

// Acquire takes n bytes for t, in the order of arrival, as soon as it may have them. If ctx ends first
// it returns its error and has taken nothing.
func (b *SharedBudget) Acquire(ctx context.Context, t *Tenant, n int64) error {
	if b.TryAcquire(t, n) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := newCall()
	b.join(t, &c.Waiter, clamp(n, b.size), c)
	return c.await(ctx, func() bool { return b.cancel(t, &c.Waiter) })
}

// Release gives back n bytes of t: the number that was asked for.
func (b *SharedBudget) Release(t *Tenant, n int64) {
	n = clamp(n, b.size)
	if t.held.Add(-n) < 0 || b.used.Add(-n) < 0 {
		panic("sched: more bytes released than acquired")
	}
	if b.waiting.Load() != 0 {
		b.back()
	}
}

// acquire takes n bytes for t if they are free and t may have them. Two that run at the same moment
// may both find t below its quarter: it then holds more by as many publishes as are decoded at once.
func (b *SharedBudget) acquire(t *Tenant, n int64, passing bool) bool {
	top := b.size
	if t.held.Load() >= b.fair {
		if passing {
			return false
		}
		top -= b.reserve
	}
	for {
		used := b.used.Load()
		if used > top-n {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			t.held.Add(n)
			return true
		}
	}
}
