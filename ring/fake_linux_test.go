package ring

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakeKernel is a kernel for one ring, in ordinary memory. It takes submissions as the real one
// does (chains end with a call, a drained entry waits for all before it) and carries them out in
// an order and with results that the test or a seed chooses.
type fakeKernel struct {
	// Set before the engine is opened.
	refuseFlags uint32        // set-up flags answered with EINVAL
	setupErrno  syscall.Errno // answer to every set-up
	probeErrno  syscall.Errno
	limitErrno  syscall.Errno
	setupTimes  int    // setupErrno is the answer so often; 0 = always
	locked      uint64 // bytes that may be locked; 0 = any
	noOp        int    // operation that the probe denies; 0 = none, -1 = the operation 0
	noFeature   uint32
	cqEntries   int // default: twice the submissions

	mu     sync.Mutex // guards what follows
	r      *rings
	e      *uring
	files  map[int32]*fakeFile
	active []*entry // taken, not completed, oldest first
	flow   []cqe    // completions that found the queue full
	closed bool
	wake   chan struct{}
	trace  []string
	setups []uint32 // flags that were asked for

	// What happens. nil or zero: everything in order and in full.
	rng       *rand.Rand                   // order by chance
	answer    func(en *entry) int32        // result of an entry; writes apply that many bytes
	take      func(n uint32) uint32        // how many of n submissions are taken
	submitErr func(call int) syscall.Errno // answer of a submission instead
	waitErr   func(call int) syscall.Errno // answer of a wait instead
	keepLink  bool                         // a short write does not void the linked sync: it runs
	post      func(c cqe, put func(cqe))   // how a completion is put into the queue
	hold      func(en *entry) bool         // not carried out while true
	slept     atomic.Int64
	submits   int
	waits     int
}

type entry struct {
	sqe
	data []byte // of a write: what is to be written
	prev *entry // linked before it
	next *entry
}

type fakeFile struct {
	data, synced []byte
	syncs        int
	direct       bool // opened for direct writes: what one of them brings is synced
}

func (f *fakeFile) write(b []byte, off int64) {
	if need := int(off) + len(b); need > len(f.data) {
		f.data = append(f.data, make([]byte, need-len(f.data))...)
	}
	copy(f.data[off:], b)
	if f.direct {
		if need := int(off) + len(b); need > len(f.synced) {
			f.synced = append(f.synced, make([]byte, need-len(f.synced))...)
		}
		copy(f.synced[off:], b)
	}
}

// holds reports whether an image has b at off.
func holds(image, b []byte, off int64) bool {
	return len(b) == 0 || int(off)+len(b) <= len(image) && bytes.Equal(image[off:int(off)+len(b)], b)
}

// fakeFd is a ring.File with a number that only the fake kernel knows.
type fakeFd struct {
	File
	fd int32
}

func (f fakeFd) Fd() uintptr  { return uintptr(f.fd) }
func (f fakeFd) Name() string { return fmt.Sprint("fake", f.fd) }

func (k *fakeKernel) file(fd int32) (fakeFd, *fakeFile) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files == nil {
		k.files = map[int32]*fakeFile{}
	}
	if k.files[fd] == nil {
		k.files[fd] = &fakeFile{}
	}
	return fakeFd{fd: fd}, k.files[fd]
}

