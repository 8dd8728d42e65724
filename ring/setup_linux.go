package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"syscall"
	"time"
)

// OpenURing opens an io_uring engine and lets it prove itself on a scratch file in o.Dir. When
// the kernel refuses, the error is one for which Open falls back. The descriptors and the queues
// are the engine's alone; it starts one reaper goroutine.
//
// With o.Direct the file system of o.Dir must prove its direct writes, too. A disk without room
// for that keeps no engine from starting that was asked for by name.
func OpenURing(o URingOptions) (Engine, error) {
	e, err := openProven(o)
	if err != nil {
		return nil, err
	}
	if !o.Direct {
		return e, nil
	}
	err = proveDirect(e, o.Dir)
	if isNoRoom(err) {
		if !o.MustProve {
			return e, nil
		}
		err = refusedError{err}
	}
	if err != nil {
		giveUp(e, err)
		return nil, err
	}
	return e, nil
}

// openProven opens an engine that has proven its buffered writes.
func openProven(o URingOptions) (*uring, error) {
	e, err := openURing(newSysKernel(), o)
	if err != nil {
		return nil, refuse(err)
	}
	if err := prove(e, o.Dir); err != nil {
		giveUp(e, err)
		return nil, err
	}
	return e, nil
}

// openURing sets a ring up on k: with the wanted flags, then without the optional ones.
func openURing(k kernel, o URingOptions) (*uring, error) {
	depth, workers := limits(o.Depth, o.Workers)
	entries := uint32(1) << bits.Len32(uint32(2*depth-1))
	var p uringParams
	var r *rings
	errno := syscall.EINVAL
	for _, flags := range []uint32{setupSubmitAll, 0} {
		p = uringParams{flags: flags}
		if r, errno = setupWithin(k, entries, &p); errno != syscall.EINVAL {
			break
		}
	}
	if errno == syscall.ENOMEM {
		if limit, counts := k.lockLimit(); counts {
			return nil, refusedError{&Error{Op: "io_uring setup", Class: ErrIO, Err: fmt.Errorf("%w: %w = %d", errno, errLockLimit, limit)}}
		}
	}
	if errno != 0 {
		return nil, Classify("io_uring setup", "", errno)
	}
	if err := capable(k, &p); err != nil {
		k.close()
		return nil, err
	}
	if errno := k.limitWorkers(uint32(workers), 1); errno != 0 && errno != syscall.EINVAL {
		k.close() // EINVAL: an older kernel, which caps by the number of CPUs
		return nil, Classify("io_uring worker limit", "", errno)
	}
	depth = min(depth, len(r.sqes)/2, len(r.cqes)/2)
	e := &uring{
		k: k, r: r, depth: depth, workers: workers, direct: o.Direct,
		slots:   make([]slot, depth),
		stats:   &counters{},
		batch:   make([]*slot, 0, depth),
		quit:    make(chan struct{}),
		ended:   make(chan struct{}),
		rouse:   make(chan struct{}, 1),
		attempt: 1,
	}
	e.methods = newPortable(depth, workers, e.stats)
	e.free.init(e.slots)
	e.reaper.init(e)
	go e.reaper.run()
	return e, nil
}

// errLockLimit is the cause when a limit that a person has set leaves no memory for a ring: unlike a
// machine without memory that is a refusal (HZ-24).
var errLockLimit = errors.New("RLIMIT_MEMLOCK")

const (
	// The memory of a ring that was closed comes back a little later.
	memoryPause    = 10 * time.Millisecond
	memoryPauseMax = 500 * time.Millisecond
)

// setupWithin is setup, which where locked memory is limited waits for that of closed rings.
func setupWithin(k kernel, entries uint32, p *uringParams) (r *rings, errno syscall.Errno) {
	want := *p
	for slept := time.Duration(0); ; slept += memoryPause {
		*p = want
		r, errno = k.setup(entries, p)
		if errno != syscall.ENOMEM || slept >= memoryPauseMax {
			return r, errno
		}
		if _, counts := k.lockLimit(); !counts {
			return r, errno
		}
		k.pause(memoryPause)
	}
}

// capable asks the ring itself what it can do; the version of the kernel says nothing (HZ-20).
func capable(k kernel, p *uringParams) error {
	if p.features&featExtArg == 0 {
		return &Error{Op: "io_uring setup", Class: ErrUnsupported, Err: fmt.Errorf("no waiting with a time limit: %w", syscall.EOPNOTSUPP)}
	}
	var ops uringProbe
	switch errno := k.probe(&ops); errno {
	case 0:
	case syscall.EINVAL:
		return nil // a kernel without this question; the proof on a file decides
	default:
		return Classify("io_uring probe", "", errno)
	}
	for _, op := range []int{opNop, opWritev, opFsync} {
		if !ops.supports(op) {
			return &Error{Op: "io_uring probe", Class: ErrUnsupported, Err: fmt.Errorf("operation %d: %w", op, syscall.EOPNOTSUPP)}
		}
	}
	return nil
}
