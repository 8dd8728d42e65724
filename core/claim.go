// Hot path.

package core

import (
	"errors"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// A claim is at most so many jobs and so many bytes of records sections: payloads and their lengths
// (broker.md 1.5).
const (
	claimJobsMax  = 64
	claimBytesMax = 1 << 20
)

// claimRun makes one claim: the lane's first job and, if that may be joined, those behind it that may
// be, as far as the bounds go. The job that would exceed them is the first of the next claim. It
// returns how many jobs had their turn.
//
// Claims never wait: when the log's filling group is full the lane is blocked until an operation has
// ended.
func (s *shard) claimRun(lane *sched.Lane[*task]) (n int) {
	q := s.exec.queue
	before := s.pending.count
	joins := true
	bytes := int64(0)
	for {
		t, ok := q.Peek(lane)
		if !ok {
			break
		}
		next := bytes + t.cost
		if n == 0 {
			joins = t.joins()
		} else if !joins || n == claimJobsMax || next > claimBytesMax || !t.joins() {
			break
		}
		s.claiming = t
		if !s.claim(t) {
			s.claiming = nil
			q.Block(lane)
			break
		}
		s.claiming = nil
		q.Pop(lane)
		n++
		bytes = next
		if s.forwarding != nil {
			q.Block(lane)
			break
		}
	}
	if claimed := s.pending.count - before; claimed > 0 {
		s.exec.stats.claim(claimed)
		s.claimed(bytes)
	}
	return max(n, 1)
}

// claimed has what was claimed completed in this step: duplicates and empty publishes may have nothing
// to wait for, and in-memory publishes never have. All that a step claims in memory goes to the readers
// together, because they get no turn before the step has ended (PUB-9), unless it is as much as a
// tenant's turn: then others would be answered late (PUB-13).
func (s *shard) claimed(bytes int64) {
	e := s.exec
	e.completeLater(s)
	if s.log != nil {
		e.markDirty(s)
	} else if e.uncompleted += bytes; e.uncompleted >= sched.Quantum {
		e.completeMemory()
	}
}

// committed is one past the last claimed offset that may be completed.
func (s *shard) committed() uint64 {
	if s.log != nil {
		return s.log.Committed()
	}
	return s.memNext
}

// next is the offset that the next claimed record gets.
func (s *shard) next() uint64 {
	if s.log != nil {
		return s.log.Next()
	}
	return s.memNext
}

// claim gives t its offsets and its place among the pending ones, or answers it. It returns false,
// with nothing done, when the log has no room for it now.
func (s *shard) claim(t *task) bool {
	if s.gone {
		s.reject(t, errNoStream)
		return true
	}
	if t.req.owner != nil {
		return s.forward(t)
	}
	if e := s.refuses(); e != nil {
		s.reject(t, e)
		return true
	}
	r := &t.req
	if (r.Conditional || r.commit != nil) && !s.conditionsHold(t) {
		return true
	}
	if r.Idempotent {
		t.digest = log.Digest(t.section())
		verdict, offset, expected := s.producers.Check(r.ProducerID, r.Sequence, t.digest)
		switch verdict {
		case log.ProducerAppend:
		case log.ProducerDuplicate:
			t.base, t.duplicate = offset, true
			s.pending.push(t)
			return true
		default:
			s.refuse(t, verdict, expected)
			return true
		}
	}
	if r.Count == 0 {
		// Nothing to write; it is answered in its turn.
		t.base = s.next()
		s.pending.push(t)
		return true
	}
	t.time = s.exec.micros
	section := t.section()
	s.changing = true
	if s.log == nil {
		t.base = s.memNext
		s.memNext += uint64(r.Count)
	} else {
		base, err := s.log.Append(&log.Entry{
			Kind: t.kindOfEntry(), Count: r.Count, Section: section, Buf: r.Buf,
			HasProducer: r.Idempotent, ProducerID: r.ProducerID, Sequence: r.Sequence, Digest: t.digest,
			Publisher: r.Publisher,
		}, t.time)
		if errors.Is(err, log.ErrGroupFull) {
			s.changing = false
			s.exec.markDirty(s)
			return false
		}
		if err != nil {
			s.changing = false
			s.reject(t, s.refusal(err, false))
			return true
		}
		t.base = base
	}
	if r.Idempotent {
		s.producers.Add(r.ProducerID, r.Sequence, t.digest, t.base, r.Count)
	}
	s.pending.push(t)
	s.changing = false
	return true
}

// opDone continues the shard after an operation of its log.
func (s *shard) opDone(op *ring.Op) { s.ended(s.log.OpDone(op)) }

// jobDone continues the shard after a file job of its log.
func (s *shard) jobDone(job *log.Job) {
	out := s.log.JobDone(job)
	s.trimmed(job)
	s.ended(out)
}

// ended takes an outcome of the log. What it makes visible and whom it answers is settled at the end
// of the step, when the log's next group is on its way to the disk; a failure is settled at once,
// before anything else is claimed.
func (s *shard) ended(out log.Outcome) {
	e := s.exec
	e.markDirty(s)
	s.unblock()
	e.settleLater(s, out)
	if out.Err != nil || s.log.Err() != nil {
		e.settle()
	}
}

// settle makes an outcome visible and answers.
func (s *shard) settle(out *log.Outcome) {
	s.complete(out.Committed)
	s.retreat(out.Committed)
	if out.Err != nil {
		s.fail(out)
	}
}

// retreat makes nothing from committed on readable: the log was poisoned without on_commit, so that what
// was readable is not proven to be on the disk. Readers stop below it (LOG-10), before anybody is told of
// the failure.
func (s *shard) retreat(committed uint64) {
	if committed < s.visible.Load() {
		s.exec.retain(-s.replay.Bytes())
		s.replay.Reset(committed)
		s.visible.Store(committed)
		s.forgetState() // it is built anew from what is left
	}
}

// complete makes everything below committed visible, in the order of the claims: replay ring, one
// envelope for all subscribers, then the answers (broker.md 1.6). On a replicated shard it stops at the
// mark.
func (s *shard) complete(committed uint64) {
	r := s.replica.Load()
	if r == nil {
		s.completeTo(committed)
		return
	}
	n := s.completeTo(r.covered(committed, s.visible.Load()))
	r.hold(s, n, committed)
}

// completeTo completes what ends at or below upto, and returns how many publishes that were.
func (s *shard) completeTo(upto uint64) (n int) {
	s.parts = s.parts[:0]
	var records, bytes uint64
	for ; n < s.pending.count; n++ {
		t := s.pending.at(n)
		if t.base+uint64(t.req.Count) > upto {
			break
		}
		if t.duplicate || t.req.Count == 0 {
			continue
		}
		s.applyCommit(t)
		s.parts = append(s.parts, t.part())
		records += uint64(t.req.Count)
		bytes += uint64(t.req.PayloadBytes)
	}
	if n == 0 {
		return 0
	}
	if len(s.parts) > 0 {
		for i := range s.parts {
			s.parts[i].Buf.Retain() // the envelope's reference; the task's goes when it is finished
		}
		env := fanout.NewEnvelope(s.log != nil, s.parts)
		clear(s.parts)
		next := env.Next()
		held := s.replay.Bytes()
		s.replay.Push(env)
		if now := s.exec.retain(s.replay.Bytes() - held); now > s.exec.b.opts.RetainedBytes {
			s.exec.shrinkRings()
		}
		s.readers.Publish(env)
		env.Release()
		s.visible.Store(next)
		s.stream.tenant.publishedRecords.Add(records)
		s.stream.tenant.publishedBytes.Add(bytes)
	}
	for range n {
		t := s.pending.pop()
		if t.stays {
			s.drop(t)
			continue
		}
		if t.mismatch {
			s.mismatch(t, t.base)
			continue
		}
		s.answer(t, PublishResult{Offset: t.base, HasOffset: s.log != nil && t.req.Count > 0})
	}
	if s.pending.count == 0 {
		s.drained()
	}
	return n
}

// fail answers the publishes whose records the log gave up. Their offsets are void and will be given to
// others. What is committed and waits for its majority goes on waiting.
func (s *shard) fail(out *log.Outcome) {
	e := s.refusal(out.Err, true)
	r := s.replica.Load()
	if r != nil {
		r.held, r.expired = 0, 0
	}
	kept := true // so far: what is committed lies in front, but for duplicates of it
	for range s.pending.count {
		t := s.pending.pop()
		committed := t.base+uint64(t.req.Count) <= out.Committed
		switch {
		case committed && r != nil && (kept || t.duplicate):
			if t.stays {
				r.expired++
			}
			s.pending.push(t)
		case committed && t.duplicate:
			s.answer(t, PublishResult{Offset: t.base, HasOffset: true})
		case t.mismatch && !t.stays && s.failure.Load() == nil:
			s.mismatch(t, out.Committed) // what took its offset is void
		default:
			kept = false
			s.discard(t, e)
		}
	}
	if r != nil {
		s.exec.completeLater(s)
	}
	if s.pending.count == 0 {
		s.drained()
	}
}

// refusal maps an error of the log to the answer that a client gets, and remembers a failure that
// is for good. claimed: the publish had its offsets, so what failed may be on the disk.
func (s *shard) refusal(err error, claimed bool) *wire.Error {
	switch {
	case errors.Is(err, log.ErrPoisoned):
		e := storageError(err)
		if s.failure.CompareAndSwap(nil, e) {
			s.exec.b.opts.Logger.Error("log failed for good", "stream", s.stream.id, "shard", s.num, "err", err)
		}
		if claimed {
			return e.WithRetry(wire.RetryUnknown)
		}
		return e
	case errors.Is(err, ring.ErrNoSpace):
		s.exec.stats.full++
		return errDiskFull
	case errors.Is(err, log.ErrTooLarge):
		return errTooLarge
	case errors.Is(err, log.ErrReset):
		return errReset
	case errors.Is(err, log.ErrClosed):
		return errDraining
	}
	return wire.NewError(wire.CodeStorage, "writing the shard's log failed").WithCause(err)
}

var (
	errDiskFull = wire.NewError(wire.CodeOverloaded, "the disk is full").WithReason("disk_full", 1000)
	errTooLarge = wire.NewError(wire.CodeInvalidRequest, "the publish is larger than a log entry may be")
)

// refuse answers an idempotent publish that does not continue its producer's sequence.
func (s *shard) refuse(t *task, v log.Verdict, expected uint64) {
	r := &Refusal{Expected: expected}
	switch v {
	case log.ProducerGap:
		r.Kind = RefusedGap
	case log.ProducerExpired:
		r.Kind = RefusedExpired
	case log.ProducerReused:
		r.Kind = RefusedReused
	default:
		r.Kind = RefusedUnknownProducer
	}
	s.exec.stats.refused++
	s.answer(t, PublishResult{Refused: r})
}

func (s *shard) reject(t *task, e *wire.Error) {
	s.exec.stats.failed++
	switch {
	case !t.req.Acked:
		s.stream.tenant.lost.Add(1)
	case t.req.Reply == nil:
		s.exec.stats.ackedDropped[dropReasonOf(e)].Add(1) // it was acknowledged when it was queued
	}
	s.answer(t, PublishResult{Err: e})
}

// discard ends a publish with an error, unless it was answered before.
func (s *shard) discard(t *task, e *wire.Error) {
	if t.stays {
		s.drop(t)
		return
	}
	s.reject(t, e)
}

// answer ends a publish: its answer, its buffer, its permits.
func (s *shard) answer(t *task, r PublishResult) {
	if t.req.Reply != nil {
		s.telling = t
		t.req.Reply.Published(t.req.Tag, r)
		s.telling = nil
	}
	s.finish(t)
}

// finish ends a publish that was answered. One that stays keeps its records and their bytes.
func (s *shard) finish(t *task) {
	s.exec.admission.Leave(s.account)
	if !t.stays {
		s.drop(t)
	}
	s.exec.stats.finished++
	s.exec.b.finished(1)
}

// drop lets go of a publish: its buffer and the bytes that it held.
func (s *shard) drop(t *task) {
	t.req.Buf.Release()
	s.exec.b.releaseBytes(s, t.req.Account, t.cost)
	s.exec.b.state.release(t.reserved)
	t.free()
}
