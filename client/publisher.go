// Hot path.

package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Publisher publishes records to one stream. Records of one shard leave in the order in which
// they were given, joined into frames while earlier ones are under way. All methods may be called
// from any goroutine.
//
// A record is accepted once its bytes fit in the budget; from then on its outcome is reported
// exactly once. Errors of the broker are *wire.Error; one whose class is wire.RetryUnknown may
// have been applied.
type Publisher struct {
	client *Client
	stream string
	cfg    *publisherConfig
	epoch  time.Time // zero of now

	start   func(*sender) // runs a sender until cancel; called with the mutex held
	cancel  context.CancelFunc
	wg      sync.WaitGroup // senders
	waiters sync.Pool      // of *waiter whose token was taken, and only those
	done    chan struct{}  // closed once nothing is accepted any more and all outcomes are delivered

	mu       sync.Mutex // guards what follows, and each sender's box
	budget   budget
	width    uint32 // shards of the stream; 0 = the broker does not know it yet, counted as 1
	routing  wire.Routing
	senders  []*sender // by shard; nil until a record went there
	closing  bool      // Close was called
	finish   bool      // everything has its outcome: senders end their streams
	ended    error     // not nil: nothing is accepted any more
	firstErr error     // of records whose outcome nobody asked for, until Flush tells it
	flushes  []*flushWait
}

// flushWait is one blocked Flush.
type flushWait struct {
	targets []uint64 // by shard: all batches up to this number
	reached chan struct{}
}

// now is the time in ns since the publisher was made, at least 1.
func (p *Publisher) now() int64 { return int64(time.Since(p.epoch)) + 1 }

// Publish publishes rec and waits for its outcome. rec may be reused when it returns. When ctx
// ends while the record is under way the error is a wire.ErrUnacknowledged around ctx's: it may
// still be applied.
func (p *Publisher) Publish(ctx context.Context, rec Record) (Ack, error) {
	w := p.waiters.Get().(*waiter)
	if err := p.accept(ctx, rec, result{wait: w}); err != nil {
		p.waiters.Put(w)
		return Ack{}, err
	}
	select {
	case <-w.ready:
		ack, err := w.ack, w.err
		w.ack, w.err = Ack{}, nil
		p.waiters.Put(w)
		return ack, err
	case <-ctx.Done():
		return Ack{}, unknown(ctx.Err())
	}
}

// PublishAsync accepts rec and returns; done is called with its outcome, once, from a goroutine
// of the publisher that also serves the other records: it must not block. Without done the first
// failure is what Flush returns. An error means that rec was not accepted and done is not called.
// rec is copied. It waits only for the byte budget.
func (p *Publisher) PublishAsync(ctx context.Context, rec Record, done func(Ack, error)) error {
	return p.accept(ctx, rec, result{done: done})
}

func (p *Publisher) accept(ctx context.Context, rec Record, r result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(rec.Value)+len(rec.Key) > p.cfg.recordMax || len(rec.Key) > keyBytesMax {
		return ErrRecordTooLarge
	}
	p.mu.Lock()
	if p.ended != nil {
		p.mu.Unlock()
		return p.ended
	}
	cost := p.budget.clamp(int64(len(rec.Value) + recordOverhead))
	if !p.budget.take(cost) {
		// Locked again when it returns without an error.
		if err := p.acceptLater(ctx, cost); err != nil {
			return err
		}
	}
	var s *sender
	if p.cfg.shard != nil {
		rec.Key = nil
		s = p.sender(*p.cfg.shard)
	} else {
		s = p.sender(wire.ShardOf(rec.Key, rec.Key != nil, p.width, p.routing))
	}
	s.box.add(rec, cost, r)
	if s.box.open.created == 0 {
		s.box.open.created = p.now()
	}
	wake := s.asleep && s.box.ready()
	if wake {
		s.asleep = false
	}
	p.mu.Unlock()
	if wake {
		token(s.wake)
	}
	return nil
}

// acceptLater waits for the budget. It is called with the mutex held and gives it up; it holds it
// again when it returns nil.
func (p *Publisher) acceptLater(ctx context.Context, cost int64) error {
	if p.cfg.failFull {
		p.mu.Unlock()
		return ErrBudgetFull
	}
	w := p.budget.wait(cost)
	for _, s := range p.senders {
		if s != nil { // waiting for room: nothing that could leave may linger
			s.box.push()
			p.wakeLocked(s)
		}
	}
	p.mu.Unlock()
	var err error
	select {
	case <-w.granted:
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.done:
		err = ErrClosed
	}
	p.mu.Lock()
	if err == nil {
		err = p.ended
	}
	if err != nil {
		if !p.budget.leave(w) {
			p.budget.give(cost)
		}
		p.mu.Unlock()
	}
	return err
}

// sender returns the sender of a shard; the mutex is held.
func (p *Publisher) sender(shard uint32) *sender {
	if s := p.senders[shard]; s != nil {
		return s
	}
	s := newSender(p, shard)
	p.senders[shard] = s
	p.start(s)
	return s
}

// wakeLocked wakes the sender if it sleeps; the mutex is held.
func (p *Publisher) wakeLocked(s *sender) {
	if s.asleep {
		s.asleep = false
		token(s.wake)
	}
}

// Flush sends what is waiting and returns once everything that was accepted before has its
// outcome. It returns the first failure of a record that was published without a callback since
// the last Flush.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	w := &flushWait{targets: make([]uint64, len(p.senders)), reached: make(chan struct{})}
	for i, s := range p.senders {
		if s != nil {
			w.targets[i] = s.box.push()
			p.wakeLocked(s)
		}
	}
	p.flushes = append(p.flushes, w)
	p.checkFlushes()
	p.mu.Unlock()

	var err error
	select {
	case <-w.reached:
	case <-p.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.flushes {
		if x == w {
			p.flushes = append(p.flushes[:i], p.flushes[i+1:]...)
			break
		}
	}
	err = errors.Join(err, p.firstErr)
	p.firstErr = nil
	return err
}

// checkFlushes ends the Flush calls whose records all have their outcome; the mutex is held.
func (p *Publisher) checkFlushes() {
	for _, w := range p.flushes {
		reached := true
		for i, s := range p.senders[:len(w.targets)] {
			reached = reached && (s == nil || s.box.settledUpTo(w.targets[i]))
		}
		if reached {
			select {
			case <-w.reached:
			default:
				close(w.reached)
			}
		}
	}
}

// deliver tells the outcomes in list and gives their bytes back to the budget.
func (p *Publisher) deliver(s *sender, list []settlement) {
	if len(list) == 0 {
		return
	}
	var unasked error
	for i := range list {
		x := &list[i]
		ack := x.ack
		for _, r := range x.b.results {
			switch {
			case r.wait != nil:
				r.wait.ack, r.wait.err = ack, x.err
				r.wait.ready <- struct{}{}
			case r.done != nil:
				r.done(ack, x.err)
			case x.err != nil && unasked == nil:
				unasked = x.err
			}
			if ack.HasOffset {
				ack.Offset++
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.firstErr == nil {
		p.firstErr = unasked
	}
	p.budget.give(s.box.delivered(list))
	if len(p.flushes) > 0 {
		p.checkFlushes()
	}
}
