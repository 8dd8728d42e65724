package log

import (
	"sync"
	"sync/atomic"
)

// chunkEntries is how many index entries are allocated at once: 8 KiB, 2 MiB of log.
const chunkEntries = 512

type indexChunk [chunkEntries]indexEntry

// memIndex is the index of the segment that is being written. The owner adds; anybody reads
// without a lock: a slot is filled before n says that it is there, and never changes afterwards.
//
// Chunks come from a pool and go back when the last reader is done (handle.release), so that
// appending allocates nothing in the long run.
type memIndex struct {
	spacing int64
	chunks  []*indexChunk // as many as the segment can need; fixed; slot i is set before n reaches it
	n       atomic.Int64  // written by the owner
	pool    *sync.Pool    // of *indexChunk
	last    int64         // position of the newest entry; owner only
}

// newMemIndex makes the index of a segment that grows to segmentBytes, or has one entry only.
func newMemIndex(segmentBytes, spacing int64, pool *sync.Pool) *memIndex {
	entries := segmentBytes/spacing + 2
	return &memIndex{
		spacing: spacing,
		chunks:  make([]*indexChunk, (entries+chunkEntries-1)/chunkEntries),
		pool:    pool,
	}
}

// due says whether an entry at pos is to be indexed when the last indexed one is at last (0: none).
func indexDue(pos, last, spacing int64) bool { return last == 0 || pos-last >= spacing }

// add appends e. Owner only.
func (x *memIndex) add(e indexEntry) {
	n := x.n.Load()
	i := int(n / chunkEntries)
	if x.chunks[i] == nil {
		c, ok := x.pool.Get().(*indexChunk)
		if !ok {
			c = new(indexChunk)
		}
		x.chunks[i] = c
	}
	x.chunks[i][n%chunkEntries] = e
	x.last = e.pos
	x.n.Store(n + 1)
}

func (x *memIndex) len() int { return int(x.n.Load()) }

func (x *memIndex) at(i int) (indexEntry, error) {
	return x.chunks[i/chunkEntries][i%chunkEntries], nil
}

// free gives the chunks back. Nobody may use x afterwards.
func (x *memIndex) free() {
	for i, c := range x.chunks {
		if c != nil {
			x.pool.Put(c)
			x.chunks[i] = nil
		}
	}
}
