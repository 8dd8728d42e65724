// Hot path.

package log

import (
	"hash/crc32"
	"sync"

	"github.com/ringcast/ringcast/ring"
)

// A direct group is put together in aligned memory, slab by slab: the first one is small, because
// most groups are, and no group moves while it grows.
const (
	slabSmallBytes = 64 << 10
	slabLargeBytes = 256 << 10
	// sumBytes is how much is copied before it is summed: little enough to be in the cache still.
	sumBytes = 16 << 10
)

// slab is aligned memory; a multiple of ring.DirectAlign.
type slab struct{ b []byte }

// Slabs of all logs of the process: a group has them only while it fills and is in flight, so a
// thousand idle logs hold none. Pools of memory without state, and so not an option of Log.
var (
	smallSlabs = sync.Pool{New: func() any { return &slab{ring.AlignedBytes(slabSmallBytes)} }}
	largeSlabs = sync.Pool{New: func() any { return &slab{ring.AlignedBytes(slabLargeBytes)} }}
)

// slabs is memory of a group that grows without moving.
type slabs struct {
	list []*slab
	used int // of the last one
}

// room returns at least one free byte at the end.
func (s *slabs) room() []byte {
	if n := len(s.list); n > 0 && s.used < len(s.list[n-1].b) {
		return s.list[n-1].b[s.used:]
	}
	pool := &largeSlabs
	if len(s.list) == 0 {
		pool = &smallSlabs
	}
	s.list = append(s.list, pool.Get().(*slab))
	s.used = 0
	return s.list[len(s.list)-1].b
}

// write copies b.
func (s *slabs) write(b []byte) {
	for len(b) > 0 {
		n := copy(s.room(), b)
		s.used += n
		b = b[n:]
	}
}

// writeSum copies b and returns sum brought forward over it, in one pass over the memory.
func (s *slabs) writeSum(b []byte, sum uint32) uint32 {
	for len(b) > 0 {
		dst := s.room()
		n := copy(dst[:min(len(dst), sumBytes)], b)
		sum = crc32.Update(sum, castagnoli, dst[:n])
		s.used += n
		b = b[n:]
	}
	return sum
}

// zero appends n zeros.
func (s *slabs) zero(n int) {
	for n > 0 {
		dst := s.room()
		dst = dst[:min(n, len(dst))]
		clear(dst)
		s.used += len(dst)
		n -= len(dst)
	}
}

// tail returns the last n bytes, which lie in one slab when they are within a block.
func (s *slabs) tail(n int) []byte { return s.list[len(s.list)-1].b[s.used-n : s.used] }

// vec appends the slices of a gathered write.
func (s *slabs) vec(vec [][]byte) [][]byte {
	for i, l := range s.list {
		b := l.b
		if i == len(s.list)-1 {
			b = b[:s.used]
		}
		vec = append(vec, b)
	}
	return vec
}

// free gives the memory back.
func (s *slabs) free() {
	for i, l := range s.list {
		if len(l.b) == slabSmallBytes {
			smallSlabs.Put(l)
		} else {
			largeSlabs.Put(l)
		}
		s.list[i] = nil
	}
	s.list, s.used = s.list[:0], 0
}
