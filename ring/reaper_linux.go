// Hot path.

package ring

import (
	"context"
	"errors"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"time"
)

// reaperPause is the sleep between two looks at the queue when it cannot be waited for.
const reaperPause = time.Millisecond

var errLost = errors.New("the kernel lost completions")

// reaper takes completions from the queue, ends operations and hands over what must go on. It is
// the only reader of the completion queue.
//
// With something in flight its thread blocks in the ring, and not in Go's poller, which is asked
// every 10 ms only once the CPUs are busy. With nothing in flight the goroutine sleeps in Go: so the
// executor that it has told runs next on the same thread, and so does the reaper when that executor
// submits. A goroutine locked to its thread would cost a thread switch each time, and on busy CPUs a
// wait for a processor (docs/decisions/ring-flags.md).
type reaper struct {
	e     *uring
	done  []*slot // ended in this pass
	ops   []*Op   // what they held
	again []*slot // to be handed over once more

	lost     uint32        // completions the kernel had thrown away when we last looked
	poisoned bool          // some were lost: what has not ended ends with errLost
	draining bool          // the entry that tells when nothing is in flight any more was submitted
	polling  bool          // the ring cannot be waited on
	unsent   bool          // the submission queue holds something that goOn put there
	stuck    time.Duration // how long the kernel has been too busy to take any of it
	idle     int           // answers in a row to a wait that brought nothing and were no timeout
}

func (p *reaper) init(e *uring) {
	p.e = e
	p.done = make([]*slot, 0, len(e.slots))
	p.ops = make([]*Op, 0, len(e.slots))
	p.again = make([]*slot, 0, len(e.slots))
}

func (p *reaper) run() {
	defer close(p.e.ended)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("role", "ring-reaper")))
	for {
		select {
		case <-p.e.quit:
			return
		default:
		}
		switch {
		case p.pass() > 0:
			p.idle = 0
		case p.e.free.full() && !p.unsent:
			p.rest()
		default:
			p.wait()
		}
	}
}

// rest sleeps for as long as nothing is in flight. Who submits takes its slots, and then looks
// whether the reaper has lain down; the reaper lies down, and then looks at the slots: one of them
// sees the other.
func (p *reaper) rest() {
	p.e.resting.Store(true)
	if !p.e.free.full() && p.e.resting.CompareAndSwap(true, false) {
		return
	}
	select {
	case <-p.e.rouse:
	case <-p.e.quit:
	}
}

// pass takes everything that is in the queue and acts on it. It returns how many completions
// there were.
func (p *reaper) pass() int {
	r := p.e.r
	head := *r.cqHead // only we write it
	tail := atomic.LoadUint32(r.cqTail)
	n := int(tail - head)
	for ; head != tail; head++ {
		c := &r.cqes[head&uint32(len(r.cqes)-1)]
		p.complete(c.userData, c.res)
	}
	atomic.StoreUint32(r.cqHead, head) // also after completions that made no sense
	if r.overflowed() {
		p.e.stats.overflows.Add(1)
		_ = p.e.k.wait(false) // moves them into the queue; an error shows in the next wait
		n++                   // look again before sleeping
	}
	if lost := r.lost(); lost != p.lost {
		p.lost = lost
		p.poison()
	}
	if p.e.broken.Load() != nil {
		p.sweep()
	}
	p.act()
	return n
}

// complete credits one completion to the attempt that it belongs to, or to nobody.
func (p *reaper) complete(id uint64, res int32) {
	if id>>idShift == 0 {
		if id == idDrain && p.draining {
			p.endAll()
		}
		return
	}
	i := id >> kindBits & slotMask
	if i >= uint64(len(p.e.slots)) || p.e.slots[i].id.Load() != id&^kindMask {
		p.e.stats.strays.Add(1)
		return
	}
	s := &p.e.slots[i]
	ended, stray := s.completed(id&kindMask, res)
	if stray {
		p.e.stats.strays.Add(1)
		return
	}
	if ended {
		p.settle(s)
	}
}

func (p *reaper) settle(s *slot) {
	done, err := s.settle(p.e.stats)
	switch {
	case p.poisoned:
		p.end(s, p.e.broken.Load())
	case done:
		p.end(s, err)
	default:
		p.again = append(p.again, s)
	}
}

