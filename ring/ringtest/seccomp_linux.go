package ringtest

import (
	"fmt"
	"reflect"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The three calls of io_uring, the same numbers on every architecture.
const (
	IOURingSetup    = unix.SYS_IO_URING_SETUP
	IOURingEnter    = unix.SYS_IO_URING_ENTER
	IOURingRegister = unix.SYS_IO_URING_REGISTER
)

// ForbidIOURing makes the given calls (all three when none is given) answer errno in every
// thread of this process and in its children, for good: as a container runtime does. Call it in a
// process of its own, before or after it opens a ring.
func ForbidIOURing(errno syscall.Errno, calls ...uint32) error {
	if len(calls) == 0 {
		calls = []uint32{IOURingSetup, IOURingEnter, IOURingRegister}
	}
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the call's number
	for i, c := range calls {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: c, Jt: uint8(len(calls) - i)})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	prog := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	// With TSYNC the kernel puts the filter on all threads; the promise not to gain privileges
	// is one thread's, and goes along.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("ringtest: no new privileges: %w", err)
	}
	var pin runtime.Pinner
	pin.Pin(prog)
	pin.Pin(prog.Filter)
	defer pin.Unpin()
	// reflect and not unsafe: the kernel reads the program during the call.
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, reflect.ValueOf(prog).Pointer())
	if e != 0 {
		return fmt.Errorf("ringtest: seccomp: %w", e)
	}
	if r != 0 {
		return fmt.Errorf("ringtest: seccomp: thread %d has another filter", r)
	}
	return nil
}
