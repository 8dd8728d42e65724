// Hot path.

package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Subscription reads one shard of a stream. It resumes by itself after a lost connection, a reset
// or an overflow at the broker, at the record after the last one received, so that a stream with a
// log is read without a gap and without a duplicate. What cannot be had is reported as a GapError,
// never skipped. One goroutine may read it; Close may be called from any.
//
// A goroutine of its own fills a bounded queue. A reader that does not keep up stops it, the
// connection's flow control then stops the broker, and the broker's queue is what overflows.
type Subscription struct {
	client *Client
	stream string
	cfg    *subscribeConfig
	queue  *frameQueue
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	closing sync.Once

	// The reader's own: the frame being read.
	cur       received
	at        uint64 // offset of its next record
	publisher string
}

// Next returns the next event; it waits until there is one or ctx ends. io.EOF means that the
// broker ended the subscription in order; ErrClosed that Close was called. After a *GapError
// reading goes on if WithContinueAfterGap was given; every other error but ctx's is final.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		if s.cur.buf != nil {
			if rec, micros, ok := s.cur.events.Next(); ok {
				return s.event(rec, micros), nil
			}
			s.cur.buf.Release()
			s.cur = received{}
		}
		// Also where frames are queued: a reader that was told to stop must not be fed on.
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		r, err := s.queue.pop(ctx)
		if err != nil {
			return Event{}, err
		}
		if r.failure != nil {
			return Event{}, r.failure
		}
		s.begin(r)
	}
}

// begin makes r the frame being read.
func (s *Subscription) begin(r received) {
	s.cur = r
	s.at = r.events.Base + uint64(r.skip)
	for range r.skip {
		s.cur.events.Next()
	}
	if string(r.events.Publisher) != s.publisher {
		s.publisher = string(r.events.Publisher)
	}
}

func (s *Subscription) event(rec []byte, micros uint64) Event {
	e := Event{Payload: rec, Publisher: s.publisher}
	if s.cur.events.Flags&wire.FlagEvOffsets != 0 {
		e.Offset, e.HasOffset = s.at, true
		s.at++
	}
	if s.cur.events.Flags&wire.FlagEvTimes != 0 {
		e.Time = time.UnixMicro(int64(micros))
	}
	return e
}

// Events iterates over the events until the subscription or ctx ends. The error of a turn is what
// Next would return: it is the last turn, unless it is a GapError under WithContinueAfterGap.
// An orderly end (io.EOF) is no turn.
func (s *Subscription) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			ev, err := s.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(ev, err) {
				return
			}
			if err != nil && !s.passable(err) {
				return
			}
		}
	}
}

// passable says whether reading goes on after err.
func (s *Subscription) passable(err error) bool {
	_, gap := errors.AsType[*GapError](err)
	return gap && s.cfg.afterGap
}

// Close ends the subscription: the broker is told to stop, events that were not read are dropped.
// It returns when its goroutine has ended.
func (s *Subscription) Close() error {
	s.closing.Do(func() {
		s.cancel()
		<-s.done
		s.queue.release()
		_ = s.queue.push(context.Background(), received{failure: ErrClosed, last: true})
		s.client.release(s)
	})
	return nil
}

// abort is Close for a client that ends.
func (s *Subscription) abort() { _ = s.Close() }

// Pending says whether Next would return without waiting: for a reader that collects output.
func (s *Subscription) Pending() bool {
	if s.cur.buf != nil && len(s.cur.events.Records) > 0 {
		return true
	}
	return s.queue.pending()
}
