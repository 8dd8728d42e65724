// Hot path.

package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// PublisherMax is the longest publisher, in bytes, that an event batch can name.
const PublisherMax = 255

// EventHeader is what stands before the records of an event batch. The shape, a set of
// FlagEvOffsets, FlagEvSkipped, FlagEvPublisher and FlagEvTimes, says which of it is sent. The
// layout is the shared one; FlagEventsLegacy in a shape selects the layout that brokers no longer
// send.
type EventHeader struct {
	SubscriptionID uint64 // FlagEventsLegacy
	Base           uint64 // FlagEvOffsets: offset of the first record, the others follow it
	Skipped        uint64 // FlagEvSkipped, not 0: offsets directly before Base that are no records
	Publisher      string // FlagEvPublisher, at most PublisherMax bytes
	Count          uint32
}

// EventHeaderSize returns the bytes before the records: the frame header and the parts of the
// shape up to and including the count word.
func EventHeaderSize(shape Flags, publisherLen int) int {
	n := HeaderSize + 4
	if shape&FlagEventsLegacy != 0 {
		n += 8
	}
	if shape&FlagEvOffsets != 0 {
		n += 8
	}
	if shape&FlagEvSkipped != 0 {
		n += 8
	}
	if shape&FlagEvPublisher != 0 {
		n += 1 + publisherLen
	}
	return n
}

// PutEventHeader writes exactly EventHeaderSize(shape, len(h.Publisher)) bytes to dst. bodyLen is
// the number of bytes that follow the count word.
func PutEventHeader(dst []byte, shape Flags, h *EventHeader, bodyLen int) {
	if len(h.Publisher) > PublisherMax {
		panic("wire: publisher longer than 255 bytes")
	}
	size := EventHeaderSize(shape, len(h.Publisher))
	f := FlagEventsShared
	if shape&FlagEventsLegacy != 0 {
		f = FlagEventsLegacy
	}
	dst = dst[:size]
	PutHeader(dst, f|shape&flagsEventShape, size-HeaderSize+bodyLen)
	at := HeaderSize
	if shape&FlagEventsLegacy != 0 {
		binary.BigEndian.PutUint64(dst[at:], h.SubscriptionID)
		at += 8
	}
	if shape&FlagEvOffsets != 0 {
		binary.BigEndian.PutUint64(dst[at:], h.Base)
		at += 8
	}
	if shape&FlagEvSkipped != 0 {
		binary.BigEndian.PutUint64(dst[at:], h.Skipped)
		at += 8
	}
	if shape&FlagEvPublisher != 0 {
		dst[at] = byte(len(h.Publisher))
		at += 1 + copy(dst[at+1:], h.Publisher)
	}
	binary.BigEndian.PutUint32(dst[at:], h.Count)
}

// TimedRecordsSize returns the bytes that AppendTimedRecords appends for count records that take
// recordsLen bytes.
func TimedRecordsSize(count uint32, recordsLen int) int { return recordsLen + 8*int(count) }

// AppendTimedRecords appends records, the bytes of a valid section after its count word, with the
// append time before each: the one shape that is re-encoded.
func AppendTimedRecords(dst []byte, records []byte, timeMicros uint64) []byte {
	for len(records) >= 4 {
		n := 4 + int(binary.BigEndian.Uint32(records))
		dst = binary.BigEndian.AppendUint64(dst, timeMicros)
		dst = append(dst, records[:n]...)
		records = records[n:]
	}
	return dst
}

// BinaryEvents is an event batch, a view of the frame's payload. Next walks it.
type BinaryEvents struct {
	Flags          Flags
	SubscriptionID uint64 // FlagEventsLegacy
	Base           uint64 // FlagEvOffsets
	Skipped        uint64 // FlagEvSkipped
	Publisher      []byte // FlagEvPublisher
	Count          uint32 // of all records of the batch
	// Records holds the records that Next has not returned: what follows the count word, each
	// with its time before it when Flags has FlagEvTimes.
	Records []byte
}

// DecodeEvents reads the payload of a frame whose flags passed FromBroker into e and checks every
// record, so that Next cannot fail. It allocates nothing.
func DecodeEvents(f Flags, payload []byte, e *BinaryEvents) error {
	if f&(FlagEvSkipped|FlagEvOffsets) == FlagEvSkipped {
		return ErrSkippedWithoutOffsets
	}
	*e = BinaryEvents{Flags: f}
	c := cursor{rest: payload}
	if f&FlagEventsShared == 0 {
		e.SubscriptionID = c.u64()
	}
	if f&FlagEvOffsets != 0 {
		e.Base = c.u64()
	}
	if f&FlagEvSkipped != 0 {
		e.Skipped = c.u64()
	}
	if f&FlagEvPublisher != 0 {
		e.Publisher = c.take(int(c.u8()))
	}
	e.Count = c.u32()
	if c.short {
		return ErrTruncated
	}
	if !utf8.Valid(e.Publisher) {
		return ErrUTF8
	}
	prefix := e.timeLen()
	if uint64(e.Count) > uint64(len(c.rest))/uint64(prefix+4) {
		return ErrCount
	}
	records := c.rest
	for range e.Count {
		c.take(prefix)
		n := c.u32()
		if uint64(n) > uint64(len(c.rest)) {
			return ErrTruncated
		}
		c.take(int(n))
	}
	if c.short {
		return ErrTruncated
	}
	e.Records = records[: len(records)-len(c.rest) : len(records)-len(c.rest)]
	return nil
}

// Next returns the next record and its append time (0 when the batch has no times). ok is false
// at the end.
func (e *BinaryEvents) Next() (rec []byte, timeMicros uint64, ok bool) {
	prefix := e.timeLen()
	if len(e.Records) < prefix {
		return nil, 0, false
	}
	rec, rest, ok := NextRecord(e.Records[prefix:])
	if !ok {
		return nil, 0, false
	}
	if prefix != 0 {
		timeMicros = binary.BigEndian.Uint64(e.Records)
	}
	e.Records = rest
	return rec, timeMicros, true
}

// timeLen returns the bytes before each record's length.
func (e *BinaryEvents) timeLen() int {
	if e.Flags&FlagEvTimes != 0 {
		return 8
	}
	return 0
}
