// Hot path.

package ring

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file holds every raw system call and every use of unsafe in this package.

// syncData makes the file's data, and the metadata needed to read it, durable.
func syncData(f *os.File) error {
	fd := int(f.Fd())
	if fd == -1 {
		return os.ErrClosed
	}
	for {
		err := unix.Fdatasync(fd)
		if err != unix.EINTR {
			runtime.KeepAlive(f)
			return err
		}
	}
}

// allocate reserves extents and leaves the length alone.
func allocate(f *os.File, off, n int64) error {
	fd := int(f.Fd())
	if fd == -1 {
		return os.ErrClosed
	}
	for {
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
		if err != unix.EINTR {
			runtime.KeepAlive(f)
			return err
		}
	}
}

// vecWriter is one worker's memory for gathered writes.
type vecWriter struct{ iov []unix.Iovec }

// writeVec writes vec without its first skip bytes at off with one system call. ok is false when
// the file has no descriptor to do that with.
func (w *vecWriter) writeVec(f File, vec [][]byte, skip, off int64) (n int64, errno syscall.Errno, ok bool) {
	fd := f.Fd()
	if fd == ^uintptr(0) {
		return 0, 0, false
	}
	if need := min(len(vec), MaxVec); cap(w.iov) < need {
		w.iov = make([]unix.Iovec, 0, need+need/2)
	}
	w.iov, _ = appendIovecs(w.iov[:0], vec, skip)
	if len(w.iov) == 0 {
		return 0, 0, true
	}
	// The kernel puts the offset together from two halves, of which 64-bit systems fill the first.
	lo, hi := uintptr(off), uintptr(uint64(off)>>32)
	r, _, errno := unix.Syscall6(unix.SYS_PWRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(w.iov))), uintptr(len(w.iov)), lo, hi, 0)
	runtime.KeepAlive(f)
	clear(w.iov) // hold no buffer beyond the call
	if errno != 0 {
		return 0, errno, true
	}
	return int64(r), 0, true
}

// iovAddr is the address of an iovec array as a submission carries it: a number, which keeps
// nothing alive. The array must be pinned and reachable until the operation has completed.
func iovAddr(iov []unix.Iovec) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(iov)))) }

// sysKernel is the kernel we run on.
type sysKernel struct {
	fd   int
	maps [][]byte

	// The argument of every wait that blocks; pinned, because it holds an address as a number.
	arg *getEventsArg
	ts  *timespec
	pin runtime.Pinner
}

// waitMax is how long the reaper sleeps before it looks around: nothing that it must notice,
// not even a wake-up that got lost, can take longer.
const waitMax = 500 // milliseconds

func newSysKernel() kernel { return &sysKernel{fd: -1} }

func (k *sysKernel) setup(entries uint32, p *uringParams) (*rings, syscall.Errno) {
	r, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return nil, errno
	}
	k.fd = int(r) // close-on-exec by itself
	k.ts = &timespec{nsec: waitMax * 1e6}
	k.arg = &getEventsArg{}
	k.pin.Pin(k.ts)
	k.arg.ts = uint64(uintptr(unsafe.Pointer(k.ts)))

	sqLen := int(p.sqOff.arr + p.sqEntries*uint32(unsafe.Sizeof(uint32(0))))
	cqLen := int(p.cqOff.cqes + p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	if p.features&featSingleMmap != 0 {
		sqLen = max(sqLen, cqLen)
	}
	sq, errno := k.mmap(offSQRing, sqLen)
	cq := sq
	if errno == 0 && p.features&featSingleMmap == 0 {
		cq, errno = k.mmap(offCQRing, cqLen)
	}
	var sqes []byte
	if errno == 0 {
		sqes, errno = k.mmap(offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})))
	}
	if errno != 0 {
		k.close()
		return nil, errno
	}
	return &rings{
		sqHead:     word(sq, p.sqOff.head),
		sqTail:     word(sq, p.sqOff.tail),
		sqFlags:    word(sq, p.sqOff.flags),
		sqDropped:  word(sq, p.sqOff.dropped),
		sqArray:    unsafe.Slice(word(sq, p.sqOff.arr), p.sqEntries),
		sqes:       unsafe.Slice((*sqe)(unsafe.Pointer(&sqes[0])), p.sqEntries),
		cqHead:     word(cq, p.cqOff.head),
		cqTail:     word(cq, p.cqOff.tail),
		cqOverflow: word(cq, p.cqOff.overflow),
		cqes:       unsafe.Slice((*cqe)(unsafe.Pointer(&cq[p.cqOff.cqes])), p.cqEntries),
	}, 0
}

// lockLimit: rings count as locked memory unless the process may lock what it wants, by a right
// that holds on the host: what a user namespace gives does not.
func (k *sysKernel) lockLimit() (bytes uint64, counts bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil || data[0].Effective&(1<<unix.CAP_IPC_LOCK) == 0 {
		return limit.Cur, true
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	return limit.Cur, err == nil && !slices.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"})
}

func word(m []byte, off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&m[off])) }

func (k *sysKernel) mmap(off int64, n int) ([]byte, syscall.Errno) {
	m, err := unix.Mmap(k.fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, err.(syscall.Errno) //nolint:errorlint // Mmap returns nothing else
	}
	k.maps = append(k.maps, m)
	return m, 0
}

func (k *sysKernel) probe(p *uringProbe) syscall.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(k.fd), registerProbe, uintptr(unsafe.Pointer(p)), uintptr(len(p.ops)), 0, 0)
	return errno
}

func (k *sysKernel) limitWorkers(bounded, unbounded uint32) syscall.Errno {
	counts := [2]uint32{bounded, unbounded}
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(k.fd), registerMaxWorkers, uintptr(unsafe.Pointer(&counts)), uintptr(len(counts)), 0, 0)
	return errno
}

func (k *sysKernel) submit(n uint32) (uint32, syscall.Errno) {
	r, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(k.fd), uintptr(n), 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return uint32(r), 0
}

func (k *sysKernel) wait(block bool) syscall.Errno {
	if !block {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(k.fd), 0, 0, enterGetEvents, 0, 0)
		return errno
	}
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(k.fd), 0, 1, enterGetEvents|enterExtArg,
		uintptr(unsafe.Pointer(k.arg)), unsafe.Sizeof(*k.arg))
	return errno
}

// pause puts the thread to sleep: Go's timers take a millisecond at least.
func (k *sysKernel) pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal may cut it short
}

func (k *sysKernel) close() {
	for _, m := range k.maps {
		_ = unix.Munmap(m) // what we mapped ourselves
	}
	k.maps = nil
	if k.fd >= 0 {
		_ = unix.Close(k.fd)
		k.fd = -1
	}
	k.pin.Unpin()
}

// memFile is a file in memory that has no name.
func memFile() (File, error) {
	fd, err := unix.MemfdCreate("ring-proof", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, Classify("open", "memfd", err)
	}
	return newOSFile(os.NewFile(uintptr(fd), "memfd")), nil
}

// uringDisabled is the sysctl that turns io_uring off for the host, or "" where there is none.
func uringDisabled() string {
	b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
