package core

import (
	"sync/atomic"

	"github.com/ringcast/ringcast/wire"
)

// RouteKind says who handles a publish.
type RouteKind uint8

const (
	// RouteLocal: this broker.
	RouteLocal RouteKind = iota
	// RouteForward: Route.Owner, through the Forwarder.
	RouteForward
	// RouteRefused: nobody; Route.Reason says why.
	RouteRefused
)

// Route is where a publish for one shard goes. The zero value is this broker.
type Route struct {
	Kind   RouteKind
	Owner  *wire.Owner // RouteForward; never changed once it was handed out
	Reason Unavailable // RouteRefused
	// AfterWrite is set on a local route whose lease is about to end: a promise to write what was queued
	// could not be kept, so the answer comes after the write, whatever was configured (broker.md 1.7).
	AfterWrite bool
}

// Router says who owns a shard. Route is asked for every publish, by many goroutines, on the hot path: it
// must neither block nor allocate. What it says may be out of date when the publish is claimed; a shard
// that is lost in between is fenced (Broker.Fence).
type Router interface {
	Route(st *Stream, shard uint32) Route
}

// Forwarder sends publishes to the brokers that own their shards. Forward is called on an executor and
// must return at once; done is called exactly once, from any goroutine, with the owner's answer or with
// the error of having got none. Until then r is Forward's to read, with its Buf. The shard's lane waits
// for it, so that nothing that is sent later can land before (broker.md 1.4).
//
// The answer names owner as its owner, unless the Forwarder was sent on to another one and sets
// PublishResult.Owner. An error must say by its class whether the publish may have been applied.
type Forwarder interface {
	Forward(owner *wire.Owner, r *PublishRequest, done func(PublishResult))
}

// route decides who handles r. With done true r was answered here: it may not be forwarded.
func (b *Broker) route(r *PublishRequest) (done bool, err *wire.Error) {
	r.owner = nil
	route := b.opts.Router.Route(r.Stream, r.Shard)
	switch route.Kind {
	case RouteRefused:
		return false, max(route.Reason, NotAssigned).err()
	case RouteForward:
		if r.Idempotent || r.Conditional || r.commit != nil {
			// One batch could arrive through two brokers (broker.md 1.9), and only the leader knows offsets and state.
			if r.Reply == nil {
				return false, wire.ErrNotLeader
			}
			r.Reply.Published(r.Tag, PublishResult{Refused: &Refusal{Kind: RefusedNotLeader, Owner: route.Owner}})
			return true, nil
		}
		r.owner, r.AckOnQueue = route.Owner, false
	default:
		r.AckOnQueue = r.AckOnQueue && !route.AfterWrite
	}
	return false, nil
}

// forward hands t to the Forwarder and blocks its lane. It returns false, with nothing done, while what
// was claimed here before is not answered: nothing overtakes on a lane.
func (s *shard) forward(t *task) bool {
	if s.pending.count > 0 {
		return false
	}
	e := s.exec
	if e.stopping {
		s.reject(t, errDraining)
		return true
	}
	var answered atomic.Bool
	done := func(r PublishResult) {
		if answered.Swap(true) {
			panic("core: a forwarded publish was answered twice")
		}
		back := newTask(taskForwarded, s)
		back.result = r
		e.inbox.Push(&back.node)
	}
	e.b.opts.Forwarder.Forward(t.req.owner, &t.req, done)
	s.forwarding = t
	return true
}

// forwarded takes back the answer to the publish that the shard's lane waits for.
func (s *shard) forwarded(r PublishResult) {
	e := s.exec
	t := s.forwarding
	s.forwarding = nil
	e.queue.Unblock(s.lane)
	if r.Owner == nil {
		r.Owner = t.req.owner
	}
	switch {
	case r.Err != nil:
		e.stats.failed++
	case r.Refused != nil:
		e.stats.refused++
	}
	s.answer(t, r)
}

// drained lets a publish that waits to be forwarded go: everything before it is answered.
func (s *shard) drained() {
	if s.lane.Blocked() && s.forwarding == nil {
		s.exec.queue.Unblock(s.lane)
		s.exec.unblocked = true
	}
}

// unblock lets the lane be picked again, unless it waits for a forwarded publish.
func (s *shard) unblock() {
	if s.lane.Blocked() && s.forwarding == nil {
		s.exec.queue.Unblock(s.lane)
	}
}
