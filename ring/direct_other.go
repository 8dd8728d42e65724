//go:build !linux

package ring

import (
	"os"
	"syscall"
)

// openDirect has no counterpart here.
func openDirect(string, bool) (*os.File, error) { return nil, syscall.ENOTSUP }
