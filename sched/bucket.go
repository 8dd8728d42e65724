// Hot path.

package sched

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Bucket is a token bucket that may go into debt: whoever finds it not in debt is let in and pays his
// full cost, so that one batch beyond the burst passes and is paid off (broker.md 1.8). It holds at
// most burst, and owes at most BucketDebtMax, worth of its rate.
//
// It is one number, the time at which the bucket is empty: in the past it says what is in it, in the
// future what it owes. So nothing has to fill it, and a take is one compare-and-swap. Times are on the
// scale of Mono and come from the caller, who may use a coarse clock: what is late is not lost.
type Bucket struct {
	rate  int64 // units per second
	burst int64 // ns
	// empty is when the bucket is empty. Written by anyone.
	empty atomic.Int64
}

// BucketDebtMax is the most that a bucket owes.
const BucketDebtMax = 5 * time.Second

// NewBucket returns a full bucket.
func NewBucket(rate int64, burst time.Duration, now int64) *Bucket {
	if rate <= 0 || burst < 0 {
		panic("sched: bucket without a rate")
	}
	b := &Bucket{rate: rate, burst: int64(burst)}
	b.empty.Store(now - b.burst)
	return b
}

// Take takes n units unless the bucket is in debt; debt is then how long it will be. paid is for
// Return.
func (b *Bucket) Take(n, now int64) (paid, debt int64) {
	cost := b.cost(n)
	for {
		empty := b.empty.Load()
		if empty > now {
			return 0, empty - now
		}
		from := max(empty, now-b.burst)
		to := min(from+cost, now+int64(BucketDebtMax))
		if b.empty.CompareAndSwap(empty, to) {
			return to - from, 0
		}
	}
}

// Return gives back what a Take has paid: what it paid for was not done.
func (b *Bucket) Return(paid int64) { b.empty.Add(-paid) }

// cost is what n units are worth in ns, rounded up. A cost beyond the bounds of a bucket is cut: it is
// above every debt.
func (b *Bucket) cost(n int64) int64 {
	const costMax = int64(1) << 60
	hi, lo := bits.Mul64(uint64(max(n, 0)), uint64(time.Second))
	if hi >= uint64(b.rate) {
		return costMax
	}
	q, r := bits.Div64(hi, lo, uint64(b.rate))
	if r > 0 {
		q++
	}
	return int64(min(q, uint64(costMax)))
}
