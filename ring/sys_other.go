//go:build !linux

package ring

import (
	"os"
	"syscall"
)

// syncData makes the file's data durable; on darwin down to the medium (F_FULLFSYNC).
func syncData(f *os.File) error { return f.Sync() }

// allocate is a hint that this platform does not take.
func allocate(*os.File, int64, int64) error { return syscall.ENOSYS }

// vecWriter has no gathered write here: the engine writes the buffers one by one.
type vecWriter struct{}

func (*vecWriter) writeVec(File, [][]byte, int64, int64) (int64, syscall.Errno, bool) {
	return 0, 0, false
}
