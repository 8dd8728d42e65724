package core

import (
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// shardsMax is the most shards of one stream or cache.
const shardsMax = 1024

// StreamDef is what an operator defines about a stream. The JSON names are those of the admin API
// and of the catalogue (design.md 11).
type StreamDef struct {
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"`
	Stream    string `json:"stream"`
	// Shards is 1 to 1024; 0 means 1.
	Shards  uint32 `json:"shards"`
	Durable bool   `json:"durable"`
	// Fsync is "on_commit", "periodic" or "none"; "" = the broker's default. Empty in memory.
	Fsync string `json:"fsync,omitempty"`
	// Routing is "modulo" (default) or "jump_hash"; fixed at creation.
	Routing string `json:"routing"`
	// RetentionBytes and RetentionSeconds bound what each shard keeps; nil = the broker's bound, 0
	// is refused.
	RetentionBytes   *int64 `json:"retention_bytes,omitempty"`
	RetentionSeconds *int64 `json:"retention_seconds,omitempty"`
}

// StreamInfo is a StreamDef and what the broker knows about the stream.
type StreamInfo struct {
	StreamDef
	ID      uint64    `json:"id"`
	Created time.Time `json:"created"`
	// Retention is what is in force: the stream's own bounds, the broker's where it has none; nil
	// when everything is kept.
	Retention *RetentionInfo `json:"retention,omitempty"`
	// Ack says what an acknowledgement of this stream promises (HZ-1).
	Ack       string      `json:"ack"`
	ShardInfo []ShardInfo `json:"shard_info,omitempty"`
}

// RetentionInfo is the bounds of each shard; 0 = none.
type RetentionInfo struct {
	Bytes   int64 `json:"bytes,omitempty"`
	Seconds int64 `json:"seconds,omitempty"`
}

// ShardInfo is the state of one shard at one moment.
type ShardInfo struct {
	Shard uint32 `json:"shard"`
	// Base is the oldest retained offset, Tail one past the newest readable one.
	Base        uint64 `json:"base"`
	Tail        uint64 `json:"tail"`
	Subscribers int    `json:"subscribers"`
	// Dropped counts deliveries dropped at the queues of this shard's subscribers.
	Dropped uint64 `json:"dropped"`
	// Failed says why the shard's log takes no more writes, "" while it does.
	Failed string `json:"failed,omitempty"`
}

// CacheDef is what an operator defines about a cache.
type CacheDef struct {
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"`
	Cache     string `json:"cache"`
	Shards    uint32 `json:"shards"`
	Durable   bool   `json:"durable"`
}

// CacheInfo is a CacheDef and its identity.
type CacheInfo struct {
	CacheDef
	ID      uint64    `json:"id"`
	Created time.Time `json:"created"`
}

// normalise checks d, fills defaults in and returns the parsed modes.
func (d *StreamDef) normalise(o *Options) (log.FsyncMode, wire.Routing, error) {
	if err := checkNames("stream", d.Tenant, d.Namespace, d.Stream); err != nil {
		return 0, 0, err
	}
	if d.Shards == 0 {
		d.Shards = 1
	}
	if d.Shards > shardsMax {
		return 0, 0, wire.NewError(wire.CodeInvalidRequest, "shards %d is above %d", d.Shards, shardsMax)
	}
	if d.RetentionBytes != nil && *d.RetentionBytes <= 0 || d.RetentionSeconds != nil && *d.RetentionSeconds <= 0 {
		return 0, 0, wire.NewError(wire.CodeInvalidRequest, "a retention bound must be above 0; leave it out for unlimited")
	}
	mode := o.FsyncMode
	if d.Durable {
		if o.DataDir == "" {
			return 0, 0, wire.NewError(wire.CodeInvalidRequest, "a durable stream needs storage: this broker has no data directory")
		}
		if d.Fsync != "" {
			m, err := log.ParseFsyncMode(d.Fsync)
			if err != nil {
				return 0, 0, wire.NewError(wire.CodeInvalidRequest, "fsync %q is none of on_commit, periodic, none", d.Fsync)
			}
			mode = m
		}
		d.Fsync = mode.String()
	} else {
		if d.Fsync != "" {
			return 0, 0, wire.NewError(wire.CodeInvalidRequest, "fsync %q on a stream that is not durable", d.Fsync)
		}
		if d.RetentionBytes != nil || d.RetentionSeconds != nil {
			return 0, 0, wire.NewError(wire.CodeInvalidRequest, "retention on a stream that is not durable")
		}
	}
	routing := wire.RoutingModulo
	switch d.Routing {
	case "", "modulo":
		d.Routing = "modulo"
	case "jump_hash":
		routing = wire.RoutingJumpHash
	default:
		return 0, 0, wire.NewError(wire.CodeInvalidRequest, "routing %q is neither modulo nor jump_hash", d.Routing)
	}
	return mode, routing, nil
}

// sameShape says whether two definitions differ only in what may be changed later.
func (d *StreamDef) sameShape(e *StreamDef) bool {
	return d.Shards == e.Shards && d.Durable == e.Durable && d.Routing == e.Routing
}

func (d *CacheDef) normalise() error {
	if err := checkNames("cache", d.Tenant, d.Namespace, d.Cache); err != nil {
		return err
	}
	if d.Shards == 0 {
		d.Shards = 1
	}
	if d.Shards > shardsMax {
		return wire.NewError(wire.CodeInvalidRequest, "shards %d is above %d", d.Shards, shardsMax)
	}
	if d.Durable {
		return wire.NewError(wire.CodeInvalidRequest, "durable caches are not served by this version: create it with durable false")
	}
	return nil
}
