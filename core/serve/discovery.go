package serve

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/ringcast/ringcast/wire"
)

// Discovery asks what exists and never creates anything: an unknown name has no shards. Any valid
// token of the tenant may ask (wire.md 3.2.1).

func (s *session) streamShards(m *wire.StreamShards) verdict {
	if m.TenantID != s.id.Tenant {
		s.refuse(s.forbid(errTenant))
		return goOn
	}
	answer := &wire.StreamShardsView{RequestID: m.RequestID}
	if info, ok := s.srv.o.Broker.GetStream(m.TenantID, m.Namespace, m.Stream); ok {
		answer.Shards = info.Shards
		answer.Routing, _ = wire.ParseRouting(info.Routing)
	}
	s.reply(answer)
	return goOn
}

func (s *session) cacheShards(m *wire.CacheShards) verdict {
	if m.TenantID != s.id.Tenant {
		s.refuse(s.forbid(errTenant))
		return goOn
	}
	answer := &wire.CacheShardsView{RequestID: m.RequestID}
	if info, ok := s.srv.o.Broker.GetCache(m.TenantID, m.Namespace, m.Cache); ok {
		answer.Shards = info.Shards
	}
	s.reply(answer)
	return goOn
}

// shardOwners answers for a broker that is alone: it holds every shard, and has no node id and no
// address to send anybody to.
func (s *session) shardOwners(m *wire.ShardOwners) verdict {
	if m.TenantID != s.id.Tenant {
		s.refuse(s.forbid(errTenant))
		return goOn
	}
	var shards uint32
	if m.Kind == wire.ResourceCache {
		if info, ok := s.srv.o.Broker.GetCache(m.TenantID, m.Namespace, m.Name); ok {
			shards = info.Shards
		}
	} else if info, ok := s.srv.o.Broker.GetStream(m.TenantID, m.Namespace, m.Name); ok {
		shards = info.Shards
	}
	answer := &wire.ShardOwnersView{RequestID: m.RequestID, Owners: make([]wire.ShardOwner, shards)}
	for i := range answer.Owners {
		answer.Owners[i].Shard = uint32(i)
	}
	s.reply(answer)
	return goOn
}

// producerInit hands out 64 random bits: a producer exists once a shard has a batch of it.
func (s *session) producerInit(m *wire.ProducerInit) verdict {
	var b [8]byte
	// It never fails: the runtime ends the process when the system has no randomness.
	_, _ = rand.Read(b[:])
	s.reply(&wire.ProducerInitOK{RequestID: m.RequestID, ProducerID: binary.BigEndian.Uint64(b[:])})
	return goOn
}