func openFake(t *testing.T, k *fakeKernel, depth int) *uring {
	t.Helper()
	e, err := openURing(k, URingOptions{Depth: depth, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	k.e = e
	k.mu.Unlock()
	t.Cleanup(func() { closeFake(t, e) })
	return e
}

// closeFake also asserts that nothing is left in flight.
func closeFake(t *testing.T, e *uring) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for i := range e.slots {
		if s := &e.slots[i]; s.op != nil || s.id.Load() != 0 {
			t.Errorf("slot %d still holds an operation", i)
		}
	}
	if !e.free.full() {
		t.Error("operations in flight after Close")
	}
}

func (k *fakeKernel) setup(entries uint32, p *uringParams) (*rings, syscall.Errno) {
	k.setups = append(k.setups, p.flags)
	if k.setupErrno != 0 && (k.setupTimes == 0 || len(k.setups) <= k.setupTimes) {
		return nil, k.setupErrno
	}
	if p.flags&k.refuseFlags != 0 {
		return nil, syscall.EINVAL
	}
	p.features = (featSingleMmap | featExtArg) &^ k.noFeature
	cq := k.cqEntries
	if cq == 0 {
		cq = 2 * int(entries)
	}
	k.wake = make(chan struct{}, 1)
	k.r = &rings{
		sqHead: new(uint32), sqTail: new(uint32), sqFlags: new(uint32), sqDropped: new(uint32),
		sqArray: make([]uint32, entries), sqes: make([]sqe, entries),
		cqHead: new(uint32), cqTail: new(uint32), cqOverflow: new(uint32), cqes: make([]cqe, cq),
	}
	return k.r, 0
}

func (k *fakeKernel) probe(p *uringProbe) syscall.Errno {
	if k.probeErrno != 0 {
		return k.probeErrno
	}
	p.opsLen = uint8(len(p.ops))
	for i := range p.ops {
		p.ops[i].flags = probeOpSupported
	}
	if k.noOp != 0 {
		p.ops[max(k.noOp, opNop)].flags = 0
	}
	return 0
}

func (k *fakeKernel) lockLimit() (uint64, bool) { return k.locked, k.locked != 0 }

func (k *fakeKernel) limitWorkers(_, _ uint32) syscall.Errno { return k.limitErrno }

func (k *fakeKernel) submit(n uint32) (uint32, syscall.Errno) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.submits++
	if k.submitErr != nil {
		if errno := k.submitErr(k.submits); errno != 0 {
			return 0, errno
		}
	}
	if k.take != nil {
		n = min(n, k.take(n))
	}
	head := atomic.LoadUint32(k.r.sqHead)
	var before *entry // linked to what comes next
	for range n {
		en := &entry{sqe: k.r.sqes[k.r.sqArray[head&uint32(len(k.r.sqArray)-1)]]}
		head++
		if en.opcode == opWritev {
			en.data = k.pendingBytes(en)
		}
		if before != nil {
			en.prev, before.next = before, en
		}
		before = nil
		if en.flags&sqeIOLink != 0 {
			before = en
		}
		k.active = append(k.active, en)
	}
	atomic.StoreUint32(k.r.sqHead, head)
	if len(k.active) > len(k.r.sqes)+1 { // two for each operation, and one to wake the reaper
		panic("fake kernel: more in flight than the cap")
	}
	if k.rng != nil && k.rng.IntN(2) == 0 {
		k.work(k.rng.IntN(3)) // done before the call returns
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return n, 0
}

// pendingBytes reads what a write is to write through its iovecs, which must be those of its slot.
func (k *fakeKernel) pendingBytes(en *entry) []byte {
	s := &k.e.slots[en.userData>>kindBits&slotMask]
	if en.addr != s.addr || int(en.len) != len(s.iov) || en.off != uint64(s.op.Off+s.op.Written) {
		panic("fake kernel: a submission that does not fit its slot")
	}
	all := bytes.Join(s.op.Vec, nil)[s.op.Written:]
	if s.asked > int64(len(all)) {
		panic("fake kernel: iovecs cover more than is left")
	}
	pos := 0
	for _, iov := range s.iov {
		if *iov.Base != all[pos] {
			panic("fake kernel: an iovec points elsewhere")
		}
		pos += int(iov.Len)
	}
	if int64(pos) != s.asked {
		panic("fake kernel: iovecs cover another length")
	}
	return all[:pos]
}

func (k *fakeKernel) wait(block bool) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waits++
	if k.waitErr != nil {
		if errno := k.waitErr(k.waits); errno != 0 {
			k.work(1) // goes on without us
			return errno
		}
	}
	k.flush()
	if !block || k.ready() {
		return 0
	}
	for range 2 {
		n := 1
		if k.rng != nil {
			n += k.rng.IntN(4)
		}
		k.work(n)
		if k.ready() {
			return 0
		}
		wake, d := k.wake, 100*time.Millisecond
		if k.hold != nil {
			d = time.Millisecond
		}
		k.mu.Unlock()
		select {
		case <-wake:
		case <-time.After(d):
		}
		k.mu.Lock()
	}
	return syscall.ETIME
}

