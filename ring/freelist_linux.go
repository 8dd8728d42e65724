// Hot path.

package ring

import "sync"

// freeList holds the slots without an operation: the cap on what is in flight.
type freeList struct {
	mu    sync.Mutex // guards list
	cond  sync.Cond  // list grew
	list  []*slot
	total int
}

func (f *freeList) init(slots []slot) {
	f.cond.L = &f.mu
	f.total = len(slots)
	for i := range slots {
		slots[i].index = int32(i)
		f.list = append(f.list, &slots[i])
	}
}

func (f *freeList) tryPop() *slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.popLocked()
}

// pop waits for a slot.
func (f *freeList) pop() *slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.list) == 0 {
		f.cond.Wait()
	}
	return f.popLocked()
}

// popLocked is tryPop with mu held.
func (f *freeList) popLocked() *slot {
	n := len(f.list)
	if n == 0 {
		return nil
	}
	s := f.list[n-1]
	f.list = f.list[:n-1]
	return s
}

func (f *freeList) push(slots ...*slot) {
	f.mu.Lock()
	f.list = append(f.list, slots...)
	f.mu.Unlock()
	f.cond.Broadcast()
}

func (f *freeList) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.list) == f.total
}

// waitFull waits until nothing is in flight.
func (f *freeList) waitFull() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.list) < f.total {
		f.cond.Wait()
	}
}
