package core

import (
	"errors"
	"syscall"

	"github.com/ringcast/ringcast/internal/sim"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

var simTenants = []string{"a", "b", "c"}

// simPlan is what a seed is like: most of what can happen is rare or left out in most of them, so that other
// things happen more often.
type simPlan struct {
	steps      int
	weights    [simActions]int
	faults     int // one operation in so many fails; 0 = none
	poison     int // one fault in so many is a failed sync
	idempotent int // percent of the publishers
	big        int // percent of the batches
	burst      int // batches in a row
	publishers int
	direct     bool
	fair       bool // memory streams, all acknowledged
	weak       bool // no stream syncs each commit, and syncs fail
}

const (
	simPublish = iota
	simFlood
	simStep
	simDisk
	simFile
	simRead
	simSubscribe
	simLeave
	simTime
	simCreate
	simDelete
	simFence
	simWithdraw
	simReset
	simRestart
	simPowerCut
	simActions
)

func newSimPlan(c *sim.Chooser) simPlan {
	p := simPlan{
		steps:      c.Between(60, 320),
		idempotent: sim.Pick(c, []int{0, 40, 100}),
		big:        sim.Pick(c, []int{0, 5, 40}),
		burst:      sim.Pick(c, []int{1, 4, 20}),
		publishers: sim.Pick(c, []int{1, 4, 8}),
		direct:     c.One(3),
		fair:       c.One(5),
		faults:     sim.Pick(c, []int{0, 30, 6}),
		poison:     sim.Pick(c, []int{2, 10, 1000}),
	}
	if c.One(8) {
		p.weak, p.fair, p.faults, p.poison = true, false, 6, 2
	}
	p.weights = [simActions]int{
		simPublish: c.Between(4, 20), simStep: c.Between(8, 20), simDisk: c.Between(2, 16), simFile: c.Between(1, 8),
		simRead: c.Between(0, 8), simSubscribe: 1, simLeave: c.N(2), simTime: c.N(3),
	}
	if p.fair {
		p.weights[simFlood] = 2
	}
	if c.One(3) {
		p.weights[simCreate], p.weights[simDelete] = 1, 1
	}
	if c.One(4) {
		p.weights[simFence] = 1
	}
	if c.One(2) {
		p.weights[simWithdraw] = 1
	}
	if c.One(6) {
		p.weights[simReset] = 1
	}
	if c.One(2) {
		p.weights[simRestart] = 1
	}
	if c.One(2) {
		p.weights[simPowerCut] = 1
	}
	return p
}

// life is a whole seed.
func (w *simWorld) life() {
	w.open(true)
	for range w.c.Between(2, 4) {
		w.createStream()
	}
	for range w.plan.steps {
		w.act()
		w.forgetRemoved()
		if w.off {
			w.powerCut()
		}
	}
	w.cutAt = 0
	w.disk.CutAt(0)
	w.calm = true
	w.quiet()
	w.restart() // what was acknowledged is there, and nothing else
	w.quiet()
	w.close(false)
}

func (w *simWorld) act() {
	switch w.c.Weighted(w.plan.weights[:]) {
	case simPublish:
		w.publish()
	case simFlood:
		w.flood()
	case simStep:
		w.run()
	case simDisk:
		w.endOperation()
	case simFile:
		w.endFileJob()
	case simRead:
		if len(w.readers) > 0 {
			w.readOn(sim.Pick(w.c, w.readers))
		}
	case simSubscribe:
		w.subscribe()
	case simLeave:
		if len(w.readers) > 0 {
			w.leave(sim.Pick(w.c, w.readers))
		}
	case simTime:
		w.pass(int64(w.c.N(400)))
	case simCreate:
		w.createStream()
	case simDelete:
		w.deleteStream()
	case simFence:
		w.fence()
	case simReset:
		w.reset()
	case simWithdraw:
		w.withdraw()
	case simRestart:
		if w.c.One(4) {
			w.restart()
		}
	case simPowerCut:
		switch w.c.N(6) {
		case 0:
			w.powerCut()
		case 1:
			if w.cutAt == 0 {
				w.cutIn(1 + w.c.N(60))
			}
		}
	}
}

// pass lets time go by. The wall clock may go back.
func (w *simWorld) pass(millis int64) {
	w.now += millis * 1e6
	w.wall += millis * 1e3
	if w.c.One(20) {
		w.wall += int64(w.c.N(2e6)) - 1e6
	}
	w.trace.Add("time", uint64(w.now))
}

// background is what goes on while somebody waits for something.
func (w *simWorld) background() {
	if w.inStep {
		return
	}
	switch w.c.N(3) {
	case 0:
		w.run()
	case 1:
		w.endOperation()
	case 2:
		w.endFileJob()
	}
}

// run steps one of the executors that would run, sometimes another, and says whether one had more to do
// than to look at the clock.
func (w *simWorld) run() bool {
	var ready []*executor
	busy := false
	for i, e := range w.b.executors {
		if r := &w.runs[i]; r.woken || r.again || r.wakeAt != 0 && w.now >= r.wakeAt {
			ready = append(ready, e)
			busy = busy || r.woken || r.again
		}
	}
	switch {
	case len(ready) > 0:
		e := sim.Pick(w.c, ready)
		w.step(e)
		return busy || e.inflight > 0 || e.jobs > 0
	case !w.calm:
		w.step(sim.Pick(w.c, w.b.executors))
	}
	return false
}

// endOperation ends one of the operations of a disk, whichever, and says whether there was one.
func (w *simWorld) endOperation() bool {
	var busy []*ringtest.Engine
	for _, e := range w.engines {
		if len(e.Pending()) > 0 {
			busy = append(busy, e)
		}
	}
	if len(busy) == 0 {
		return false
	}
	e := sim.Pick(w.c, busy)
	op := sim.Pick(w.c, e.Pending())
	fault := uint64(0)
	if w.plan.faults > 0 && !w.calm && w.c.One(w.plan.faults) {
		fault = w.failOperation(op)
	}
	if op.Kind == ring.OpWriteDirect {
		w.seen.DirectWrites++
	}
	w.trace.Add("disk", uint64(op.Kind), uint64(op.Off), fault)
	e.Run(op)
	w.fs.Clear()
	return true
}

// failOperation has the next operation fail.
func (w *simWorld) failOperation(op *ring.Op) uint64 {
	size := 0
	for _, b := range op.Vec {
		size += len(b)
	}
	short := w.c.N(size + 1)
	if op.Kind == ring.OpWriteDirect {
		short &^= ring.DirectAlign - 1
	}
	switch {
	case op.Kind != ring.OpWriteDirect && w.c.One(w.plan.poison):
		w.seen.FailedSyncs++
		w.breaks(op.Owner.(*shard))
		w.fs.Add(ringtest.Rule{Kind: ringtest.Sync, Err: syscall.EIO})
		return 1
	case op.Kind == ring.OpSync:
		return 0
	case w.c.One(4):
		w.seen.ShortWrites++
		w.fs.Add(ringtest.Rule{Kind: ringtest.Write, Short: short})
		return 2
	default:
		w.seen.FailedWrites++
		errno := w.errno(op.Owner.(*shard))
		w.fs.Add(ringtest.Rule{Kind: ringtest.Write, Nth: 1 + w.c.N(len(op.Vec)), Short: short, Err: errno})
		return 3
	}
}

// errno is how an operation on a shard's log fails: the disk is full or, more rarely, broken.
func (w *simWorld) errno(s *shard) syscall.Errno {
	if w.c.N(3) > 0 {
		return syscall.ENOSPC
	}
	w.breaks(s)
	return syscall.EIO
}

// endFileJob runs one of the file jobs that wait for a worker, whichever, and says whether there was one.
func (w *simWorld) endFileJob() bool {
	queue := w.b.files.queue
	if len(queue) == 0 {
		return false
	}
	i := w.c.N(len(queue))
	f := queue[i]
	w.b.files.queue = append(queue[:i:i], queue[i+1:]...)
	fault := uint64(0)
	if w.plan.faults > 0 && !w.calm && w.c.One(w.plan.faults) {
		fault = 1
		w.seen.FailedJobs++
		kind := sim.Pick(w.c, []ringtest.Kind{ringtest.Write, ringtest.Open, ringtest.Truncate, ringtest.Remove, ringtest.Rename, ringtest.Allocate})
		errno := w.errno(f.shard)
		if w.c.One(w.plan.poison) {
			w.breaks(f.shard)
			kind, errno = sim.Pick(w.c, []ringtest.Kind{ringtest.Sync, ringtest.SyncDir}), syscall.EIO
		}
		w.fs.Add(ringtest.Rule{Kind: kind, Nth: 1 + w.c.N(3), Err: errno})
	}
	w.trace.Add("file", uint64(i), uint64(len(queue)), fault)
	f.run()
	w.fs.Clear()
	return true
}

// powerCut has the broker die here, or where the power has gone already, and starts the next one.
func (w *simWorld) powerCut() {
	w.seen.PowerCuts++
	w.trace.Add("power cut", uint64(w.disk.Ops()), uint64(b2i(w.off)))
	w.countFailed()
	w.readers = nil
	meta := w.meta
	if !w.off {
		meta = w.catalogue()
	}
	_ = w.b.cat.close()
	w.off, w.meta = true, meta
	w.crash()
	w.open(false)
}

func (w *simWorld) countFailed() {
	for _, s := range w.shards {
		if s.real.failure.Load() != nil {
			w.seen.PoisonedLogs++
		}
	}
}

// quiet lets everything come to its end, in some order, and checks that nothing is left.
func (w *simWorld) quiet() {
	calm := w.calm
	w.calm = true
	w.settle(nil)
	for _, r := range w.readers {
		if !r.gone {
			w.must(r.model.CaughtUp(r.sub.sub.Dropped()))
		}
	}
	w.forgetRemoved()
	w.checkIdle()
	w.calm = calm
}

// settle goes on until nothing moves, not with time either, or until done.
func (w *simWorld) settle(done func() bool) {
	still := 0
	for i := 0; still < 4; i++ {
		if i > 100_000 {
			w.fail("it never comes to rest")
		}
		if done != nil && done() || w.off {
			return
		}
		moved := false
		switch w.c.N(4) {
		case 0:
			moved = w.endOperation()
		case 1:
			moved = w.endFileJob()
		case 2:
			moved = w.run()
		case 3:
			if len(w.readers) > 0 {
				moved = w.readOn(sim.Pick(w.c, w.readers))
			}
		}
		if moved || w.endOperation() || w.endFileJob() || w.run() || w.readAny() {
			still = 0
			continue
		}
		still++
		w.pass(300)
	}
}

func (w *simWorld) readAny() bool {
	for _, r := range w.readers {
		if w.readOn(r) {
			return true
		}
	}
	return false
}

// restart ends the broker in order and starts the next one.
func (w *simWorld) restart() {
	w.seen.Restarts++
	drain := w.c.One(2)
	w.close(drain)
	if w.off {
		w.powerCut()
		return
	}
	w.open(true)
}

// close does what Close does, step by step; with drain what was accepted is finished first.
func (w *simWorld) close(drain bool) {
	b := w.b
	w.trace.Add("close", uint64(b2i(drain)))
	w.countFailed()
	if drain {
		w.seen.Drains++
		b.draining.Store(true)
		if w.c.One(2) {
			w.publish()
		}
		failed := w.failed
		w.settle(func() bool { return b.outstanding.Load() == 0 })
		if w.off {
			return
		}
		if b.outstanding.Load() != 0 {
			w.fail("%d publishes are never finished, %d failed meanwhile", b.outstanding.Load(), w.failed-failed)
		}
	}
	b.shut()
	for _, e := range b.executors {
		if err := e.call(e.stop); err != nil {
			w.fail("stop: %v", err)
		}
	}
	if w.c.One(2) {
		w.publish() // it is refused
	}
	w.settle(func() bool {
		for _, e := range b.executors {
			select {
			case <-e.quiet:
			default:
				return false
			}
		}
		return b.outstanding.Load() == 0
	})
	for len(b.files.queue) > 0 && !w.off {
		w.endFileJob()
	}
	if w.off {
		return
	}
	for len(w.readers) > 0 {
		w.readOn(w.readers[0])
	}
	w.forgetRemoved()
	w.checkIdle()
	for _, s := range w.shards {
		if s.witness != nil {
			_, _, _, _ = s.witness.Step(simGone)
		}
	}
	if err := b.closeStores(); err != nil && !errors.Is(err, log.ErrPoisoned) && !w.off {
		w.fail("close: %v", err)
	}
	if n := b.opts.Pool.Stats().InUse; n != 0 && !w.off {
		w.fail("%d frames are still in use", n)
	}
}
