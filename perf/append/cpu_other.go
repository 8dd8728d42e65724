//go:build !unix

package append

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
