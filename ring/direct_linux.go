package ring

import (
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens a file for writes that go past the page cache.
func openDirect(name string, sync bool) (*os.File, error) {
	flag := os.O_WRONLY | unix.O_DIRECT
	if sync {
		flag |= unix.O_DSYNC
	}
	return os.OpenFile(name, flag, 0) // close-on-exec, EINTR retried
}
