// Hot path.

package sched

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"
)

// Stepper is the state that an Executor owns. Step takes one bounded turn: a bound on the work of
// a turn is the stepper's duty, because nothing interrupts it. now is the present on the scale of
// Mono. again asks for another turn at once; otherwise the executor sleeps until Wake, or until
// wakeAt (0 = no time) on the same scale.
type Stepper interface {
	Step(now int64) (again bool, wakeAt int64)
}

// ExecutorOptions say where an executor runs.
type ExecutorOptions struct {
	// Shard is its number, for labels and log lines.
	Shard int
	// CPU is the CPU to lock and pin its thread to; -1 = an ordinary goroutine. A refused pin is
	// logged and counted, and the executor then runs as with -1 (HZ-46).
	CPU int
	// Lock locks the goroutine to its thread, without pinning the thread where CPU is -1.
	Lock bool
	// Parker is where it sleeps; nil = an eventfd when locked, else a channel. The caller closes
	// a parker that he passes.
	Parker Parker
	// Logger gets the one line about a refused pin. nil = none.
	Logger *slog.Logger
}

// Executor runs one Stepper on one goroutine, and so is the only one to touch its state.
//
// It runs while the stepper has work, and lets waiting goroutines have the processor when it has
// run for 200 us: per job that would cost 0.3 us from an ordinary goroutine and 30 to 60 us from a
// locked one. It then sleeps in its Parker.
//
// state makes sure that no Wake is lost. Before each step it is set to running; a Wake makes it
// notified; the executor may only park by moving it from running to parked, which fails if a Wake
// came since the step began. So whatever was pushed before a Wake is seen by a step that begins
// after it, or has been seen.
type Executor struct {
	opts ExecutorOptions
	s    Stepper

	// state is written by the executor (running, parked) and by wakers (notified).
	state atomic.Uint32
	_     [cacheLine - 4]byte
	// stop is set when Run's context ends.
	stop atomic.Bool
	// parker is set before Run's first park; wakers reach it only after they saw parked.
	parker Parker

	// Counters. The executor adds to plain fields and publishes them when it parks or yields.
	steps, parks, yields uint64
	stats                struct{ steps, parks, yields, wakes, pinRefused, pinned atomic.Uint64 }
	runnable             []metrics.Sample
}

const (
	execRunning uint32 = iota
	execNotified
	execParked
)

// ExecutorStats counts what an executor did. Steps, Parks and Yields lag by at most one turn.
type ExecutorStats struct {
	Steps      uint64 // turns taken
	Parks      uint64 // times it went to sleep
	Yields     uint64 // times it gave the processor to others
	Wakes      uint64 // times somebody had to wake it
	PinRefused uint64 // 1 if it runs unpinned although asked to pin
	Pinned     bool   // runs on a thread of its own, on its CPU
}

// NewExecutor returns an executor for s. Nothing runs before Run.
func NewExecutor(o ExecutorOptions, s Stepper) *Executor {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Executor{
		opts:     o,
		s:        s,
		parker:   o.Parker,
		runnable: []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}},
	}
}

// Wake makes the executor step (again). Safe from any goroutine, also before and after Run; a load
// when the executor is awake and already told.
func (e *Executor) Wake() {
	if e.state.Load() == execNotified {
		return
	}
	if e.state.Swap(execNotified) == execParked {
		e.stats.wakes.Add(1)
		e.parker.Unpark()
	}
}

// Run steps until ctx ends, then once more and for as long as the stepper asks for it, for a
// second at most: the stepper's owner tells it what to finish before he ends ctx. It returns nil,
// and is called once.
func (e *Executor) Run(ctx context.Context) error {
	labels := pprof.Labels("shard", strconv.Itoa(e.opts.Shard), "role", "executor")
	pprof.Do(ctx, labels, e.run)
	return nil
}

func (e *Executor) run(ctx context.Context) {
	locked := e.opts.CPU >= 0 && e.pin()
	if e.opts.Lock && !locked {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		locked = true
	}
	if e.parker == nil {
		e.parker = newParker(locked)
		if c, ok := e.parker.(io.Closer); ok {
			defer c.Close()
		}
	}
	defer context.AfterFunc(ctx, func() {
		e.stop.Store(true)
		e.Wake()
	})()

	now := Mono()
	turn := now // when this turn on the processor began
	for !e.stop.Load() {
		e.state.Store(execRunning)
		again, wakeAt := e.s.Step(now)
		e.steps++
		if !again {
			if e.park(now, wakeAt) {
				turn = Mono()
				now = turn
				continue
			}
		}
		now = Mono()
		if now-turn >= int64(turnMax) {
			e.yield(locked)
			turn = Mono()
			now = turn
		}
	}
	e.finish(now)
}

// finish takes the last turns, after the context has ended.
func (e *Executor) finish(now int64) {
	deadline := now + int64(stopStepsMax)
	for again := true; again && now < deadline; now = Mono() {
		again, _ = e.s.Step(now)
		e.steps++
	}
	e.publish()
}

// park sleeps unless somebody called Wake since the step began, and says whether it slept.
func (e *Executor) park(now, wakeAt int64) bool {
	d := time.Duration(-1)
	if wakeAt != 0 {
		d = time.Duration(wakeAt - now)
		if d <= 0 {
			return false
		}
	}
	if !e.state.CompareAndSwap(execRunning, execParked) {
		return false
	}
	e.parks++
	e.publish()
	e.parker.Park(d)
	return true
}

// yield lets others run. A locked goroutine that yields to nobody pays as much as one that yields
// to somebody, so it looks first whether anybody waits (about 130 ns).
func (e *Executor) yield(locked bool) {
	if locked {
		metrics.Read(e.runnable)
		if e.runnable[0].Value.Kind() == metrics.KindUint64 && e.runnable[0].Value.Uint64() == 0 {
			return
		}
	}
	e.yields++
	e.publish()
	runtime.Gosched()
}

// pin locks the goroutine to its thread and the thread to its CPU. The thread is never unlocked:
// it ends with the goroutine, and its affinity with it.
func (e *Executor) pin() bool {
	runtime.LockOSThread()
	err := pinThread(e.opts.CPU)
	if err == nil {
		e.stats.pinned.Store(1)
		return true
	}
	runtime.UnlockOSThread() // nothing was changed on this thread
	e.stats.pinRefused.Add(1)
	e.opts.Logger.Warn("executor runs unpinned", "shard", e.opts.Shard, "cpu", e.opts.CPU, "err", err)
	return false
}

// newParker returns the parker for a thread that is locked, or not.
func newParker(locked bool) Parker {
	if locked {
		if p, err := NewEventfdParker(); err == nil {
			return p
		}
	}
	return NewChannelParker()
}

func (e *Executor) publish() {
	e.stats.steps.Store(e.steps)
	e.stats.parks.Store(e.parks)
	e.stats.yields.Store(e.yields)
}

// Stats returns the counters. Safe from any goroutine.
func (e *Executor) Stats() ExecutorStats {
	return ExecutorStats{
		Steps:      e.stats.steps.Load(),
		Parks:      e.stats.parks.Load(),
		Yields:     e.stats.yields.Load(),
		Wakes:      e.stats.wakes.Load(),
		PinRefused: e.stats.pinRefused.Load(),
		Pinned:     e.stats.pinned.Load() != 0,
	}
}
