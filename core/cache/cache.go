package cache

import (
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Options configure a Cache. The zero value of a field means its default.
type Options struct {
	// MaxBytes bounds keys, values and their bookkeeping, all caches together. Default 256 MiB.
	MaxBytes int64
	// Now is the clock. Default time.Now; only differences count.
	Now func() time.Time
}

// Cache is the entries of every in-memory cache of a broker. Safe for concurrent use.
type Cache struct {
	maxBytes int64
	now      func() time.Time
	start    time.Time
	seed     maphash.Seed
	parts    [partCount]part

	// bytes is the cost of all entries, versions the newest version handed out, victim the part
	// that the next global eviction looks at. Written by every operation.
	bytes    atomic.Int64
	versions atomic.Uint64
	victim   atomic.Uint32

	puts, deletes, hits, misses    atomic.Uint64
	expired, evicted, evictedBytes atomic.Uint64
	refused                        atomic.Uint64
}

// Entry is what a Get found. Value must not be changed.
type Entry struct {
	Value   []byte
	Version uint64
}

// Stats is a snapshot of the counters.
type Stats struct {
	Entries, Bytes        int64
	Puts, Deletes         uint64
	Hits, Misses          uint64
	Expired               uint64 // entries whose time ran out, when their memory was freed
	Evicted, EvictedBytes uint64 // entries removed alive to keep the bound
	Refused               uint64 // values that could never fit
}

// New makes an empty cache.
func New(o Options) *Cache {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Cache{maxBytes: o.MaxBytes, now: o.Now, start: o.Now(), seed: maphash.MakeSeed()}
	for i := range c.parts {
		c.parts[i].init()
	}
	return c
}

// Put stores value under (id, key), takes it over, and returns its version. ttl 0 means that it
// does not expire; every put sets the time anew.
func (c *Cache) Put(id uint64, key string, value []byte, ttlMS uint64) (version uint64, err error) {
	e := &entry{scope: scope{id, key}, value: value, heapPos: -1}
	if e.cost() > c.maxBytes {
		c.refused.Add(1)
		return 0, wire.NewError(wire.CodeLimitExceeded, "value of %d bytes does not fit the cache of %d", len(value), c.maxBytes)
	}
	now := c.elapsed()
	e.expires = expiry(now, ttlMS)
	p := c.partOf(e.scope)
	p.mu.Lock()
	e.version = c.versions.Add(1)
	var freed int64
	if old := p.entries[e.scope]; old != nil {
		freed = p.remove(old)
	}
	n, bytes := p.expire(now, expirePerWrite)
	p.add(e)
	p.mu.Unlock()
	c.puts.Add(1)
	c.expired.Add(n)
	if c.bytes.Add(e.cost()-freed-bytes) > c.maxBytes {
		c.evict(now, p)
	}
	return e.version, nil
}

// Get returns the live entry of (id, key).
func (c *Cache) Get(id uint64, key string) (Entry, bool) {
	s := scope{id, key}
	now := c.elapsed()
	p := c.partOf(s)
	p.mu.Lock()
	e := p.entries[s]
	if e == nil || e.dead(now) {
		p.mu.Unlock()
		c.misses.Add(1)
		return Entry{}, false
	}
	p.touch(e)
	got := Entry{Value: e.value, Version: e.version}
	p.mu.Unlock()
	c.hits.Add(1)
	return got, true
}

// Delete removes (id, key) and returns what was live there.
func (c *Cache) Delete(id uint64, key string) (Entry, bool) {
	s := scope{id, key}
	now := c.elapsed()
	p := c.partOf(s)
	p.mu.Lock()
	e := p.entries[s]
	var freed int64
	if e != nil {
		freed = p.remove(e)
	}
	n, bytes := p.expire(now, expirePerWrite)
	p.mu.Unlock()
	c.deletes.Add(1)
	c.bytes.Add(-freed - bytes)
	if e != nil && e.dead(now) {
		n++
		e = nil
	}
	c.expired.Add(n)
	if e == nil {
		return Entry{}, false
	}
	return Entry{Value: e.value, Version: e.version}, true
}

// Drop frees every entry of a cache that was deleted.
func (c *Cache) Drop(id uint64) (entries int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		var freed int64
		for s, e := range p.entries {
			if s.id == id {
				freed += p.remove(e)
				entries++
			}
		}
		p.mu.Unlock()
		c.bytes.Add(-freed)
	}
	return entries
}

// Stats returns the counters of a moment.
func (c *Cache) Stats() Stats {
	s := Stats{
		Bytes: c.bytes.Load(),
		Puts:  c.puts.Load(), Deletes: c.deletes.Load(),
		Hits: c.hits.Load(), Misses: c.misses.Load(),
		Expired: c.expired.Load(), Evicted: c.evicted.Load(), EvictedBytes: c.evictedBytes.Load(),
		Refused: c.refused.Load(),
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		s.Entries += int64(len(p.entries))
		p.mu.Unlock()
	}
	return s
}

// evict brings the bytes back under the bound: first in the part just written, where memory is
// warm, then round the others. Never holds two locks. The newest entry of wrote survives, so that
// a put is not undone by itself; writers that overshoot together each pay for their own.
func (c *Cache) evict(now int64, wrote *part) {
	c.evictFrom(now, wrote, 1)
	for range partCount {
		if c.bytes.Load() <= c.maxBytes {
			return
		}
		p := &c.parts[c.victim.Add(1)%partCount]
		keep := 0
		if p == wrote {
			keep = 1
		}
		c.evictFrom(now, p, keep)
	}
}

func (c *Cache) evictFrom(now int64, p *part, keep int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := p.expire(now, math.MaxInt)
	c.expired.Add(n)
	over := c.bytes.Add(-bytes) - c.maxBytes
	for over > 0 && len(p.entries) > keep {
		freed := p.remove(p.oldest())
		c.evicted.Add(1)
		c.evictedBytes.Add(uint64(freed))
		over = c.bytes.Add(-freed) - c.maxBytes
	}
}

func (c *Cache) partOf(s scope) *part {
	return &c.parts[maphash.Comparable(c.seed, s)%partCount]
}

// elapsed is the time since the cache was made, on the monotonic clock.
func (c *Cache) elapsed() int64 { return int64(c.now().Sub(c.start)) }

// expiry is the absolute end of an entry put now; 0 = never. A time beyond what the clock can
// express is never, too.
func expiry(now int64, ttlMS uint64) int64 {
	if ttlMS == 0 || ttlMS > uint64(math.MaxInt64-now)/uint64(time.Millisecond) {
		return 0
	}
	return now + int64(ttlMS)*int64(time.Millisecond)
}
