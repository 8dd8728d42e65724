package ring

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The experiment behind docs/decisions/ring-flags.md: today's two threads (the submitter and the
// reaper both enter the ring) against one locked thread that owns it, woken through a read of an
// eventfd that is itself an operation of the ring.

const (
	setupCoopTaskrun  = 1 << 8
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	opReadv           = 1
	idEvent           = 1 << 62
)

// flagKernel sets a ring up with more flags.
type flagKernel struct {
	kernel
	flags uint32
}

func (k flagKernel) setup(entries uint32, p *uringParams) (*rings, syscall.Errno) {
	p.flags |= k.flags
	return k.kernel.setup(entries, p)
}

// ownedRing is the other design, as far as a benchmark needs it: full writes, one file descriptor
// per operation, no errors.
type ownedRing struct {
	Engine   // for the methods that nobody calls
	event    int
	in       chan *Op
	signaled atomic.Bool
	ended    chan struct{}
}

func openOwned(b *testing.B, flags uint32) *ownedRing {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	o := &ownedRing{event: event, in: make(chan *Op, 256), ended: make(chan struct{})}
	started := make(chan syscall.Errno)
	go o.run(flags, started)
	if errno := <-started; errno != 0 {
		b.Skipf("flags %#x: %v", flags, errno)
	}
	b.Cleanup(func() {
		close(o.in)
		o.ring()
		<-o.ended
		_ = unix.Close(event)
	})
	return o
}

func (o *ownedRing) Submit(ops []*Op) {
	for _, op := range ops {
		o.in <- op
	}
	if !o.signaled.Swap(true) {
		o.ring()
	}
}

func (o *ownedRing) ring() { _, _ = unix.Write(o.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (o *ownedRing) run(flags uint32, started chan<- syscall.Errno) {
	defer close(o.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := newSysKernel().(*sysKernel) //nolint:errorlint // it is one
	p := uringParams{flags: flags}
	r, errno := k.setup(512, &p)
	started <- errno
	if errno != 0 {
		return
	}
	defer k.close()
	slots := make([]slot, 64)
	var free freeList
	free.init(slots)
	count := make([]byte, 8)
	iov := []unix.Iovec{{Base: &count[0], Len: 8}}
	var pin runtime.Pinner
	pin.Pin(&iov[0])
	pin.Pin(&count[0])
	defer pin.Unpin()
	arm := sqe{opcode: opReadv, fd: int32(o.event), addr: iovAddr(iov), len: 1, userData: idEvent}
	r.sqPush(arm)
	attempt, inFlight, open := uint64(1), 0, true
	for open || inFlight > 0 {
		n := r.sqPending()
		if _, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(k.fd), uintptr(n), 1, enterGetEvents, 0, 0); e != 0 && e != unix.EINTR {
			panic(e)
		}
		head, tail := *r.cqHead, atomic.LoadUint32(r.cqTail)
		for ; head != tail; head++ {
			c := r.cqes[head&uint32(len(r.cqes)-1)]
			if c.userData == idEvent {
				o.signaled.Store(false)
				open = o.take(r, &free, &attempt, &inFlight) && open
				if open {
					r.sqPush(arm)
				}
				continue
			}
			s := &slots[c.userData>>kindBits&slotMask]
			if ended, _ := s.completed(c.userData&kindMask, c.res); ended {
				op := s.drop()
				free.push(s)
				inFlight--
				if c.res < 0 {
					op.Err = syscall.Errno(-c.res)
				}
				op.Owner.OpDone(op)
			}
		}
		atomic.StoreUint32(r.cqHead, head)
	}
	for i := range slots {
		slots[i].pin.Unpin()
	}
}

func (o *ownedRing) take(r *rings, free *freeList, attempt *uint64, inFlight *int) (open bool) {
	for {
		select {
		case op, ok := <-o.in:
			if !ok {
				return false
			}
			s := free.pop()
			s.take(op, op.File.Fd())
			var entries [2]sqe
			n := s.prepare(*attempt, &entries)
			*attempt++
			*inFlight++
			for _, e := range entries[:n] {
				r.sqPush(e)
			}
		default:
			return true
		}
	}
}

func BenchmarkRingFlags(b *testing.B) {
	for _, kind := range []OpKind{OpWriteSync, OpWriteDirect} {
		for _, inFlight := range []int{1, 8, 64} {
			for _, design := range []struct {
				name  string
				owned bool
				flags uint32
			}{
				{"two", false, 0},
				{"two-coop", false, setupCoopTaskrun},
				{"owned", true, 0},
				{"owned-defer", true, setupSubmitAll | setupSingleIssuer | setupDeferTaskrun},
			} {
				b.Run(fmt.Sprintf("kind=%d/inflight=%d/design=%s", kind, inFlight, design.name), func(b *testing.B) {
					var e Engine
					if design.owned {
						e = openOwned(b, design.flags)
					} else {
						u, err := openURing(flagKernel{newSysKernel(), design.flags}, URingOptions{Depth: 64})
						if err != nil {
							b.Skip(err)
						}
						b.Cleanup(func() { _ = u.Close() })
						e = u
					}
					benchFlags(b, e, kind, inFlight)
				})
			}
		}
	}
}

func benchFlags(b *testing.B, e Engine, kind OpKind, inFlight int) {
	const span = 256 << 10
	dir := b.TempDir()
	done := make(counted, inFlight)
	ops := make([]*Op, inFlight)
	for i := range ops {
		f := create(b, filepath.Join(dir, fmt.Sprint(i)))
		if _, err := f.WriteAt(make([]byte, span), 0); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		d, err := OS().OpenDirect(f.Name(), true)
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() { d.Close() })
		ops[i] = &Op{Kind: kind, File: d, Owner: done, Vec: [][]byte{blocks(1, 'x')}}
		if kind == OpWriteSync {
			ops[i].File = f
		}
	}
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	b.ResetTimer()
	batch := make([]*Op, 0, inFlight)
	e.Submit(ops)
	n := 0
	for n < b.N {
		batch = append(batch[:0], <-done)
		for range len(done) {
			batch = append(batch, <-done)
		}
		for _, op := range batch {
			if op.Err != nil {
				b.Fatal(op.Err)
			}
			op.Off = (op.Off + DirectAlign) % span
		}
		n += len(batch)
		e.Submit(batch)
	}
	b.StopTimer()
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	for range inFlight {
		<-done
	}
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(n)/1e3, "cpu-us/op")
}
