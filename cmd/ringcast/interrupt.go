package main

import (
	"io"
)

// interruptible is a reader whose Read ends when stop is closed, which a read of a pipe or a terminal
// does not. The read that it gives up stays behind, on a goroutine of its own, until there is input
// or the process ends: the command is over by then.
type interruptible struct {
	stop <-chan struct{}
	why  func() error // the error to end with
	r    io.Reader
	buf  []byte
	done chan readResult

	rest []byte // read and not yet taken
	err  error  // comes after rest
}

type readResult struct {
	n   int
	err error
}

func newInterruptible(stop <-chan struct{}, why func() error, r io.Reader) *interruptible {
	return &interruptible{stop: stop, why: why, r: r, buf: make([]byte, 64<<10), done: make(chan readResult, 1)}
}

func (i *interruptible) Read(p []byte) (int, error) {
	if len(i.rest) == 0 && i.err == nil {
		go func() {
			n, err := i.r.Read(i.buf)
			i.done <- readResult{n, err}
		}()
		select {
		case got := <-i.done:
			i.rest, i.err = i.buf[:got.n], got.err
		case <-i.stop:
			i.err = i.why()
		}
	}
	if len(i.rest) == 0 {
		return 0, i.err
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}
