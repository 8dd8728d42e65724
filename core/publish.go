package core

import (
	"fmt"

	"github.com/ringcast/ringcast/wire"
)

// PublishRequest is one decoded, authorised publish for one shard of a stream.
type PublishRequest struct {
	Stream *Stream
	Shard  uint32

	// Buf holds the records section at Bytes()[Pos : Pos+SectionLen] (wire.md 5.1 parts 9 and 10).
	// The bytes before Pos may be overwritten by a frame header once the publish is accepted.
	Buf          *wire.Buf
	Pos          int
	SectionLen   int
	Count        uint32
	PayloadBytes int

	// Publisher is the principal recorded with the batch, "" for none; at most 255 bytes.
	Publisher string
	// Account is the byte budget of the identity on its connection; nil = process budget only.
	Account *Account
	// Place is where the publish may stand in line for room in the queue; nil = Publish itself waits.
	Place *Place

	// Acked publishes wait for room; unacked ones are dropped and counted, or wait with IngressWait
	// (broker.md 1.3).
	Acked bool
	// AckOnQueue answers once the publish is queued, without an offset. It does not wait for room: a
	// promise that is only about the queue is refused at once when the queue is full.
	AckOnQueue bool

	Idempotent           bool
	ProducerID, Sequence uint64

	// Conditional publishes are written only where they begin at Expected; else they are refused with
	// RefusedOffset. On streams with a log only.
	Conditional bool
	Expected    uint64

	// commit is set by Broker.Commit.
	commit *commitPart

	// Reply is told the outcome once, with Tag; nil when nobody waits.
	Reply Replier
	Tag   uint64

	owner *wire.Owner // not nil: it goes there. Set by Publish.
}

// Replier takes the outcome of a publish. Published is called by an executor, at most once per
// accepted request, and must neither block nor keep r.Err's memory mutable: it puts a value in a
// bounded place and wakes whoever writes it out.
type Replier interface {
	Published(tag uint64, r PublishResult)
}

// PublishResult is the outcome of an accepted publish: at most one of Err and Refused is set.
type PublishResult struct {
	// Offset is the log offset of the first record; set with HasOffset, on durable streams only.
	Offset    uint64
	HasOffset bool
	Err       *wire.Error
	Refused   *Refusal
	// Owner is the broker that a forwarded publish went to, whatever became of it; nil for the others.
	Owner *wire.Owner
}

// RefusalKind says why an idempotent or conditional publish was refused (wire.md 4.2).
type RefusalKind uint8

const (
	RefusedGap RefusalKind = iota + 1
	RefusedUnknownProducer
	RefusedExpired
	RefusedReused
	RefusedOffset
	RefusedNotLeader
)

// Refusal is the answer to an idempotent or conditional publish that was not applied.
type Refusal struct {
	Kind RefusalKind
	// Expected is the next sequence, with RefusedGap.
	Expected uint64
	// Tail is the next offset of the shard, with RefusedOffset.
	Tail uint64
	// Owner leads the shard, with RefusedNotLeader.
	Owner *wire.Owner
}

func (r *Refusal) Error() string {
	switch r.Kind {
	case RefusedGap:
		return fmt.Sprintf("sequence gap: expected %d", r.Expected)
	case RefusedUnknownProducer:
		return "unknown producer"
	case RefusedExpired:
		return "sequence is older than the remembered window"
	case RefusedReused:
		return "sequence was used with other payloads"
	case RefusedOffset:
		return fmt.Sprintf("offset mismatch: the next offset is %d", r.Tail)
	case RefusedNotLeader:
		return "not leader: " + r.Owner.NodeID + " leads the shard"
	}
	return "refused"
}
