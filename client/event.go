package client

import (
	"bytes"
	"time"
)

// Event is one record of a stream.
type Event struct {
	// Offset is the record's place in its shard; HasOffset is false on a stream without a log.
	Offset    uint64
	HasOffset bool
	// Payload is the record. It lies in memory of the subscription and is valid until the next call
	// of Next, or the next turn of the iteration; Clone keeps it.
	Payload []byte
	// Publisher is the principal that published it; "" unless WithEventPublisher was given and the
	// broker knows it.
	Publisher string
	// Time is when the broker appended it; zero unless WithEventTimes was given and the stream has
	// a log.
	Time time.Time
}

// Clone returns e with a Payload of its own.
func (e Event) Clone() Event {
	e.Payload = bytes.Clone(e.Payload)
	return e
}
