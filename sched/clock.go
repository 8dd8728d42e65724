package sched

import (
	"context"
	"sync/atomic"
	"time"
)

// monoStart is the origin of Mono. Never written after the package is loaded.
var monoStart = time.Now()

// Mono returns nanoseconds on a monotonic scale that all executors and clocks of the process
// share. It reads the clock (about 30 ns here): take it once per step and pass it on.
func Mono() int64 { return int64(time.Since(monoStart)) }

// Clock is the time as of at most about a millisecond ago, for the price of a load. For deadlines
// and stamps where that is good enough; an executor passes its own, exact time to Step.
type Clock struct {
	mono   atomic.Int64  // written by Set and Run only
	micros atomic.Uint64 // likewise
}

// NewClock returns a clock that shows the present and stands still until Run.
func NewClock() *Clock {
	c := &Clock{}
	c.tick()
	return c
}

// Now returns nanoseconds on the scale of Mono.
func (c *Clock) Now() int64 { return c.mono.Load() }

// UnixMicros returns microseconds since the Unix epoch. It follows the wall clock and may step
// back with it.
func (c *Clock) UnixMicros() uint64 { return c.micros.Load() }

// Set puts the clock at a given time, for tests that do not run it.
func (c *Clock) Set(mono int64, unixMicros uint64) {
	c.mono.Store(mono)
	c.micros.Store(unixMicros)
}

// Run keeps the clock going, every millisecond, until ctx ends.
func (c *Clock) Run(ctx context.Context) error {
	t := time.NewTicker(clockTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			c.tick()
		}
	}
}

func (c *Clock) tick() {
	now := time.Now()
	c.Set(int64(now.Sub(monoStart)), uint64(now.UnixMicro()))
}
