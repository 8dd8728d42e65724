package wire

import (
	"reflect"
	"strconv"
)

// The types that are a name or an object with one member. Their object halves are ordinary plans.

var (
	startPlan     = planOf(reflect.TypeFor[startObject](), false)
	conditionPlan = planOf(reflect.TypeFor[conditionObject](), false)
	refusedPlan   = planOf(reflect.TypeFor[refusedObject](), false)
)

// variant reads a name, or an object into the struct that object points to. named says which.
func (s *scanner) variant(p *plan, object any) (name string, named, ok bool) {
	if s.peek() == '"' {
		name, ok = s.string()
		return name, true, ok
	}
	return "", false, p.read(s, reflect.ValueOf(object).Elem())
}

func (st *Start) readJSON(s *scanner) bool {
	var o startObject
	name, named, ok := s.variant(startPlan, &o)
	switch {
	case !ok:
		return false
	case !named:
		*st = Start{Kind: StartOffset, Offset: o.Offset}
		return true
	}
	kind, ok := enumValue(startNames, name)
	if !ok {
		return s.fail(whatName)
	}
	*st = Start{Kind: StartKind(kind)}
	return true
}

func (st *Start) writeJSON(dst []byte) []byte {
	if st.Kind == StartOffset {
		return appendOneNumber(dst, "offset", st.Offset)
	}
	return appendString(dst, enumName(startNames, uint8(st.Kind)))
}

func (c *Condition) readJSON(s *scanner) bool {
	var o conditionObject
	name, named, ok := s.variant(conditionPlan, &o)
	switch {
	case !ok:
		return false
	case named && name != "absent":
		return s.fail(whatName)
	}
	*c = Condition{Absent: named, Version: o.Version}
	return true
}

func (c *Condition) writeJSON(dst []byte) []byte {
	if c.Absent {
		return appendString(dst, "absent")
	}
	return appendOneNumber(dst, "version", c.Version)
}

func (r *RefusedReason) readJSON(s *scanner) bool {
	var o refusedObject
	name, named, ok := s.variant(refusedPlan, &o)
	if !ok {
		return false
	}
	if named {
		kind, ok := enumValue(refusedNames, name)
		if !ok {
			return s.fail(whatName)
		}
		*r = RefusedReason{Kind: RefusedKind(kind)}
		return true
	}
	switch {
	case o.SequenceGap != nil:
		*r = RefusedReason{Kind: RefusedSequenceGap, Expected: o.SequenceGap.Expected}
	case o.OffsetMismatch != nil:
		*r = RefusedReason{Kind: RefusedOffsetMismatch, Tail: o.OffsetMismatch.Tail}
	default:
		*r = RefusedReason{Kind: RefusedNotLeader, NodeID: o.NotLeader.NodeID, Addr: o.NotLeader.Addr}
	}
	return true
}

// valid holds for exactly one variant.
func (o *refusedObject) valid() bool {
	n := 0
	for _, given := range []bool{o.SequenceGap != nil, o.OffsetMismatch != nil, o.NotLeader != nil} {
		if given {
			n++
		}
	}
	return n == 1
}

func (r *RefusedReason) writeJSON(dst []byte) []byte {
	switch r.Kind {
	case RefusedSequenceGap:
		return append(appendOneNumber(append(dst, `{"sequence_gap":`...), "expected", r.Expected), '}')
	case RefusedOffsetMismatch:
		return append(appendOneNumber(append(dst, `{"offset_mismatch":`...), "tail", r.Tail), '}')
	case RefusedNotLeader:
		dst = appendString(append(dst, `{"not_leader":{"node_id":`...), r.NodeID)
		if r.Addr != "" {
			dst = appendString(append(dst, `,"addr":`...), r.Addr)
		}
		return append(dst, "}}"...)
	}
	return appendString(dst, enumName(refusedNames, uint8(r.Kind)))
}

// appendOneNumber appends {"name":n}.
func appendOneNumber(dst []byte, name string, n uint64) []byte {
	dst = append(dst, '{')
	dst = append(appendString(dst, name), ':')
	return append(strconv.AppendUint(dst, n, 10), '}')
}
