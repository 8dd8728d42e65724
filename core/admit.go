// Hot path.

package core

import (
	"context"
	"errors"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/wire"
)

var (
	errDraining  = wire.NewError(wire.CodeDraining, "the broker is shutting down")
	errGone      = errNoStream.WithRetry(wire.RetryUnknown)
	errNoStream  = wire.NewError(wire.CodeNotFound, "the stream was deleted")
	errNoRecords = wire.NewError(wire.CodeInvalidRequest, "an idempotent publish must hold a record")
	errQueueFull = wire.NewError(wire.CodeOverloaded, "publish queue full").WithReason("publish_queue_full", 10)
)

// policy is what happens to a publish that finds no room (broker.md 1.3).
type policy uint8

const (
	policyDrop         policy = iota // unacked: dropped and counted
	policyFail                       // acked, answered on enqueue: refused at once
	policyWait                       // acked, answered when it is written: waits PublishQueueWait, then refused
	policyBackpressure               // unacked with IngressWait: waits until there is room or the client is gone
)

func (b *Broker) policy(r *PublishRequest) policy {
	switch {
	case r.Acked && r.AckOnQueue:
		return policyFail
	case r.Acked:
		return policyWait
	case b.opts.IngressWait:
		return policyBackpressure
	}
	return policyDrop
}

// Publish queues r for its shard. It takes over one reference of r.Buf in every case.
//
// A nil error means accepted: r.Reply, if there is one, is told the outcome exactly once. An error is
// a *wire.Error: nothing was queued and r.Reply is not called.
//
// What finds no room is dropped, refused or waits, as its policy says. It waits for bytes before Publish
// returns: the caller then does not read on, so the client is slowed by flow control. For room in the
// queue it waits in r.Place, where its owner lets it, and Publish returns; it keeps its place before
// whatever its caller publishes to the same shard later.
//
// A wait for bytes and for room in front of Publish's return together last PublishQueueWait at the most
// for an acked publish, and end with ctx for any. How long one may stand in r.Place is up to its owner,
// who calls Withdraw.
func (b *Broker) Publish(ctx context.Context, r *PublishRequest) error {
	s, err := r.Stream.shard(r.Shard)
	if err != nil {
		r.Buf.Release()
		return err
	}
	if err := checkConditional(s, r); err != nil {
		r.Buf.Release()
		return err
	}
	if err := checkRecords(r); err != nil {
		r.Buf.Release()
		return err
	}
	if b.opts.Router != nil {
		if done, err := b.route(r); done || err != nil {
			r.Buf.Release()
			if done {
				return nil
			}
			return err
		}
	}
	// Counted before the flag is read: Drain sets the flag before it reads the count.
	b.outstanding.Add(1)
	if err := b.accept(ctx, s, r); err != nil {
		r.Buf.Release()
		b.finished(1)
		return err
	}
	return nil
}

// accept takes what r needs, in this order: its tenant's quota, bytes, a place in the queue; and sends
// it on its way. It is refused with nothing taken.
func (b *Broker) accept(ctx context.Context, s *shard, r *PublishRequest) error {
	if b.draining.Load() {
		return errDraining
	}
	if s.stream.deleted.Load() {
		return errNoStream
	}
	if r.owner == nil {
		if e := s.refuses(); e != nil {
			return e
		}
	}
	if r.AckOnQueue && s.replica.Load() != nil {
		r.AckOnQueue = false // only its majority makes it safe
	}
	var p paid
	if q := s.stream.tenant.quota; q != nil {
		var err error
		if p, err = b.charge(ctx, q, r); err != nil {
			return err
		}
	}
	cost := publishCost(r)
	entered, err := b.takeRoom(ctx, s, r, cost)
	if err != nil {
		s.stream.tenant.quota.refund(p)
		return err
	}
	t := newTask(taskPublish, s)
	t.req, t.cost, t.paid = *r, cost, p
	t.req.Place = nil
	if !entered {
		b.parked.Add(1)
		r.Place.park(t)
		return nil
	}
	if r.Place != nil {
		r.Place.Owner.Admitted()
	}
	if r.AckOnQueue && r.Reply != nil {
		t.req.Reply = nil
		r.Reply.Published(r.Tag, PublishResult{})
	}
	s.exec.inbox.Push(&t.node)
	return nil
}

