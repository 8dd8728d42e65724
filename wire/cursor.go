// Hot path.

package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// cursor reads the fields of a binary layout one after another. After the first field that is not
// there every read returns zeros and short stays set, so a decoder checks once at the end of a
// run of fields. Nothing is copied.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.rest) {
		c.short = true
		c.rest = nil
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); len(b) == 2 {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); len(b) == 4 {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// bytes16 reads a u16 length and so many bytes.
func (c *cursor) bytes16() []byte { return c.take(int(c.u16())) }

// appendBytes16 appends a u16 length and b, which must fit.
func appendBytes16[T []byte | string](dst []byte, b T) []byte {
	if len(b) > 1<<16-1 {
		panic("wire: field longer than 65535 bytes")
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(b)))
	return append(dst, b...)
}

// appendText16 appends a u16 length and as much of s as fits, cut between characters.
func appendText16(dst []byte, s string) []byte {
	return appendBytes16(dst, cutText(s, 1<<16-1))
}

// cutText returns the longest prefix of s of at most n bytes that does not end inside a character.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
