//go:build !linux

package sched

import (
	"errors"
	"runtime"
)

// affinity returns all CPUs: only Linux tells.
func affinity() ([]int, error) {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus, nil
}

// pinThread fails: only Linux pins here.
func pinThread(int) error {
	return errors.New("sched: pinning is not supported on this system")
}
