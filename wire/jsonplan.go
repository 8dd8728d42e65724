package wire

import (
	"encoding/base64"
	"math/bits"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plan is how one struct type travels as a JSON object. It is built once, from the wire tags of
// the struct's fields, whose order is the order of members in what we send:
//
//	wire:"name"           required
//	wire:"name,opt"       may be missing or null; left out when nil or zero
//	wire:"name,sent"      may be missing or null; always sent (a nil pointer as null)
//	wire:"name,nullable"  required, and null is a value: nil
//
// Field types: string, bool, unsigned integers, int64, []byte (base64), RawJSON, the named
// constants (enum) and variants (custom) of this package, structs, and pointers to and slices of
// these. A missing member leaves its field zero.
type plan struct {
	fields   []field
	required uint64 // bit i: fields[i] must be there
	message  bool   // the object has a member type, which is not a field
	checked  bool   // the struct implements checker
}

type field struct {
	name     string
	key      string // `"name":` as it is sent
	mode     mode
	index    int
	value    value
	isBytes  bool // opt: nil is absent, empty is not
	nullable bool // null is read as nothing
}

type mode uint8

const (
	modeRequired mode = iota
	modeOpt
	modeSent
	modeNullable
)

// value reads and writes one field type.
type value interface {
	// read reads into v. The next byte is not the n of null, unless null is wrong there.
	read(s *scanner, v reflect.Value) bool
	write(dst []byte, v reflect.Value) []byte
}

// enum is a named constant: the value is the index into names.
type enum interface{ names() []string }

// custom is a type with a JSON form of its own.
type custom interface {
	readJSON(s *scanner) bool
	writeJSON(dst []byte) []byte
}

// checker is a struct with a rule that its tags cannot say.
type checker interface{ valid() bool }

var (
	enumType    = reflect.TypeFor[enum]()
	customType  = reflect.TypeFor[custom]()
	checkerType = reflect.TypeFor[checker]()
)

// planOf builds the plan of struct type t. It panics on a struct it cannot read.
func planOf(t reflect.Type, message bool) *plan {
	p := &plan{message: message, checked: reflect.PointerTo(t).Implements(checkerType)}
	for i := range t.NumField() {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("wire"), ",")
		f := field{name: name, key: `"` + name + `":`, index: i, value: valueOf(t.Field(i).Type)}
		switch option {
		case "":
			p.required |= 1 << len(p.fields)
		case "opt":
			f.mode, f.nullable = modeOpt, true
		case "sent":
			f.mode, f.nullable = modeSent, true
		case "nullable":
			f.mode, f.nullable = modeNullable, true
			p.required |= 1 << len(p.fields)
		default:
			panic("wire: tag of " + t.Name() + "." + t.Field(i).Name)
		}
		_, f.isBytes = f.value.(bytesValue)
		p.fields = append(p.fields, f)
	}
	if len(p.fields) > 64 {
		panic("wire: too many members in " + t.Name())
	}
	return p
}

