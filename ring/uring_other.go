//go:build !linux

package ring

import "syscall"

// OpenURing refuses: io_uring is Linux's.
func OpenURing(URingOptions) (Engine, error) {
	return nil, refuse(&Error{Op: "io_uring setup", Class: ErrUnsupported, Err: syscall.ENOSYS})
}

func uringDisabled() string { return "" }
