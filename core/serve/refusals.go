package serve

import (
	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// Refusals with a text of their own (wire.md 3.1, 3.2.1, 4.0, 4.2).
var (
	errAuth          = wire.NewError(wire.CodeUnauthenticated, "auth failed")
	errAuthFirst     = wire.NewError(wire.CodeUnauthenticated, "auth required")
	errNotYet        = wire.NewError(wire.CodeUnauthenticated, "not authenticated")
	errAuthTwice     = wire.NewError(wire.CodeInvalidRequest, "auth already established")
	errTenant        = wire.NewError(wire.CodeForbidden, "tenant mismatch")
	errBrokerOnly    = wire.NewError(wire.CodeInvalidRequest, "unexpected message type")
	errNoEventStream = wire.NewError(wire.CodeOverloaded, "the client grants no stream for the events")
	errReadTooLarge  = wire.NewError(wire.CodeLimitExceeded, "the record is larger than an answer can carry; subscribe to get it")
	errManyChanges   = wire.NewError(wire.CodeLimitExceeded, "a commit may hold %d state changes", core.CommitChangesMax)
	errSecondStream  = wire.NewError(wire.CodeInvalidRequest, "a commit writes one stream: a change names another one, nothing was written")
	errValueTooLarge = wire.NewError(wire.CodeLimitExceeded, "a state value is larger than an answer can carry")
	errRequestID     = wire.NewError(wire.CodeInvalidRequest, "missing request_id for acked publish")
)

// publishRefused is a `publish_refused` (wire.md 4.2).
func publishRefused(requestID uint64, r *core.Refusal) *wire.PublishRefused {
	m := &wire.PublishRefused{RequestID: requestID, Message: r.Error()}
	switch r.Kind {
	case core.RefusedGap:
		m.Reason = wire.RefusedReason{Kind: wire.RefusedSequenceGap, Expected: r.Expected}
	case core.RefusedUnknownProducer:
		m.Reason.Kind = wire.RefusedUnknownProducer
	case core.RefusedExpired:
		m.Reason.Kind = wire.RefusedSequenceExpired
	case core.RefusedReused:
		m.Reason.Kind = wire.RefusedSequenceReused
	case core.RefusedOffset:
		m.Reason = wire.RefusedReason{Kind: wire.RefusedOffsetMismatch, Tail: r.Tail}
	case core.RefusedNotLeader:
		m.Reason = wire.RefusedReason{Kind: wire.RefusedNotLeader, NodeID: r.Owner.NodeID, Addr: r.Owner.Addr}
	}
	return m
}

// requestID is the request id of a message that this version does not serve; nil if it has none.
func requestID(m wire.Message) *uint64 {
	switch m := m.(type) {
	case *wire.CachePutIf:
		return &m.RequestID
	case *wire.CacheDeleteIf:
		return &m.RequestID
	case *wire.CounterAdd:
		return &m.RequestID
	case *wire.CounterGet:
		return &m.RequestID
	case *wire.GroupPoll:
		return &m.RequestID
	case *wire.GroupAck:
		return &m.RequestID
	case *wire.GroupNack:
		return &m.RequestID
	case *wire.GroupExtend:
		return &m.RequestID
	case *wire.GroupDeadLetter:
		return &m.RequestID
	case *wire.GroupDeadLetters:
		return &m.RequestID
	case *wire.GroupDiscard:
		return &m.RequestID
	case *wire.GroupRedrive:
		return &m.RequestID
	case *wire.GroupSeek:
		return &m.RequestID
	case *wire.GroupDescribe:
		return &m.RequestID
	case *wire.GroupDelete:
		return &m.RequestID
	case *wire.ShardInspect:
		return &m.RequestID
	case *wire.SubscriptionsList:
		return &m.RequestID
	}
	return nil
}
