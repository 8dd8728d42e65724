package ring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// prove runs one real gathered write with a linked sync on a scratch file and reads it back, all
// through the engine's own paths: a ring may be set up and yet refuse to be entered, or refuse
// the file system of the data directory (HZ-19, HZ-20).
func prove(e Engine, dir string) error {
	f, err := scratch(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	parts := [][]byte{[]byte("ring"), bytes.Repeat([]byte("cast"), 1500), []byte("proof")}
	want := bytes.Join(parts, nil)
	ended := make(chan struct{})
	op := &Op{Kind: OpWriteSync, File: f, Vec: parts, Off: 7, Owner: ownerFunc(func(*Op) { close(ended) })}
	e.Submit([]*Op{op})
	<-ended
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

// scratch opens a file without a name in dir. A full or read-only disk is no reason against
// io_uring, and none against starting (HZ-10): the file is then one in memory.
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
	if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrReadOnly) {
		return memFile()
	}
	return nil, fmt.Errorf("io_uring proof: %w", err)
}

type ownerFunc func(*Op)

func (f ownerFunc) OpDone(op *Op) { f(op) }
