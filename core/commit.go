package core

import (
	"context"
	"encoding/binary"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// CommitChangesMax is the most state changes of one commit: an executor makes them all in one turn.
const CommitChangesMax = 4096

// Change is one change of a shard's keyed state.
type Change = log.Change

// commitPart is what makes a publish an atomic commit. Its record, the only one, holds the event and
// the changes (docs/formats/log.md); readers of the stream get the event.
type commitPart struct {
	eventLen int
	changes  []Change
}

// Commit is Publish for an atomic commit: one event and the changes of the shard's keyed state that
// belong to it, in order, as one record of the log. Nobody sees one without the other. r names stream,
// shard, publisher, account, expected offset and replier; Commit fills in the rest. It takes over the
// values of changes, and borrows event until it returns.
//
// It waits as Publish does, and before that as State does: a commit whose state is not ready when
// PublishQueueWait has passed is refused shard_unavailable, not_ready, with nothing applied.
func (b *Broker) Commit(ctx context.Context, r *PublishRequest, event []byte, changes []Change) error {
	s, err := r.Stream.shard(r.Shard)
	if err != nil {
		return err
	}
	if err := checkCommit(s, event, changes); err != nil {
		return err
	}
	if !s.hasState.Load() {
		if err := b.withState(ctx, s, func(*entityState) {}); err != nil {
			return err
		}
	}
	size := log.CommitRecordSize(event, changes)
	r.Buf = b.opts.Pool.Get(4 + 4 + size)
	section := binary.BigEndian.AppendUint32(r.Buf.Bytes()[:0], 1)
	section = binary.BigEndian.AppendUint32(section, uint32(size))
	if section, err = log.AppendCommitRecord(section, event, changes); err != nil {
		r.Buf.Release()
		return errChange.WithCause(err)
	}
	r.Pos, r.SectionLen, r.Count, r.PayloadBytes = 0, len(section), 1, len(event)
	r.Acked, r.AckOnQueue = true, false
	r.commit = &commitPart{eventLen: len(event), changes: changes}
	return b.Publish(ctx, r)
}

var (
	errCommitNoLog  = wire.NewError(wire.CodeInvalidRequest, "the stream is in memory: an atomic commit needs a log")
	errConditional  = wire.NewError(wire.CodeInvalidRequest, "a conditional publish needs a stream with a log and at least one record")
	errChange       = wire.NewError(wire.CodeInvalidRequest, "a state change that cannot be stored")
	errManyChanges  = wire.NewError(wire.CodeLimitExceeded, "a commit may hold %d state changes", CommitChangesMax)
	errChangeKeyLen = wire.NewError(wire.CodeLimitExceeded, "a state key may have %d bytes", log.ChangeKeyMax)
)

func checkCommit(s *shard, event []byte, changes []Change) error {
	switch {
	case s.log == nil:
		return errCommitNoLog
	case len(event) > fanout.RecordMax:
		return wire.NewError(wire.CodeInvalidRequest, "the event has %d bytes, the most is %d", len(event), fanout.RecordMax)
	case len(changes) > CommitChangesMax:
		return errManyChanges
	}
	for i := range changes {
		if len(changes[i].Key) > log.ChangeKeyMax {
			return errChangeKeyLen
		}
	}
	return nil
}

// StateValue is what a key of a shard's keyed state holds.
type StateValue struct {
	// Value is not to be changed; nil = there is no such key.
	Value []byte
	// Version is the offset of the commit that wrote it, with a value.
	Version uint64
	// AsOf is the offset of the last commit that the answer reflects; HasAsOf is false while the log
	// holds none. The events of all commits up to it can be read from the stream.
	AsOf    uint64
	HasAsOf bool
}

// State returns what the atomic commits of a shard have made of a key. The state is built from the log
// when it is first asked for; a caller that has waited for PublishQueueWait is refused
// shard_unavailable, not_ready, and asks again. Keys whose commit retention has deleted are gone. Never
// call it on an executor.
func (b *Broker) State(ctx context.Context, st *Stream, shard uint32, key string) (v StateValue, err error) {
	s, err := st.shard(shard)
	switch {
	case err != nil:
		return v, err
	case s.log == nil:
		return v, errNoLog
	}
	err = b.withState(ctx, s, func(state *entityState) {
		base := s.log.Base()
		if k, ok := state.get(key, base); ok {
			v.Value, v.Version = k.value, k.version
		}
		if state.any && state.asOf >= base {
			v.AsOf, v.HasAsOf = state.asOf, true
		}
	})
	return v, err
}

// withState runs use with the shard's state, on the executor and where all that the log has committed
// is visible, and has the state built before if it must be.
func (b *Broker) withState(ctx context.Context, s *shard, use func(*entityState)) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.PublishQueueWait)
	defer cancel()
	for {
		if e := s.fence.Load(); e != nil {
			return e
		}
		var state *entityState
		var wait <-chan struct{}
		var problem *wire.Error
		err := s.exec.callSettled(func() {
			if state, wait, problem = s.stateNow(); state != nil {
				use(state)
			}
		})
		switch {
		case err != nil:
			return err
		case problem != nil:
			return problem
		case state != nil:
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return errStateNotReady
		case <-s.exec.stopped:
			return errDraining
		}
	}
}

