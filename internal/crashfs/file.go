package crashfs

import (
	"io"
	"io/fs"
	"syscall"

	"github.com/ringcast/ringcast/ring"
)

// file is an open file. The FS's mutex guards its fields.
type file struct {
	fs       *FS
	node     *node
	name     string
	writable bool
	closed   bool
	// direct: writes are aligned; writeSync: what they wrote is on disk when they return.
	direct, writeSync bool
}

func (o *file) Name() string { return o.name }

// Fd is ^0: there is no descriptor.
func (o *file) Fd() uintptr { return ^uintptr(0) }

// usable is checked with mu held.
func (o *file) usable(write bool) error {
	if o.closed {
		return fs.ErrClosed
	}
	if write && !o.writable {
		return syscall.EBADF
	}
	return nil
}

// change runs one operation that changes the file's bytes.
func (o *file) change(op string, do func()) error {
	cut, err := o.fs.begin(op, o.name)
	defer o.fs.mu.Unlock()
	if err != nil {
		return err
	}
	if err := o.usable(true); err != nil {
		return o.fs.fail(op, o.name, err)
	}
	do()
	return o.fs.finish(cut, op, o.name)
}

func (o *file) ReadAt(p []byte, off int64) (int, error) {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	if err := o.fs.alive("read", o.name); err != nil {
		return 0, err
	}
	if err := o.usable(false); err != nil {
		return 0, o.fs.fail("read", o.name, err)
	}
	if o.direct {
		return 0, o.fs.fail("read", o.name, syscall.EBADF) // it was opened for writes
	}
	if off < 0 {
		return 0, o.fs.fail("read", o.name, syscall.EINVAL)
	}
	if off >= int64(len(o.node.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, o.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (o *file) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, o.fs.fail("write", o.name, syscall.EINVAL)
	}
	if o.direct && !ring.IsAligned(p, off) {
		return 0, o.fs.fail("write", o.name, syscall.EINVAL)
	}
	cut, err := o.fs.begin("write", o.name)
	defer o.fs.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err := o.usable(true); err != nil {
		return 0, o.fs.fail("write", o.name, err)
	}
	o.node.writeAt(p, off)
	if o.writeSync && !cut {
		o.node.syncRange(off, off+int64(len(p)))
	}
	if err := o.fs.finish(cut, "write", o.name); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (o *file) Truncate(size int64) error {
	if size < 0 {
		return o.fs.fail("truncate", o.name, syscall.EINVAL)
	}
	return o.change("truncate", func() { o.node.resize(size) })
}

// Allocate changes nothing that a reader could see.
func (o *file) Allocate(int64, int64) error { return o.change("allocate", func() {}) }

func (o *file) Sync() error {
	cut, err := o.fs.begin("sync", o.name)
	defer o.fs.mu.Unlock()
	if err != nil {
		return err
	}
	if err := o.usable(false); err != nil {
		return o.fs.fail("sync", o.name, err)
	}
	if !cut {
		o.node.sync()
	}
	return o.fs.finish(cut, "sync", o.name)
}

func (o *file) Size() (int64, error) {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	if err := o.fs.alive("stat", o.name); err != nil {
		return 0, err
	}
	if err := o.usable(false); err != nil {
		return 0, o.fs.fail("stat", o.name, err)
	}
	return int64(len(o.node.data)), nil
}

func (o *file) Close() error {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	if o.closed {
		return o.fs.fail("close", o.name, fs.ErrClosed)
	}
	o.closed = true
	return nil
}
