// Hot path.

package wire

import "encoding/binary"

// The records section is the part of a publish that is never re-encoded: u32 count, then per
// record u32 length and bytes. The log stores these bytes and an event batch carries them.

// SectionLen walks the section at the start of b. It returns the number of records, the bytes the
// section takes (what follows is not looked at) and the bytes of the records without their
// lengths. It fails with ErrTruncated, or with ErrCount when b cannot hold that many records.
func SectionLen(b []byte) (count uint32, end, payloadBytes int, err error) {
	if len(b) < 4 {
		return 0, 0, 0, ErrTruncated
	}
	count = binary.BigEndian.Uint32(b)
	rest := b[4:]
	if uint64(count) > uint64(len(rest))/4 {
		return 0, 0, 0, ErrCount
	}
	for range count {
		if len(rest) < 4 {
			return 0, 0, 0, ErrTruncated
		}
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(n) > uint64(len(rest)) {
			return 0, 0, 0, ErrTruncated
		}
		rest = rest[n:]
	}
	end = len(b) - len(rest)
	return count, end, end - 4 - 4*int(count), nil
}

// CheckSection is SectionLen for a b that must hold one section and nothing else; ErrTrailing if
// it holds more.
func CheckSection(b []byte) (count uint32, payloadBytes int, err error) {
	count, end, payloadBytes, err := SectionLen(b)
	if err == nil && end != len(b) {
		return 0, 0, ErrTrailing
	}
	return count, payloadBytes, err
}

// AppendSection appends the section that holds records.
func AppendSection(dst []byte, records ...[]byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(records)))
	for _, rec := range records {
		dst = AppendRecord(dst, rec)
	}
	return dst
}

// AppendRecord appends one record with its length.
func AppendRecord(dst, rec []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(rec)))
	return append(dst, rec...)
}

// NextRecord splits the first record off records, the bytes of a section after its count word. ok
// is false at the end and where the bytes do not hold a whole record.
func NextRecord(records []byte) (rec, rest []byte, ok bool) {
	if len(records) < 4 {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(records))
	if n > uint64(len(records)-4) {
		return nil, nil, false
	}
	return records[4 : 4+n : 4+n], records[4+n:], true
}
