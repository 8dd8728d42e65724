// Hot path.

package fanout

import (
	"context"
	"time"
)

// Sink writes frames to one reader. WriteFrames may block for as long as the reader does not read
// (flow control), and fails when the reader has ended. It borrows the slices until it returns. A
// frame may span several slices; what it is given is whole frames.
type Sink interface {
	WriteFrames(frames [][]byte) error
}

// Limits bound what a feeder joins into one frame. Zero values are the defaults.
type Limits struct {
	EventsMax int
	BytesMax  int
	// Delay lets a batch of a busy subscriber wait for more, until so long after its first event
	// (broker.md 2.3). 0 = never wait and arm no timer (SUB-15). The runtime's timers are late by up
	// to 2 ms.
	Delay time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.EventsMax <= 0 {
		l.EventsMax = JoinEventsMax
	}
	if l.BytesMax <= 0 {
		l.BytesMax = JoinBytesMax
	}
	return l
}

// Feed delivers what is published to s until it ends: NewFeeder and Run.
func Feed(ctx context.Context, s *Subscriber, sink Sink, l Limits) (cause EndCause, resumeFrom uint64, err error) {
	return NewFeeder(s, sink, l).Run(ctx)
}

// Feeder delivers to one reader: history first, if there is any, then what its subscriber's queue
// gets. It takes everything that is queued, joins what may be joined, writes it in one call, and
// only then looks again: while a write is blocked the next one grows, and nothing ever waits for
// company (SUB-14). One goroutine uses it.
type Feeder struct {
	sub  *Subscriber
	sink Sink
	lim  Limits

	// next is the first offset that is still to be delivered. What lies below is cut off, so history
	// and queue may overlap.
	next uint64
	// until is the position in the queue at which an ended subscriber stops; set with ending.
	until  uint64
	ending bool
	// running: it holds the subscriber's consumer token.
	running bool

	busy   bool        // the last batch found more than one envelope (Delay only)
	timer  *time.Timer // nil until a batch waits
	timers int         // times that it was armed
}

// NewFeeder returns a feeder for s, which has one only.
func NewFeeder(s *Subscriber, sink Sink, l Limits) *Feeder {
	return &Feeder{sub: s, sink: sink, lim: l.withDefaults()}
}

// SkipTo makes offset the first one to be delivered, if it lies ahead.
func (f *Feeder) SkipTo(offset uint64) { f.next = max(f.next, offset) }

// Next is the first offset that was not delivered.
func (f *Feeder) Next() uint64 { return f.next }

// Deliver writes history: envelopes in offset order, from pages of the log or the replay ring. It
// takes over one reference of each, in every case. It returns when the last is written, so that a
// slow reader slows its caller (SUB-10).
func (f *Feeder) Deliver(history ...*Envelope) (err error) {
	b := newBatch(f.next)
	for i := 0; i < len(history) && err == nil; {
		for i < len(history) && f.add(b, history[i]) {
			i++
		}
		err = f.write(b)
		for _, e := range b.held {
			if err == nil {
				f.sub.history.Add(e.recordsFrom(b.from))
			}
			e.Release()
		}
		b.reset(f.next)
		if err != nil {
			for _, e := range history[i:] {
				e.Release()
			}
		}
	}
	b.free()
	return err
}

// Run delivers until the subscriber ends, ctx ends or the sink fails, and says why. resumeFrom is
// where the reader has to go on: the first dropped offset with EndLagged, else the first that was
// not delivered. err is the sink's or ctx's. After Run the subscriber is closed and its queue empty.
func (f *Feeder) Run(ctx context.Context) (cause EndCause, resumeFrom uint64, err error) {
	for {
		worked, cause, resumeFrom, err := f.Step(ctx)
		switch {
		case cause != 0:
			return cause, resumeFrom, err
		case !worked:
			f.Wait(ctx)
		}
	}
}

// Step writes what is queued, once, and says whether there was anything. With a cause the delivery
// has ended, as Run says it, and Step is not called again.
func (f *Feeder) Step(ctx context.Context) (worked bool, cause EndCause, resumeFrom uint64, err error) {
	s := f.sub
	if !f.running {
		if !s.consumer.CompareAndSwap(0, 1) {
			if s.state.Load()&stateClosed == 0 {
				panic("fanout: subscriber has two feeders")
			}
			return false, EndClosed, f.next, nil
		}
		f.running = true
		f.SkipTo(s.opts.From)
	}
	if worked, cause, err = f.step(ctx); cause == 0 {
		return worked, 0, 0, nil
	}
	f.running = false
	s.signal(stateClosed)
	s.consumer.Store(0)
	s.reap()
	if f.timer != nil {
		f.timer.Stop()
	}
	if offset, ok := s.FirstDropped(); ok && cause == EndLagged {
		return worked, cause, offset, nil
	}
	return worked, cause, f.next, err
}

