package wire

// Subscribe asks for the events of one shard, on an event stream of its own.
type Subscribe struct {
	TenantID       string  `wire:"tenant_id"`
	Namespace      string  `wire:"namespace"`
	Stream         string  `wire:"stream"`
	SubscriptionID *uint64 `wire:"subscription_id,opt"` // nil = the broker assigns one
	Start          *Start  `wire:"start,opt"`           // nil = latest
	Shard          *uint32 `wire:"shard,opt"`           // nil = 0
	QueueCapacity  *uint32 `wire:"queue_capacity,opt"`  // wanted, in published batches
}

// StartKind is where a subscription or a group begins.
type StartKind uint8

const (
	StartLatest   StartKind = iota // what comes from now on
	StartEarliest                  // the oldest record that is kept
	StartOffset                    // the first record not yet seen
)

var startNames = []string{StartLatest: "latest", StartEarliest: "earliest"}

// Start is "latest", "earliest" or {"offset":n}.
type Start struct {
	Kind   StartKind
	Offset uint64 // StartOffset
}

type startObject struct {
	Offset uint64 `wire:"offset"`
}

// Subscribed answers a Subscribe. The offsets come together, and for a durable stream only.
type Subscribed struct {
	SubscriptionID uint64  `wire:"subscription_id"`
	StartOffset    *uint64 `wire:"start_offset,opt"` // of the first event that is delivered
	LiveOffset     *uint64 `wire:"live_offset,opt"`  // tail at registration
	QueueCapacity  *uint32 `wire:"queue_capacity,opt"`
}

// CursorReason is why a cursor cannot be served.
type CursorReason uint8

const (
	CursorTooOld CursorReason = iota
	CursorInFuture
)

var cursorNames = []string{CursorTooOld: "too_old", CursorInFuture: "in_future"}

func (CursorReason) names() []string { return cursorNames }

// String returns the name on the wire.
func (r CursorReason) String() string { return enumName(cursorNames, uint8(r)) }

// SubscribeCursorError answers a request for offsets that are not there.
type SubscribeCursorError struct {
	Reason    CursorReason `wire:"reason"`
	Requested uint64       `wire:"requested"`
	Available uint64       `wire:"available"` // oldest offset that is kept, or the tail
}

// EventStreamHello opens every event stream.
type EventStreamHello struct {
	SubscriptionID uint64 `wire:"subscription_id"`
}

// Event is the JSON form of one event, which brokers may send and ours does not.
type Event struct {
	TenantID  string  `wire:"tenant_id"`
	Namespace string  `wire:"namespace"`
	Stream    string  `wire:"stream"`
	Payload   []byte  `wire:"payload"`
	Offset    *uint64 `wire:"offset,opt"`
}

// EventBatch is the JSON form of several events.
type EventBatch struct {
	TenantID   string   `wire:"tenant_id"`
	Namespace  string   `wire:"namespace"`
	Stream     string   `wire:"stream"`
	Payloads   [][]byte `wire:"payloads"`
	BaseOffset *uint64  `wire:"base_offset,opt"`
}

// SubscriptionLagged ends an event stream whose reader fell behind.
type SubscriptionLagged struct {
	SubscriptionID uint64 `wire:"subscription_id"`
	ResumeFrom     uint64 `wire:"resume_from"` // first offset dropped
}

// ShardMoved ends an event stream whose shard is served elsewhere.
type ShardMoved struct {
	SubscriptionID uint64  `wire:"subscription_id"`
	ResumeFrom     *uint64 `wire:"resume_from,opt"`
	NodeID         string  `wire:"node_id,opt"`
	Addr           string  `wire:"addr,opt"`
	Generation     uint64  `wire:"generation"`
}

// StreamDeleted ends an event stream whose stream is gone.
type StreamDeleted struct {
	SubscriptionID uint64 `wire:"subscription_id"`
}

func (*Subscribe) Type() string            { return "subscribe" }
func (*Subscribed) Type() string           { return "subscribed" }
func (*SubscribeCursorError) Type() string { return "subscribe_cursor_error" }
func (*EventStreamHello) Type() string     { return "event_stream_hello" }
func (*Event) Type() string                { return "event" }
func (*EventBatch) Type() string           { return "event_batch" }
func (*SubscriptionLagged) Type() string   { return "subscription_lagged" }
func (*ShardMoved) Type() string           { return "shard_moved" }
func (*StreamDeleted) Type() string        { return "stream_deleted" }
