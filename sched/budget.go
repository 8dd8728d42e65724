// Hot path.

package sched

import (
	"context"
	"sync"
	"sync/atomic"
)

// Budget is a number of bytes that are in use or not. A permit is owned by the job it was taken
// for and released when the job is finished, so that Used is what is resident (PUB-16); at rest it
// is zero (HZ-40).
//
// What finds room takes it with one compare-and-swap. What does not waits in a line, first come
// first served: while anybody waits nobody overtakes, so a large request is not starved by small
// ones.
type Budget struct {
	size int64

	// used never exceeds size and is never negative. Written by anyone.
	used atomic.Int64
	// waiting is how many are in the line, or about to be. Written with mu held. A waiter raises
	// it before it tries for the last time, a releaser reads it after it has given back: one of
	// the two sees the other.
	waiting atomic.Int64

	mu   sync.Mutex // guards line
	line line
}

// NewBudget returns a budget of size bytes, all free.
func NewBudget(size int64) *Budget {
	if size <= 0 {
		panic("sched: budget without bytes")
	}
	return &Budget{size: size}
}

// Size is the whole budget.
func (b *Budget) Size() int64 { return b.size }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Waiting is how many callers stand in line.
func (b *Budget) Waiting() int64 { return b.waiting.Load() }

// TryAcquire takes n bytes if they are free and nobody waits. A request beyond the whole budget is
// one for the whole budget: it is let in alone (PUB-17).
func (b *Budget) TryAcquire(n int64) bool {
	return b.waiting.Load() == 0 && b.take(clamp(n, b.size))
}

// Acquire takes n bytes, in the order of arrival, as soon as they are free. If ctx ends first it
// returns its error and has taken nothing.
func (b *Budget) Acquire(ctx context.Context, n int64) error {
	if b.TryAcquire(n) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := newCall()
	c.n, c.to = clamp(n, b.size), c
	b.mu.Lock()
	b.waiting.Add(1)
	b.line.push(&c.Waiter)
	b.serve()
	b.mu.Unlock()
	return c.await(ctx, func() bool { return b.cancel(&c.Waiter) })
}

// Release gives back n bytes: the number that was asked for.
func (b *Budget) Release(n int64) {
	if b.used.Add(-clamp(n, b.size)) < 0 {
		panic("sched: more bytes released than acquired")
	}
	if b.waiting.Load() != 0 {
		b.mu.Lock()
		b.serve()
		b.mu.Unlock()
	}
}

// clamp maps a request to what is accounted for it in a budget of size.
func clamp(n, size int64) int64 {
	if n < 0 {
		panic("sched: negative number of bytes")
	}
	return min(n, size)
}

// take takes n bytes if they are free.
func (b *Budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used > b.size-n {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// serve lets in whoever is at the head of the line and finds room. mu is held.
func (b *Budget) serve() {
	for b.line.head != nil && b.take(b.line.head.n) {
		b.line.grant()
		b.waiting.Add(-1)
	}
}

// cancel takes w out of the line and says whether it stood there still: if not, it has its bytes.
// Whoever stood behind a large w may have room now.
func (b *Budget) cancel(w *Waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.in == nil {
		return false
	}
	b.line.remove(w)
	b.waiting.Add(-1)
	b.serve()
	return true
}
