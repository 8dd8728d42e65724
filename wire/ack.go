// Hot path.

package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// Ack is a binary publish acknowledgement: a success, or a failure when Err is set.
type Ack struct {
	RequestID uint64
	Err       *Error
	Owner     *Owner // a hint that the batch was forwarded there; nil = none
	HasOffset bool   // success only
	Offset    uint64 // of the batch's first record
}

// Owner is the broker that serves a shard.
type Owner struct {
	NodeID     string
	Addr       string // host:port, "" = not published
	Generation uint64
}

// AppendAck appends the whole frame of a. Only parts whose bit is in offered are sent, and of an
// error more than its message only to a stream that also offered FeatureErrorCodes. A code without
// a number travels as a message alone; texts beyond 65535 bytes are cut.
func AppendAck(dst []byte, a *Ack, offered Flags, feats Features) []byte {
	f := FlagAck
	if a.Owner != nil {
		f |= offered & FlagAckOwner
	}
	if a.Err == nil {
		if a.HasOffset {
			f |= offered & FlagAckOffset
		}
	} else if feats.Has(FeatureErrorCodes) && offered&FlagAckCode != 0 && a.Err.Code != 0 && a.Err.Code < codeNamed {
		f |= FlagAckCode | offered&FlagAckDetail
	}

	start := len(dst)
	dst = AppendHeader(dst, f, 0)
	if a.Err == nil {
		dst = append(dst, 0)
		dst = binary.BigEndian.AppendUint64(dst, a.RequestID)
		dst = append(dst, 0, 0)
	} else {
		dst = append(dst, 1)
		dst = binary.BigEndian.AppendUint64(dst, a.RequestID)
		dst = appendText16(dst, a.Err.Message)
	}
	if f&FlagAckCode != 0 {
		dst = binary.BigEndian.AppendUint16(dst, uint16(a.Err.Code))
		dst = append(dst, byte(a.Err.Retry))
	}
	if f&FlagAckDetail != 0 {
		dst = appendText16(dst, a.Err.Reason)
		dst = binary.BigEndian.AppendUint64(dst, a.Err.RetryAfterMS)
	}
	if f&FlagAckOwner != 0 {
		dst = appendText16(dst, a.Owner.NodeID)
		dst = appendText16(dst, a.Owner.Addr)
		dst = binary.BigEndian.AppendUint64(dst, a.Owner.Generation)
	}
	if f&FlagAckOffset != 0 {
		dst = binary.BigEndian.AppendUint64(dst, a.Offset)
	}
	binary.BigEndian.PutUint32(dst[start+8:], uint32(len(dst)-start-HeaderSize))
	return dst
}

// DecodeAck reads the payload of a frame whose flags passed FromBroker. A success without an owner
// allocates nothing. An error that came without a code has Code and Retry 0; a class that this
// version does not know is read as fatal.
func DecodeAck(f Flags, payload []byte) (Ack, error) {
	c := cursor{rest: payload}
	status := c.u8()
	a := Ack{RequestID: c.u64()}
	message := c.bytes16()
	if c.short {
		return Ack{}, ErrTruncated
	}
	if status > 1 {
		return Ack{}, ErrAckStatus
	}
	var code Code
	var retry Retry
	var reason []byte
	var wait uint64
	if f&FlagAckCode != 0 {
		code = Code(c.u16())
		retry = Retry(c.u8())
		if retry < RetryNow || retry > RetryFatal {
			retry = RetryFatal
		}
	}
	if f&FlagAckDetail != 0 {
		reason = c.bytes16()
		wait = c.u64()
	}
	var node, addr []byte
	var generation uint64
	if f&FlagAckOwner != 0 {
		node = c.bytes16()
		addr = c.bytes16()
		generation = c.u64()
	}
	if f&FlagAckOffset != 0 {
		if status != 0 {
			return Ack{}, ErrAckOffsetOnFailure
		}
		a.HasOffset = true
		a.Offset = c.u64()
	}
	if c.short {
		return Ack{}, ErrTruncated
	}
	if !utf8.Valid(message) || !utf8.Valid(reason) || !utf8.Valid(node) || !utf8.Valid(addr) {
		return Ack{}, ErrUTF8
	}
	if status != 0 {
		a.Err = &Error{Code: code, Retry: retry, Message: string(message), Reason: string(reason), RetryAfterMS: wait}
	}
	if f&FlagAckOwner != 0 {
		a.Owner = &Owner{NodeID: string(node), Addr: string(addr), Generation: generation}
	}
	return a, nil
}
