package sim

import "fmt"

// Job is a publish as the fair queue sees it.
type Job struct {
	Tenant, Lane int
	Bytes        int
}

// CheckShares says whether a queue that was empty was served fairly: queued is what came in before the first was
// served, served is the order. While two tenants have something queued, neither is served more than the other by
// more than a quantum and what the last run of a lane may overshoot it by: runJobs jobs and runBytes bytes at
// most, and whatever is queued in one lane.
func CheckShares(queued, served []Job, quantum, runJobs, runBytes int) error {
	left := map[int]int{} // bytes queued, per tenant
	run := map[int]int{}  // the largest run of one of its lanes
	got := map[int]int{}  // bytes served
	lanes := map[[2]int]int{}
	jobs := map[[2]int]int{}
	largest := 0
	for _, j := range queued {
		left[j.Tenant] += j.Bytes
		lanes[[2]int{j.Tenant, j.Lane}] += j.Bytes
		jobs[[2]int{j.Tenant, j.Lane}]++
		largest = max(largest, j.Bytes)
	}
	for lane, bytes := range lanes {
		if n := jobs[lane]; n > runJobs {
			bytes = min(bytes, runJobs*largest)
		}
		run[lane[0]] = max(run[lane[0]], min(bytes, runBytes+largest))
	}
	for i, j := range served {
		got[j.Tenant] += j.Bytes
		left[j.Tenant] -= j.Bytes
		for other, n := range left {
			if other == j.Tenant || n <= 0 {
				continue
			}
			if ahead := got[j.Tenant] - got[other]; ahead > quantum+run[j.Tenant] {
				return fmt.Errorf("tenant %d was served %d bytes more than tenant %d, which waits with %d (job %d of %d)",
					j.Tenant, ahead, other, n, i, len(served))
			}
		}
	}
	return nil
}
