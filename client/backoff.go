package client

import (
	"math/rand/v2"
	"time"
)

// backoff spreads retries over time: full jitter, so that a thousand clients that lost the same
// broker do not come back in one wave. The zero value is not ready; see newBackoff.
type backoff struct {
	base    time.Duration // ceiling of the first wait
	max     time.Duration // no ceiling grows above it
	attempt int           // failures in a row
	rand    func() float64
}

func newBackoff(base, max time.Duration) backoff {
	return backoff{base: base, max: max, rand: rand.Float64}
}

// next counts one more failure and returns how long to wait: a random time below
// base * 2^failures, never above max, and never below what the broker asked for.
func (b *backoff) next(asked time.Duration) time.Duration {
	ceiling := b.max
	if b.attempt < 30 && b.base<<b.attempt < b.max {
		ceiling = b.base << b.attempt
	}
	b.attempt++
	wait := time.Duration(b.rand() * float64(ceiling))
	return max(wait, asked)
}

// reset forgets the failures: the last attempt worked.
func (b *backoff) reset() { b.attempt = 0 }
