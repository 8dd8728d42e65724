package sched

import "context"

// Waiter is one place in a line: of a job for room in a queue, or of a caller for bytes. It is
// intrusive, so that standing in line allocates nothing, and needs no goroutine. It belongs to the
// line from the moment it joins until it is granted or cancelled, and may be used again then.
// Guarded by the line's owner.
type Waiter struct {
	prev, next *Waiter
	in         *line // where it stands; nil = nowhere
	n          int64 // what it asks for
	to         Granter
}

// Granter is told that its waiter has what it stood in line for. Granted is called once, by whoever
// made the room, with the line's lock held and before anybody may take room that came free later: it
// must neither block nor call the line's owner.
type Granter interface{ Granted() }

// line is a first come, first served queue of waiters, guarded by its owner's mutex.
type line struct {
	head, tail *Waiter
}

func (l *line) push(w *Waiter) {
	if w.in != nil {
		panic("sched: a waiter stands in line twice")
	}
	w.in, w.prev = l, l.tail
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
}

// remove takes w out of the line, where it is.
func (l *line) remove(w *Waiter) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.in = nil, nil, nil
}

// grant takes the head out of the line and tells it.
func (l *line) grant() {
	w := l.head
	l.remove(w)
	to := w.to
	w.to = nil
	to.Granted()
}

// call is a waiter whose caller stands still.
type call struct {
	Waiter
	ready chan struct{} // closed when granted
}

func newCall() *call { return &call{ready: make(chan struct{})} }

func (c *call) Granted() { close(c.ready) }

// await waits until c is granted or ctx ends. On a nil error c has what it asked for. Otherwise
// cancel, called once, says whether c was taken out of its line in time.
func (c *call) await(ctx context.Context, cancel func() bool) error {
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		if !cancel() {
			return nil
		}
		return ctx.Err()
	}
}