// Wait sleeps until there is something to do for Step. It may return without a reason.
func (f *Feeder) Wait(ctx context.Context) { f.sub.sleep(ctx, nil) }

func (f *Feeder) step(ctx context.Context) (worked bool, cause EndCause, err error) {
	s := f.sub
	select {
	case <-ctx.Done():
		return false, EndClosed, ctx.Err()
	default:
	}
	// The state is read before the queue: what was queued before the end is then seen.
	state := s.state.Load()
	if state&stateClosed != 0 {
		return false, EndClosed, nil
	}
	if state&(stateEnded|stateLagged) != 0 && !f.ending {
		f.ending, f.until = true, s.q.tail.Load()
	}
	if s.q.peek() != nil && !(f.ending && s.q.head.Load() >= f.until) {
		if err := f.deliverQueued(ctx); err != nil {
			return true, EndSink, err
		}
		return true, 0, nil
	}
	switch {
	case state&stateLagged != 0:
		return false, EndLagged, nil
	case state&stateEnded != 0:
		return false, EndCause(s.cause.Load()), nil
	}
	return false, 0, nil
}

// deliverQueued writes what is queued, once.
func (f *Feeder) deliverQueued(ctx context.Context) error {
	s := f.sub
	b := newBatch(f.next)
	f.collect(b)
	if f.lim.Delay > 0 {
		if f.busy {
			f.linger(ctx, b)
		}
		f.busy = len(b.held) > 1
	}
	err := f.write(b)
	records := uint64(0)
	for _, e := range b.held {
		if err != nil {
			s.abandon(e, s.opts.From)
			continue
		}
		records += e.recordsFrom(s.opts.From)
		e.Release()
	}
	if err == nil {
		s.delivered.records.Add(records)
		s.delivered.batches.Add(uint64(len(b.held)))
	}
	b.free()
	return err
}

// collect moves what is queued into b, until b is full.
func (f *Feeder) collect(b *batch) {
	s := f.sub
	for !f.ending || s.q.head.Load() < f.until {
		e := s.q.peek()
		if e == nil {
			return
		}
		if !f.add(b, e) {
			b.full = true
			return
		}
		s.take(e)
	}
}

// linger waits for more until the batch is full, the deadline has come or there is an end. The
// deadline counts from the first event of the batch and is never put off.
func (f *Feeder) linger(ctx context.Context, b *batch) {
	deadline := time.Now().Add(f.lim.Delay)
	if f.timer == nil {
		f.timer = time.NewTimer(f.lim.Delay)
	} else {
		f.timer.Reset(f.lim.Delay)
	}
	f.timers++
	defer f.timer.Stop()
	for !b.full && b.events < f.lim.EventsMax && b.size < f.lim.BytesMax {
		f.sub.sleep(ctx, f.timer.C)
		f.collect(b)
		if f.sub.state.Load() != 0 || ctx.Err() != nil || !time.Now().Before(deadline) {
			return
		}
	}
}

// add puts e into b, which then has its reference, or says that b must be written first.
func (f *Feeder) add(b *batch, e *Envelope) bool {
	if len(b.held) >= writeEnvelopesMax {
		return false
	}
	if e.next > f.next {
		var c *encoding
		if e.base >= f.next {
			c = e.encoded(f.sub.opts.Shape)
		} else {
			c = e.encodedFrom(f.sub.opts.Shape, f.next)
		}
		if b.size > 0 && b.size+c.size > writeBytesMax {
			return false
		}
		b.add(c, f.sub.opts.Shape, &f.lim)
		f.next = e.next
	}
	b.held = append(b.held, e)
	return true
}

// write hands b's frames to the sink. After a failure nothing of b counts as delivered.
func (f *Feeder) write(b *batch) error {
	b.close(f.sub.opts.Shape)
	if len(b.out) == 0 {
		return nil
	}
	if err := f.sink.WriteFrames(b.out); err != nil {
		f.next = b.from
		return err
	}
	d := &f.sub.delivered
	d.bytes.Add(uint64(b.size))
	d.frames.Add(uint64(b.frames))
	d.writes.Add(1)
	return nil
}
