// Hot path.

package core

import (
	"context"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// Account is the byte budget of one identity on one connection.
type Account struct {
	budget *sched.Budget
}

// NewAccount returns an account with nothing taken.
func (b *Broker) NewAccount() *Account {
	return &Account{budget: sched.NewBudget(b.opts.PublishConnInflightBytes)}
}

// Used is how many bytes of accepted, unfinished publishes the account holds.
func (a *Account) Used() int64 { return a.budget.Used() }

var (
	errDraining  = wire.NewError(wire.CodeDraining, "the broker is shutting down")
	errNoStream  = wire.NewError(wire.CodeNotFound, "the stream was deleted")
	errNoRecords = wire.NewError(wire.CodeInvalidRequest, "an idempotent publish must hold a record")
	errQueueFull = wire.NewError(wire.CodeOverloaded, "publish queue full").WithReason("publish_queue_full", 10)
)

// Publish queues r for its shard. It takes over one reference of r.Buf in every case.
//
// A nil error means queued: r.Reply, if there is one, is told the outcome exactly once. An error is
// a *wire.Error: nothing was queued and r.Reply is not called.
//
// When the byte budgets or the queue have no room, an acked publish waits up to PublishQueueWait
// and is then refused with overloaded, publish_queue_full; an unacked one is dropped and counted
// at once, or waits until there is room or ctx ends with IngressWait (broker.md 1.3). While it
// waits the caller does not read on, so the client is slowed by flow control.
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
	// Counted before the flag is read: Drain sets the flag before it reads the count.
	b.outstanding.Add(1)
	if err := b.admit(ctx, s, r); err != nil {
		r.Buf.Release()
		b.finished(1)
		return err
	}
	t := newTask(taskPublish, s)
	t.req = *r
	t.cost = publishCost(r)
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

// admit takes room for r: bytes of the account, bytes of the process, a place in the queue.
func (b *Broker) admit(ctx context.Context, s *shard, r *PublishRequest) error {
	if b.draining.Load() {
		return errDraining
	}
	if s.stream.deleted.Load() {
		return errNoStream
	}
	if e := s.refuses(); e != nil {
		return e
	}
	cost := publishCost(r)
	switch room := b.tryEnter(s, r.Account, cost); {
	case room == nil:
		return nil
	case !r.Acked && !b.opts.IngressWait:
		s.stream.tenant.queueFull[queueFullDropped].Add(1)
		return errQueueFull
	}
	return b.waitEnter(ctx, s, r, cost)
}

// tryEnter takes everything at once or nothing.
func (b *Broker) tryEnter(s *shard, a *Account, cost int64) error {
	if a != nil && !a.budget.TryAcquire(cost) {
		return errQueueFull
	}
	if !b.inflight.TryAcquire(cost) {
		a.release(cost)
		return errQueueFull
	}
	if !s.exec.admission.TryEnter(s.account) {
		b.inflight.Release(cost)
		a.release(cost)
		return errQueueFull
	}
	return nil
}

// waitEnter waits for everything, in a fixed order so that two waiters cannot hold what the other
// needs: the account first, then the process, then the queue.
func (b *Broker) waitEnter(ctx context.Context, s *shard, r *PublishRequest, cost int64) error {
	if r.Acked {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.opts.PublishQueueWait)
		defer cancel()
	}
	refuse := func() error {
		if r.Acked {
			s.stream.tenant.queueFull[queueFullRefused].Add(1)
		} else {
			s.stream.tenant.queueFull[queueFullDropped].Add(1)
		}
		return errQueueFull
	}
	if r.Account != nil {
		if err := r.Account.budget.Acquire(ctx, cost); err != nil {
			return refuse()
		}
	}
	if err := b.inflight.Acquire(ctx, cost); err != nil {
		r.Account.release(cost)
		return refuse()
	}
	if err := s.exec.admission.Enter(ctx, s.account); err != nil {
		b.inflight.Release(cost)
		r.Account.release(cost)
		return refuse()
	}
	return nil
}

func (a *Account) release(n int64) {
	if a != nil {
		a.budget.Release(n)
	}
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
