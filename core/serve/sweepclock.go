// Hot path.

package serve

import (
	"sync/atomic"
	"time"
)

// waits are the bounds of a stream's publishes in ticks. A wait begins somewhere inside a tick, so each is
// one more than its parts: it never ends early.
type waits struct {
	queueTicks   uint32 // from the moment a publish was read until it has room
	ackTicks     uint32 // from then until its outcome
	overdueTicks uint32 // until its answer is written: then the stream is stuck
}

// sweepClock is the one timer of a stream: it counts ticks while something is owed or a write is
// under way, and stands still otherwise, so that an idle stream has no timer. Ages are differences
// of ticks; nobody reads a clock per publish.
//
// On each tick it makes the writer sweep, and it ends a stream whose write has stood still for
// overdueTicks: the client does not take its answers.
type sweepClock struct {
	interval time.Duration
	waits
	busy    func() bool // something is unanswered
	wake    func()      // makes the writer look
	overdue func()      // ends the stream

	tick  atomic.Uint32 // written by the timer only
	armed atomic.Bool   // the timer is set; whoever moves it from false to true sets it
	due   atomic.Bool   // a sweep is due
	ended atomic.Bool   // written by stop
	// writeTick is 1 + the tick at which the write under way began, 0 = none. Written by the writer.
	writeTick atomic.Uint64
	timer     *time.Timer
}

func (c *sweepClock) init(ackWait, queueWait time.Duration) {
	c.interval = max(min(ackWait, queueWait)/ticksPerWait, time.Millisecond)
	ticks := func(d time.Duration) uint32 { return uint32((d+c.interval-1)/c.interval) + 1 }
	c.queueTicks, c.ackTicks, c.overdueTicks = ticks(queueWait), ticks(ackWait), ticks(2*(ackWait+queueWait))
	c.timer = time.AfterFunc(time.Hour, c.fire)
	c.timer.Stop()
}

// arm makes sure that the ticks go on. Cheap when they do.
func (c *sweepClock) arm() {
	if !c.armed.Load() && !c.ended.Load() && c.armed.CompareAndSwap(false, true) {
		c.timer.Reset(c.interval)
	}
}

func (c *sweepClock) now() uint32 { return c.tick.Load() }

// takeDue says whether a sweep is due, once.
func (c *sweepClock) takeDue() (tick uint32, due bool) {
	if !c.due.Load() {
		return 0, false
	}
	c.due.Store(false)
	return c.tick.Load(), true
}

func (c *sweepClock) writing() {
	c.writeTick.Store(1 + uint64(c.tick.Load()))
	c.arm()
}

func (c *sweepClock) wrote() { c.writeTick.Store(0) }

// fire is the timer's: it runs on a goroutine of its own, never twice at a time.
func (c *sweepClock) fire() {
	tick := c.tick.Add(1)
	if w := c.writeTick.Load(); w != 0 && tick-uint32(w-1) >= c.overdueTicks {
		c.overdue()
	}
	if c.busy() {
		c.due.Store(true)
		c.wake()
	}
	if c.working() {
		c.timer.Reset(c.interval)
	} else {
		c.armed.Store(false)
		if !c.working() || !c.armed.CompareAndSwap(false, true) {
			return
		}
		c.timer.Reset(c.interval)
	}
	if c.ended.Load() {
		c.timer.Stop()
	}
}

func (c *sweepClock) working() bool {
	return !c.ended.Load() && (c.writeTick.Load() != 0 || c.busy())
}

// stop ends the ticks for good.
func (c *sweepClock) stop() {
	c.ended.Store(true)
	c.timer.Stop()
}
