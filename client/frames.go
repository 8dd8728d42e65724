// Hot path.

package client

import (
	"context"
	"sync"

	"github.com/ringcast/ringcast/wire"
)

// received is one thing for the reader of a subscription, in order: a frame of events, a gap that
// the reader asked to be told of, or the end.
type received struct {
	events  wire.BinaryEvents // views of buf
	skip    uint32            // records at the front that were delivered before
	buf     *wire.Buf         // nil for a gap and the end
	bytes   int64             // what it counts against the bound
	failure error             // a gap or the reason of the end
	last    bool
}

// frameQueue is the bounded queue between the goroutine that reads the event stream and the
// reader of the subscription. Full means that the stream is not read: QUIC flow control then
// slows the broker down. Nothing is dropped here.
type frameQueue struct {
	bytesMax  int64
	framesMax int

	mu    sync.Mutex // guards what follows; held for a few instructions
	items []received // items[head:] are queued
	head  int
	bytes int64

	filled chan struct{} // one token: something was pushed
	room   chan struct{} // one token: something was popped
}

func newFrameQueue(framesMax int, bytesMax int64) *frameQueue {
	return &frameQueue{
		bytesMax: bytesMax, framesMax: framesMax,
		filled: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

// push waits for room. It takes over r.buf, also when it fails because ctx ended.
func (q *frameQueue) push(ctx context.Context, r received) error {
	for {
		q.mu.Lock()
		n := len(q.items) - q.head
		// A frame larger than the whole bound is admitted alone. Gaps and the end always fit.
		if r.buf == nil || n == 0 || n < q.framesMax && q.bytes+r.bytes <= q.bytesMax {
			if q.head > 0 && len(q.items) == cap(q.items) {
				m := copy(q.items, q.items[q.head:])
				clear(q.items[m:])
				q.items, q.head = q.items[:m], 0
			}
			q.items = append(q.items, r)
			q.bytes += r.bytes
			q.mu.Unlock()
			token(q.filled)
			return nil
		}
		q.mu.Unlock()
		select {
		case <-q.room:
		case <-ctx.Done():
			if r.buf != nil {
				r.buf.Release()
			}
			return ctx.Err()
		}
	}
}

// pop waits for the next thing. Its Buf is the caller's. The end stays in the queue.
func (q *frameQueue) pop(ctx context.Context) (received, error) {
	for {
		q.mu.Lock()
		if q.head < len(q.items) {
			r := q.items[q.head]
			if !r.last {
				q.items[q.head] = received{}
				q.head++
				q.bytes -= r.bytes
				if q.head == len(q.items) {
					q.items, q.head = q.items[:0], 0
				}
			}
			q.mu.Unlock()
			token(q.room)
			return r, nil
		}
		q.mu.Unlock()
		select {
		case <-q.filled:
		case <-ctx.Done():
			return received{}, ctx.Err()
		}
	}
}

// release frees the frames that nobody will read.
func (q *frameQueue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.items[:0]
	for i := q.head; i < len(q.items); i++ {
		if r := q.items[i]; r.buf != nil {
			q.bytes -= r.bytes
			r.buf.Release()
		} else {
			kept = append(kept, r)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}

// token puts one token into a channel of capacity one, unless it holds one.
func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// pending says whether pop would return without waiting.
func (q *frameQueue) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head < len(q.items)
}
