package sched

import "context"

// waiter is one caller in a line. Guarded by the line's owner, but for ready.
type waiter struct {
	next    *waiter
	n       int64         // what it asks for
	granted bool          // it has n, and is out of the line
	ready   chan struct{} // closed when granted
}

// line is a first come, first served queue of waiters, guarded by its owner's mutex.
type line struct {
	head, tail *waiter
}

func (l *line) push(w *waiter) {
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
}

// grant takes the head out of the line and tells it.
func (l *line) grant() {
	w := l.head
	l.head = w.next
	if l.head == nil {
		l.tail = nil
	}
	w.next = nil
	w.granted = true
	close(w.ready)
}

// remove takes w out of the line, where it is.
func (l *line) remove(w *waiter) {
	var before *waiter
	for x := l.head; x != w; x = x.next {
		before = x
	}
	if before == nil {
		l.head = w.next
	} else {
		before.next = w.next
	}
	if l.tail == w {
		l.tail = before
	}
	w.next = nil
}

// await waits until w is granted or ctx ends. On a nil error w has what it asked for. Otherwise
// giveUp, called once, says whether w was granted in the meantime after all.
func await(ctx context.Context, w *waiter, giveUp func() bool) error {
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		if giveUp() {
			return nil
		}
		return ctx.Err()
	}
}
