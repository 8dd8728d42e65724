package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is the part of a container's memory that the Go runtime may use, in percent; the rest
// is for the kernel's buffers and for what the runtime does not count.
const memoryShare = 90

// limitMemory tells the runtime about the container's memory limit, so that it collects before the
// kernel kills, and returns the limit, 0 for none. GOMEMLIMIT, which the runtime has read already, is
// left alone.
func limitMemory(lg *slog.Logger) int64 {
	if v, ok := os.LookupEnv("GOMEMLIMIT"); ok {
		n := debug.SetMemoryLimit(-1)
		lg.Info("memory limit", "bytes", n, "from", "GOMEMLIMIT="+v)
		if n > math.MaxInt64/4 {
			return 0
		}
		return n
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, ok := parseMemoryLimit(string(text)); ok {
			debug.SetMemoryLimit(n)
			lg.Info("memory limit", "bytes", n, "from", file)
			return n
		}
		return 0
	}
	return 0
}

// parseMemoryLimit reads what a memory controller says; "max" and absurdly high numbers mean none.
func parseMemoryLimit(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/4 {
		return 0, false
	}
	return n / 100 * memoryShare, true
}
