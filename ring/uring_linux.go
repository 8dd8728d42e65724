package ring

import (
	"os"
	"strings"
	"syscall"
)

// OpenURing opens an io_uring engine.
func OpenURing(URingOptions) (Engine, error) {
	return nil, &Error{Op: "io_uring setup", Class: ErrUnsupported, Err: syscall.ENOSYS}
}

// uringDisabled is the sysctl that turns io_uring off for the host, or "" where there is none.
func uringDisabled() string {
	b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
