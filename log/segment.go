package log

import (
	"sort"
	"sync/atomic"
)

// segment is a segment that holds at least one committed entry, as readers see it.
type segment struct {
	id    uint64
	base  uint64
	nonce uint64
	// What follows is written by the owner, before the committed bound that covers it, and read by
	// anybody.
	end         atomic.Int64  // position after the last written entry
	firstMicros atomic.Uint64 // append time of the first entry
	lastMicros  atomic.Uint64 // and of the last one

	// users is how many readers have a handle or are opening one. Raised under files.mu, while the
	// segment is not gone.
	users atomic.Int32

	// Guarded by files.mu.
	open *handle
	used uint64 // when a reader last took the handle, by files.clock
	gone bool   // retired: not in the view any more

	// aheadSince is when the owner first saw that lastMicros lies in the future, 0 while it does
	// not. The owner's.
	aheadSince uint64
}

// header is what a scanner needs.
func (s *segment) header() *segmentHeader {
	return &segmentHeader{id: s.id, base: s.base, nonce: s.nonce}
}

// view is the immutable list of segments that readers work with. The owner replaces it.
type view struct {
	base uint64     // oldest offset
	segs []*segment // oldest first
}

// find returns the segment that holds offset, which is at or above base and committed.
func (v *view) find(offset uint64) *segment {
	i := sort.Search(len(v.segs), func(i int) bool { return v.segs[i].base > offset })
	if i == 0 {
		return nil
	}
	return v.segs[i-1]
}

// bytes is what the segments hold, header blocks included.
func (v *view) bytes() (n int64) {
	for _, s := range v.segs {
		n += s.end.Load()
	}
	return n
}

// without returns a view that begins n segments later.
func (v *view) without(n int) *view {
	return &view{base: v.segs[n].base, segs: v.segs[n:]}
}

// with returns a view that ends with s.
func (v *view) with(s *segment) *view {
	segs := make([]*segment, len(v.segs), len(v.segs)+1)
	copy(segs, v.segs)
	return &view{base: v.base, segs: append(segs, s)}
}
