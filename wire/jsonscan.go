package wire

import (
	"encoding/base64"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// depthMax bounds the nesting of a JSON payload, ignored members included. It is the bound of the
// reference.
const depthMax = 128

// scanner reads JSON text strictly: RFC 8259, no lone surrogates, and numbers that are asked for
// as integers must be written as integers. encoding/json is more lenient in all three and drops
// duplicates silently, which the protocol forbids. The text must be valid UTF-8; the caller checks
// that once.
//
// Every method returns false after a failure; what then says why. Nothing may be read after it.
type scanner struct {
	text    []byte
	at      int
	depth   int
	what    string
	scratch []byte // unescaped names and base64
}

// What can be wrong with a message, in MessageError.What.
const (
	whatSyntax    = "not JSON"
	whatUTF8      = "not UTF-8"
	whatDepth     = "nested too deeply"
	whatType      = "wrong JSON type"
	whatRange     = "number out of range"
	whatBase64    = "not base64"
	whatName      = "unknown name"
	whatDuplicate = "given twice"
	whatMissing   = "missing"
	whatVariant   = "not one of the variants"
)

// fail notes the first failure.
func (s *scanner) fail(what string) bool {
	if s.what == "" {
		s.what = what
	}
	return false
}

// wrong fails because a value has another type than expected, or is none at all.
func (s *scanner) wrong() bool {
	if s.skip() {
		return s.fail(whatType)
	}
	return false
}

// peek returns the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// expect reads the punctuation c.
func (s *scanner) expect(c byte) bool {
	if s.peek() != c {
		return s.fail(whatSyntax)
	}
	s.at++
	return true
}

// end succeeds when nothing but white space is left.
func (s *scanner) end() bool {
	if s.peek(); s.at != len(s.text) {
		return s.fail(whatSyntax)
	}
	return true
}

// open reads the bracket that starts an object or array.
func (s *scanner) open(c byte) bool {
	if s.peek() != c {
		return s.wrong()
	}
	if s.depth++; s.depth > depthMax {
		return s.fail(whatDepth)
	}
	s.at++
	return true
}

// more is called before each element of an object or array that ends with c. It reads the comma
// or the end; more is false after the end and after a failure, which ok tells apart.
func (s *scanner) more(c byte, first bool) (more, ok bool) {
	switch next := s.peek(); {
	case next == c:
		s.at++
		s.depth--
		return false, true
	case first:
		return true, true
	case next == ',':
		s.at++
		return true, true
	}
	return false, s.fail(whatSyntax)
}

// name reads the name of a member and the colon. The bytes are valid until the next call.
func (s *scanner) name() ([]byte, bool) {
	raw, escaped, ok := s.quoted()
	if !ok || !s.expect(':') {
		return nil, false
	}
	if escaped {
		s.scratch = unescape(s.scratch[:0], raw)
		raw = s.scratch
	}
	return raw, true
}

// quoted reads a string and returns what is between the quotes, checked but as it stands.
func (s *scanner) quoted() (raw []byte, escaped, ok bool) {
	if s.peek() != '"' {
		return nil, false, s.fail(whatSyntax)
	}
	start := s.at + 1
	for i := start; i < len(s.text); {
		c := s.text[i]
		if c != '"' && c != '\\' && c >= ' ' { // nearly every byte
			i++
			continue
		}
		s.at = i
		switch {
		case c == '"':
			s.at++
			return s.text[start:i], escaped, true
		case c == '\\' && s.escape():
			escaped = true
			i = s.at
		default:
			return nil, false, s.fail(whatSyntax)
		}
	}
	return nil, false, s.fail(whatSyntax)
}

// escape passes one escape sequence, both halves of a surrogate pair included.
func (s *scanner) escape() bool {
	rest := s.text[s.at:]
	if len(rest) < 2 {
		return false
	}
	switch rest[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return true
	case 'u':
		r, ok := hex4(rest)
		if !ok {
			return false
		}
		s.at += 6
		if !utf16.IsSurrogate(r) {
			return true
		}
		low, ok := hex4(rest[6:])
		s.at += 6
		return ok && utf16.DecodeRune(r, low) != utf8.RuneError
	}
	return false
}

// hex4 reads a unicode escape: backslash, u and four hex digits.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape appends what raw, checked by quoted, stands for.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		c = raw[i+1]
		i += 2
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(raw[i-2:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw[i:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default: // quote, backslash, slash
			dst = append(dst, c)
		}
	}
	return dst
}

// string reads a string value.
func (s *scanner) string() (string, bool) {
	if s.peek() != '"' {
		return "", s.wrong()
	}
	raw, escaped, ok := s.quoted()
	if escaped {
		raw = unescape(nil, raw)
	}
	return string(raw), ok
}

var base64Strict = base64.StdEncoding.Strict()

// bytes reads a base64 value. The result is never nil.
func (s *scanner) bytes() ([]byte, bool) {
	if s.peek() != '"' {
		return nil, s.wrong()
	}
	raw, escaped, ok := s.quoted()
	if !ok {
		return nil, false
	}
	if escaped {
		s.scratch = unescape(s.scratch[:0], raw)
		raw = s.scratch
		for _, c := range raw {
			if c == '\n' || c == '\r' { // package base64 skips them
				return nil, s.fail(whatBase64)
			}
		}
	}
	out := make([]byte, base64Strict.DecodedLen(len(raw)))
	n, err := base64Strict.Decode(out, raw)
	if err != nil {
		return nil, s.fail(whatBase64)
	}
	return out[:n], true
}

// number passes a number; integer is false for one with a fraction or an exponent.
func (s *scanner) number() (raw []byte, integer, ok bool) {
	start := s.at
	if s.at < len(s.text) && s.text[s.at] == '-' {
		s.at++
	}
	lead := s.at
	n := s.digits()
	if n == 0 || n > 1 && s.text[lead] == '0' {
		return nil, false, s.fail(whatSyntax)
	}
	integer = true
	if s.at < len(s.text) && s.text[s.at] == '.' {
		integer = false
		s.at++
		if s.digits() == 0 {
			return nil, false, s.fail(whatSyntax)
		}
	}
	if s.at < len(s.text) && s.text[s.at]|0x20 == 'e' {
		integer = false
		s.at++
		if s.at < len(s.text) && (s.text[s.at] == '+' || s.text[s.at] == '-') {
			s.at++
		}
		if s.digits() == 0 {
			return nil, false, s.fail(whatSyntax)
		}
	}
	return s.text[start:s.at], integer, true
}

// digits passes digits and returns how many.
func (s *scanner) digits() int {
	start := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at - start
}

// magnitude reads an integer as sign and absolute value.
func (s *scanner) magnitude() (abs uint64, negative, ok bool) {
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, false, s.wrong()
	}
	raw, integer, ok := s.number()
	if !ok {
		return 0, false, false
	}
	if !integer {
		return 0, false, s.fail(whatType)
	}
	if raw[0] == '-' {
		negative = true
		raw = raw[1:]
	}
	for _, c := range raw {
		d := uint64(c - '0')
		if abs > (math.MaxUint64-d)/10 {
			return 0, false, s.fail(whatRange)
		}
		abs = abs*10 + d
	}
	return abs, negative, true
}

