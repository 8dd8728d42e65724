// Hot path.

package ring

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// uring runs operations on one io_uring.
//
//	Submit (one goroutine) -> slots -> submission queue -> kernel -> completion queue -> reaper -> OpDone
//
// Each operation takes at most two submissions and completions (a write and the sync linked
// behind it), and the queues are made for that: neither can overflow while the kernel is sane.
// The submission queue has two writers, Submit and the reaper (which continues short writes), and
// therefore a lock. Once something is wrong with the ring itself it is broken for good: what is in
// flight ends with what the kernel says of it, everything else with the error.
type uring struct {
	k       kernel
	r       *rings
	depth   int
	workers int
	direct  bool
	slots   []slot
	methods *portable // for files without a descriptor
	stats   *counters

	free freeList

	// sqMu guards the writing end of the submission queue, attempt, and the decision to break.
	sqMu    sync.Mutex
	attempt uint64
	// broken is why nothing is submitted any more. Written once, with sqMu; read by anyone.
	broken atomic.Pointer[Error]

	batch  []*slot // Submit's
	closed atomic.Bool
	quit   chan struct{} // closed by Close when nothing is in flight
	ended  chan struct{}
	reaper reaper
	// resting is set by the reaper that lies down while nothing is in flight, and taken back by who
	// has submitted something, who then fills rouse.
	resting atomic.Bool
	rouse   chan struct{}
}

func (e *uring) Name() string {
	if e.direct {
		return URingDirect
	}
	return URing
}

func (e *uring) Depth() int   { return e.depth }
func (e *uring) Direct() bool { return e.direct }

func (e *uring) Stats() Stats {
	s := e.stats.read()
	s.Workers = uint64(e.workers)
	return s
}

func (e *uring) Submit(ops []*Op) {
	if len(ops) == 0 {
		return
	}
	e.stats.submits.Add(1)
	e.batch = e.batch[:0]
	for _, op := range ops {
		op.Err, op.Written = nil, 0
		fd := op.File.Fd()
		if e.closed.Load() {
			e.stats.end(op, &Error{Op: "submit", Class: ErrClosed, Err: ErrClosed})
			op.Owner.OpDone(op)
			continue
		}
		if fd == ^uintptr(0) {
			e.methods.start(op)
			continue
		}
		if err := op.refusal(); err != nil {
			e.stats.end(op, err)
			op.Owner.OpDone(op)
			continue
		}
		s := e.free.tryPop()
		if s == nil {
			e.send(e.batch) // what waits here must be under way before we wait for room
			e.batch = e.batch[:0]
			s = e.free.pop()
		}
		s.take(op, fd)
		e.batch = append(e.batch, s)
	}
	e.send(e.batch)
}

// send hands the operations of slots to the kernel in one call.
func (e *uring) send(slots []*slot) {
	if len(slots) == 0 {
		return
	}
	e.sqMu.Lock()
	back := e.queue(slots)
	back = append(back, e.flush()...)
	e.sqMu.Unlock()
	e.giveBack(back)
	if e.resting.CompareAndSwap(true, false) {
		e.rouse <- struct{}{} // has room: one token for each time that the reaper lies down
	}
}

// queue puts the next attempt of each slot into the submission queue and returns the slots that
// it does not take. sqMu is held.
func (e *uring) queue(slots []*slot) (back []*slot) {
	for _, s := range slots {
		if e.broken.Load() != nil {
			back = append(back, s)
			continue
		}
		var entries [2]sqe
		n := s.prepare(e.attempt, &entries)
		if uint32(n) > uint32(len(e.r.sqes))-e.r.sqPending() {
			// Each slot has room for its two entries: the ring is not what it was made as.
			s.id.Store(0)
			back = append(back, s)
			continue
		}
		e.attempt++
		for _, entry := range entries[:n] {
			e.r.sqPush(entry)
		}
	}
	return back
}

const (
	// While the kernel answers EAGAIN or EBUSY to a submission it is asked again, less and less
	// often, until this much time has gone in sleeping.
	busyPauseMin = 20 * time.Microsecond
	busyPauseMax = 2 * time.Millisecond
	busyTotalMax = 10 * time.Second
)

