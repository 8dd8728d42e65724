package ring

import (
	"testing"

	"golang.org/x/sys/unix"
)

func cloexec(t *testing.T, fd uintptr) bool {
	t.Helper()
	flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.FD_CLOEXEC != 0
}
