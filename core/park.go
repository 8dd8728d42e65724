// Hot path.

package core

import "github.com/ringcast/ringcast/sched"

// Place is where a publish that finds no room in its executor's queue stands in line, while its
// stream's reader goes on (broker.md 1.3). Parking costs no goroutine, no timer and no memory: a Place
// belongs to whoever made it, serves one publish at a time, and is used again.
//
//	reader    Publish: no room, Owner.Park() -> in line          (Publish returns nil)
//	executor  one leaves the queue -> Granted: Owner.Admitted(), the publish goes to the inbox
//	or        Withdraw: out of the line, the permits given back, the publish answered
//
// A publish that stands in line keeps its bytes and is outstanding: a drain waits for it.
type Place struct {
	// Owner is asked and told what becomes of the publish. Set before the Place is used.
	Owner PlaceOwner

	// shard is that of the publish: set before Owner.Park is called.
	shard  *shard
	waiter sched.Waiter
	// task is the publish that stands in line: set before it joins, taken by whoever ends its wait.
	task *task
}

// PlaceOwner is who answers for a Place.
type PlaceOwner interface {
	// Park is called by Publish, on its caller's goroutine, when there is no room: true has the publish
	// stand in line, false has Publish wait for room before it returns.
	Park() bool
	// Admitted is called once the publish has its room and before it can have an outcome, whether it
	// stood in line or not: its ack wait begins. If it stood in line, then on any goroutine, which
	// holds a lock: it must neither block nor call the broker.
	Admitted()
}

// mayPark says whether a publish to s may stand in line in p; nil = there is no place.
func (p *Place) mayPark(s *shard) bool {
	if p == nil {
		return false
	}
	p.shard = s
	return p.Owner.Park()
}

// park has t stand in line for room in its queue. It may be admitted before park returns.
func (p *Place) park(t *task) {
	p.task = t
	p.shard.exec.admission.Join(p.shard.account, &p.waiter, p)
}

// Granted takes the publish to its executor. It implements sched.Granter.
func (p *Place) Granted() {
	t := p.task
	p.task = nil
	p.Owner.Admitted()
	t.shard.exec.inbox.Push(&t.node)
}

// Withdrawal says why a publish leaves the line without having got in.
type Withdrawal uint8

const (
	// WaitedTooLong: its wait for room is over. It is answered overloaded, publish_queue_full.
	WaitedTooLong Withdrawal = iota
	// ClientGone: nobody is left to be answered. An acked publish counts as withdrawn, not as refused;
	// an unacked one as dropped.
	ClientGone
)

// Withdraw takes the publish of p, which Park let stand in line, out of it: its permits are given back,
// and its Reply is told. It is false when the publish does not stand there any more, or not yet. Only
// one goroutine at a time may withdraw a Place.
func (b *Broker) Withdraw(p *Place, why Withdrawal) bool {
	s := p.shard
	if s == nil || !s.exec.admission.Cancel(s.account, &p.waiter) {
		return false
	}
	t := p.task
	p.task = nil
	b.releaseBytes(s, t.req.Account, t.cost)
	s.stream.tenant.quota.refund(t.paid)
	s.stream.tenant.noRoom(t.req.Acked, why == ClientGone)
	if t.req.Reply != nil {
		t.req.Reply.Published(t.req.Tag, PublishResult{Err: errQueueFull})
	}
	t.req.Buf.Release()
	t.free()
	b.finished(1)
	return true
}
