package ring

import (
	"sync/atomic"
	"syscall"
	"time"
)

// kernel is the kernel of one ring, as narrow as the engine needs it. sysKernel is the real one;
// tests have one that completes short, late, twice, in any order and not at all.
type kernel interface {
	// setup makes a ring of at least entries submissions and maps it.
	setup(entries uint32, p *uringParams) (*rings, syscall.Errno)
	// lockLimit is how many bytes this process may lock, and whether that counts for rings.
	lockLimit() (bytes uint64, counts bool)
	probe(p *uringProbe) syscall.Errno
	limitWorkers(bounded, unbounded uint32) syscall.Errno
	// submit hands n entries over and returns how many were taken.
	submit(n uint32) (uint32, syscall.Errno)
	// wait returns when a completion is there, with ETIME after a while without one, or with
	// another error. With block false it only moves overflowed completions into the queue.
	wait(block bool) syscall.Errno
	// pause sleeps, where the kernel must be asked again later.
	pause(d time.Duration)
	close()
}

// rings are the two queues that the kernel shares with us. Of the indexes, sqTail and cqHead are
// written by us, the other words by the kernel.
type rings struct {
	sqHead, sqTail, sqFlags, sqDropped *uint32
	sqArray                            []uint32
	sqes                               []sqe
	cqHead, cqTail, cqOverflow         *uint32
	cqes                               []cqe
}

// sqPending is how many entries the kernel has not taken. Called with the submission lock.
func (r *rings) sqPending() uint32 {
	return *r.sqTail - atomic.LoadUint32(r.sqHead)
}

// sqPush appends an entry; false when the queue is full. Called with the submission lock.
func (r *rings) sqPush(e sqe) bool {
	tail := *r.sqTail // only we write it, with the lock
	if tail-atomic.LoadUint32(r.sqHead) >= uint32(len(r.sqes)) {
		return false
	}
	i := tail & uint32(len(r.sqes)-1)
	r.sqes[i] = e
	r.sqArray[i] = i
	atomic.StoreUint32(r.sqTail, tail+1)
	return true
}

// sqFirst is the entry that the kernel takes next. There must be one.
func (r *rings) sqFirst() *sqe {
	return &r.sqes[atomic.LoadUint32(r.sqHead)&uint32(len(r.sqes)-1)]
}

// sqTakeBack removes every entry that the kernel has not taken and calls fn with the id of each.
// The kernel reads the queue only inside submit, so that with the lock nothing is read meanwhile.
func (r *rings) sqTakeBack(fn func(id uint64)) {
	head, tail := atomic.LoadUint32(r.sqHead), *r.sqTail
	for i := head; i != tail; i++ {
		fn(r.sqes[i&uint32(len(r.sqes)-1)].userData)
	}
	atomic.StoreUint32(r.sqTail, head)
}

// lost is how many completions and submissions the kernel has thrown away.
func (r *rings) lost() uint32 {
	return atomic.LoadUint32(r.cqOverflow) + atomic.LoadUint32(r.sqDropped)
}

// overflowed reports whether completions wait in the kernel because the queue was full.
func (r *rings) overflowed() bool { return atomic.LoadUint32(r.sqFlags)&sqCQOverflow != 0 }
