package loopfs

import (
	"os"
	"strings"
	"testing"
)

// prefix starts the name of every directory that this package makes; the process id follows.
const prefix = "ringcast-loop-"

// Options say how large a file system is.
type Options struct {
	// MiB is the size of the image, at least 16. Default 48.
	MiB int
	// HolderMiB puts the image, which is sparse, on a tmpfs of this size: below MiB, writing the file
	// system back fails once it is full. Default: the image lies in the temporary directory.
	HolderMiB int
}

// require makes a missing feature of the machine a failure.
const require = "RINGCAST_LOOPFS"

// lacking ends a test for which the machine lacks something.
func lacking(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(require) == "require" {
		t.Fatalf("no loop-mounted file system, and %s=require: %s", require, what)
	}
	t.Skipf("no loop-mounted file system, real disk failures are not tested: %s", strings.TrimSpace(what))
}
