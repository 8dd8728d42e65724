// Hot path.

package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// AckMode is the answer that a publish asks for. The values of the two acked modes are those of
// the binary layout; AckAbsent and AckNone exist in JSON and locally only.
type AckMode uint8

const (
	AckAbsent     AckMode = 0 // not said
	AckPerMessage AckMode = 1
	AckPerBatch   AckMode = 2 // means the same to a broker as AckPerMessage
	AckNone       AckMode = 3
)

var ackModeNames = []string{AckPerMessage: "per_message", AckPerBatch: "per_batch", AckNone: "none"}

// String returns the name on the wire.
func (m AckMode) String() string { return enumName(ackModeNames, uint8(m)) }

// BinaryPublish is a binary publish batch. After DecodePublish its slices are views of the payload
// and die with it.
type BinaryPublish struct {
	Flags      Flags
	RequestID  uint64  // acked
	AckMode    AckMode // AckNone when not acked; AckPerBatch whenever idempotent
	ProducerID uint64  // idempotent
	Sequence   uint64  // idempotent
	HasKey     bool    // keyed; an empty key is a key
	Key        []byte
	Tenant     []byte
	Namespace  []byte
	Stream     []byte
	// Section is the records section: count word and records, nothing behind it.
	Section    []byte
	SectionPos int // where Section starts in the payload
	// Count is the number of records, PayloadBytes their bytes without lengths.
	Count        uint32
	PayloadBytes int
}

// DecodePublish reads the payload of a frame whose flags passed FromClient into p. It allocates
// nothing.
//
// ErrPublishPrefix (or ErrAckMode, which is one) means that an acked publish has no readable
// request id: the stream ends. Every other error is an *Error for that request id, with ErrCount,
// ErrTruncated or ErrUTF8 as its cause; for an unacked publish it ends the stream too.
func DecodePublish(f Flags, payload []byte, p *BinaryPublish) error {
	*p = BinaryPublish{Flags: f, AckMode: AckNone}
	c := cursor{rest: payload}
	if f&FlagAcked != 0 {
		p.RequestID = c.u64()
		p.AckMode = AckMode(c.u8())
		if c.short {
			return ErrPublishPrefix
		}
		if p.AckMode != AckPerMessage && p.AckMode != AckPerBatch {
			return ErrAckMode
		}
	}
	if f&FlagIdempotent != 0 {
		p.AckMode = AckPerBatch
		p.ProducerID = c.u64()
		p.Sequence = c.u64()
	}
	if f&FlagKeyed != 0 {
		p.HasKey = true
		p.Key = c.bytes16()
	}
	p.Tenant = c.bytes16()
	p.Namespace = c.bytes16()
	p.Stream = c.bytes16()
	if c.short {
		return errBatchTruncated
	}
	if !utf8.Valid(p.Tenant) || !utf8.Valid(p.Namespace) || !utf8.Valid(p.Stream) {
		return errBatchUTF8
	}
	count, end, payloadBytes, err := SectionLen(c.rest)
	switch err {
	case nil:
	case ErrCount:
		return errBatchCount
	default:
		return errBatchTruncated
	}
	p.Count, p.PayloadBytes = count, payloadBytes
	p.Section = c.rest[:end:end]
	p.SectionPos = len(payload) - len(c.rest)
	return nil
}

// Answers to malformed batches, made once.
var (
	errBatchTruncated = NewError(CodeInvalidRequest, "malformed publish batch").WithCause(ErrTruncated)
	errBatchCount     = NewError(CodeInvalidRequest, "malformed publish batch").WithCause(ErrCount)
	errBatchUTF8      = NewError(CodeInvalidRequest, "malformed publish batch").WithCause(ErrUTF8)
)

// AppendPublish appends the whole frame of p: the parts that p.Flags names and p.Section as it is
// (SectionPos, Count and PayloadBytes are not looked at). Names and key must not be longer than
// 65535 bytes; it panics if they are.
func AppendPublish(dst []byte, p *BinaryPublish) []byte {
	return append(AppendPublishHead(dst, p, len(p.Section)), p.Section...)
}

// AppendPublishHead appends everything of the frame that stands before the records section, with
// a header that counts on sectionLen bytes to follow: for a sender that writes a large section
// from where it lies.
func AppendPublishHead(dst []byte, p *BinaryPublish, sectionLen int) []byte {
	dst = AppendHeader(dst, p.Flags, publishHeadLen(p)+sectionLen)
	if p.Flags&FlagAcked != 0 {
		dst = binary.BigEndian.AppendUint64(dst, p.RequestID)
		dst = append(dst, byte(p.AckMode))
	}
	if p.Flags&FlagIdempotent != 0 {
		dst = binary.BigEndian.AppendUint64(dst, p.ProducerID)
		dst = binary.BigEndian.AppendUint64(dst, p.Sequence)
	}
	if p.Flags&FlagKeyed != 0 {
		dst = appendBytes16(dst, p.Key)
	}
	dst = appendBytes16(dst, p.Tenant)
	dst = appendBytes16(dst, p.Namespace)
	return appendBytes16(dst, p.Stream)
}

// publishHeadLen returns the payload bytes before the records section.
func publishHeadLen(p *BinaryPublish) int {
	n := 6 + len(p.Tenant) + len(p.Namespace) + len(p.Stream)
	if p.Flags&FlagAcked != 0 {
		n += 9
	}
	if p.Flags&FlagIdempotent != 0 {
		n += 16
	}
	if p.Flags&FlagKeyed != 0 {
		n += 2 + len(p.Key)
	}
	return n
}
