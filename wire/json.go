package wire

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Message is one of the JSON messages: a pointer to a struct of this package that is named after
// its type. The structs hold copies, never views of the payload.
type Message interface {
	// Type is the member that selects the message.
	Type() string
}

// MessageError says why a payload is no message. It is an ErrMalformed.
type MessageError struct {
	Type   string // the message's type, "" when it did not get so far
	Member string // the member that is wrong, "" when it is the object
	What   string // constant text
}

func (e *MessageError) Error() string {
	switch {
	case e.Type == "":
		return "wire: malformed message: " + e.What
	case e.Member == "":
		return "wire: malformed " + e.Type + ": " + e.What
	}
	return "wire: malformed " + e.Type + ": " + e.Member + ": " + e.What
}

// Is makes every MessageError an ErrMalformed.
func (e *MessageError) Is(target error) bool { return target == ErrMalformed }

// UnknownTypeError is a well-formed message of a type that this version does not know.
type UnknownTypeError struct {
	Type string
	// Name is the member name, as an extension request has one; "" without it.
	Name string
	// RequestID is nil when the message has no readable one.
	RequestID *uint64
}

func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("wire: unknown message type %.64q", e.Type)
}

// DecodeMessage reads the payload of a frame without flags. The error is a *MessageError (an
// ErrMalformed) or an *UnknownTypeError. What it allocates is bounded by the payload: in the
// worst case, an array of empty strings, about eight times its length.
func DecodeMessage(payload []byte) (Message, error) {
	s := &scanner{text: payload}
	if !utf8.Valid(payload) {
		return nil, &MessageError{What: whatUTF8}
	}
	name, ok := s.messageType()
	if !ok {
		return nil, &MessageError{Member: "type", What: s.what}
	}
	spec, ok := messageSpecs[string(name)]
	if !ok {
		return nil, unknownType(payload)
	}
	*s = scanner{text: payload, scratch: s.scratch}
	v := reflect.New(spec.typ)
	member, ok := spec.plan.readObject(s, v.Elem())
	if !ok || !s.end() {
		return nil, &MessageError{Type: spec.name, Member: member, What: s.what}
	}
	return v.Interface().(Message), nil
}

// messageType finds the first member type of the object. It is the first member of nearly every
// message, so what lies behind it is left to the plan.
func (s *scanner) messageType() ([]byte, bool) {
	if s.peek() != '{' {
		return nil, s.wrong()
	}
	s.open('{')
	for first := true; ; first = false {
		more, ok := s.more('}', first)
		if !ok {
			return nil, false
		}
		if !more {
			return nil, s.fail(whatMissing)
		}
		name, ok := s.name()
		if !ok {
			return nil, false
		}
		if string(name) != "type" {
			if !s.skip() {
				return nil, false
			}
			continue
		}
		if s.peek() != '"' {
			return nil, s.wrong()
		}
		raw, escaped, ok := s.quoted()
		if escaped {
			raw = unescape(nil, raw)
		}
		return raw, ok
	}
}

// unknownType reads what can be answered about a message of an unknown type: an *UnknownTypeError,
// or the *MessageError that its text deserves.
func unknownType(payload []byte) error {
	s := &scanner{text: payload}
	e := &UnknownTypeError{}
	s.open('{')
	types, ids := 0, 0
	for first := true; ; first = false {
		more, ok := s.more('}', first)
		if !ok {
			return &MessageError{What: s.what}
		}
		if !more {
			break
		}
		name, ok := s.name()
		if !ok {
			return &MessageError{What: s.what}
		}
		member := string(name)
		s.peek()
		at := s.at
		if !s.skip() {
			return &MessageError{What: s.what}
		}
		v := &scanner{text: payload[at:s.at]}
		switch member {
		case "type":
			types++
			e.Type, _ = v.string()
		case "name":
			e.Name, _ = v.string()
		case "request_id":
			ids++
			e.RequestID = nil
			if n, ok := v.uint(64); ok && ids == 1 {
				e.RequestID = &n
			}
		}
	}
	switch {
	case !s.end():
		return &MessageError{What: s.what}
	case types > 1:
		return &MessageError{Member: "type", What: whatDuplicate}
	}
	return e
}

// AppendMessage appends the whole frame of m, members in the order of the protocol's tables.
func AppendMessage(dst []byte, m Message) []byte {
	spec := messageSpecs[m.Type()]
	start := len(dst)
	dst = AppendHeader(dst, 0, 0)
	dst = append(dst, spec.open...)
	dst = spec.plan.writeMembers(dst, reflect.ValueOf(m).Elem())
	binary.BigEndian.PutUint32(dst[start+8:], uint32(len(dst)-start-HeaderSize))
	return dst
}

// BrokerOnly says whether only a broker sends messages of m's type.
func BrokerOnly(m Message) bool { return messageSpecs[m.Type()].brokerOnly }

// messageSpec is what the codec knows of one message type.
type messageSpec struct {
	name       string
	typ        reflect.Type // the struct
	plan       *plan
	open       string // the object up to and including the member type
	brokerOnly bool
}

// messageSpecs has every message by type. It is never written after its initialisation.
var messageSpecs = func() map[string]*messageSpec {
	specs := make(map[string]*messageSpec, len(clientMessages)+len(brokerMessages))
	add := func(list []Message, brokerOnly bool) {
		for _, m := range list {
			t := reflect.TypeOf(m).Elem()
			specs[m.Type()] = &messageSpec{
				name:       m.Type(),
				typ:        t,
				plan:       planOf(t, true),
				open:       `{"type":"` + m.Type() + `"`,
				brokerOnly: brokerOnly,
			}
		}
	}
	add(clientMessages, false)
	add(brokerMessages, true)
	return specs
}()
