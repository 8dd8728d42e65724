// Hot path.

package core

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Quorum says how much of one shard a majority of its replicas holds.
type Quorum interface {
	// Mark is one past the last offset that a majority holds. ok is false while that may not be said,
	// because this broker's lease has ended, say: then nothing more becomes visible. It is called by the
	// shard's executor, often, and must neither block nor allocate.
	Mark() (upto uint64, ok bool)
}

// recheckInterval is how often what is held back is compared with the mark although nobody has said that
// it moved: what Mark may say can change without that (BUG-5).
const recheckInterval = int64(250 * time.Millisecond)

var (
	errQuorumTimeout = wire.NewError(wire.CodeQuorumTimeout, "a majority did not confirm the write in time")
	errMarkBehind    = errors.New("core: the mark does not cover what the shard holds")
)

// replica is what a shard has to do with its majority. It belongs to the shard's executor, but for moved.
//
// A publish of a replicated shard is committed, when its log says so, then covered by the mark, and only
// then visible and answered. pending is in that order, so the held ones are its front:
//
//	pending  | committed: held, expired of them answered | claimed |
//
// One that waits too long is answered quorum_timeout and stays, for its readers.
type replica struct {
	quorum  Quorum
	held    int
	expired int
	listed  bool // in executor.holding

	// moved: a task that tells of it is on its way. Written by whoever tells, and the executor.
	moved atomic.Bool
}

// Replicate has everything of a shard wait for its majority from now on: publishes are answered, and
// visible to readers, once q's mark covers them. The mark must cover what the shard holds now, so whoever
// replicates keeps the shard fenced until then. A shard with a single replica needs no Quorum: it is its
// own majority.
func (b *Broker) Replicate(st *Stream, shard uint32, q Quorum) error {
	s, err := st.shard(shard)
	if err != nil {
		return err
	}
	var problem error
	err = s.exec.call(func() {
		if mark, ok := q.Mark(); !ok || mark < s.next() || s.pending.count > 0 {
			problem = errMarkBehind
			return
		}
		s.replica.Store(&replica{quorum: q})
	})
	return errors.Join(err, problem)
}

// MarkMoved tells a replicated shard that its mark covers more than before. Any goroutine; it is cheap to
// call for each answer of a follower.
func (b *Broker) MarkMoved(st *Stream, shard uint32) {
	s, err := st.shard(shard)
	if err != nil {
		return
	}
	if r := s.replica.Load(); r != nil && r.moved.CompareAndSwap(false, true) {
		s.exec.inbox.Push(&newTask(taskMark, s).node)
	}
}

// covered is how far the shard may be visible when so much is committed.
func (r *replica) covered(committed, visible uint64) uint64 {
	mark, ok := r.quorum.Mark()
	if !ok {
		return visible
	}
	return max(visible, min(committed, mark))
}

// hold takes account of what was completed, and starts the time of what is committed and not covered.
func (r *replica) hold(s *shard, completed int, committed uint64) {
	r.held = max(0, r.held-completed)
	r.expired = max(0, r.expired-completed)
	e := s.exec
	for ; r.held < s.pending.count; r.held++ {
		t := s.pending.at(r.held)
		if t.base+uint64(t.req.Count) > committed {
			break
		}
		if t.deadline == 0 {
			t.deadline = e.now + int64(e.b.opts.QuorumTimeout)
		}
	}
	r.expire(s, e.now)
	if r.held == 0 {
		return
	}
	if !r.listed {
		r.listed = true
		if len(e.holding) == 0 {
			e.nextRecheck = e.now + recheckInterval
			e.nextHeld = e.nextRecheck
		}
		e.holding = append(e.holding, s)
	}
	if r.expired < r.held {
		e.nextHeld = min(e.nextHeld, s.pending.at(r.expired).deadline)
	}
}

// expire answers what has waited for the majority too long. Their records stay: they are dropped when
// they are visible.
func (r *replica) expire(s *shard, now int64) {
	for r.expired < r.held && s.pending.at(r.expired).deadline <= now {
		r.answer(s, errQuorumTimeout)
	}
}

// abandon answers everything that is held back.
func (r *replica) abandon(s *shard, e *wire.Error) {
	for r.expired < r.held {
		r.answer(s, e)
	}
}

// answer answers the oldest held publish that was not, and keeps it.
func (r *replica) answer(s *shard, e *wire.Error) {
	t := s.pending.at(r.expired)
	r.expired++
	t.stays = true
	s.reject(t, e)
}

// recheck looks again at what is held back, when it is time: whether the mark covers it by now, and whom
// to tell that it took too long. It returns when to do so next.
func (e *executor) recheck(now int64) (wakeAt int64) {
	if len(e.holding) == 0 {
		return 0
	}
	if now < e.nextHeld {
		return e.nextHeld
	}
	if now >= e.nextRecheck {
		e.nextRecheck = now + recheckInterval
	}
	e.nextHeld = e.nextRecheck
	e.holding = slices.DeleteFunc(e.holding, func(s *shard) bool {
		r := s.replica.Load()
		e.settleOne(s, nil)
		if r.held == 0 {
			r.listed = false
			return true
		}
		if r.expired < r.held {
			e.nextHeld = min(e.nextHeld, s.pending.at(r.expired).deadline)
		}
		return false
	})
	if len(e.holding) == 0 {
		e.nextHeld = 0
	}
	return e.nextHeld
}

// unheld takes everything that is held back out of a shard that goes: the majority is not waited for.
// What is not answered yet is answered with err.
func (s *shard) unheld(err *wire.Error) {
	r := s.replica.Load()
	if r == nil {
		return
	}
	for ; r.held > 0; r.held-- {
		s.discard(s.pending.pop(), err)
	}
	r.expired = 0
}

// awaitsMajority says that a publish is held back and not answered.
func (e *executor) awaitsMajority() bool {
	return slices.ContainsFunc(e.holding, func(s *shard) bool {
		r := s.replica.Load()
		return r.expired < r.held
	})
}