func (k *fakeKernel) ready() bool {
	return atomic.LoadUint32(k.r.cqHead) != atomic.LoadUint32(k.r.cqTail)
}

// pause lets virtual time pass, and the others run.
func (k *fakeKernel) pause(d time.Duration) {
	k.slept.Add(int64(d))
	runtime.Gosched()
}

func (k *fakeKernel) close() { k.closed = true }

// nudge makes a blocked wait look again, after a test has changed what may happen.
func (k *fakeKernel) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// work carries out up to n entries.
func (k *fakeKernel) work(n int) {
	for range n {
		var can []*entry
		for i, en := range k.active {
			if en.prev != nil || en.flags&sqeIODrain != 0 && i > 0 || k.hold != nil && k.hold(en) {
				continue
			}
			can = append(can, en)
		}
		if len(can) == 0 {
			return
		}
		en := can[0]
		if k.rng != nil {
			en = can[k.rng.IntN(len(can))]
		}
		k.carryOut(en)
	}
}

func (k *fakeKernel) carryOut(en *entry) {
	var res int32
	if en.opcode == opWritev {
		res = int32(len(en.data))
	}
	if k.answer != nil && en.userData>>idShift != 0 {
		res = k.answer(en)
	}
	f := k.files[en.fd]
	switch en.opcode {
	case opWritev:
		if n := min(int(res), len(en.data)); n > 0 {
			f.write(en.data[:n], int64(en.off))
		}
	case opFsync:
		f.syncs++
		if res == 0 {
			f.synced = bytes.Clone(f.data)
		}
	}
	k.trace = append(k.trace, fmt.Sprintf("%d:%d", en.opcode, res))
	k.finish(en, res)
	for next := en.next; next != nil; next = next.next {
		if (en.opcode == opWritev && int(res) == len(en.data)) || k.keepLink {
			next.prev = nil
			break
		}
		k.trace = append(k.trace, fmt.Sprintf("%d:canceled", next.opcode))
		k.finish(next, -int32(syscall.ECANCELED))
	}
}

func (k *fakeKernel) finish(en *entry, res int32) {
	for i, a := range k.active {
		if a == en {
			k.active = append(k.active[:i:i], k.active[i+1:]...)
			break
		}
	}
	c := cqe{userData: en.userData, res: res}
	if k.post != nil && en.userData>>idShift != 0 {
		k.post(c, k.put)
		return
	}
	k.put(c)
}

// put adds a completion to the queue, or keeps it aside when that is full.
func (k *fakeKernel) put(c cqe) {
	head, tail := atomic.LoadUint32(k.r.cqHead), *k.r.cqTail
	if int(tail-head) >= len(k.r.cqes) || len(k.flow) > 0 {
		k.flow = append(k.flow, c)
		atomic.StoreUint32(k.r.sqFlags, sqCQOverflow)
		return
	}
	k.r.cqes[tail&uint32(len(k.r.cqes)-1)] = c
	atomic.StoreUint32(k.r.cqTail, tail+1)
}

// flush moves kept completions into the queue, as a wait does.
func (k *fakeKernel) flush() {
	flow := k.flow
	k.flow = nil
	atomic.StoreUint32(k.r.sqFlags, 0)
	for _, c := range flow {
		k.put(c)
	}
}

// scripted is a kernel that gives these answers in turn; left tells how many it has still.
func scripted(t *testing.T, script []int32) (k *fakeKernel, left func() int) {
	k = &fakeKernel{answer: func(*entry) int32 {
		if len(script) == 0 {
			t.Error("the engine asks for more than the script has")
			return neg(syscall.EIO)
		}
		r := script[0]
		script = script[1:]
		return r
	}}
	return k, func() int { return len(script) }
}
