// Hot path.

package core

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// table maps a (tenant, namespace, name) triple to a value. Lookups take no lock and allocate
// nothing: they read an immutable map. A change copies one of the parts, so that creating many
// names costs n²/parts and not n².
type table[V any] struct {
	parts [tableParts]tablePart[V]
}

const tableParts = 64

type tablePart[V any] struct {
	m  atomic.Pointer[map[string]V]
	mu sync.Mutex // serialises writers of m
}

func (t *table[V]) part(key []byte) *tablePart[V] {
	return &t.parts[xxhash.Sum64(key)%tableParts]
}

func (t *table[V]) get(key []byte) (v V, ok bool) {
	if m := t.part(key).m.Load(); m != nil {
		v, ok = (*m)[string(key)]
	}
	return v, ok
}

func (t *table[V]) put(key []byte, v V) {
	t.change(key, func(m map[string]V) { m[string(key)] = v })
}

func (t *table[V]) remove(key []byte) {
	t.change(key, func(m map[string]V) { delete(m, string(key)) })
}

func (t *table[V]) change(key []byte, fn func(map[string]V)) {
	p := t.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[string]V{}
	if old := p.m.Load(); old != nil {
		next = maps.Clone(*old)
	}
	fn(next)
	p.m.Store(&next)
}

// all calls fn for every entry of a moment, in no order.
func (t *table[V]) all(fn func(V)) {
	for i := range t.parts {
		if m := t.parts[i].m.Load(); m != nil {
			for _, v := range *m {
				fn(v)
			}
		}
	}
}