// conditionsHold says whether a conditional publish or a commit may be claimed now. It runs where offsets are
// given. One that may not has no offset and delays nobody (broker.md 1.10); it is answered at once or,
// where its offset is taken by what is not committed yet, when that is: who is told a tail can read all
// that is below it, and what he writes there next is not written blindly.
func (s *shard) conditionsHold(t *task) bool {
	r := &t.req
	if next := s.next(); r.Conditional && next != r.Expected {
		t.base, t.mismatch, r.Count = next, true, 0
		if s.pending.count > 0 {
			s.pending.push(t)
		} else {
			s.mismatch(t, next)
		}
		return false
	}
	if r.commit == nil {
		return true
	}
	state, _, err := s.stateNow()
	switch {
	case err != nil:
		s.reject(t, err)
		return false
	case state == nil:
		s.reject(t, errStateNotReady)
		return false
	}
	// Whoever found the log's group full comes by again.
	s.exec.b.state.release(t.reserved)
	t.reserved = state.growth(r.commit.changes)
	if !s.exec.b.state.reserve(t.reserved) {
		t.reserved = 0
		s.reject(t, errStateFull)
		return false
	}
	return true
}

// mismatch refuses a conditional publish.
func (s *shard) mismatch(t *task, tail uint64) {
	s.exec.stats.refused++
	s.answer(t, PublishResult{Refused: &Refusal{Kind: RefusedOffset, Tail: tail}})
}

// applyCommit makes the changes of a commit that is about to become visible. Its reservation is given
// back when it is answered.
func (s *shard) applyCommit(t *task) {
	if c := t.req.commit; c != nil && s.view.state != nil {
		s.view.state.apply(t.base, c.changes)
		s.exec.stats.commits++
	}
}

// kindOfEntry is the kind of the log entry that a publish becomes.
func (t *task) kindOfEntry() log.Kind {
	if t.req.commit != nil {
		return log.KindCommit
	}
	return log.KindRecords
}

// part is what readers get of a publish: its records, or the event of a commit. Of a commit's record
// the length word plays the count word, which no frame has.
func (t *task) part() fanout.Part {
	p := fanout.Part{
		Base: t.base, Count: t.req.Count, TimeMicros: t.time, Publisher: t.req.Publisher,
		Section: t.section(), Buf: t.req.Buf, Pos: t.req.Pos,
	}
	if c := t.req.commit; c != nil {
		p.Section = p.Section[4 : 4+8+c.eventLen]
		p.Pos += 4
	}
	return p
}

// eventOf makes the entry of a commit look like that of a publish of its event.
func eventOf(e *log.PageEntry) error {
	c, err := e.CommitRecord()
	if err != nil {
		return err
	}
	e.Kind, e.Pos = log.KindRecords, e.Pos+4
	e.Records = e.Records[4 : 4+4+len(c.Event)]
	return nil
}

// checkConditional refuses a condition on something that has no offset.
func checkConditional(s *shard, r *PublishRequest) error {
	if r.Conditional && (s.log == nil || r.Count == 0) {
		return errConditional
	}
	return nil
}
