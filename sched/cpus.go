package sched

import (
	"os"
	"runtime"
)

// UsableCPUs returns the CPUs that the process may use, by number: those of its affinity mask, of
// which a cgroup CPU quota leaves the first floor(quota), at least one. A quota of 1.5 CPUs leaves
// one: a second busy thread would be throttled, not served (HZ-46). GOMAXPROCS leaves no more than
// itself: an executor on a thread of its own still takes one of that many turns. Read it before any
// executor runs, from an ordinary goroutine: a pinned thread sees only its own CPU.
func UsableCPUs() []int {
	cpus, err := affinity()
	if err != nil || len(cpus) == 0 {
		cpus = cpus[:0]
		for i := range runtime.NumCPU() {
			cpus = append(cpus, i)
		}
	}
	return limitCPUs(cpus, cpuQuota(os.DirFS("/")), runtime.GOMAXPROCS(0))
}

// limitCPUs returns the CPUs that a quota and the number of threads that run Go leave; quota <= 0 is
// none.
func limitCPUs(cpus []int, quota float64, threads int) []int {
	n := min(len(cpus), threads)
	if quota > 0 {
		n = min(n, int(quota))
	}
	return cpus[:max(1, n)]
}

// PlaceExecutors returns the CPU of each of n executors, -1 for one that is to run unpinned. One
// CPU of cpus is left to the rest of the process, the first, where the kernel's own work tends to
// be; who asks for more executors than that gets them all unpinned (HZ-45).
func PlaceExecutors(n int, cpus []int) []int {
	place := make([]int, n)
	for i := range place {
		if n < len(cpus) {
			place[i] = cpus[1+i]
		} else {
			place[i] = -1
		}
	}
	return place
}
