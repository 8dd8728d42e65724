package core

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// Subscription is one reader of one shard. Run delivers; it may be called once.
//
// How history meets the live feed without a gap or a duplicate (SUB-8, HZ-14). A reader that starts
// at the tail joins at once. Any other one reads the log, page by page at its own pace, and is in no
// registry meanwhile: nothing queues for it, so nothing can overflow, however slow it is (SUB-10).
// Once it has all that is visible it asks the executor to join. There, at one point of the log,
// either the replay ring reaches back to where the reader is: then it is registered from that point
// on and takes the ring's batches as its backlog; or the log has run away from it, and it reads on.
// The ring holds the newest records, so a reader that keeps up at all joins.
type Subscription struct {
	b     *Broker
	shard *shard
	req   SubscribeRequest

	id       uint64
	start    uint64
	live     uint64
	capacity int
	created  time.Time
	sub      *fanout.Subscriber

	// backlog is what join took from the replay ring. Written on the executor while the caller of
	// exec.call waits; else Run's.
	backlog []*fanout.Envelope
	// joined is set by the executor, read by anyone.
	joined atomic.Bool
	// ended is the cause of the first stop, closed is set by the first Close, running by whoever
	// owns backlog after Subscribe: Run, or a Close that came before it.
	ended   atomic.Uint32
	closed  atomic.Bool
	running atomic.Bool
	// position is the next offset to send while history is sent. Written by Run.
	position atomic.Uint64
}

// Subscribe checks the start position and, for a start at the tail, registers the reader there. It
// returns a *CursorError when the position is outside what is held, else a *wire.Error. Close the
// subscription, or Run it to its end, to free it.
func (b *Broker) Subscribe(ctx context.Context, r *SubscribeRequest) (*Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, wire.AsError(err)
	}
	if b.draining.Load() {
		return nil, errDraining
	}
	sh, err := r.Stream.shard(r.Shard)
	if err != nil {
		return nil, err
	}
	if e := sh.fence.Load(); e != nil {
		return nil, e
	}
	s := &Subscription{b: b, shard: sh, req: *r, created: b.opts.Now()}
	s.capacity = b.opts.SubscriberQueue
	if r.QueueCapacity != nil {
		s.capacity = int(min(max(*r.QueueCapacity, 1), uint32(b.opts.SubscriberQueueMax)))
	}
	if err := s.place(); err != nil {
		return nil, err
	}
	b.subs.add(s)
	// Whoever ends all may not have seen us, and the shard may have been fenced meanwhile (BUG-4).
	fenced := sh.fence.Load()
	switch {
	case fenced != nil:
		s.Close()
		return nil, fenced
	case b.draining.Load():
		s.Close()
		return nil, errDraining
	case r.Stream.deleted.Load():
		s.Close()
		return nil, errNoStream
	}
	return s, nil
}

// place decides where the subscription starts.
func (s *Subscription) place() error {
	if s.req.Start.Kind != wire.StartLatest && s.shard.log != nil {
		tail := s.shard.visible.Load() // first: retention may move the base up to it
		if err := s.setStart(s.shard.log.Base(), tail); err != nil {
			return err
		}
		s.newSubscriber()
		return nil
	}
	// At the tail, or on an in-memory shard within the replay ring: decided where nothing moves.
	var problem error
	err := s.shard.exec.call(func() {
		if problem = s.setStart(s.shard.replay.Base(), s.shard.visible.Load()); problem == nil {
			s.newSubscriber()
			s.join()
		}
	})
	if err != nil {
		return err
	}
	return problem
}

// setStart places the subscription in a shard that holds [base, tail).
func (s *Subscription) setStart(base, tail uint64) error {
	switch s.req.Start.Kind {
	case wire.StartEarliest:
		s.start = base
	case wire.StartOffset:
		s.start = s.req.Start.Offset
		if s.start < base {
			return &CursorError{TooOld: true, Requested: s.start, Available: base}
		}
		if s.start > tail {
			return &CursorError{Requested: s.start, Available: tail}
		}
	default:
		s.start = tail
	}
	s.live = max(tail, s.start)
	s.position.Store(s.start)
	return nil
}

