package core

import "github.com/ringcast/ringcast/wire"

// Unavailable says why this broker does not serve a shard (wire.md 6.1).
type Unavailable uint8

const (
	// Served: it does.
	Served Unavailable = iota
	// NotAssigned: nobody was told to serve the shard.
	NotAssigned
	// OwnerUnavailable: its owner does not answer.
	OwnerUnavailable
	// NotReady: this broker is to serve it and is not done with its preparations.
	NotReady
	// Stale: this broker's lease has ended.
	Stale
	// Fenced: another broker serves it by now.
	Fenced
	// Moving: it is being handed to another broker.
	Moving
)

// movingRetryMS is when a move that was met is looked for again.
const movingRetryMS = 100

var unavailable = [...]*wire.Error{
	NotAssigned:      wire.NewError(wire.CodeShardUnavailable, "the shard is assigned to no broker").WithReason("not_assigned", 0),
	OwnerUnavailable: wire.NewError(wire.CodeShardUnavailable, "the shard's owner does not answer").WithReason("owner_unavailable", 0),
	NotReady:         wire.NewError(wire.CodeShardUnavailable, "the shard is not ready yet").WithReason("not_ready", 0),
	Stale:            wire.NewError(wire.CodeShardUnavailable, "this broker's lease on the shard has ended").WithReason("stale", 0),
	Fenced:           wire.NewError(wire.CodeShardUnavailable, "another broker serves the shard").WithReason("fenced", 0),
	Moving:           wire.NewError(wire.CodeShardUnavailable, "the shard is moving to another broker").WithReason("moving", movingRetryMS),
}

// err is what is answered; nil for Served.
func (u Unavailable) err() *wire.Error {
	if u == Served {
		return nil
	}
	return unavailable[u]
}

// Fence has a shard refuse publishes and readers from its return on, with the reason why, or take them
// again with Served. Each publish meets it when it is accepted and again when it is claimed, so that
// one which waited is refused, too (BUG-3). What was claimed before is finished and answered as usual;
// open subscriptions stay, and whoever fences ends them. On a single broker nobody does.
func (b *Broker) Fence(st *Stream, shard uint32, why Unavailable) error {
	s, err := st.shard(shard)
	if err != nil {
		return err
	}
	return s.exec.call(func() { s.fence.Store(why.err()) })
}

// refuses is why the shard takes nothing at the moment, nil if it does. Any goroutine; on its executor
// it is what counts.
func (s *shard) refuses() *wire.Error {
	if f := s.failure.Load(); f != nil {
		return f
	}
	return s.fence.Load()
}
