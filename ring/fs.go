package ring

import (
	"io"
	"io/fs"
)

// FS is the file layer: every byte of package log goes through it. OS() is the real one;
// ringtest and internal/crashfs script and forget.
//
// All errors are classified by this package (errors.go): nobody else looks at an errno.
type FS interface {
	// Open opens a file with os.O_* flags. Directories are not opened here.
	Open(name string, flag int, perm fs.FileMode) (File, error)
	// OpenDirect opens an existing file for writes that go past the page cache (O_DIRECT): offset,
	// length and memory of each are multiples of DirectAlign. With sync each write is durable, with what
	// is needed to read it, when it returns (O_DSYNC). Reads through files of Open see what was
	// written. ErrUnsupported where the file system cannot.
	OpenDirect(name string, sync bool) (File, error)
	// MkdirAll makes the directory and its missing parents and syncs each new one into its parent.
	MkdirAll(name string, perm fs.FileMode) error
	Rename(oldName, newName string) error
	Remove(name string) error
	// RemoveAll removes a tree; for deleted streams only.
	RemoveAll(name string) error
	// ReadDir returns the names in a directory, sorted.
	ReadDir(name string) ([]string, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the directory's entries durable.
	SyncDir(name string) error
	// Lock takes an advisory lock on a file (created when missing) that ends with the process
	// or with Close of what is returned; ErrLocked when somebody else has it (HZ-17).
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt are safe for concurrent use.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	// Fd is the descriptor for engines that bypass WriteAt, or ^uintptr(0) when there is none;
	// an engine then uses the methods.
	Fd() uintptr
	// Size is the length in bytes now.
	Size() (int64, error)
	Truncate(size int64) error
	// Allocate reserves extents for [off, off+n) without changing the length (fallocate
	// KEEP_SIZE). ErrUnsupported where the file system cannot.
	Allocate(off, n int64) error
	// Sync makes the data and what is needed to read it durable (fdatasync).
	Sync() error
}
