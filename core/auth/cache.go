package auth

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"sync"
)

// tokenName is what a token is remembered under: a hash, so that no token's text stays in memory.
type tokenName [sha256.Size]byte

func cacheName(tenant, token string) tokenName {
	h := sha256.New()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(tenant))) // else "a"+"bc" would be "ab"+"c"
	h.Write(n[:])
	io.WriteString(h, tenant)
	io.WriteString(h, token)
	var name tokenName
	h.Sum(name[:0])
	return name
}

// tokenCache remembers the identities of verified tokens, the least recently used ones dropped first.
// An entry counts as long as its token's text, which bounds what the identity can hold on to.
type tokenCache struct {
	costMax int // 0 or less: nothing is remembered

	mu      sync.Mutex // guards all below
	entries map[tokenName]*cached
	root    cached // of a ring: root.next was used last, root.prev first
	cost    int
}

type cached struct {
	name       tokenName
	id         *Identity
	cost       int
	prev, next *cached
}

// cachedOverhead is what an entry and its identity cost beside the permissions, roughly.
const cachedOverhead = 1 << 10

func newTokenCache(costMax int) *tokenCache {
	c := &tokenCache{costMax: costMax, entries: make(map[tokenName]*cached)}
	c.root.prev, c.root.next = &c.root, &c.root
	return c
}

func (c *tokenCache) get(name tokenName) *Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	if e == nil {
		return nil
	}
	e.unlink()
	c.pushFront(e)
	return e.id
}

func (c *tokenCache) put(name tokenName, id *Identity, tokenLen int) {
	cost := tokenLen + cachedOverhead
	if cost > c.costMax {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.entries[name]; old != nil {
		c.drop(old)
	}
	for c.cost+cost > c.costMax {
		c.drop(c.root.prev)
	}
	e := &cached{name: name, id: id, cost: cost}
	c.entries[name] = e
	c.cost += cost
	c.pushFront(e)
}

func (c *tokenCache) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cost
}

func (c *tokenCache) drop(e *cached) {
	e.unlink()
	delete(c.entries, e.name)
	c.cost -= e.cost
}

func (c *tokenCache) pushFront(e *cached) {
	e.prev, e.next = &c.root, c.root.next
	e.prev.next, e.next.prev = e, e
}

func (e *cached) unlink() { e.prev.next, e.next.prev = e.next, e.prev }
