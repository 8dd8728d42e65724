// Hot path.

package sched

import "sync/atomic"

// Inbox is a queue of many producers and one consumer. It is intrusive: a Push links the caller's
// Node and allocates nothing. It has no bound of its own; what is pushed was admitted before.
//
// It is a stack that the consumer takes whole, with one swap, and turns round: a producer either
// is in the stack or is not, so there is no moment at which a queued node cannot be seen, as there
// is in a queue whose producers swap the tail and link afterwards. A push that finds the stack
// empty calls wake; the others need not, because the one that found it empty has.
type Inbox[T any] struct {
	// head is the newest node. Written by producers (link) and the consumer (take all).
	head atomic.Pointer[Node[T]]
	_    [cacheLine - 8]byte

	// taken is what the consumer took and has not popped, oldest first. Consumer only.
	taken *Node[T]
	wake  func()
}

// Node is one entry of an Inbox. It may be pushed again, to any Inbox, once Pop has returned it.
type Node[T any] struct {
	next  *Node[T]
	Value T
}

// NewInbox returns an empty inbox. wake is called by the producer that finds it empty: it is
// Executor.Wake, or whatever makes the consumer look; nil for a consumer that polls.
func NewInbox[T any](wake func()) *Inbox[T] {
	return &Inbox[T]{wake: wake}
}

// Push queues n, which belongs to the inbox until Pop returns it. Safe for concurrent use.
func (q *Inbox[T]) Push(n *Node[T]) {
	for {
		old := q.head.Load()
		n.next = old
		if q.head.CompareAndSwap(old, n) {
			if old == nil && q.wake != nil {
				q.wake()
			}
			return
		}
	}
}

// Pop returns the oldest node. Only the consumer may call it.
func (q *Inbox[T]) Pop() (*Node[T], bool) {
	n := q.taken
	if n == nil {
		if q.head.Load() == nil {
			return nil, false
		}
		n = reverse(q.head.Swap(nil))
	}
	q.taken = n.next
	n.next = nil
	return n, true
}

// Empty says whether Pop would find nothing. Only the consumer may call it.
func (q *Inbox[T]) Empty() bool { return q.taken == nil && q.head.Load() == nil }

// reverse turns a stack into a queue and returns its oldest node.
func reverse[T any](n *Node[T]) *Node[T] {
	var oldest *Node[T]
	for n != nil {
		n.next, oldest, n = oldest, n, n.next
	}
	return oldest
}
