package core

import (
	"fmt"

	"github.com/ringcast/ringcast/wire"
)

// SubscribeRequest asks for the records of one shard from a start position on.
type SubscribeRequest struct {
	Stream *Stream
	Shard  uint32
	// ID is the client's choice; nil = the broker assigns one.
	ID    *uint64
	Start wire.Start
	// QueueCapacity is the wanted queue length in published batches, clamped; nil = default.
	QueueCapacity *uint32
	// Shape is the subset of the event flags that the stream offered (wire.md 5.5).
	Shape wire.Flags
	// Lagged ends the subscription at its first drop instead of going on with a hole (durable
	// streams only; wire.md 6.4).
	Lagged bool

	// Principal, Peer and Conn say whose it is, for inspection and revocation.
	Principal string
	Peer      string
	Conn      uint64
}

// CursorError says that a start position is outside what the shard holds (SUB-11).
type CursorError struct {
	TooOld    bool // else in the future
	Requested uint64
	// Available is the oldest retained offset, or the tail.
	Available uint64
}

func (e *CursorError) Error() string {
	if e.TooOld {
		return fmt.Sprintf("offset %d is no longer retained: the oldest is %d", e.Requested, e.Available)
	}
	return fmt.Sprintf("offset %d is in the future: the next is %d", e.Requested, e.Available)
}

// EndCause says why a subscription ended.
type EndCause uint8

const (
	// EndSink: the reader went away (the sink failed) or the context ended.
	EndSink EndCause = iota + 1
	// EndLagged: the queue overflowed and the reader asked to be told.
	EndLagged
	// EndDeleted: the stream was deleted.
	EndDeleted
	// EndRevoked: the credential behind the subscription was revoked.
	EndRevoked
	// EndStopped: the broker stops. What was queued has been sent; the reader resumes elsewhere
	// or later and must not see an orderly end.
	EndStopped
	// EndStorage: history could not be read. The reader must see an interruption, not an orderly
	// end (wire.md 1.4).
	EndStorage
	// EndTrimmed: retention deleted records before the reader had got them (HZ-15). It resumes, and
	// is refused with the oldest offset.
	EndTrimmed
)

// End is how a subscription ended.
type End struct {
	Cause EndCause
	// ResumeFrom is the first offset not delivered, with EndLagged and EndTrimmed. For a reader that
	// asked for the oldest record and has got none it is what is the oldest now.
	ResumeFrom uint64
}