// valueOf picks the codec of a field type.
func valueOf(t reflect.Type) value {
	switch {
	case reflect.PointerTo(t).Implements(customType):
		return customValue{}
	case t.Implements(enumType):
		return namedValue{reflect.Zero(t).Interface().(enum).names()}
	case t == reflect.TypeFor[RawJSON]():
		return rawValue{}
	}
	switch t.Kind() {
	case reflect.String:
		return stringValue{}
	case reflect.Bool:
		return boolValue{}
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return uintValue{t.Bits()}
	case reflect.Int64:
		return intValue{}
	case reflect.Pointer:
		return pointerValue{t.Elem(), valueOf(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return bytesValue{}
		}
		elem := valueOf(t.Elem())
		return sliceValue{t, elem, leastText(elem)}
	case reflect.Struct:
		return planOf(t, false)
	}
	panic("wire: no JSON form for " + t.String())
}

// read reads an object into the struct v.
func (p *plan) read(s *scanner, v reflect.Value) bool {
	_, ok := p.readObject(s, v)
	return ok
}

// readObject is read that also says at which member it failed, where that is known.
func (p *plan) readObject(s *scanner, v reflect.Value) (member string, ok bool) {
	if !s.open('{') {
		return "", false
	}
	var seen uint64
	typeSeen := false
	next := 0 // members mostly come in our order
	for first := true; ; first = false {
		more, ok := s.more('}', first)
		if !ok {
			return "", false
		}
		if !more {
			break
		}
		name, ok := s.name()
		if !ok {
			return "", false
		}
		i := p.find(name, next)
		if i < 0 {
			if p.message && string(name) == "type" {
				if typeSeen {
					return "type", s.fail(whatDuplicate)
				}
				typeSeen = true
			}
			if !s.skip() {
				return "", false
			}
			continue
		}
		next = i + 1
		f := &p.fields[i]
		if seen&(1<<i) != 0 {
			return f.name, s.fail(whatDuplicate)
		}
		seen |= 1 << i
		if f.nullable {
			isNull, ok := s.null()
			if !ok {
				return f.name, false
			}
			if isNull {
				continue
			}
		}
		if !f.value.read(s, v.Field(f.index)) {
			return f.name, false
		}
	}
	if missing := p.required &^ seen; missing != 0 {
		return p.fields[bits.TrailingZeros64(missing)].name, s.fail(whatMissing)
	}
	if p.checked && !v.Addr().Interface().(checker).valid() {
		return "", s.fail(whatVariant)
	}
	return "", true
}

// find returns the index of the field called name, -1 if there is none; it looks at guess first.
func (p *plan) find(name []byte, guess int) int {
	if guess < len(p.fields) && p.fields[guess].name == string(name) {
		return guess
	}
	for i := range p.fields {
		if p.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// write appends the struct v as an object.
func (p *plan) write(dst []byte, v reflect.Value) []byte {
	return p.writeMembers(append(dst, '{'), v)
}

// writeMembers appends the members of v and the closing brace to an object that was begun.
func (p *plan) writeMembers(dst []byte, v reflect.Value) []byte {
	for i := range p.fields {
		f := &p.fields[i]
		fv := v.Field(f.index)
		if f.mode == modeOpt && f.absent(fv) {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, f.key...)
		if (f.mode == modeNullable || f.mode == modeSent) && (fv.Kind() == reflect.Pointer || fv.Kind() == reflect.Slice) && fv.IsNil() {
			dst = append(dst, "null"...)
			continue
		}
		dst = f.value.write(dst, fv)
	}
	return append(dst, '}')
}

// absent says whether an optional member carries no value.
func (f *field) absent(v reflect.Value) bool {
	if v.Kind() == reflect.Slice && !f.isBytes {
		return v.Len() == 0
	}
	return v.IsZero()
}

type stringValue struct{}

func (stringValue) read(s *scanner, v reflect.Value) bool {
	text, ok := s.string()
	v.SetString(text)
	return ok
}

func (stringValue) write(dst []byte, v reflect.Value) []byte { return appendString(dst, v.String()) }

type boolValue struct{}

func (boolValue) read(s *scanner, v reflect.Value) bool {
	b, ok := s.bool()
	v.SetBool(b)
	return ok
}

func (boolValue) write(dst []byte, v reflect.Value) []byte {
	return strconv.AppendBool(dst, v.Bool())
}

type uintValue struct{ bits int }

func (u uintValue) read(s *scanner, v reflect.Value) bool {
	n, ok := s.uint(u.bits)
	v.SetUint(n)
	return ok
}

func (uintValue) write(dst []byte, v reflect.Value) []byte {
	return strconv.AppendUint(dst, v.Uint(), 10)
}

type intValue struct{}

func (intValue) read(s *scanner, v reflect.Value) bool {
	n, ok := s.int()
	v.SetInt(n)
	return ok
}

func (intValue) write(dst []byte, v reflect.Value) []byte {
	return strconv.AppendInt(dst, v.Int(), 10)
}

type bytesValue struct{}

func (bytesValue) read(s *scanner, v reflect.Value) bool {
	b, ok := s.bytes()
	v.SetBytes(b)
	return ok
}

func (bytesValue) write(dst []byte, v reflect.Value) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, v.Bytes())
	return append(dst, '"')
}

// rawValue keeps any JSON value as text.
type rawValue struct{}

func (rawValue) read(s *scanner, v reflect.Value) bool {
	s.peek()
	start := s.at
	if !s.skip() {
		return false
	}
	v.SetBytes(append(RawJSON(nil), s.text[start:s.at]...))
	return true
}

func (rawValue) write(dst []byte, v reflect.Value) []byte { return append(dst, v.Bytes()...) }

type namedValue struct{ names []string }

func (e namedValue) read(s *scanner, v reflect.Value) bool {
	name, ok := s.string()
	if !ok {
		return false
	}
	n, ok := enumValue(e.names, name)
	if !ok {
		return s.fail(whatName)
	}
	v.SetUint(uint64(n))
	return true
}

func (e namedValue) write(dst []byte, v reflect.Value) []byte {
	return appendString(dst, enumName(e.names, uint8(v.Uint())))
}

type customValue struct{}

func (customValue) read(s *scanner, v reflect.Value) bool {
	return v.Addr().Interface().(custom).readJSON(s)
}

func (customValue) write(dst []byte, v reflect.Value) []byte {
	return v.Addr().Interface().(custom).writeJSON(dst)
}

type pointerValue struct {
	elem  reflect.Type
	value value
}

func (p pointerValue) read(s *scanner, v reflect.Value) bool {
	v.Set(reflect.New(p.elem))
	return p.value.read(s, v.Elem())
}

func (p pointerValue) write(dst []byte, v reflect.Value) []byte {
	return p.value.write(dst, v.Elem())
}

type sliceValue struct {
	slice reflect.Type
	value value
	least int // bytes of text that an element takes at least
}

// leastText returns a lower bound for the text of a value.
func leastText(v value) int {
	switch v := v.(type) {
	case *plan:
		n := len("{}")
		for i := range v.fields {
			if v.required&(1<<i) != 0 {
				n += len(v.fields[i].key) + leastText(v.fields[i].value)
			}
		}
		return n
	case stringValue, bytesValue:
		return len(`""`)
	}
	return 1
}

func (l sliceValue) read(s *scanner, v reflect.Value) bool {
	if !s.open('[') {
		return false
	}
	n, size, ok := s.count()
	if !ok {
		return false
	}
	// Room for one element more than the text can hold whole ones. If n is above that, one of the
	// first room elements fails, and nothing is reserved on the word of the others.
	room := min(n, (size+1)/(l.least+1)+1)
	v.Set(reflect.MakeSlice(l.slice, room, room))
	for i := range room {
		if more, _ := s.more(']', i == 0); !more || !l.value.read(s, v.Index(i)) {
			return false
		}
	}
	_, ok = s.more(']', n == 0)
	return ok
}

func (l sliceValue) write(dst []byte, v reflect.Value) []byte {
	dst = append(dst, '[')
	for i := range v.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = l.value.write(dst, v.Index(i))
	}
	return append(dst, ']')
}

// appendString appends text as a JSON string. What is not UTF-8 is replaced, so that what we send
// can always be read.
func appendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
		i++
	}
	return append(dst, '"')
}
