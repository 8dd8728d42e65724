// Hot path.

package ring

import (
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A completion is matched by an id that is never used twice: the number of the attempt, the slot,
// and which of the attempt's two entries it is. An attempt is one hand-over to the kernel; a
// continued write is a new one, so that nothing late can be taken for its result (HZ-21).
const (
	kindWrite  = 0 // a write
	kindSync   = 1 // a sync of its own
	kindLinked = 2 // a sync that was linked behind the attempt's write
	kindVoid   = 3 // stands in for a linked sync that must not run: as good as canceled
	kindBits   = 2
	slotBits   = 16
	kindMask   = 1<<kindBits - 1
	slotMask   = 1<<slotBits - 1
	idShift    = kindBits + slotBits

	// Attempt number 0 is for entries without an operation.
	idWake  = 0 << kindBits // makes the reaper look
	idDrain = 1 << kindBits // completes after everything before it
)

// triesMax bounds how often in a row the kernel may answer EINTR or EAGAIN without any progress.
const triesMax = 1000

// errImpossible is the cause when a completion says what it cannot, such as more bytes than asked.
var errImpossible = errors.New("impossible completion")

// slot holds one operation while the kernel has it, and every address that the kernel was given.
//
// It is filled by Submit, which then stores id; from there it belongs to the reaper, until that
// puts it on the free list. iov is typed memory: its pointers keep the buffers alive. The array
// itself is pinned, since the kernel knows it by a number. Pinning the buffers one by one was
// tried: 100 ns each, and memory is allocated for every operation of more than five.
type slot struct {
	// id is the attempt in flight with kind 0, or 0 when there is none. Written by whoever owns
	// the slot, read by the reaper; it also orders the two in memory.
	id atomic.Uint64
	// lostSync is set when the linked sync of the attempt in flight never reached the kernel.
	// Set by whoever found the ring broken, read by the reaper.
	lostSync atomic.Bool

	op    *Op
	index int32
	fd    int32
	total int64
	iov   []unix.Iovec
	addr  uint64
	pin   runtime.Pinner // of iov

	// The attempt in flight.
	asked       int64 // bytes of its write
	waiting     uint8 // bits of the kinds that have not completed
	wres, sres  int32
	forceWorker bool // run it on a worker: it was refused inline
	tries       int
}

// take puts an operation into a free slot.
func (s *slot) take(op *Op, fd uintptr) {
	s.op, s.fd = op, int32(fd)
	s.total = 0
	if op.Kind != OpSync {
		s.total = vecLen(op.Vec)
	}
	op.Err, op.Written = nil, 0
	s.tries, s.forceWorker = 0, false
}

// drop empties the slot: nothing of it is in the kernel any more.
func (s *slot) drop() *Op {
	op := s.op
	s.op = nil
	s.id.Store(0)
	s.lostSync.Store(false)
	clear(s.iov)
	s.iov = s.iov[:0]
	return op
}

// prepare makes the entries of the next attempt; n is 1 or 2. A sync is linked behind a write
// only when that write brings the last byte; a direct write has none, it is its own.
func (s *slot) prepare(attempt uint64, out *[2]sqe) (n int) {
	op := s.op
	base := attempt<<idShift | uint64(s.index)<<kindBits
	var flags uint8
	if s.forceWorker {
		flags = sqeAsync
	}
	s.waiting, s.wres, s.sres, s.asked = 0, 0, 0, 0
	writes := op.Kind == OpWrite || op.Kind == OpWriteDirect || op.Kind == OpWriteSync && op.Written < s.total
	if writes {
		s.describe()
		out[0] = sqe{opcode: opWritev, flags: flags, fd: s.fd, off: uint64(op.Off + op.Written),
			addr: s.addr, len: uint32(len(s.iov)), userData: base | kindWrite}
		s.waiting = 1 << kindWrite
		n = 1
	}
	if op.Kind.syncs() && op.Written+s.asked == s.total {
		kind := uint64(kindSync)
		if writes {
			kind = kindLinked
			out[0].flags |= sqeIOLink
		}
		out[n] = sqe{opcode: opFsync, flags: flags, fd: s.fd, opFlags: fsyncDatasync, userData: base | kind}
		s.waiting |= 1 << kind
		n++
	}
	s.id.Store(base)
	return n
}

// describe fills iov with what is left to write.
func (s *slot) describe() {
	need := min(len(s.op.Vec), MaxVec)
	if cap(s.iov) < max(need, 1) {
		s.pin.Unpin()
		s.iov = make([]unix.Iovec, 0, max(8, need+need/2))
		s.pin.Pin(&s.iov[:1][0])
		s.addr = iovAddr(s.iov)
	}
	s.iov, s.asked = appendIovecs(s.iov[:0], s.op.Vec, s.op.Written)
}

// completed notes one completion of the attempt in flight. stray: it cannot be one.
// ended: it was the last, settle is next.
func (s *slot) completed(kind uint64, res int32) (ended, stray bool) {
	if kind == kindVoid {
		kind, res = kindLinked, -int32(syscall.ECANCELED)
	}
	if s.waiting&(1<<kind) == 0 {
		return false, true
	}
	s.waiting &^= 1 << kind
	if kind == kindWrite {
		s.wres = res
	} else {
		s.sres = res
	}
	return s.waiting == 0, false
}

// settle looks at a whole attempt, once all its completions are there, in whatever order they
// came. It returns done with the operation's outcome, or not done when there is more to do; then
// prepare is next. It is the only place that credits anything:
//
//   - a write counts for the bytes it says, never for what was asked;
//   - a linked sync counts only behind a write that was full; behind any other its answer is void,
//     the rest is written and a new sync comes after that (HZ-4);
//   - a direct write is its own sync: it succeeds with its last byte, goes on only from where the
//     next direct write may begin, and has no sync that could fail by itself;
//   - a sync that the kernel gave up before it began is begun again, one that failed never (HZ-2).
func (s *slot) settle(c *counters) (done bool, err error) {
	op := s.op
	if s.asked > 0 || !op.Kind.syncs() {
		switch {
		case s.wres < 0:
			return s.refused(c, "write", syscall.Errno(-s.wres))
		case int64(s.wres) > s.asked:
			return true, s.error("write", errImpossible)
		case s.wres == 0 && s.asked > 0:
			return true, s.error("write", io.ErrShortWrite)
		}
		op.Written += int64(s.wres)
		s.tries = 0
		if op.Written < s.total {
			c.shortWrites.Add(1)
			if !op.mayGoOn() {
				return true, s.error("write", io.ErrShortWrite)
			}
			return false, nil
		}
		switch op.Kind {
		case OpWrite:
			return true, nil
		case OpWriteDirect:
			c.syncs.Add(1)
			return true, nil
		}
	}
	switch errno := syscall.Errno(-s.sres); {
	case s.sres == 0:
		c.syncs.Add(1)
		return true, nil
	case s.sres > 0:
		return true, s.error("sync", errImpossible)
	case errno == syscall.ECANCELED && s.asked > 0:
		// Behind a full write, yet it did not run.
		return s.refused(c, "sync", syscall.EAGAIN)
	default:
		return s.refused(c, "sync", errno)
	}
}

// refused ends the operation with an errno, unless it only asks to come again.
func (s *slot) refused(c *counters, what string, errno syscall.Errno) (done bool, err error) {
	if errno != syscall.EINTR && errno != syscall.EAGAIN || s.tries >= triesMax {
		return true, s.error(what, errno)
	}
	s.tries++
	s.forceWorker = true
	c.retries.Add(1)
	return false, nil
}

func (s *slot) error(what string, err error) error {
	return Classify(what, s.op.File.Name(), err)
}
