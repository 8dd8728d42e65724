package serve

import (
	"context"
	"encoding/base64"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// Conditional publishes, atomic commits and the state that commits make (wire.md 4.2, 4.3). They are
// answered as they end and not in the order of a pipeline, and what goes wrong with them is an `error`,
// but for a missing permission, which is a `publish_error`.

func (s *session) publishIf(ctx context.Context, m *wire.PublishIf) verdict {
	c := command{
		acked: true, form: formConditional, requestID: m.RequestID,
		conditional: true, expected: m.ExpectedOffset,
	}
	c.target(m.TenantID, m.Namespace, m.Stream, m.Key, m.Shard)
	return s.publishJSON(ctx, &c, m.Payloads...)
}

func (s *session) commit(ctx context.Context, m *wire.Commit) verdict {
	s.srv.count.jsonPublishes.Add(1)
	if m.TenantID != s.id.Tenant {
		s.refuse(s.forbid(errTenant))
		return goOn
	}
	c := command{acked: true, form: formCommit, requestID: m.RequestID}
	c.target(m.TenantID, m.Namespace, m.Stream, m.EntityKey, m.Shard)
	if m.ExpectedOffset != nil {
		c.conditional, c.expected = true, *m.ExpectedOffset
	}
	sl := s.slot(c.requestID, c.form)
	if sl == nil {
		return loseStream
	}
	var req core.PublishRequest
	err := s.route(&c, &req)
	var changes []core.Change
	if err == nil {
		changes, err = stateChanges(m)
	}
	if err != nil {
		sl.refuse(err)
		return goOn
	}
	req.Reply, req.Place = sl, &sl.place
	// The decoder made the values for this message: the state may keep them.
	if err := s.srv.o.Broker.Commit(ctx, &req, m.Event, changes); err != nil {
		sl.refuse(wire.AsError(err))
	}
	return goOn
}

// stateChanges is what a commit changes. A change for another stream is another log: the commit is
// refused whole (COM-2).
func stateChanges(m *wire.Commit) ([]core.Change, *wire.Error) {
	if len(m.Changes) > core.CommitChangesMax {
		return nil, errManyChanges
	}
	changes := make([]core.Change, len(m.Changes))
	for i := range m.Changes {
		from, to := &m.Changes[i], &changes[i]
		if from.Stream != nil && *from.Stream != m.Stream {
			return nil, errSecondStream
		}
		if base64.StdEncoding.EncodedLen(len(from.Value)) > readPayloadMax {
			return nil, errValueTooLarge
		}
		to.Op, to.Key, to.Value = log.ChangePut, from.Key, from.Value
		if from.Op == wire.ChangeDelete {
			to.Op = log.ChangeDelete
		}
	}
	return changes, nil
}

// appendConditionalAnswer encodes the outcome of a conditional publish or a commit.
func (s *session) appendConditionalAnswer(dst []byte, sl *slot, r *core.PublishResult) []byte {
	switch {
	case r.Err != nil && r.Err.Code == wire.CodeForbidden:
		return wire.AppendMessage(dst, wire.NewPublishError(sl.requestID, r.Err, s.feats))
	case r.Err != nil:
		return wire.AppendMessage(dst, wire.NewErrorMessage(r.Err, s.feats))
	case r.Refused != nil:
		return wire.AppendMessage(dst, publishRefused(sl.requestID, r.Refused))
	case sl.form == formCommit:
		return wire.AppendMessage(dst, &wire.CommitOK{RequestID: sl.requestID, Offset: r.Offset})
	}
	offset := r.Offset
	return wire.AppendMessage(dst, &wire.PublishOK{RequestID: sl.requestID, Offset: &offset})
}

// stateGet answers from the session's own goroutine, which may wait until the state is built. It creates
// nothing: a stream that nobody defined is not found.
func (s *session) stateGet(ctx context.Context, m *wire.StateGet) verdict {
	if e := s.mayRead(m.TenantID, m.Namespace, m.Stream); e != nil {
		if e == errTenant {
			s.refuse(e)
		} else {
			s.reply(wire.NewPublishError(m.RequestID, e, s.feats))
		}
		return goOn
	}
	b := s.srv.o.Broker
	stream, err := b.FindStream(m.TenantID, m.Namespace, m.Stream)
	if err != nil {
		return s.refuseRead(err)
	}
	shard := stream.ShardOf(m.EntityKey, true)
	if m.Shard != nil {
		shard = *m.Shard
	}
	v, err := b.State(ctx, stream, shard, m.Key)
	if err != nil {
		return s.refuseRead(err)
	}
	answer := &wire.StateValue{RequestID: m.RequestID, Value: v.Value}
	if v.Value != nil {
		answer.Version = &v.Version
	}
	if v.HasAsOf {
		answer.AsOf = &v.AsOf
	}
	if len(v.Value) <= stateValueSmall {
		s.reply(answer)
		return goOn
	}
	// As with a page: a connection has few large answers at a time in its streams' memory.
	select {
	case s.c.reads <- struct{}{}:
		defer func() { <-s.c.reads }()
	case <-s.w.dead:
		return endStream
	}
	if s.reply(answer) {
		s.w.flush()
	}
	return goOn
}