func (s *Subscription) newSubscriber() {
	s.sub = fanout.NewSubscriber(fanout.SubscriberOptions{
		Shape: s.req.Shape, Capacity: s.capacity, CapacityBytes: s.b.opts.SubscriberQueueBytes,
		From: s.start, EndOnDrop: s.req.Lagged && s.shard.log != nil,
	})
}

// join registers the reader if the replay ring reaches back to its position. On the executor.
func (s *Subscription) join() {
	sh, pos := s.shard, s.position.Load()
	if sh.gone || pos < sh.visible.Load() && pos < sh.replay.Base() {
		return
	}
	s.backlog, _ = sh.replay.From(pos)
	sh.readers.Add(s.sub)
	s.joined.Store(true)
	if s.closed.Load() { // Close came first and found nothing to remove
		sh.readers.Remove(s.sub)
	}
}

// ID is the subscription's id on the wire.
func (s *Subscription) ID() uint64 { return s.id }

// StartOffset is the first offset that is delivered; ok is false on a stream without a log, whose
// offsets are not on the wire.
func (s *Subscription) StartOffset() (offset uint64, ok bool) { return s.start, s.shard.log != nil }

// LiveOffset is the tail when the reader was placed, never below StartOffset; ok as there.
func (s *Subscription) LiveOffset() (offset uint64, ok bool) { return s.live, s.shard.log != nil }

// QueueCapacity is the granted length of the queue.
func (s *Subscription) QueueCapacity() uint32 { return uint32(s.capacity) }

// stop ends the subscription with a cause; what is queued is delivered first. Safe from anywhere.
func (s *Subscription) stop(c fanout.EndCause) {
	if !s.ended.CompareAndSwap(0, uint32(c)) {
		return
	}
	s.shard.readers.Remove(s.sub)
	s.sub.End(c)
}

// Close frees the subscription: it leaves the registry, and what is queued for it is released. It
// may be called twice, and while Run runs.
func (s *Subscription) Close() {
	if !s.closed.CompareAndSwap(false, true) {
		return
	}
	s.shard.readers.Remove(s.sub)
	s.sub.Close()
	s.b.subs.remove(s)
	if s.running.CompareAndSwap(false, true) {
		for _, e := range s.backlog {
			e.Release()
		}
		s.backlog = nil
	}
}

// Run sends history, then the backlog, then what is published, until the subscription ends, ctx
// ends or the sink fails. It closes the subscription. The error says why with EndSink,
// EndStorage and EndTrimmed.
func (s *Subscription) Run(ctx context.Context, sink fanout.Sink) (End, error) {
	defer s.Close()
	d, ok := s.deliver(sink)
	if !ok {
		return End{Cause: EndStopped}, nil // closed before it ran
	}
	for {
		worked, end, err := d.step(ctx)
		switch {
		case end.Cause != 0:
			return end, err
		case !worked:
			d.feeder.Wait(ctx)
		}
	}
}

// delivery is a Run that is under way, to be taken step by step.
type delivery struct {
	s      *Subscription
	feeder *fanout.Feeder
	live   bool // history and backlog were sent
}

// deliver begins the delivery. ok is false when the subscription was closed, or runs.
func (s *Subscription) deliver(sink fanout.Sink) (d *delivery, ok bool) {
	if !s.running.CompareAndSwap(false, true) {
		return nil, false
	}
	d = &delivery{s: s, feeder: fanout.NewFeeder(s.sub, sink, s.b.feedLimits)}
	d.feeder.SkipTo(s.start)
	return d, true
}

// step sends all history and the backlog at first, later what is queued, once, and says whether there
// was anything. With a cause it is over.
func (d *delivery) step(ctx context.Context) (worked bool, end End, err error) {
	if !d.live {
		d.live = true
		end, err = d.s.catchUp(ctx, d.feeder)
		return true, end, err
	}
	worked, cause, resume, err := d.feeder.Step(ctx)
	if cause != 0 {
		end = End{Cause: endCause(cause), ResumeFrom: resume}
	}
	return worked, end, err
}

