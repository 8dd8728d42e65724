// Hot path.

package client

// fifo is a queue of batches in order of their numbers. The zero value is empty.
type fifo struct {
	items []*batch // items[head:] are queued
	head  int
}

func (q *fifo) len() int { return len(q.items) - q.head }

// front returns the lowest numbered batch, nil if there is none.
func (q *fifo) front() *batch {
	if q.head == len(q.items) {
		return nil
	}
	return q.items[q.head]
}

func (q *fifo) at(i int) *batch { return q.items[q.head+i] }

// insert puts b at the place of its number: nearly always the end, after a refusal the front.
func (q *fifo) insert(b *batch) {
	if q.head > 32 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, b)
	for i := len(q.items) - 1; i > q.head && q.items[i-1].number > b.number; i-- {
		q.items[i-1], q.items[i] = q.items[i], q.items[i-1]
	}
}

// take removes the batch of that number, nil if it is not here. The front is the usual case.
func (q *fifo) take(number uint64) *batch {
	for i := q.head; i < len(q.items); i++ {
		b := q.items[i]
		if b.number > number {
			return nil
		}
		if b.number != number {
			continue
		}
		copy(q.items[q.head+1:i+1], q.items[q.head:i])
		q.items[q.head] = nil
		q.head++
		if q.head == len(q.items) {
			q.items, q.head = q.items[:0], 0
		}
		return b
	}
	return nil
}
