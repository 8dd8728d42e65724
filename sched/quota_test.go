package sched

import (
	"fmt"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const (
	mountsV2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
	mountsV1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"33 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)

// TestQuotaIsReadFromTheCgroup: both versions, the tightest of the group and those above it, no
// limit, and files that are not there or make no sense.
func TestQuotaIsReadFromTheCgroup(t *testing.T) { // HZ-46
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
	}{
		{"v2 fraction", map[string]string{
			"proc/self/mountinfo": mountsV2, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max": "150000 100000\n",
		}, 1.5},
		{"v2 parent is tighter", map[string]string{
			"proc/self/mountinfo": mountsV2, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max": "400000 100000\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
		}, 0.5},
		{"v2 no limit", map[string]string{
			"proc/self/mountinfo": mountsV2, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/cpu.max": "max 100000\n",
		}, 0},
		{"v2 in a namespace", map[string]string{
			"proc/self/mountinfo": mountsV2, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/cpu.max": "200000 100000\n",
		}, 2},
		{"v1", map[string]string{
			"proc/self/mountinfo": mountsV1, "proc/self/cgroup": "8:memory:/x\n4:cpu,cpuacct:/docker/1\n0::/\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us":  "250000\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/x/cpu.cfs_quota_us":              "1\n",
			"sys/fs/cgroup/memory/x/cpu.cfs_period_us":             "100000\n",
		}, 2.5},
		{"v1 no limit", map[string]string{
			"proc/self/mountinfo": mountsV1, "proc/self/cgroup": "4:cpu,cpuacct:/\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
		}, 0},
		{"v1 mounted with a root of its own", map[string]string{
			"proc/self/mountinfo":                     "32 31 0:29 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
			"proc/self/cgroup":                        "4:cpu:/docker/1/sub\n",
			"sys/fs/cgroup/cpu/sub/cpu.cfs_quota_us":  "100000\n",
			"sys/fs/cgroup/cpu/sub/cpu.cfs_period_us": "100000\n",
		}, 1},
		{"v1 path outside of what is mounted", map[string]string{
			"proc/self/mountinfo":                 "32 31 0:29 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
			"proc/self/cgroup":                    "4:cpu:/docker/12\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "300000\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, 3},
		{"nonsense", map[string]string{
			"proc/self/mountinfo": mountsV2 + "x y z\n - \n", "proc/self/cgroup": "0::/a\n::\nq\n",
			"sys/fs/cgroup/a/cpu.max": "lots of it\n",
		}, 0},
		{"no files", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range c.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := cpuQuota(fsys); got != c.want {
				t.Errorf("quota %v, want %v", got, c.want)
			}
		})
	}
}

// TestUsableCPUsAreMaskAndQuota: a quota leaves whole CPUs only, and at least one.
func TestUsableCPUsAreMaskAndQuota(t *testing.T) { // HZ-46
	for _, c := range []struct {
		mask    []int
		quota   float64
		threads int
		want    []int
	}{
		{[]int{0, 1, 2, 3}, 0, 4, []int{0, 1, 2, 3}},
		{[]int{0, 1, 2, 3}, 1.5, 4, []int{0}},
		{[]int{0, 1, 2, 3}, 0.5, 4, []int{0}},
		{[]int{4, 6, 8}, 2, 3, []int{4, 6}},
		{[]int{4, 6}, 16, 2, []int{4, 6}},
		{[]int{4, 6, 8}, 0, 1, []int{4}},
		{[]int{4, 6, 8}, 0, 7, []int{4, 6, 8}},
		{[]int{4, 6, 8}, 2, 1, []int{4}},
	} {
		if got := limitCPUs(c.mask, c.quota, c.threads); !cmp.Equal(got, c.want) {
			t.Errorf("mask %v, quota %v: %v, want %v", c.mask, c.quota, got, c.want)
		}
	}
	if got := UsableCPUs(); len(got) == 0 || len(got) > runtime.NumCPU() {
		t.Errorf("this process may use %v", got)
	}
}

// TestPinnedExecutorsLeaveACPUFree: at most one executor less than CPUs is pinned, on CPUs of the
// set; a larger number runs unpinned.
func TestPinnedExecutorsLeaveACPUFree(t *testing.T) { // HZ-45
	for _, c := range []struct {
		n    int
		cpus []int
		want string
	}{
		{1, []int{0}, "[-1]"},
		{1, []int{0, 1}, "[1]"},
		{2, []int{0, 1}, "[-1 -1]"},
		{3, []int{2, 4, 6, 8}, "[4 6 8]"},
		{4, []int{2, 4, 6, 8}, "[-1 -1 -1 -1]"},
		{0, []int{0}, "[]"},
	} {
		if got := fmt.Sprint(PlaceExecutors(c.n, c.cpus)); got != c.want {
			t.Errorf("%d on %v: %s, want %s", c.n, c.cpus, got, c.want)
		}
	}
}