func (p *reaper) end(s *slot, err error) {
	op := s.drop() // whatever else comes for it is a stray
	p.e.stats.end(op, err)
	p.done = append(p.done, s)
	p.ops = append(p.ops, op)
}

// act carries out what a pass has decided.
func (p *reaper) act() {
	e := p.e
	p.goOn()
	if len(p.done) == 0 {
		return
	}
	// Slots are free before their owners are told, so that an owner within Depth never waits.
	e.free.push(p.done...)
	for i, op := range p.ops {
		p.ops[i] = nil
		op.Owner.OpDone(op)
	}
	p.done, p.ops = p.done[:0], p.ops[:0]
}

// goOn hands over the attempts that continue operations. It never waits for a busy kernel, which
// may need completions to be taken: what is left is tried again after the next pass.
func (p *reaper) goOn() {
	if len(p.again) == 0 && !p.unsent {
		return
	}
	e := p.e
	e.sqMu.Lock()
	back := e.queue(p.again)
	p.again = p.again[:0]
	progress, errno := e.handOver()
	if errno != 0 && (errno != syscall.EBUSY || p.stuck >= busyTotalMax) {
		back = append(back, e.breakRing("io_uring submit", errno)...)
	}
	if progress {
		p.stuck = 0
	} else {
		p.stuck += reaperPause
	}
	p.unsent = e.r.sqPending() > 0
	e.sqMu.Unlock()
	e.giveBack(back)
}

// wait sleeps until there is a completion, or until it is time to look around.
func (p *reaper) wait() {
	switch {
	case p.unsent:
		if p.stuck > 0 {
			p.e.k.pause(reaperPause)
		}
		return
	case p.polling:
		// The ring takes no calls any more. What is in flight still completes into the queue.
		p.e.k.pause(reaperPause)
		return
	}
	switch errno := p.e.k.wait(true); errno {
	case 0, syscall.ETIME:
		p.idle = 0
	case syscall.EINTR, syscall.EAGAIN, syscall.EBUSY:
		// A signal, or completions that must be taken first: the next pass does that.
		p.e.stats.retries.Add(1)
		if p.idle++; p.idle > triesMax {
			p.e.k.pause(reaperPause) // bounds the rate, for as long as it lasts
		}
	default:
		p.polling = true
		p.fail("io_uring wait", errno)
	}
}

// fail breaks the ring.
func (p *reaper) fail(op string, cause error) {
	p.e.sqMu.Lock()
	back := p.e.breakRing(op, cause)
	p.e.sqMu.Unlock()
	p.e.giveBack(back)
}

// poison ends everything in flight with an error, since the kernel has thrown completions away
// and nobody knows whose. The memory behind an operation may be touched until it has completed,
// so it ends no earlier than that: the drain entry completes after all of them.
func (p *reaper) poison() {
	p.poisoned = true
	p.fail("io_uring", errLost)
}

// sweep is the part of a pass on a broken ring: it submits the drain entry, and ends operations
// that wait only for a sync that never reached the kernel.
func (p *reaper) sweep() {
	if p.poisoned && !p.draining {
		p.e.sqMu.Lock()
		if p.e.r.sqPush(sqe{opcode: opNop, flags: sqeIODrain, userData: idDrain}) {
			_, _ = p.e.k.submit(p.e.r.sqPending()) // what counts is whether it was taken
			p.draining = p.e.r.sqPending() == 0
			p.e.r.sqTakeBack(func(uint64) {})
		}
		p.e.sqMu.Unlock()
	}
	for i := range p.e.slots {
		s := &p.e.slots[i]
		if s.id.Load() != 0 && s.lostSync.Load() && s.waiting == 1<<kindLinked {
			s.waiting = 0
			s.sres = -int32(syscall.ECANCELED)
			p.settle(s)
		}
	}
}

// endAll ends what is left when the drain entry has completed: operations whose completions were lost.
func (p *reaper) endAll() {
	for i := range p.e.slots {
		if s := &p.e.slots[i]; s.id.Load() != 0 {
			p.end(s, p.e.broken.Load())
		}
	}
}
