package sched

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// cpuQuota returns the CPUs that the process's cgroup, or one above it, may use on average; 0 = no
// limit, or none that can be read. fsys is the root directory.
//
//	version 2   cpu.max               "max 100000" or "150000 100000" (quota, period, us)
//	version 1   cpu.cfs_quota_us      -1 = none
//	            cpu.cfs_period_us
func cpuQuota(fsys fs.FS) float64 {
	quota := 0.0
	for _, g := range cpuGroups(fsys) {
		// From the process's own group up to the mount point: the tightest counts.
		for dir := g.dir; ; dir = path.Dir(dir) {
			if q := g.read(fsys, dir); q > 0 && (quota == 0 || q < quota) {
				quota = q
			}
			if dir == g.mount || len(dir) <= len(g.mount) {
				break
			}
		}
	}
	return quota
}

// cpuGroup is the process's directory in one hierarchy that limits CPU time.
type cpuGroup struct {
	mount string // where the hierarchy is mounted, without the leading slash
	dir   string // the process's directory, at or below mount
	read  func(fsys fs.FS, dir string) float64
}

// cpuGroups finds the hierarchies, through /proc/self/mountinfo, and the process's place in each,
// through /proc/self/cgroup. A container may see only a part of the hierarchy, mounted with its
// own root: what lies above it is not visible, and the mount point stands for it.
func cpuGroups(fsys fs.FS) []cpuGroup {
	paths := cgroupPaths(fsys)
	var groups []cpuGroup
	for _, line := range lines(fsys, "proc/self/mountinfo") {
		// id parent major:minor root mountpoint options [tags...] - type source superoptions
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		var key string
		read := readQuotaV2
		switch {
		case g[0] == "cgroup2":
		case g[0] == "cgroup" && hasField(g[2], "cpu"):
			key, read = "cpu", readQuotaV1
		default:
			continue
		}
		p, ok := paths[key]
		if !ok {
			continue
		}
		mount := strings.TrimPrefix(f[4], "/")
		dir := mount
		if rel, ok := relative(p, f[3]); ok {
			dir = path.Join(mount, rel)
		}
		groups = append(groups, cpuGroup{mount: mount, dir: dir, read: read})
	}
	return groups
}

// cgroupPaths reads /proc/self/cgroup: the path in version 2 under "", in version 1 under the
// controller's name.
func cgroupPaths(fsys fs.FS) map[string]string {
	paths := map[string]string{}
	for _, line := range lines(fsys, "proc/self/cgroup") {
		// hierarchy:controllers:path
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		for name := range strings.SplitSeq(f[1], ",") {
			paths[name] = f[2]
		}
	}
	return paths
}

// relative returns p as seen from root, if it lies there.
func relative(p, root string) (string, bool) {
	if root == "/" {
		return p, true
	}
	rest, ok := strings.CutPrefix(p, root)
	return rest, ok && (rest == "" || rest[0] == '/')
}

func readQuotaV2(fsys fs.FS, dir string) float64 {
	l := lines(fsys, path.Join(dir, "cpu.max"))
	if len(l) == 0 {
		return 0
	}
	f := strings.Fields(l[0])
	if len(f) != 2 {
		return 0
	}
	return ratio(f[0], f[1])
}

func readQuotaV1(fsys fs.FS, dir string) float64 {
	quota := lines(fsys, path.Join(dir, "cpu.cfs_quota_us"))
	period := lines(fsys, path.Join(dir, "cpu.cfs_period_us"))
	if len(quota) == 0 || len(period) == 0 {
		return 0
	}
	return ratio(quota[0], period[0])
}

// ratio returns quota / period, 0 where either is no positive number ("max", -1).
func ratio(quota, period string) float64 {
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return float64(q) / float64(p)
}

func lines(fsys fs.FS, name string) []string {
	b, err := fs.ReadFile(fsys, strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func hasField(list, name string) bool {
	for f := range strings.SplitSeq(list, ",") {
		if f == name {
			return true
		}
	}
	return false
}
