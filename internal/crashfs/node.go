package crashfs

import (
	"io/fs"
	"maps"
	"time"
)

// sectorSize is what a disk writes whole or not at all.
const sectorSize = 512

// node is a file or a directory. The FS's mutex guards it.
type node struct {
	isDir bool
	perm  fs.FileMode

	// Directories: entries as seen now and as on disk, and the changes between, in order.
	now, disk map[string]*node
	changes   []change

	// Files: bytes as seen now and as on disk. dirty holds the numbers of the sectors that may
	// differ; beyond both lengths there are zeros.
	data, diskData []byte
	dirty          map[int64]struct{}
}

// change is one change of a directory that is not on disk yet: an entry that came, one that went
// (node nil), or both at once for a rename inside the directory (old set).
type change struct {
	name string
	node *node
	old  string
}

func (c change) apply(entries map[string]*node) {
	if c.old != "" {
		delete(entries, c.old)
	}
	if c.node == nil {
		delete(entries, c.name)
		return
	}
	entries[c.name] = c.node
}

func newDir(perm fs.FileMode) *node {
	return &node{isDir: true, perm: perm, now: map[string]*node{}, disk: map[string]*node{}}
}

func newFile(perm fs.FileMode) *node {
	return &node{perm: perm, dirty: map[int64]struct{}{}}
}

func (n *node) change(c change) {
	c.apply(n.now)
	n.changes = append(n.changes, c)
}

func (n *node) syncDir() {
	n.disk = maps.Clone(n.now)
	n.changes = nil
}

// touch marks the sectors of [from, to) as perhaps different from the disk.
func (n *node) touch(from, to int64) {
	if to <= from {
		return
	}
	for s := from / sectorSize; s <= (to-1)/sectorSize; s++ {
		n.dirty[s] = struct{}{}
	}
}

func (n *node) writeAt(p []byte, off int64) {
	end := off + int64(len(p))
	if end > int64(len(n.data)) {
		n.resize(end)
	}
	copy(n.data[off:], p)
	n.touch(off, end)
}

func (n *node) resize(size int64) {
	old := int64(len(n.data))
	if size <= old {
		clear(n.data[size:]) // so that growth within the capacity finds zeros
		n.data = n.data[:size]
		n.touch(size, old)
		return
	}
	if size > int64(cap(n.data)) {
		grown := make([]byte, old, max(size, 2*int64(cap(n.data))))
		copy(grown, n.data)
		n.data = grown
	}
	n.data = n.data[:size]
	n.touch(old, size)
}

func (n *node) sync() {
	size := len(n.data)
	if size > len(n.diskData) {
		n.diskData = append(n.diskData, make([]byte, size-len(n.diskData))...)
	}
	n.diskData = n.diskData[:size]
	for s := range n.dirty {
		if from := s * sectorSize; from < int64(size) {
			copy(n.diskData[from:min(from+sectorSize, int64(size))], n.data[from:])
		}
	}
	clear(n.dirty)
}

// syncRange puts whole sectors on disk, and the length as far as they need it.
func (n *node) syncRange(from, to int64) {
	if to > int64(len(n.diskData)) {
		n.diskData = append(n.diskData, make([]byte, to-int64(len(n.diskData)))...)
	}
	copy(n.diskData[from:to], n.data[from:to])
	for s := from / sectorSize; s < to/sectorSize; s++ {
		delete(n.dirty, s)
	}
}

// info is the fs.FileInfo of a node.
type info struct {
	name string
	size int64
	mode fs.FileMode
}

func (n *node) info(name string) info {
	i := info{name: name, size: int64(len(n.data)), mode: n.perm}
	if n.isDir {
		i.mode |= fs.ModeDir
	}
	return i
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }
