package sched

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// cpuMaskMax bounds the search for the size of the kernel's mask, in CPUs.
const cpuMaskMax = 1 << 16

// affinity returns the CPUs that the calling thread may run on, in order.
func affinity() ([]int, error) {
	for n := 1024; ; n *= 2 {
		set := unix.NewCPUSet(n)
		err := unix.SchedGetaffinityDynamic(0, set)
		if err == unix.EINVAL && n < cpuMaskMax {
			continue // the kernel's mask is longer
		}
		if err != nil {
			return nil, fmt.Errorf("sched: affinity: %w", err)
		}
		var cpus []int
		for cpu := range n {
			if set.IsSet(cpu) {
				cpus = append(cpus, cpu)
			}
		}
		return cpus, nil
	}
}

// pinThread restricts the calling thread to one CPU. A CPU outside the process's own set is
// refused here: the kernel would let a thread out of the set that it was started with.
func pinThread(cpu int) error {
	cpus, err := affinity()
	if err != nil {
		return err
	}
	for _, c := range cpus {
		if c == cpu {
			set := unix.NewCPUSet(cpu + 1)
			set.Set(cpu)
			if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
				return fmt.Errorf("sched: pin to CPU %d: %w", cpu, err)
			}
			return nil
		}
	}
	return fmt.Errorf("sched: pin to CPU %d: the process may only use %v", cpu, cpus)
}
