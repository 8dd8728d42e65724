package ring

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// OS is the file layer over the operating system's files.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Open(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm) // close-on-exec, EINTR retried
	if err != nil {
		return nil, Classify("open", name, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		f.Close()
		return nil, Classify("open", name, err)
	}
	return newOSFile(f), nil
}

func (osFS) OpenDirect(name string, sync bool) (File, error) {
	f, err := openDirect(name, sync)
	if errors.Is(err, syscall.EINVAL) {
		// The answer of a file system without direct writes.
		return nil, &Error{Op: "open direct", Path: name, Class: ErrUnsupported, Err: syscall.EINVAL}
	}
	if err != nil {
		return nil, Classify("open direct", name, err)
	}
	o := newOSFile(f)
	o.writesSync = sync
	return o, nil
}

// MkdirAll makes one level, syncs it into its parent, and only then makes the next. So after a
// crash at any point the deepest directory that exists is the only one whose own entry may be
// missing from the disk: that one is synced again before anything is built on it (HZ-3).
func (o osFS) MkdirAll(name string, perm fs.FileMode) error {
	name = filepath.Clean(name)
	var missing []string // deepest first
	dir := name
	for {
		info, err := os.Stat(dir)
		if err == nil {
			if !info.IsDir() {
				return Classify("mkdir", dir, syscall.ENOTDIR)
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Classify("mkdir", dir, err)
		}
		missing = append(missing, dir)
		parent := filepath.Dir(dir)
		if parent == dir {
			return Classify("mkdir", dir, err)
		}
		dir = parent
	}
	// A parent that we may not read is not one in which we made a directory.
	if err := o.SyncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, ErrPermission) {
		return err
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], perm); err != nil && !errors.Is(err, fs.ErrExist) {
			return Classify("mkdir", missing[i], err)
		}
		if err := o.SyncDir(filepath.Dir(missing[i])); err != nil {
			return err
		}
	}
	return nil
}

func (osFS) Rename(oldName, newName string) error {
	return Classify("rename", oldName, os.Rename(oldName, newName))
}

func (osFS) Remove(name string) error {
	return Classify("remove", name, os.Remove(name))
}

func (osFS) RemoveAll(name string) error {
	return Classify("remove", name, os.RemoveAll(name))
}

func (osFS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, Classify("readdir", name, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (fs.FileInfo, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, Classify("stat", name, err)
	}
	return info, nil
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return Classify("syncdir", name, err)
	}
	err = d.Sync()
	d.Close() // it was read only: nothing is lost with its error
	if errors.Is(err, syscall.EINVAL) {
		// The answer of a file system whose directories cannot be synced.
		return &Error{Op: "syncdir", Path: name, Class: ErrUnsupported, Err: syscall.EINVAL}
	}
	return Classify("syncdir", name, err)
}

// Lock changes no byte unless it gets the lock. The lock belongs to the open file, which is
// close-on-exec: it ends with the process, so that it cannot be stale, and no child inherits it.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Classify("lock", name, err)
	}
	if err := lockFile(f.Fd()); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &Error{Op: "lock", Path: name, Class: ErrLocked, Err: ErrLocked}
		}
		return nil, Classify("lock", name, err)
	}
	return f, nil
}

// osFile is an open file of the operating system.
type osFile struct {
	f *os.File
	// fd is ^0 once the file is closed: the number may soon belong to another file, and an
	// engine that goes by the methods is told. Written by Close, read by engines.
	fd atomic.Uintptr
	// writesSync: opened by OpenDirect with sync.
	writesSync bool
}

func newOSFile(f *os.File) *osFile {
	o := &osFile{f: f}
	o.fd.Store(f.Fd())
	return o
}

func (o *osFile) Name() string { return o.f.Name() }
func (o *osFile) Fd() uintptr  { return o.fd.Load() }

func (o *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.f.ReadAt(p, off)
	return n, Classify("read", o.f.Name(), err)
}

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	return n, Classify("write", o.f.Name(), err)
}

func (o *osFile) Close() error {
	o.fd.Store(^uintptr(0))
	return Classify("close", o.f.Name(), o.f.Close())
}

func (o *osFile) Size() (int64, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, Classify("stat", o.f.Name(), err)
	}
	return info.Size(), nil
}

func (o *osFile) Truncate(size int64) error {
	return Classify("truncate", o.f.Name(), o.f.Truncate(size))
}

func (o *osFile) Allocate(off, n int64) error {
	return Classify("allocate", o.f.Name(), allocate(o.f, off, n))
}

func (o *osFile) Sync() error {
	return Classify("sync", o.f.Name(), syncData(o.f))
}
