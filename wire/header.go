// Hot path.

package wire

import "encoding/binary"

const (
	// HeaderSize is the size of a frame header.
	HeaderSize = 12
	// MaxFrameBytes is the default limit of a frame's payload, for both sides.
	MaxFrameBytes = 16 << 20
	// PreauthMaxFrameBytes is the default limit of a payload on a stream that has not
	// authenticated.
	PreauthMaxFrameBytes = 64 << 10

	magic   = 0x464C5831 // "FLX1"
	version = 1
)

// Header is the part of a frame header that varies.
type Header struct {
	Flags  Flags
	Length uint32 // payload bytes after the header; the reader checks it against its own limit
}

// ParseHeader reads the first HeaderSize bytes of b. It fails with ErrTruncated, ErrMagic or
// ErrVersion and judges neither flags nor length.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, ErrTruncated
	}
	if binary.BigEndian.Uint32(b) != magic {
		return Header{}, ErrMagic
	}
	if binary.BigEndian.Uint16(b[4:]) != version {
		return Header{}, ErrVersion
	}
	return Header{
		Flags:  Flags(binary.BigEndian.Uint16(b[6:])),
		Length: binary.BigEndian.Uint32(b[8:]),
	}, nil
}

// AppendHeader appends the header of a frame with length payload bytes.
func AppendHeader(dst []byte, f Flags, length int) []byte {
	dst = append(dst, make([]byte, HeaderSize)...)
	PutHeader(dst[len(dst)-HeaderSize:], f, length)
	return dst
}

// PutHeader writes the header of a frame with length payload bytes to the first HeaderSize bytes
// of dst.
func PutHeader(dst []byte, f Flags, length int) {
	if uint64(length) > 1<<32-1 {
		panic("wire: frame length out of range")
	}
	_ = dst[HeaderSize-1]
	binary.BigEndian.PutUint32(dst, magic)
	binary.BigEndian.PutUint16(dst[4:], version)
	binary.BigEndian.PutUint16(dst[6:], uint16(f))
	binary.BigEndian.PutUint32(dst[8:], uint32(length))
}
