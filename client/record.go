package client

// Record is one record to publish.
type Record struct {
	// Key routes the record to a shard. nil = shard 0; an empty key is a key. It is not stored.
	Key []byte
	// Value is what subscribers see.
	Value []byte
}

// Ack says where a record was written.
type Ack struct {
	Shard  uint32
	Offset uint64
	// HasOffset is false when the stream has no log, when the answer was given before the write,
	// or when acks are off.
	HasOffset bool
}

// waiter is a blocked Publish. ready gets one token once ack and err are set.
type waiter struct {
	ready chan struct{}
	ack   Ack
	err   error
}

func newWaiter() any { return &waiter{ready: make(chan struct{}, 1)} }
