package netio

import "github.com/ringcast/ringcast/internal/invariants"

// poisoning: released Bufs are not reused in this build, so allocation counts mean nothing.
func poisoning() bool { return invariants.Enabled }
