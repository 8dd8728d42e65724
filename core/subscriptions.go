package core

import (
	"sync"
	"time"

	"github.com/ringcast/ringcast/fanout"
)

// subscriptions is every open subscription of the broker, for inspection, revocation and shutdown.
// Delivery never comes here.
type subscriptions struct {
	mu     sync.Mutex // guards everything below
	open   map[*Subscription]struct{}
	nextID uint64

	// Sums over the subscriptions that have ended.
	delivered, deliveredBytes, dropped uint64
}

func (s *subscriptions) init() { s.open = map[*Subscription]struct{}{} }

func (s *subscriptions) add(sub *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.req.ID != nil {
		sub.id = *sub.req.ID
	} else {
		s.nextID++
		sub.id = s.nextID
	}
	s.open[sub] = struct{}{}
}

func (s *subscriptions) remove(sub *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[sub]; !ok {
		return
	}
	delete(s.open, sub)
	st := sub.sub.Stats()
	s.delivered += st.DeliveredRecords + st.HistoryRecords
	s.deliveredBytes += st.Bytes
	s.dropped += st.DroppedBatches
}

func (s *subscriptions) list() []*Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Subscription, 0, len(s.open))
	for sub := range s.open {
		all = append(all, sub)
	}
	return all
}

func (s *subscriptions) status(st *Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Subscriptions = len(s.open)
	st.DeliveredRecords, st.DeliveredBytes, st.DroppedBatches = s.delivered, s.deliveredBytes, s.dropped
	for sub := range s.open {
		fs := sub.sub.Stats()
		st.DeliveredRecords += fs.DeliveredRecords + fs.HistoryRecords
		st.DeliveredBytes += fs.Bytes
		st.DroppedBatches += fs.DroppedBatches
	}
}

func (s *subscriptions) stopAll() {
	for _, sub := range s.list() {
		sub.stop(fanout.EndStopped)
	}
}

// StopSubscriptions ends every subscription after what is queued for it: the readers are told, by
// whoever runs them, that they were interrupted. For shutdown.
func (b *Broker) StopSubscriptions() { b.subs.stopAll() }

// Revoke ends the subscriptions of a tenant's principal (broker.md 2.7) and says how many.
func (b *Broker) Revoke(tenant, principal string) int {
	n := 0
	for _, sub := range b.subs.list() {
		if sub.req.Principal == principal && sub.shard.stream.def.Load().Tenant == tenant {
			sub.stop(fanout.EndRevoked)
			n++
		}
	}
	return n
}

// SubscriptionInfo describes one subscription at one moment.
type SubscriptionInfo struct {
	Tenant, Namespace, Stream string
	Shard                     uint32
	ID                        uint64
	Conn                      uint64
	Peer, Principal           string
	Depth, Capacity           int
	Dropped                   uint64
	// Position is the next offset for the reader, Tail the next one of the shard.
	Position, Tail uint64
	Age            time.Duration
	// Live is false while history is being sent.
	Live bool
}

// Subscriptions lists the open subscriptions, in no order.
func (b *Broker) Subscriptions() []SubscriptionInfo {
	now := b.opts.Now()
	subs := b.subs.list()
	infos := make([]SubscriptionInfo, 0, len(subs))
	for _, s := range subs {
		def := s.shard.stream.def.Load()
		st := s.sub.Stats()
		infos = append(infos, SubscriptionInfo{
			Tenant: def.Tenant, Namespace: def.Namespace, Stream: def.Stream, Shard: s.shard.num,
			ID: s.id, Conn: s.req.Conn, Peer: s.req.Peer, Principal: s.req.Principal,
			Capacity: s.capacity, Position: s.at(&st), Tail: s.shard.visible.Load(), Age: now.Sub(s.created),
			Live: s.joined.Load(), Depth: st.Queued, Dropped: st.DroppedBatches,
		})
	}
	return infos
}

// at is the next offset for the reader: what was written to it, or dropped, counted from its start.
func (s *Subscription) at(st *fanout.SubscriberStats) uint64 {
	return max(s.position.Load(), s.start+st.HistoryRecords+st.DeliveredRecords+st.DroppedRecords)
}
