package core

import (
	"sync/atomic"

	"github.com/ringcast/ringcast/log"
)

// stateKeyBytes is what a key costs beside its bytes and those of its value: the entry, its place in the
// map, and what the allocator rounds up.
const stateKeyBytes = 128

// entityState is the keyed state of one shard: what its log's atomic commits add up to, a projection of
// what the log retains (broker.md 5.4). One goroutine: the shard's executor, or the file worker that
// builds it before the executor has it.
//
// Keys are in the order of their versions, so that those whose commit retention has deleted are at the
// front. A key whose version is below the log's base does not exist, also while it is still here: then
// the state is the same whether it was built from all the log ever held or from what it holds now.
type entityState struct {
	budget *stateBudget
	keys   map[string]*stateKey
	oldest *stateKey
	newest *stateKey
	bytes  int64 // taken from budget
	// asOf is the offset of the last commit in it; any: there is one.
	asOf uint64
	any  bool
}

type stateKey struct {
	key          string
	value        []byte // never changed, so that readers may keep it
	version      uint64
	older, newer *stateKey
}

func newEntityState(b *stateBudget) *entityState {
	return &entityState{budget: b, keys: map[string]*stateKey{}}
}

// get returns the value of a key that was written at or above base.
func (s *entityState) get(key string, base uint64) (k *stateKey, ok bool) {
	if k = s.keys[key]; k == nil || k.version < base {
		return nil, false
	}
	return k, true
}

// put sets a key. It takes over value.
func (s *entityState) put(key string, value []byte, version uint64) {
	if value == nil {
		value = []byte{} // nil is no value
	}
	k := s.keys[key]
	if k == nil {
		k = &stateKey{key: key}
		s.keys[key] = k
		s.charge(stateCost(key, value))
	} else {
		s.unlink(k)
		s.charge(int64(len(value)) - int64(len(k.value)))
	}
	k.value, k.version = value, version
	if k.older = s.newest; k.older != nil {
		k.older.newer = k
	} else {
		s.oldest = k
	}
	s.newest = k
}

func (s *entityState) delete(key string) {
	if k := s.keys[key]; k != nil {
		s.remove(k)
	}
}

func (s *entityState) remove(k *stateKey) {
	s.unlink(k)
	delete(s.keys, k.key)
	s.charge(-stateCost(k.key, k.value))
}

func (s *entityState) unlink(k *stateKey) {
	if k.older != nil {
		k.older.newer = k.newer
	} else {
		s.oldest = k.newer
	}
	if k.newer != nil {
		k.newer.older = k.older
	} else {
		s.newest = k.older
	}
	k.older, k.newer = nil, nil
}

// trim forgets at most most keys that the log does not hold any more.
func (s *entityState) trim(base uint64, most int) {
	for ; most > 0 && s.oldest != nil && s.oldest.version < base; most-- {
		s.remove(s.oldest)
	}
}

// apply makes the changes of the commit at offset. It takes over their values.
func (s *entityState) apply(offset uint64, changes []log.Change) {
	for i := range changes {
		if c := &changes[i]; c.Op == log.ChangePut {
			s.put(c.Key, c.Value, offset)
		} else {
			s.delete(c.Key)
		}
	}
	s.asOf, s.any = offset, true
}

// growth is how much more the state may take at most once changes are applied.
func (s *entityState) growth(changes []log.Change) int64 {
	n := int64(0)
	for i := range changes {
		c := &changes[i]
		if c.Op != log.ChangePut {
			continue
		}
		if k := s.keys[c.Key]; k != nil {
			n += max(0, int64(len(c.Value))-int64(len(k.value)))
		} else {
			n += stateCost(c.Key, c.Value)
		}
	}
	return n
}

func (s *entityState) charge(n int64) {
	s.bytes += n
	s.budget.used.Add(n)
}

// drop gives everything back; the state is not used any more.
func (s *entityState) drop() {
	s.charge(-s.bytes)
	s.keys, s.oldest, s.newest = nil, nil, nil
}

func stateCost(key string, value []byte) int64 {
	return stateKeyBytes + int64(len(key)+len(value))
}

// stateBudget bounds the keyed state of all shards. Any goroutine.
type stateBudget struct {
	max  int64
	used atomic.Int64
}

// reserve takes n bytes if they fit.
func (b *stateBudget) reserve(n int64) bool {
	if b.used.Add(n) <= b.max || n <= 0 {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *stateBudget) release(n int64) { b.used.Add(-n) }
