// Hot path.

package fanout

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Registry holds the subscribers of one shard. Who subscribes or leaves pays, by copying the list;
// who publishes loads a pointer (SUB-3).
type Registry struct {
	// snapshot is immutable. Written with mu held.
	snapshot atomic.Pointer[[]*Subscriber]
	mu       sync.Mutex // serialises Add and Remove
}

// NewRegistry returns a registry without subscribers.
func NewRegistry() *Registry {
	r := &Registry{}
	r.snapshot.Store(new([]*Subscriber))
	return r
}

// Snapshot returns the subscribers, in the order in which they came. It is not to be changed.
func (r *Registry) Snapshot() []*Subscriber { return *r.snapshot.Load() }

// Add makes s get what is published from now on. A shard's executor calls it between two publishes
// if s is to start at a known offset. Safe for concurrent use.
func (r *Registry) Add(s *Subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.Snapshot()
	if slices.Contains(old, s) {
		panic("fanout: subscriber added twice")
	}
	subs := append(slices.Clip(old), s)
	r.snapshot.Store(&subs)
}

// Remove makes s get nothing more and says whether it was there. A publish that is under way may
// still reach it. Safe for concurrent use.
func (r *Registry) Remove(s *Subscriber) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.Snapshot()
	i := slices.Index(old, s)
	if i < 0 {
		return false
	}
	subs := make([]*Subscriber, 0, len(old)-1)
	subs = append(append(subs, old[:i]...), old[i+1:]...)
	r.snapshot.Store(&subs)
	return true
}

// Publish offers e to every subscriber and says how many took it and how many dropped it. It borrows
// the caller's reference, never waits and allocates nothing (but for a queue that grows to a length
// that it never had). Called by one goroutine at a time, in offset order.
func (r *Registry) Publish(e *Envelope) (queued, dropped int) {
	subs := *r.snapshot.Load()
	if len(subs) == 0 || e.records == 0 {
		return 0, 0
	}
	// One addition for all: the references of those who do not take it are given back below.
	e.retain(int32(len(subs)))
	for _, s := range subs {
		switch s.offer(e) {
		case offerQueued:
			queued++
		case offerDropped:
			dropped++
		}
	}
	if rest := len(subs) - queued; rest > 0 {
		e.release(int32(rest))
	}
	return queued, dropped
}
