package log

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	segmentMagic   = 0x52435347 // "RCSG"
	segmentVersion = 1
)

// segmentHeader is the first block of a segment file. It is written and synced, and so is its
// directory, before the first entry; so damage to it is always an error.
type segmentHeader struct {
	id        uint64 // the number in the file's name
	base      uint64 // offset of the first record
	epoch     uint64 // when created
	created   uint64 // micros, informational
	nonce     uint64 // random, not 0, new each time a file is put to use
	catalogue uint64
	shard     uint32
}

// encode returns the whole block.
func (h *segmentHeader) encode() []byte {
	b := make([]byte, blockBytes)
	binary.BigEndian.PutUint32(b, segmentMagic)
	binary.BigEndian.PutUint16(b[4:], segmentVersion)
	binary.BigEndian.PutUint64(b[8:], h.id)
	binary.BigEndian.PutUint64(b[16:], h.base)
	binary.BigEndian.PutUint64(b[24:], h.epoch)
	binary.BigEndian.PutUint64(b[32:], h.created)
	binary.BigEndian.PutUint64(b[40:], h.nonce)
	binary.BigEndian.PutUint64(b[48:], h.catalogue)
	binary.BigEndian.PutUint32(b[56:], h.shard)
	binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

// decodeSegmentHeader reads the first block of a file; b is shorter when the file is. what is
// empty, or says why the block is no header of ours.
func decodeSegmentHeader(b []byte) (h segmentHeader, what string) {
	if len(b) < blockBytes {
		return h, fmt.Sprintf("segment header of %d bytes", len(b))
	}
	b = b[:blockBytes]
	switch {
	case binary.BigEndian.Uint32(b) != segmentMagic:
		return h, "segment header without the magic"
	case crc32.Checksum(b[:60], castagnoli) != binary.BigEndian.Uint32(b[60:]):
		return h, "segment header checksum"
	case binary.BigEndian.Uint16(b[4:]) != segmentVersion:
		return h, fmt.Sprintf("segment of unknown version %d", binary.BigEndian.Uint16(b[4:]))
	case binary.BigEndian.Uint16(b[6:]) != 0:
		return h, "segment header with unknown flags"
	case !allZero(b[entryHeaderBytes:]):
		return h, "segment header block not zero behind the header"
	}
	h = segmentHeader{
		id:        binary.BigEndian.Uint64(b[8:]),
		base:      binary.BigEndian.Uint64(b[16:]),
		epoch:     binary.BigEndian.Uint64(b[24:]),
		created:   binary.BigEndian.Uint64(b[32:]),
		nonce:     binary.BigEndian.Uint64(b[40:]),
		catalogue: binary.BigEndian.Uint64(b[48:]),
		shard:     binary.BigEndian.Uint32(b[56:]),
	}
	if h.nonce == 0 {
		return h, "segment header without a nonce"
	}
	return h, ""
}

// newerSegment says whether a block is a whole header of a version that this one does not know.
func newerSegment(b []byte) bool {
	return len(b) >= blockBytes && binary.BigEndian.Uint32(b) == segmentMagic &&
		crc32.Checksum(b[:60], castagnoli) == binary.BigEndian.Uint32(b[60:]) &&
		(binary.BigEndian.Uint16(b[4:]) != segmentVersion || binary.BigEndian.Uint16(b[6:]) != 0)
}

// randomNonce makes the mark that tells the entries of this use of a file from older bytes in it.
// It is not secret, only unrepeatable.
func randomNonce() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails: the runtime ends the process instead
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
