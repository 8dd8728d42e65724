package crashfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Two seeds that are no chance: everything that was not synced is gone, or all of it is there.
const (
	SeedLoseAll uint64 = 0
	SeedKeepAll uint64 = 1
)

// Crash returns what a power cut at this moment would leave. The receiver goes on unchanged.
func (f *FS) Crash(seed uint64) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &crash{rng: rand.New(rand.NewPCG(seed, 0x7263617374)), done: map[*node]*node{}}
	switch seed {
	case SeedLoseAll:
		c.keep = 0
	case SeedKeepAll:
		c.keep = 1
	default:
		c.keep = []float64{0.05, 0.5, 0.95}[c.rng.IntN(3)] // a disk that was behind, or nearly done
	}
	after := New()
	after.root = c.dir(f.root)
	return after
}

type crash struct {
	rng  *rand.Rand
	keep float64
	done map[*node]*node // a file with two names stays one file
}

func (c *crash) chance() bool { return c.rng.Float64() < c.keep }

func (c *crash) dir(n *node) *node {
	if d, ok := c.done[n]; ok {
		return d
	}
	d := newDir(n.perm)
	c.done[n] = d
	entries := maps.Clone(n.disk)
	for _, ch := range n.changes {
		if c.chance() {
			ch.apply(entries)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		child := entries[name]
		if child.isDir {
			d.now[name] = c.dir(child)
		} else {
			d.now[name] = c.file(child)
		}
	}
	d.disk = maps.Clone(d.now)
	return d
}

func (c *crash) file(n *node) *node {
	if d, ok := c.done[n]; ok {
		return d
	}
	d := newFile(n.perm)
	c.done[n] = d
	size := len(n.diskData)
	if len(n.data) != size && c.chance() {
		size = len(n.data)
		if c.keep < 1 && c.rng.IntN(3) == 0 {
			lo, hi := min(size, len(n.diskData)), max(size, len(n.diskData))
			size = lo + c.rng.IntN(hi-lo+1)
		}
	}
	d.data = make([]byte, size)
	copy(d.data, n.diskData)
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		if !c.chance() {
			continue
		}
		from := min(int(s)*sectorSize, size)
		to := min(from+sectorSize, size)
		clear(d.data[from:to])
		if from < len(n.data) {
			copy(d.data[from:to], n.data[from:])
		}
	}
	d.diskData = slices.Clone(d.data)
	return d
}
