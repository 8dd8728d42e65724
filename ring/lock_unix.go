//go:build unix

package ring

import "syscall"

// lockFile takes the advisory lock of an open file without waiting; EWOULDBLOCK when it is taken.
func lockFile(fd uintptr) error {
	for {
		err := syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			return err
		}
	}
}