// uint reads an unsigned integer of so many bits.
func (s *scanner) uint(bits int) (uint64, bool) {
	n, negative, ok := s.magnitude()
	if !ok {
		return 0, false
	}
	if negative || n > math.MaxUint64>>(64-bits) {
		return 0, s.fail(whatRange)
	}
	return n, true
}

// int reads a signed 64-bit integer.
func (s *scanner) int() (int64, bool) {
	n, negative, ok := s.magnitude()
	switch {
	case !ok:
		return 0, false
	case negative && n <= 1<<63:
		return -int64(n), true
	case !negative && n < 1<<63:
		return int64(n), true
	}
	return 0, s.fail(whatRange)
}

// bool reads true or false.
func (s *scanner) bool() (value, ok bool) {
	switch s.peek() {
	case 't':
		return true, s.literal("true")
	case 'f':
		return false, s.literal("false")
	}
	return false, s.wrong()
}

// null reads a null if there is one.
func (s *scanner) null() (isNull, ok bool) {
	if s.peek() != 'n' {
		return false, true
	}
	return true, s.literal("null")
}

func (s *scanner) literal(word string) bool {
	if len(s.text)-s.at < len(word) || string(s.text[s.at:s.at+len(word)]) != word {
		return s.fail(whatSyntax)
	}
	s.at += len(word)
	return true
}

// count returns how many elements the array has whose bracket was just opened, and the bytes of
// text up to its end. It goes back to the start, so that what holds the elements is allocated once
// and not grown.
func (s *scanner) count() (n, size int, ok bool) {
	at, depth := s.at, s.depth
	for {
		more, ok := s.more(']', n == 0)
		if !ok {
			return 0, 0, false
		}
		if !more {
			size = s.at - at - 1
			s.at, s.depth = at, depth
			return n, size, true
		}
		if !s.skip() {
			return 0, 0, false
		}
		n++
	}
}

// skip passes any value.
func (s *scanner) skip() bool {
	switch c := s.peek(); c {
	case '"':
		_, _, ok := s.quoted()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	case '[', '{':
		return s.skipNested(c)
	}
	_, _, ok := s.number()
	return ok
}

// skipNested passes an object or array. It recurses no deeper than depthMax.
func (s *scanner) skipNested(bracket byte) bool {
	if !s.open(bracket) {
		return false
	}
	for first := true; ; first = false {
		more, ok := s.more(bracket+2, first) // ']' and '}' stand two after their partners
		if !more {
			return ok
		}
		if bracket == '{' {
			if _, ok := s.name(); !ok {
				return false
			}
		}
		if !s.skip() {
			return false
		}
	}
}
