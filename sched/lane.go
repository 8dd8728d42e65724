// Hot path.

package sched

// Lane is a FIFO of the jobs of one shard, of one tenant. It runs one job at a time in the order
// of arrival: from Next to Done it is the executor's, and no one else gets a job of it.
//
// All fields belong to the executor.
type Lane[T any] struct {
	flow   *flow[T]
	tenant *Tenant

	// Ring of queued jobs; len(jobs) is a power of two, or 0.
	jobs  []queued[T]
	first int
	count int

	running bool // between Next and Done
	blocked bool // between Block and Unblock
	ready   bool // linked in flow.ready; so exactly if count > 0, not running and not blocked
	next    *Lane[T]
	prev    *Lane[T]
}

type queued[T any] struct {
	job   T
	bytes int
}

// Len is how many jobs are queued.
func (l *Lane[T]) Len() int { return l.count }

// Running says whether the lane is between Next and Done.
func (l *Lane[T]) Running() bool { return l.running }

// Blocked says whether the lane is between Block and Unblock.
func (l *Lane[T]) Blocked() bool { return l.blocked }

func (l *Lane[T]) push(job T, bytes int) {
	if l.count == len(l.jobs) {
		l.grow()
	}
	l.jobs[(l.first+l.count)&(len(l.jobs)-1)] = queued[T]{job, bytes}
	l.count++
}

func (l *Lane[T]) pop() queued[T] {
	q := l.jobs[l.first]
	l.jobs[l.first] = queued[T]{}
	l.first = (l.first + 1) & (len(l.jobs) - 1)
	l.count--
	return q
}

func (l *Lane[T]) grow() {
	jobs := make([]queued[T], max(laneLenMin, 2*len(l.jobs)))
	n := copy(jobs, l.jobs[l.first:])
	copy(jobs[n:], l.jobs[:l.first])
	l.jobs, l.first = jobs, 0
}

// flow is one tenant's share of a queue: its ready lanes and what it may still be served.
type flow[T any] struct {
	lanes int // that exist

	// Ready lanes, first in first out.
	head, tail *Lane[T]

	// deficit is what the tenant may be served in this turn, in bytes; below zero it is what it
	// was served too much, to be paid out of later turns.
	deficit int64
	// active: in the queue's ring of turns.
	active bool
	next   *flow[T]
	// left is the round in which it left the ring; the rounds since count towards its debt.
	left uint64
}

func (f *flow[T]) push(l *Lane[T]) {
	l.ready = true
	l.prev = f.tail
	if f.tail == nil {
		f.head = l
	} else {
		f.tail.next = l
	}
	f.tail = l
}

func (f *flow[T]) remove(l *Lane[T]) {
	if l.prev == nil {
		f.head = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		f.tail = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.next, l.prev, l.ready = nil, nil, false
}
