package wire

// Topology asks for the brokers of a cluster.
type Topology struct{}

// TopologyView answers a Topology; it may be empty.
type TopologyView struct {
	Brokers []Broker `wire:"brokers"`
}

// Broker is one broker of a TopologyView.
type Broker struct {
	NodeID string `wire:"node_id"`
	Addr   string `wire:"addr"`
}

// StreamShards asks how many shards a stream has.
type StreamShards struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	RequestID uint64 `wire:"request_id"`
}

// StreamShardsView answers a StreamShards.
type StreamShardsView struct {
	Shards    uint32  `wire:"shards"` // 0 = stream unknown
	RequestID uint64  `wire:"request_id"`
	Routing   Routing `wire:"routing,opt"`
}

// CacheShards asks how many shards a cache has.
type CacheShards struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Cache     string `wire:"cache"`
	RequestID uint64 `wire:"request_id"`
}

// CacheShardsView answers a CacheShards.
type CacheShardsView struct {
	Shards    uint32 `wire:"shards"` // 0 = cache unknown
	RequestID uint64 `wire:"request_id"`
}

// ResourceKind says what a name names.
type ResourceKind uint8

const (
	ResourceStream ResourceKind = iota
	ResourceCache
)

var resourceNames = []string{ResourceStream: "stream", ResourceCache: "cache"}

func (ResourceKind) names() []string { return resourceNames }

// String returns the name on the wire.
func (k ResourceKind) String() string { return enumName(resourceNames, uint8(k)) }

// ShardOwners asks who serves the shards of a stream or cache.
type ShardOwners struct {
	TenantID  string       `wire:"tenant_id"`
	Namespace string       `wire:"namespace"`
	Name      string       `wire:"name"`
	Kind      ResourceKind `wire:"kind"`
	RequestID uint64       `wire:"request_id"`
}

// ShardOwnersView answers a ShardOwners: one entry per shard in shard order, none for an unknown
// name.
type ShardOwnersView struct {
	Owners    []ShardOwner `wire:"owners"`
	RequestID uint64       `wire:"request_id"`
}

// ShardOwner is one shard of a ShardOwnersView. Without NodeID and Addr it is this broker.
type ShardOwner struct {
	Shard       uint32 `wire:"shard"`
	NodeID      string `wire:"node_id,opt"`
	Addr        string `wire:"addr,opt"`
	Generation  uint64 `wire:"generation"`
	Unavailable string `wire:"unavailable,opt"` // why nobody serves it
}

// OffsetForTime asks for the first record appended at or after a time.
type OffsetForTime struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	AtMicros  uint64 `wire:"at_micros"`
	RequestID uint64 `wire:"request_id"`
}

// OffsetValue answers an OffsetForTime.
type OffsetValue struct {
	Offset    *uint64 `wire:"offset,opt"` // nil = nothing that recent
	RequestID uint64  `wire:"request_id"`
}

// StreamRead asks for a page of history. It never waits.
type StreamRead struct {
	TenantID   string  `wire:"tenant_id"`
	Namespace  string  `wire:"namespace"`
	Stream     string  `wire:"stream"`
	Shard      uint32  `wire:"shard"`
	From       uint64  `wire:"from"`
	End        *uint64 `wire:"end,opt"` // exclusive
	MaxRecords uint32  `wire:"max_records,opt"`
	MaxBytes   uint64  `wire:"max_bytes,opt"`
	RequestID  uint64  `wire:"request_id"`
}

// StreamRecords answers a StreamRead.
type StreamRecords struct {
	Records    []StreamRecord `wire:"records"`
	NextOffset uint64         `wire:"next_offset"`
	RequestID  uint64         `wire:"request_id"`
}

// StreamRecord is one record of a page.
type StreamRecord struct {
	Offset          uint64 `wire:"offset"`
	Payload         []byte `wire:"payload"`
	Publisher       string `wire:"publisher,opt"`
	TimestampMicros uint64 `wire:"timestamp_micros"`
}

func (*Topology) Type() string         { return "topology" }
func (*TopologyView) Type() string     { return "topology_view" }
func (*StreamShards) Type() string     { return "stream_shards" }
func (*StreamShardsView) Type() string { return "stream_shards_view" }
func (*CacheShards) Type() string      { return "cache_shards" }
func (*CacheShardsView) Type() string  { return "cache_shards_view" }
func (*ShardOwners) Type() string      { return "shard_owners" }
func (*ShardOwnersView) Type() string  { return "shard_owners_view" }
func (*OffsetForTime) Type() string    { return "offset_for_time" }
func (*OffsetValue) Type() string      { return "offset_value" }
func (*StreamRead) Type() string       { return "stream_read" }
func (*StreamRecords) Type() string    { return "stream_records" }
