package ringtest

import (
	"github.com/ringcast/ringcast/ring"
)

// File is an open file of FS.
type File struct {
	fs     *FS
	inner  ring.File
	name   string
	direct bool
}

func (f *File) Name() string { return f.name }

// Fd is ^0: engines must use the methods, which the rules see.
func (f *File) Fd() uintptr { return ^uintptr(0) }

func (f *File) ReadAt(p []byte, off int64) (int, error) {
	c := Call{Kind: Read, Path: f.name, Off: off, N: int64(len(p))}
	if r := f.fs.enter(c); r != nil && r.Err != 0 {
		return 0, ring.Classify(string(Read), f.name, r.Err)
	}
	return f.inner.ReadAt(p, off)
}

// WriteAt may answer a short count without an error, which os.File never does: it stands for the
// kernel's call, and engines must go on from there.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	c := Call{Kind: Write, Path: f.name, Off: off, N: int64(len(p)), Direct: f.direct}
	r := f.fs.enter(c)
	if r == nil {
		return f.inner.WriteAt(p, off)
	}
	n := 0
	if r.Short > 0 {
		var err error
		if n, err = f.inner.WriteAt(p[:min(r.Short, len(p))], off); err != nil {
			return n, err
		}
	}
	switch {
	case r.Err != 0:
		return n, ring.Classify(string(Write), f.name, r.Err)
	case r.IsShort || r.Short > 0:
		return n, nil
	case r.Lie:
		return len(p), nil
	}
	return f.inner.WriteAt(p, off)
}

func (f *File) Close() error {
	return f.fs.guard(Call{Kind: Close, Path: f.name}, f.inner.Close)
}

func (f *File) Size() (n int64, err error) {
	if r := f.fs.enter(Call{Kind: Size, Path: f.name}); r != nil && r.Err != 0 {
		return 0, ring.Classify(string(Size), f.name, r.Err)
	}
	return f.inner.Size()
}

func (f *File) Truncate(size int64) error {
	return f.fs.guard(Call{Kind: Truncate, Path: f.name, N: size}, func() error { return f.inner.Truncate(size) })
}

func (f *File) Allocate(off, n int64) error {
	return f.fs.guard(Call{Kind: Allocate, Path: f.name, Off: off, N: n}, func() error { return f.inner.Allocate(off, n) })
}

func (f *File) Sync() error {
	return f.fs.guard(Call{Kind: Sync, Path: f.name}, f.inner.Sync)
}
