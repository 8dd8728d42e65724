package wire

// Publish is the JSON form of one record.
type Publish struct {
	TenantID  string  `wire:"tenant_id"`
	Namespace string  `wire:"namespace"`
	Stream    string  `wire:"stream"`
	Payload   []byte  `wire:"payload"`
	Key       []byte  `wire:"key,opt"`
	Shard     *uint32 `wire:"shard,opt"` // instead of hashing
	RequestID *uint64 `wire:"request_id,opt"`
	Ack       AckMode `wire:"ack,opt"`
}

// PublishBatch is the JSON form of several records, perhaps none, with one answer.
type PublishBatch struct {
	TenantID  string   `wire:"tenant_id"`
	Namespace string   `wire:"namespace"`
	Stream    string   `wire:"stream"`
	Payloads  [][]byte `wire:"payloads"`
	Key       []byte   `wire:"key,opt"`
	Shard     *uint32  `wire:"shard,opt"`
	RequestID *uint64  `wire:"request_id,opt"`
	Ack       AckMode  `wire:"ack,opt"`
}

// PublishOK answers a publish that was accepted.
type PublishOK struct {
	RequestID uint64  `wire:"request_id"`
	Offset    *uint64 `wire:"offset,opt"` // of the first record, once it is in a log
}

// PublishError answers a publish that was refused.
type PublishError struct {
	RequestID uint64       `wire:"request_id"`
	Message   string       `wire:"message"`
	Code      string       `wire:"code,opt"`
	Retry     string       `wire:"retry,opt"`
	Detail    *ErrorDetail `wire:"detail,opt"`
}

// NewPublishError puts e as a stream with these features may see it.
func NewPublishError(requestID uint64, e *Error, feats Features) *PublishError {
	m := &PublishError{RequestID: requestID, Message: e.Message}
	m.Code, m.Retry, m.Detail = errorMembers(e, feats)
	return m
}

// Err returns the refusal as an error.
func (m *PublishError) Err() *Error { return errorOf(m.Message, m.Code, m.Retry, m.Detail) }

// ProducerInit asks for a producer id.
type ProducerInit struct {
	RequestID uint64 `wire:"request_id"`
}

// ProducerInitOK grants a producer id.
type ProducerInitOK struct {
	RequestID  uint64 `wire:"request_id"`
	ProducerID uint64 `wire:"producer_id"`
}

// PublishIdempotent is a batch that may be sent again without being applied twice.
type PublishIdempotent struct {
	TenantID   string   `wire:"tenant_id"`
	Namespace  string   `wire:"namespace"`
	Stream     string   `wire:"stream"`
	Payloads   [][]byte `wire:"payloads"`
	Key        []byte   `wire:"key,opt"`
	Shard      *uint32  `wire:"shard,opt"`
	RequestID  uint64   `wire:"request_id"`
	ProducerID uint64   `wire:"producer_id"`
	Sequence   uint64   `wire:"sequence"` // of the producer's batches on the shard, from 0
}

// PublishIf is a batch that is appended only if it would start at ExpectedOffset.
type PublishIf struct {
	TenantID       string   `wire:"tenant_id"`
	Namespace      string   `wire:"namespace"`
	Stream         string   `wire:"stream"`
	Payloads       [][]byte `wire:"payloads"`
	Key            []byte   `wire:"key,opt"`
	Shard          *uint32  `wire:"shard,opt"`
	ExpectedOffset uint64   `wire:"expected_offset"`
	RequestID      uint64   `wire:"request_id"`
}

// PublishRefused answers an idempotent or conditional publish whose condition does not hold.
type PublishRefused struct {
	RequestID uint64        `wire:"request_id"`
	Message   string        `wire:"message"`
	Reason    RefusedReason `wire:"reason"`
}

// PublishWidth announces by how many shards keyed batches are routed. Its members are not known,
// so the feature is never advertised and nothing is read of it.
type PublishWidth struct{}

// RefusedKind is why a PublishRefused refuses.
type RefusedKind uint8

const (
	RefusedSequenceGap     RefusedKind = iota // Expected is the next sequence
	RefusedUnknownProducer                    // nothing is known of the producer and the sequence is not 0
	RefusedSequenceExpired                    // older than what is remembered
	RefusedSequenceReused                     // remembered, with other payloads
	RefusedOffsetMismatch                     // Tail is the shard's next offset
	RefusedNotLeader                          // NodeID and perhaps Addr lead the shard
)

var refusedNames = []string{
	RefusedUnknownProducer: "unknown_producer",
	RefusedSequenceExpired: "sequence_expired",
	RefusedSequenceReused:  "sequence_reused",
}

// RefusedReason is a name, or an object with one member of that name.
type RefusedReason struct {
	Kind     RefusedKind
	Expected uint64
	Tail     uint64
	NodeID   string
	Addr     string
}

// refusedObject holds the variants that carry data, of which there is exactly one.
type refusedObject struct {
	SequenceGap *struct {
		Expected uint64 `wire:"expected"`
	} `wire:"sequence_gap,opt"`
	OffsetMismatch *struct {
		Tail uint64 `wire:"tail"`
	} `wire:"offset_mismatch,opt"`
	NotLeader *struct {
		NodeID string `wire:"node_id"`
		Addr   string `wire:"addr,opt"`
	} `wire:"not_leader,opt"`
}

func (*Publish) Type() string           { return "publish" }
func (*PublishBatch) Type() string      { return "publish_batch" }
func (*PublishOK) Type() string         { return "publish_ok" }
func (*PublishError) Type() string      { return "publish_error" }
func (*ProducerInit) Type() string      { return "producer_init" }
func (*ProducerInitOK) Type() string    { return "producer_init_ok" }
func (*PublishIdempotent) Type() string { return "publish_idempotent" }
func (*PublishIf) Type() string         { return "publish_if" }
func (*PublishRefused) Type() string    { return "publish_refused" }
func (*PublishWidth) Type() string      { return "publish_width" }
