// Hot path.

package log

import (
	"encoding/binary"
	"hash/crc32"
)

// Kind says what an entry holds.
type Kind uint8

const (
	KindRecords Kind = 1 // records of a publish
	KindEpoch   Kind = 2 // start of an epoch: one record, the epoch as u64; never delivered
	KindCommit  Kind = 3 // atomic commit: one record, event and state changes
)

const (
	entryMagic   = 0x5243454E // "RCEN"
	entryVersion = 1
)

// Flags of an entry.
const (
	flagProducer  = 1 // producer part present
	flagPublisher = 2 // publisher part present
	// flagCommit: written under on_commit. Then the group was on disk before the next one was
	// written, so an entry of a later group proves everything below that group's start.
	flagCommit = 4
	flagsKnown = flagProducer | flagPublisher | flagCommit
)

// castagnoli is read-only.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entryHeader is the 64 bytes that open an entry. docs/formats/log.md has the offsets.
type entryHeader struct {
	version uint8
	kind    Kind
	flags   uint16
	length  uint32 // of the whole entry
	count   uint32 // records = offsets taken
	base    uint64 // offset of the first record
	epoch   uint64
	micros  uint64 // append time
	nonce   uint64 // of the segment
	group   uint32 // position of the first entry of the same write, in units
	section uint32 // bytes of the records section
	option  uint32 // bytes of producer and publisher part
}

// next is the offset after the entry's last record.
func (h *entryHeader) next() uint64 { return h.base + uint64(h.count) }

// groupPos is the byte position of the entry's group in the segment.
func (h *entryHeader) groupPos() int64 { return int64(h.group) * unitBytes }

// sectionPos is where the records section starts, counted from the entry.
func (h *entryHeader) sectionPos() int64 { return entryHeaderBytes + int64(h.option) }

// appendEntryHeader appends h with its checksum. The checksum of the body begins with those four bytes,
// so that a body belongs to its header: without that, a torn write into a recycled file could put a
// new header in front of an old body, and both would hold.
func appendEntryHeader(dst []byte, h *entryHeader) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, entryMagic)
	dst = append(dst, h.version, byte(h.kind))
	dst = binary.BigEndian.AppendUint16(dst, h.flags)
	dst = binary.BigEndian.AppendUint32(dst, h.length)
	dst = binary.BigEndian.AppendUint32(dst, h.count)
	dst = binary.BigEndian.AppendUint64(dst, h.base)
	dst = binary.BigEndian.AppendUint64(dst, h.epoch)
	dst = binary.BigEndian.AppendUint64(dst, h.micros)
	dst = binary.BigEndian.AppendUint64(dst, h.nonce)
	dst = binary.BigEndian.AppendUint32(dst, h.group)
	dst = binary.BigEndian.AppendUint32(dst, h.section)
	dst = binary.BigEndian.AppendUint32(dst, h.option)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// decodeEntryHeader reads a header. It is false where magic or checksum do not hold; then nothing
// in h means anything. When it is true the bytes are what somebody once wrote, but not yet for
// this segment (nonce), this place (base) or this version: see continues and check.
func decodeEntryHeader(b []byte, h *entryHeader) bool {
	if len(b) < entryHeaderBytes || binary.BigEndian.Uint32(b) != entryMagic ||
		crc32.Checksum(b[:60], castagnoli) != binary.BigEndian.Uint32(b[60:]) {
		return false
	}
	*h = entryHeader{
		version: b[4],
		kind:    Kind(b[5]),
		flags:   binary.BigEndian.Uint16(b[6:]),
		length:  binary.BigEndian.Uint32(b[8:]),
		count:   binary.BigEndian.Uint32(b[12:]),
		base:    binary.BigEndian.Uint64(b[16:]),
		epoch:   binary.BigEndian.Uint64(b[24:]),
		micros:  binary.BigEndian.Uint64(b[32:]),
		nonce:   binary.BigEndian.Uint64(b[40:]),
		group:   binary.BigEndian.Uint32(b[48:]),
		section: binary.BigEndian.Uint32(b[52:]),
		option:  binary.BigEndian.Uint32(b[56:]),
	}
	return true
}

// check returns what this version does not understand in a header whose checksum holds, "" when it
// understands everything. Such an entry of the right nonce is refused, never taken for the end of
// the data: a newer version may have written it.
func (h *entryHeader) check() string {
	switch {
	case h.version != entryVersion:
		return "entry of an unknown version"
	case h.kind < KindRecords || h.kind > KindCommit:
		return "entry of an unknown kind"
	case h.flags&^flagsKnown != 0:
		return "entry with unknown flags"
	case h.count == 0:
		return "entry without records"
	case h.base+uint64(h.count) < h.base:
		return "entry whose offsets overflow"
	case !optionFits(h.flags, h.option):
		return "entry with an impossible option length"
	case uint64(h.section) < 4+4*uint64(h.count):
		return "entry with an impossible section length"
	case int64(h.length) > entryBytesMax || int64(h.length) != entrySize(int64(h.option), int64(h.section)):
		return "entry with an impossible length"
	}
	return ""
}

// optionFits says whether n bytes can be the parts that flags announce.
func optionFits(flags uint16, n uint32) bool {
	var low, high uint32
	if flags&flagProducer != 0 {
		low, high = producerBytes, producerBytes
	}
	if flags&flagPublisher != 0 {
		low, high = low+1, high+1+publisherMax
	}
	return n >= low && n <= high
}

// entrySize is the length of an entry with these parts.
func entrySize(option, section int64) int64 {
	return (entryHeaderBytes + option + section + entrySumBytes + unitBytes - 1) &^ (unitBytes - 1)
}

// optionParts splits the option bytes of an entry. ok is false when the publisher's length is not
// that of the bytes.
func optionParts(flags uint16, b []byte) (producer, publisher []byte, ok bool) {
	if flags&flagProducer != 0 {
		if len(b) < producerBytes {
			return nil, nil, false
		}
		producer, b = b[:producerBytes], b[producerBytes:]
	}
	if flags&flagPublisher != 0 {
		if len(b) == 0 || int(b[0]) != len(b)-1 {
			return nil, nil, false
		}
		publisher, b = b[1:], nil
	}
	return producer, publisher, len(b) == 0
}

// producerPart is what an idempotent publish leaves in its entry.
type producerPart struct {
	id, sequence, digest uint64
}

func decodeProducerPart(b []byte) producerPart {
	return producerPart{
		id:       binary.BigEndian.Uint64(b),
		sequence: binary.BigEndian.Uint64(b[8:]),
		digest:   binary.BigEndian.Uint64(b[16:]),
	}
}
