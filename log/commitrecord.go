package log

import (
	"encoding/binary"
	"errors"
	"math"
)

// ChangeOp is what a Change does to its key. The numbers are on the disk.
type ChangeOp uint8

const (
	ChangePut    ChangeOp = 1
	ChangeDelete ChangeOp = 2
)

// ChangeKeyMax is the longest key of a Change, in bytes.
const ChangeKeyMax = math.MaxUint16

// Change is one change of a shard's keyed state by an atomic commit.
type Change struct {
	Op    ChangeOp
	Key   string
	Value []byte // of a put
}

// ErrCommitRecord says that the one record of a KindCommit entry is not what docs/formats/log.md
// describes, or that there is no such record of what was given.
var ErrCommitRecord = errors.New("log: malformed commit record")

// CommitRecord is the decoded record of a KindCommit entry. Its slices are views of the record.
type CommitRecord struct {
	// Event is what readers of the stream see.
	Event []byte
	// Count is the number of changes.
	Count uint32

	changes []byte // checked by DecodeCommitRecord
}

// CommitRecordSize is how many bytes AppendCommitRecord appends.
func CommitRecordSize(event []byte, changes []Change) int {
	n := 4 + len(event) + 4
	for i := range changes {
		n += 1 + 2 + len(changes[i].Key)
		if changes[i].Op == ChangePut {
			n += 4 + len(changes[i].Value)
		}
	}
	return n
}

// AppendCommitRecord appends the record of an atomic commit. ErrCommitRecord: a key is longer than
// ChangeKeyMax or an op is unknown; dst is as it was then.
func AppendCommitRecord(dst, event []byte, changes []Change) ([]byte, error) {
	start := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(event)))
	dst = append(dst, event...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(changes)))
	for i := range changes {
		c := &changes[i]
		if len(c.Key) > ChangeKeyMax || c.Op != ChangePut && c.Op != ChangeDelete {
			return dst[:start], ErrCommitRecord
		}
		dst = append(dst, byte(c.Op))
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(c.Key)))
		dst = append(dst, c.Key...)
		if c.Op == ChangePut {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Value)))
			dst = append(dst, c.Value...)
		}
	}
	return dst, nil
}

// DecodeCommitRecord reads a whole record and checks every length in it; it allocates nothing.
func DecodeCommitRecord(record []byte) (CommitRecord, error) {
	event, rest, ok := cut32(record)
	if !ok || len(rest) < 4 {
		return CommitRecord{}, ErrCommitRecord
	}
	r := CommitRecord{Event: event, Count: binary.BigEndian.Uint32(rest), changes: rest[4:]}
	rest = r.changes
	for range r.Count {
		if _, _, _, rest, ok = nextChange(rest); !ok {
			return CommitRecord{}, ErrCommitRecord
		}
	}
	if len(rest) != 0 {
		return CommitRecord{}, ErrCommitRecord
	}
	return r, nil
}

// Next takes the first change off r. Key and value are views of the record; ok is false behind the
// last one.
func (r *CommitRecord) Next() (op ChangeOp, key, value []byte, ok bool) {
	op, key, value, r.changes, ok = nextChange(r.changes)
	return op, key, value, ok
}

// nextChange splits the first change off b. ok is false when b does not begin with a whole one.
func nextChange(b []byte) (op ChangeOp, key, value, rest []byte, ok bool) {
	if len(b) < 3 {
		return 0, nil, nil, nil, false
	}
	op = ChangeOp(b[0])
	n := int(binary.BigEndian.Uint16(b[1:]))
	b = b[3:]
	if n > len(b) {
		return 0, nil, nil, nil, false
	}
	key, b = b[:n:n], b[n:]
	switch op {
	case ChangePut:
		value, rest, ok = cut32(b)
		return op, key, value, rest, ok
	case ChangeDelete:
		return op, key, nil, b, true
	}
	return 0, nil, nil, nil, false
}

// cut32 splits bytes behind their u32 length off b.
func cut32(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n : 4+n], b[4+n:], true
}

// CommitRecord decodes the record of a KindCommit entry. It fails with ErrCommitRecord, which no broken
// disk explains: the entry's checksum held.
func (e *PageEntry) CommitRecord() (CommitRecord, error) {
	record, rest, ok := cut32(e.Records)
	if !ok || len(rest) != 0 || e.Count != 1 {
		return CommitRecord{}, ErrCommitRecord
	}
	return DecodeCommitRecord(record)
}
