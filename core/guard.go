// Hot path.

package core

import (
	"runtime/debug"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// A panic while a publish is claimed or completed ends that publish, not the broker
// (docs/decisions/panic-in-a-publish.md). Where nothing of the shard was changed yet its lane just goes
// on. Anything later leaves state that may be half changed, and the shard takes nothing any more until
// the broker restarts and reads its log.

var (
	errPanicked = wire.NewError(wire.CodeInternal, "the publish could not be handled").WithRetry(wire.RetryNow)
	errBroken   = wire.NewError(wire.CodeInternal, "the shard is out of order until the broker restarts").WithRetry(wire.RetryFatal)
	errWasTaken = errBroken.WithRetry(wire.RetryUnknown)
)

// runLane gives a lane its turn.
func (e *executor) runLane(lane *sched.Lane[*task]) (n int) {
	first, _ := e.queue.Peek(lane)
	s := first.shard
	defer s.guardClaim(lane, &n)
	n = s.claimRun(lane)
	e.queue.Done(lane)
	return n
}

// guardClaim is deferred around a turn of a lane.
func (s *shard) guardClaim(lane *sched.Lane[*task], n *int) {
	if !lane.Running() {
		return
	}
	s.panicked(recover())
	q := s.exec.queue
	if t := s.claiming; t != nil {
		s.claiming = nil
		if head, ok := q.Peek(lane); ok && head == t {
			q.Pop(lane)
		}
		changed := s.changing
		s.changing = false
		switch {
		case t == s.telling: // it was the answer that panicked
			s.telling = nil
			s.finish(t)
		case changed:
			s.reject(t, errWasTaken)
		case t.req.owner != nil:
			s.reject(t, wire.ErrInternal) // the Forwarder may have sent it
		default:
			s.reject(t, errPanicked)
		}
		if changed {
			s.breakDown()
		}
	}
	q.Done(lane)
	*n = max(*n, 1)
}

// settleOne settles an outcome of the shard's log; nil: it completes what can be.
func (e *executor) settleOne(s *shard, out *log.Outcome) {
	s.settling = true
	defer s.guardSettle()
	if out != nil {
		s.settle(out)
	} else {
		s.complete(s.committed())
	}
	s.settling = false
}

// guardSettle is deferred around the completion of claims.
func (s *shard) guardSettle() {
	if !s.settling {
		return
	}
	s.settling = false
	s.panicked(recover())
	if t := s.telling; t != nil {
		s.telling = nil
		s.finish(t)
	}
	clear(s.parts)
	s.breakDown()
}

// panicked notes a panic.
func (s *shard) panicked(what any) {
	s.exec.stats.restarts++
	s.exec.b.opts.Logger.Error("a publish panicked", "stream", s.stream.id, "shard", s.num,
		"panic", what, "stack", string(debug.Stack()))
}

// breakDown ends the shard until the broker restarts, and answers what it has claimed. What of it is in
// the log's files is found there then.
func (s *shard) breakDown() {
	s.failure.CompareAndSwap(nil, errBroken)
	s.forgetState() // some of its changes may be missing
	if s.log != nil {
		s.retreat(s.log.Fail(errBroken).Committed)
	}
	for s.pending.count > 0 {
		s.discard(s.pending.pop(), errWasTaken)
	}
	if r := s.replica.Load(); r != nil {
		r.held, r.expired = 0, 0
	}
	s.drained()
}
