package ring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// prove runs one real gathered write with a linked sync on a scratch file and reads it back, all
// through the engine's own paths: a ring may be set up and yet refuse to be entered, or refuse
// the file system of the data directory (HZ-19, HZ-20).
//
// A disk that is full or read-only proves nothing against io_uring and must not keep a broker from
// starting (HZ-10), whether the file cannot be made or not be written: the proof is then made on a
// file in memory.
func prove(e Engine, dir string) error {
	f, err := scratch(dir)
	if err != nil {
		return err
	}
	err = proveOn(e, f)
	f.Close()
	if !isNoRoom(err) {
		return err
	}
	if f, err = memFile(); err != nil {
		return err
	}
	defer f.Close()
	return proveOn(e, f)
}

// proofWaitMax is how long an operation of a proof may take. A start must not wait for ever: this
// kernel was seen, once in many thousand rings, to lose a direct write behind the end of a file.
const proofWaitMax = 20 * time.Second

var errSilent = fmt.Errorf("no answer within %v", proofWaitMax)

// answered waits for an operation of a proof, no longer than limit.
func answered(ended <-chan struct{}, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ended:
		return nil
	case <-t.C:
		return refusedError{&Error{Op: "io_uring", Class: ErrIO, Err: errSilent}}
	}
}

// giveUp closes an engine that failed its proof. One that owes an answer cannot be closed: its
// goroutines end, and what the kernel may still look at stays where it is for good.
func giveUp(e *uring, why error) {
	if !errors.Is(why, errSilent) {
		_ = e.Close() // has no error
		return
	}
	e.closed.Store(true)
	_ = e.methods.Close() // has no error
	close(e.quit)
	<-e.ended
	silentMu.Lock()
	silent = append(silent, e)
	silentMu.Unlock()
}

// silent are the engines that were given up with an operation in flight.
var (
	silentMu sync.Mutex
	silent   []*uring
)

func proveOn(e Engine, f File) error {
	parts := [][]byte{[]byte("ring"), bytes.Repeat([]byte("cast"), 1500), []byte("proof")}
	want := bytes.Join(parts, nil)
	ended := make(chan struct{})
	op := &Op{Kind: OpWriteSync, File: f, Vec: parts, Off: 7, Owner: ownerFunc(func(*Op) { close(ended) })}
	e.Submit([]*Op{op})
	if err := answered(ended, proofWaitMax); err != nil {
		return fmt.Errorf("io_uring proof: %w", err)
	}
	if isNoRoom(op.Err) {
		return op.Err
	}
	if op.Err != nil {
		return refuse(fmt.Errorf("io_uring proof: %w", op.Err))
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, op.Off); err != nil {
		return fmt.Errorf("io_uring proof: %w", err)
	}
	if op.Written != int64(len(want)) || !bytes.Equal(got, want) {
		return refuse(&Error{Op: "io_uring proof", Class: ErrIO, Err: errUntrusted})
	}
	return nil
}

// scratch opens a file without a name in dir, or one in memory if dir has no place for it.
func scratch(dir string) (File, error) {
	f, err := os.CreateTemp(dir, ".ring-proof-*")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err == nil {
		return newOSFile(f), nil
	}
	if f != nil {
		f.Close()
	}
	err = Classify("open", dir, err)
	if isNoRoom(err) {
		return memFile()
	}
	return nil, fmt.Errorf("io_uring proof: %w", err)
}

type ownerFunc func(*Op)

func (f ownerFunc) OpDone(op *Op) { f(op) }
