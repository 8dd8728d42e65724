package log

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	markName    = "durable.mark"
	markMagic   = 0x52434D4B // "RCMK"
	markVersion = 1
)

// Mark is the content of durable.mark: what lies below Bytes in Segment, and everything in older
// segments, was synced. It is rewritten after syncs and is itself not synced, so it may lag; it
// never leads. What lies below it and cannot be read is damage, whatever else it looks like.
type Mark struct {
	Segment uint64
	Bytes   int64
}

// covers says whether byte pos of segment id lies below the mark.
func (m Mark) covers(id uint64, pos int64) bool {
	return id < m.Segment || id == m.Segment && pos < m.Bytes
}

func appendMark(dst []byte, m Mark) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, markMagic)
	dst = binary.BigEndian.AppendUint16(dst, markVersion)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, m.Segment)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Bytes))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// decodeMark reads a mark. A bad one is treated as absent: it is derived, never authoritative.
func decodeMark(b []byte) (Mark, bool) {
	if len(b) != markBytes || binary.BigEndian.Uint32(b) != markMagic ||
		crc32.Checksum(b[:28], castagnoli) != binary.BigEndian.Uint32(b[28:]) ||
		binary.BigEndian.Uint16(b[4:]) != markVersion || binary.BigEndian.Uint16(b[6:]) != 0 ||
		binary.BigEndian.Uint32(b[24:]) != 0 {
		return Mark{}, false
	}
	m := Mark{Segment: binary.BigEndian.Uint64(b[8:]), Bytes: int64(binary.BigEndian.Uint64(b[16:]))}
	return m, m.Bytes >= 0
}