// checkRecords refuses a publish with a record that no event frame could hold, and an idempotent one
// without records: nothing in the log would remember its sequence.
func checkRecords(r *PublishRequest) error {
	if r.Idempotent && r.Count == 0 {
		return errNoRecords
	}
	if r.PayloadBytes <= fanout.RecordMax {
		return nil
	}
	records := r.Buf.Bytes()[r.Pos+4 : r.Pos+r.SectionLen]
	for i := 0; ; i++ {
		rec, rest, ok := wire.NextRecord(records)
		if !ok {
			return nil
		}
		if len(rec) > fanout.RecordMax {
			return wire.NewError(wire.CodeInvalidRequest, "record %d has %d bytes, the most is %d", i, len(rec), fanout.RecordMax)
		}
		records = rest
	}
}

// publishCost is what a publish takes from the byte budgets: its records section, so that records
// without a byte cost something too (HZ-44).
func publishCost(r *PublishRequest) int64 { return int64(r.SectionLen) }

// takeRoom takes bytes and a place in the queue. entered is false when r is to stand in line in its
// Place; its bytes are taken then.
func (b *Broker) takeRoom(ctx context.Context, s *shard, r *PublishRequest, cost int64) (entered bool, err error) {
	waits := b.policy(r) >= policyWait
	bytes := b.tryBytes(s, r.Account, cost)
	if bytes {
		switch {
		case s.exec.admission.TryEnter(s.account):
			return true, nil
		case waits && r.Place.mayPark(s):
			return false, nil
		case !waits:
			b.releaseBytes(s, r.Account, cost)
		}
	}
	if !waits {
		s.stream.tenant.noRoom(r.Acked, false)
		return false, errQueueFull
	}
	return b.waitRoom(ctx, s, r, cost, bytes)
}

// waitRoom has the caller wait for what is not there: for bytes, unless it has them, then for a place.
func (b *Broker) waitRoom(ctx context.Context, s *shard, r *PublishRequest, cost int64, bytes bool) (entered bool, err error) {
	if r.Acked {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.opts.PublishQueueWait)
		defer cancel()
	}
	if !bytes {
		if err := b.waitBytes(ctx, s, r.Account, cost); err != nil {
			s.stream.tenant.noRoom(r.Acked, errors.Is(err, context.Canceled))
			return false, errQueueFull
		}
		if s.exec.admission.TryEnter(s.account) {
			return true, nil
		}
		if r.Place.mayPark(s) {
			return false, nil
		}
	}
	if err := s.exec.admission.Enter(ctx, s.account); err != nil {
		b.releaseBytes(s, r.Account, cost)
		s.stream.tenant.noRoom(r.Acked, errors.Is(err, context.Canceled))
		return false, errQueueFull
	}
	return true, nil
}

// tryBytes takes cost of every byte budget or of none.
func (b *Broker) tryBytes(s *shard, a *Account, cost int64) bool {
	if !a.tryAcquire(cost) {
		return false
	}
	if !b.inflight.TryAcquire(s.stream.tenant.bytes, cost) {
		a.release(cost)
		return false
	}
	return true
}

// waitBytes waits for cost of every byte budget, in a fixed order so that two waiters cannot hold what
// the other needs: the identity, its connection, the process.
func (b *Broker) waitBytes(ctx context.Context, s *shard, a *Account, cost int64) error {
	if err := a.acquire(ctx, cost); err != nil {
		return err
	}
	if err := b.inflight.Acquire(ctx, s.stream.tenant.bytes, cost); err != nil {
		a.release(cost)
		return err
	}
	return nil
}

// releaseBytes gives back what tryBytes or waitBytes took.
func (b *Broker) releaseBytes(s *shard, a *Account, cost int64) {
	b.inflight.Release(s.stream.tenant.bytes, cost)
	a.release(cost)
}

// finished gives back n outstanding publishes and tells Drain when the last one has gone.
func (b *Broker) finished(n int64) {
	if b.outstanding.Add(-n) == 0 && b.draining.Load() {
		select {
		case b.idle <- struct{}{}:
		default:
		}
	}
}

// Drain refuses new publishes and waits until the accepted ones are finished (PUB-29).
func (b *Broker) Drain(ctx context.Context) error {
	b.draining.Store(true)
	for b.outstanding.Load() != 0 {
		select {
		case <-b.idle:
		case <-ctx.Done():
			return &DrainError{Outstanding: b.outstanding.Load(), Err: ctx.Err()}
		}
	}
	select {
	case b.idle <- struct{}{}: // whoever else drains is to know
	default:
	}
	return nil
}
