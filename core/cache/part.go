package cache

import (
	"container/heap"
	"sync"
)

const (
	// partCount spreads the locks; a power of two.
	partCount = 64
	// expirePerWrite is how many expired entries one write frees, so that no write pays for all.
	expirePerWrite = 16
	// entryOverhead is what an entry costs beside its bytes: struct, map slot, heap slot.
	entryOverhead = 192
)

// scope names an entry: the catalogue id of its cache, and its key.
type scope struct {
	id  uint64
	key string
}

type entry struct {
	scope
	value   []byte
	version uint64
	expires int64 // ns since the cache was made; 0 = never

	// guarded by part.mu
	newer, older *entry
	heapPos      int // in part.deadlines; -1 = not there
}

func (e *entry) cost() int64 { return int64(len(e.key) + cap(e.value) + entryOverhead) }

func (e *entry) dead(now int64) bool { return e.expires != 0 && e.expires <= now }

// part is one slice of the map. Everything in it is guarded by mu, which is held for map and
// pointer work only.
type part struct {
	mu        sync.Mutex
	entries   map[scope]*entry
	lru       entry // sentinel: lru.older is the most, lru.newer the least recently used
	deadlines deadlines
}

func (p *part) init() {
	p.entries = make(map[scope]*entry)
	p.lru.newer, p.lru.older = &p.lru, &p.lru
}

func (p *part) add(e *entry) {
	p.entries[e.scope] = e
	p.pushFront(e)
	if e.expires != 0 {
		heap.Push(&p.deadlines, e)
	}
}

// remove takes e out and returns the bytes it cost.
func (p *part) remove(e *entry) int64 {
	delete(p.entries, e.scope)
	e.newer.older, e.older.newer = e.older, e.newer
	e.newer, e.older = nil, nil
	if e.heapPos >= 0 {
		heap.Remove(&p.deadlines, e.heapPos)
	}
	return e.cost()
}

// touch makes e the most recently used.
func (p *part) touch(e *entry) {
	if p.lru.older == e {
		return
	}
	e.newer.older, e.older.newer = e.older, e.newer
	p.pushFront(e)
}

func (p *part) pushFront(e *entry) {
	e.newer, e.older = &p.lru, p.lru.older
	e.older.newer = e
	p.lru.older = e
}

// oldest is the least recently used entry; the part must not be empty.
func (p *part) oldest() *entry { return p.lru.newer }

// expire frees at most limit entries whose time has come.
func (p *part) expire(now int64, limit int) (n uint64, bytes int64) {
	for len(p.deadlines) > 0 && p.deadlines[0].dead(now) && int(n) < limit {
		bytes += p.remove(p.deadlines[0])
		n++
	}
	return n, bytes
}

// deadlines is a heap of the entries that expire, soonest first.
type deadlines []*entry

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].expires < d[j].expires }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].heapPos, d[j].heapPos = i, j
}

func (d *deadlines) Push(x any) {
	e := x.(*entry)
	e.heapPos = len(*d)
	*d = append(*d, e)
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.heapPos = -1
	return e
}
