package sched

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// EventfdParker parks the thread in the kernel, outside the Go scheduler: the way to sleep for a
// goroutine that is locked to its thread, which the scheduler takes 20 us and more to hand on to.
// The wait is an ordinary system call, so the runtime takes the processor back from it.
type EventfdParker struct {
	fd int

	// mu keeps a late Unpark from writing to a descriptor that Close has given back. Unpark takes
	// it only when somebody is to be woken, which costs a system call anyway.
	mu     sync.Mutex
	closed bool
}

// NewEventfdParker opens an eventfd. The caller closes the parker after the last Park.
func NewEventfdParker() (*EventfdParker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("sched: eventfd: %w", err)
	}
	return &EventfdParker{fd: fd}, nil
}

// Park implements Parker.
func (p *EventfdParker) Park(d time.Duration) {
	var timeout *unix.Timespec
	if d >= 0 {
		ts := unix.NsecToTimespec(int64(d))
		timeout = &ts
	}
	fds := [1]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Ppoll(fds[:], timeout, nil)
	if err != nil || n == 0 {
		return // interrupted or timed out: the caller looks again
	}
	var token [8]byte
	unix.Read(p.fd, token[:]) // cannot block; one read takes every token
}

// Unpark implements Parker. After Close it does nothing.
func (p *EventfdParker) Unpark() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	p.mu.Lock()
	if !p.closed {
		unix.Write(p.fd, one[:])
	}
	p.mu.Unlock()
}

// Close gives the descriptor back. It may be called twice.
func (p *EventfdParker) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return unix.Close(p.fd)
}