// catchUp sends history until the reader has joined, and then the backlog that it found there.
func (s *Subscription) catchUp(ctx context.Context, f *fanout.Feeder) (End, error) {
	for !s.joined.Load() && s.ended.Load() == 0 && !s.closed.Load() {
		cause, err := s.sendHistory(ctx, f)
		if err != nil {
			if why := s.ended.Load(); why != 0 && cause == EndStorage {
				return End{Cause: endCause(fanout.EndCause(why))}, nil // the log went, with reason
			}
			if trimmed, ok := errors.AsType[*log.TrimmedError](err); ok && cause == EndStorage {
				resume := trimmed.Requested
				if s.req.Start.Kind == wire.StartEarliest && resume == s.start {
					resume = trimmed.Oldest
				}
				return End{Cause: EndTrimmed, ResumeFrom: resume}, err
			}
			return End{Cause: cause}, err
		}
		if err := s.shard.exec.call(s.join); err != nil {
			return End{Cause: EndStopped}, nil
		}
		if !s.joined.Load() && s.shard.stream.deleted.Load() {
			return End{Cause: EndDeleted}, nil
		}
	}
	backlog := s.backlog
	s.backlog = nil
	if err := f.Deliver(backlog...); err != nil {
		return End{Cause: EndSink}, err
	}
	return End{}, nil
}

// How much history is read at a time (broker.md 2.6): little at first and more as the reader takes it,
// so that thousands of readers that ask for history and then read nothing hold little.
const (
	historyPageMin = 64 << 10
	historyPageMax = 1 << 20
)

// sendHistory sends visible records until there are no more at the moment. Each page is written
// before the next is read, so a slow reader slows the reading.
func (s *Subscription) sendHistory(ctx context.Context, f *fanout.Feeder) (EndCause, error) {
	pos := s.position.Load()
	size := historyPageMin
	for s.ended.Load() == 0 && !s.closed.Load() {
		if err := ctx.Err(); err != nil {
			return EndSink, err
		}
		page, err := s.shard.log.ReadUntil(pos, s.shard.visible.Load(), size)
		if err != nil {
			return EndStorage, err
		}
		next := page.Next
		if next == pos {
			page.Release()
			break
		}
		env, err := historyEnvelope(page)
		page.Release()
		if err != nil {
			return EndStorage, err
		}
		if err := f.Deliver(env); err != nil {
			return EndSink, err
		}
		pos = next
		size = min(2*size, historyPageMax)
		s.position.Store(pos)
		f.SkipTo(pos)
		if pos >= s.shard.visible.Load() {
			break
		}
	}
	return 0, nil
}

// historyEnvelope makes an envelope of a page. The page's memory in front of each entry is free, so
// the frame headers are written there and history is sent without a copy.
func historyEnvelope(p *log.Page) (*fanout.Envelope, error) {
	parts := make([]fanout.Part, 0, len(p.Entries))
	skipped := uint64(0)
	for i := range p.Entries {
		e := &p.Entries[i]
		switch e.Kind {
		case log.KindEpoch:
			skipped += uint64(e.Count)
			continue
		case log.KindCommit:
			if err := eventOf(e); err != nil {
				for i := range parts {
					parts[i].Buf.Release()
				}
				return nil, err
			}
		}
		e.Buf.Retain()
		parts = append(parts, fanout.Part{
			Base: e.Base, Skipped: skipped, Count: e.Count, TimeMicros: e.TimeMicros,
			Publisher: string(e.Publisher),
			Section:   e.Buf.Bytes()[e.Pos-4 : e.Pos+len(e.Records)], Buf: e.Buf, Pos: e.Pos - 4,
		})
		skipped = 0
	}
	return fanout.NewEnvelope(true, parts), nil
}

func endCause(c fanout.EndCause) EndCause {
	switch c {
	case fanout.EndLagged:
		return EndLagged
	case fanout.EndDeleted:
		return EndDeleted
	case fanout.EndRevoked:
		return EndRevoked
	case fanout.EndStopped:
		return EndStopped
	}
	return EndSink
}
