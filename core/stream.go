package core

import (
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// Stream is the handle of one stream: a dense way to name it after the first look-up. It stays
// valid after the stream was deleted; publishes through it are then refused not_found.
type Stream struct {
	broker  *Broker
	id      uint64
	created time.Time
	mode    log.FsyncMode
	routing wire.Routing
	// first is the dense number of shard 0; shard n's owner is executor (first + n) mod N.
	first  uint64
	shards []*shard
	tenant *tenantState

	// def is replaced when retention changes; shards, durable and routing never do.
	def     atomic.Pointer[StreamDef]
	deleted atomic.Bool
	// leaving counts the shards of a deleted stream that their executors have not let go of;
	// removed is closed when its logs are closed and its files gone.
	leaving atomic.Int32
	removed chan struct{}
}

// Shards is the number of shards, at least 1.
func (s *Stream) Shards() uint32 { return uint32(len(s.shards)) }

// Routing is how keys are mapped to shards.
func (s *Stream) Routing() wire.Routing { return s.routing }

// Durable says whether the stream has a log.
func (s *Stream) Durable() bool { return s.def.Load().Durable }

// ShardOf maps a routing key to a shard (wire.md 6.5).
func (s *Stream) ShardOf(key []byte, hasKey bool) uint32 {
	return wire.ShardOf(key, hasKey, uint32(len(s.shards)), s.routing)
}

// Info describes the stream and its shards now.
func (s *Stream) Info() StreamInfo {
	def := *s.def.Load()
	info := StreamInfo{StreamDef: def, ID: s.id, Created: s.created, Ack: s.ackPromise()}
	if r := s.retention(); r != (log.Retention{}) {
		info.Retention = &RetentionInfo{Bytes: r.Bytes, Seconds: int64(r.Age / time.Second)}
	}
	for _, sh := range s.shards {
		info.ShardInfo = append(info.ShardInfo, sh.info())
	}
	return info
}

// ackPromise names what an acknowledgement of this stream means, so that no place that shows a
// stream leaves it open (design.md 5.2, HZ-1).
func (s *Stream) ackPromise() string {
	if !s.Durable() {
		return "in memory: nothing survives a restart"
	}
	switch s.mode {
	case log.FsyncPeriodic:
		return "in the page cache: a power cut loses at most " + s.broker.opts.FsyncInterval.String() + " and what was being synced"
	case log.FsyncNone:
		return "in the page cache: a power cut may lose anything, a crash of the broker nothing"
	default:
		return "on the device: a power cut loses nothing acknowledged"
	}
}

func (s *Stream) shard(n uint32) (*shard, error) {
	if n >= uint32(len(s.shards)) {
		return nil, wire.NewError(wire.CodeInvalidRequest, "shard %d: the stream has %d", n, len(s.shards))
	}
	return s.shards[n], nil
}