// flush hands over everything that is queued. sqMu is held, but released while the kernel is
// busy: the reaper may need it to get the kernel out of that. When it gives up, the ring is
// broken, and the slots that never reached the kernel are returned.
func (e *uring) flush() (back []*slot) {
	pause, slept := busyPauseMin, time.Duration(0)
	for {
		progress, errno := e.handOver()
		switch {
		case errno != 0 && errno != syscall.EBUSY:
			return e.breakRing("io_uring submit", errno)
		case e.r.sqPending() == 0:
			return nil
		case progress:
			pause, slept = busyPauseMin, 0
			continue
		case slept >= busyTotalMax:
			return e.breakRing("io_uring submit", syscall.EBUSY)
		}
		e.sqMu.Unlock()
		e.k.pause(pause)
		e.sqMu.Lock()
		slept += pause
		pause = min(2*pause, busyPauseMax)
	}
}

// handOver makes one call for everything that is queued. EBUSY stands for every answer that asks
// to come again later. sqMu is held.
func (e *uring) handOver() (progress bool, errno syscall.Errno) {
	n := e.r.sqPending()
	if n == 0 {
		return true, 0
	}
	_, errno = e.k.submit(n)
	after := e.r.sqPending()
	e.mendLink(after)
	switch {
	case after < n:
		return true, 0
	case errno == syscall.EINTR:
		e.stats.retries.Add(1)
		return true, 0
	case errno == 0 || errno == syscall.EAGAIN:
		errno = syscall.EBUSY
	}
	if errno == syscall.EBUSY {
		e.stats.retries.Add(1)
	}
	return false, errno
}

// mendLink looks at the entry that the kernel would take next. When that is a sync whose write
// was taken without it, the link between them is lost, and the sync could overtake the write: it
// is made void, and comes again after the write (HZ-4).
func (e *uring) mendLink(pending uint32) {
	if pending == 0 {
		return
	}
	first := e.r.sqFirst()
	if first.userData>>idShift != 0 && first.userData&kindMask == kindLinked {
		*first = sqe{opcode: opNop, userData: first.userData | kindVoid}
	}
}

// breakRing ends submission for good, takes back what the kernel has not seen, and returns the
// slots of which it has seen nothing. sqMu is held.
func (e *uring) breakRing(op string, cause error) (back []*slot) {
	if e.broken.Load() == nil {
		e.broken.Store(Classify(op, "", cause).(*Error)) //nolint:errorlint // Classify made it
	}
	e.r.sqTakeBack(func(id uint64) {
		if id>>idShift == 0 {
			return
		}
		s := &e.slots[id>>kindBits&slotMask]
		switch id & kindMask {
		case kindWrite, kindSync:
			s.id.Store(0)
			back = append(back, s)
		case kindVoid:
			s.lostSync.Store(true) // the kernel has the write: the reaper waits for that alone
		}
	})
	return back
}

// giveBack ends operations that the kernel has not got, because the ring is broken.
func (e *uring) giveBack(slots []*slot) {
	for _, s := range slots {
		err := e.broken.Load()
		if err == nil {
			err = &Error{Op: "io_uring submit", Class: ErrIO, Err: errQueueFull}
		}
		op := s.drop()
		e.stats.end(op, err)
		e.free.push(s)
		op.Owner.OpDone(op)
	}
}

var errQueueFull = errors.New("no room in the submission queue")

// Close waits for what is in flight, as long as the disk takes. It may be called twice.
func (e *uring) Close() error {
	if e.closed.Swap(true) {
		<-e.ended
		return nil
	}
	_ = e.methods.Close() // has no error
	e.free.waitFull()
	close(e.quit)
	e.wake()
	<-e.ended
	e.k.close()
	for i := range e.slots {
		e.slots[i].pin.Unpin()
	}
	return nil
}

// wake makes the reaper look around. Should that fail, it does so by itself a little later.
func (e *uring) wake() {
	e.sqMu.Lock()
	defer e.sqMu.Unlock()
	if e.broken.Load() == nil && e.r.sqPush(sqe{opcode: opNop, userData: idWake}) {
		e.flush() // nothing else is queued, so that nothing comes back
	}
}
