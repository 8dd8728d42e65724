package ring

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// The classes of failure. Every error that leaves this package, and every Op.Err, has exactly
// one of them, found with errors.Is; the errno behind it is found the same way, but nobody above
// this package needs to look at it.
var (
	// ErrNoSpace: the disk, a quota or the file size limit is full (ENOSPC, EDQUOT, EFBIG). It
	// passes when space returns (HZ-10).
	ErrNoSpace = errors.New("no space")
	// ErrReadOnly: the file system does not take writes, perhaps since a moment ago (HZ-11).
	ErrReadOnly = errors.New("read-only file system")
	// ErrIO: the device or the file system failed, or something this package has no better
	// class for: what nobody expected is treated as the disk's fault.
	ErrIO = errors.New("input/output error")
	// ErrNotExist: a file or directory is missing.
	ErrNotExist = errors.New("does not exist")
	// ErrExist: it is there already, or a directory is not empty.
	ErrExist = errors.New("already exists")
	// ErrPermission: the process may not do that (EACCES, EPERM).
	ErrPermission = errors.New("permission denied")
	// ErrTooManyFiles: no descriptor left in the process or the system.
	ErrTooManyFiles = errors.New("too many open files")
	// ErrLocked: another process holds the lock.
	ErrLocked = errors.New("locked by another process")
	// ErrUnsupported: this file system, kernel or platform cannot do it.
	ErrUnsupported = errors.New("not supported")
	// ErrCanceled: the kernel gave the operation up before it ran.
	ErrCanceled = errors.New("operation canceled")
	// ErrClosed: the file or engine was closed before.
	ErrClosed = errors.New("already closed")
)

// Error is a failure of the file layer: what was tried, on what, its class, and the cause.
type Error struct {
	Op    string // "write", "sync", "open" ...
	Path  string // may be empty
	Class error  // one of the Err values of this package
	Err   error  // the cause: usually a syscall.Errno
}

func (e *Error) Error() string {
	s := "ring: " + e.Op
	if e.Path != "" {
		s += " " + e.Path
	}
	return s + ": " + e.Err.Error()
}

// Unwrap lets errors.Is find the class and the errno.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Err} }

// Classify turns an error of the operating system into one of this package. nil, io.EOF and
// errors that have a class already come back as they are. File systems for tests use it, so
// that their errors look like real ones.
func Classify(op, path string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // only the bare io.EOF has a meaning to readers
		return err
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	cause := err
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		cause = errno // the path is in Error.Path already
	}
	return &Error{Op: op, Path: path, Class: classOf(err), Err: cause}
}

// classOf is the one place that knows what an errno means to the broker.
func classOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		switch errno {
		case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
			return ErrNoSpace
		case syscall.EROFS:
			return ErrReadOnly
		case syscall.ENOENT:
			return ErrNotExist
		case syscall.EEXIST, syscall.ENOTEMPTY:
			return ErrExist
		case syscall.EACCES, syscall.EPERM:
			return ErrPermission
		case syscall.EMFILE, syscall.ENFILE:
			return ErrTooManyFiles
		case syscall.ENOSYS, syscall.EOPNOTSUPP:
			return ErrUnsupported
		case syscall.ECANCELED:
			return ErrCanceled
		}
		return ErrIO
	}
	switch {
	case errors.Is(err, fs.ErrClosed):
		return ErrClosed
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotExist
	case errors.Is(err, fs.ErrExist):
		return ErrExist
	case errors.Is(err, fs.ErrPermission):
		return ErrPermission
	}
	return ErrIO
}
