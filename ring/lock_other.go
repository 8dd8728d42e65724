//go:build !unix

package ring

import "syscall"

// lockFile refuses: without a lock that ends with its process, two brokers could share a directory.
func lockFile(uintptr) error { return syscall.ENOSYS }
