// Hot path.

package ring

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file holds every raw system call and every use of unsafe in this package.

// syncData makes the file's data, and the metadata needed to read it, durable.
func syncData(f *os.File) error {
	fd := int(f.Fd())
	for {
		err := unix.Fdatasync(fd)
		if err != unix.EINTR {
			runtime.KeepAlive(f)
			return err
		}
	}
}

// allocate reserves extents and leaves the length alone.
func allocate(f *os.File, off, n int64) error {
	fd := int(f.Fd())
	for {
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
		if err != unix.EINTR {
			runtime.KeepAlive(f)
			return err
		}
	}
}

// vecWriter is one worker's memory for gathered writes.
type vecWriter struct{ iov []unix.Iovec }

// writeVec writes vec without its first skip bytes at off with one system call. ok is false when
// the file has no descriptor to do that with.
func (w *vecWriter) writeVec(f File, vec [][]byte, skip, off int64) (n int64, errno syscall.Errno, ok bool) {
	fd := f.Fd()
	if fd == ^uintptr(0) {
		return 0, 0, false
	}
	w.iov, _ = appendIovecs(w.iov[:0], vec, skip)
	if len(w.iov) == 0 {
		return 0, 0, true
	}
	// The kernel puts the offset together from two halves, of which 64-bit systems fill the first.
	lo, hi := uintptr(off), uintptr(uint64(off)>>32)
	r, _, errno := unix.Syscall6(unix.SYS_PWRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(w.iov))), uintptr(len(w.iov)), lo, hi, 0)
	runtime.KeepAlive(f)
	clear(w.iov) // hold no buffer beyond the call
	if errno != 0 {
		return 0, errno, true
	}
	return int64(r), 0, true
}
