// Hot path.

package serve

import (
	"sync"
	"sync/atomic"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// writer is the sending half of a bidirectional stream. Its goroutine is the only one that writes:
// it gathers every answer that is due, publish answers and others, into one write.
//
// Ends: finish (the reader has read its last request) makes it answer what is owed, send FIN and
// return. abort makes it return at once.
type writer struct {
	st     netio.SendStream
	ans    *answers
	enc    encoder
	count  *counters
	clock  *sweepClock
	wake   chan struct{} // cap 1
	room   chan struct{} // cap 1; the reader waits on it
	dead   chan struct{} // closed by abort
	ended  sync.Once
	onDead func() // frees the reader

	// waiting is set by the reader before it sleeps on room, cleared by the writer that wakes it.
	waiting atomic.Bool
	// finishing is set once by the reader.
	finishing atomic.Bool

	mu      sync.Mutex // guards replies and queued
	replies []byte     // encoded answers that are not publish answers, in order
	queued  uint64     // bytes ever put in replies
	// flushed is how many of queued were written. Written by the writer.
	flushed atomic.Uint64

	// buf and spare are the writer's own: what is being written, and the memory that replies
	// swaps with.
	buf, spare []byte
}

func (w *writer) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// reply queues an answer that is not a publish answer. Reader only; the caller has waited for
// hasRoom.
func (w *writer) reply(m wire.Message) {
	w.mu.Lock()
	before := len(w.replies)
	w.replies = wire.AppendMessage(w.replies, m)
	w.queued += uint64(len(w.replies) - before)
	w.mu.Unlock()
	w.wakeUp()
}

// hasRoom says whether the queue of replies is below its bound.
func (w *writer) hasRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.replies) < repliesMax
}

// wait blocks the reader until ok. It is false when the stream ended instead.
func (w *writer) wait(ok func() bool) bool {
	for !ok() {
		w.waiting.Store(true)
		if ok() {
			w.waiting.Store(false)
			break
		}
		select {
		case <-w.room:
		case <-w.dead:
			return false
		}
	}
	return true
}

// flush blocks the reader until every reply queued so far was handed to the transport.
func (w *writer) flush() bool {
	w.mu.Lock()
	target := w.queued
	w.mu.Unlock()
	return w.wait(func() bool { return w.flushed.Load() >= target })
}

// owed says whether something is still to be written, for a drain.
func (w *writer) owed() bool {
	w.mu.Lock()
	queued := w.queued
	w.mu.Unlock()
	return w.ans.unanswered.Load() > 0 || w.flushed.Load() < queued
}

// finish says that no request follows.
func (w *writer) finish() {
	w.finishing.Store(true)
	w.wakeUp()
}

// abort ends both directions without another byte. Safe from any goroutine, more than once.
func (w *writer) abort() {
	w.ended.Do(func() {
		close(w.dead)
		w.st.CancelWrite(netio.ResetNone)
		w.onDead()
	})
}

// run writes until finish or abort.
func (w *writer) run() {
	for {
		last := w.finishing.Load() // before looking: what is found afterwards includes its work
		answered, replied, stuck := w.gather()
		if stuck {
			w.count.overdue.Add(1)
			w.abort()
			return
		}
		if len(w.buf) > 0 && !w.write() {
			return
		}
		w.ans.written(answered)
		w.flushed.Add(replied)
		if w.waiting.Load() && w.waiting.Swap(false) {
			select {
			case w.room <- struct{}{}:
			default:
			}
		}
		if answered > 0 || replied > 0 {
			continue
		}
		if last && w.ans.unanswered.Load() == 0 {
			// An error here says that the client does not read any more.
			_ = w.st.Close()
			return
		}
		select {
		case <-w.wake:
		case <-w.dead:
			return
		}
	}
}

// gather fills buf with everything that may be written now.
func (w *writer) gather() (answered int32, replied uint64, stuck bool) {
	if cap(w.buf) > keepWriteBytes {
		w.buf = nil
	}
	w.buf = w.buf[:0]
	if tick, due := w.clock.takeDue(); due {
		w.buf, answered, stuck = w.ans.sweep(w.buf, w.enc, tick, w.clock.waits)
	}
	var n int32
	w.buf, n = w.ans.collect(w.buf, w.enc)
	answered += n

	w.mu.Lock()
	replies := w.replies
	w.replies = w.spare[:0]
	w.mu.Unlock()
	w.spare = nil
	replied = uint64(len(replies))
	switch {
	case replied == 0:
	case len(w.buf) == 0:
		w.buf, replies = replies, w.buf
	default:
		w.buf = append(w.buf, replies...)
	}
	if cap(replies) <= keepWriteBytes {
		w.spare = replies[:0]
	}
	return answered, replied, stuck
}

// write hands buf to the transport, under the sweep's watch.
func (w *writer) write() bool {
	w.clock.writing()
	_, err := w.st.Write(w.buf)
	w.clock.wrote()
	if err != nil {
		w.abort()
		return false
	}
	return true
}
