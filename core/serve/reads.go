package serve

import (
	"encoding/base64"
	"errors"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// Reads of history without a subscription (wire.md 4.7, broker.md 2.8). They are answered from the
// session's own goroutine, which may wait for the disk; no executor takes part. A read creates
// nothing: a name that nobody defined is not found.

// streamRead answers one page. A page is large and lies in the stream's memory until the client
// takes it, so a connection has few of them at a time: who does not read his answers stops his own
// connection's reads.
func (s *session) streamRead(m *wire.StreamRead) verdict {
	if e := s.mayRead(m.TenantID, m.Namespace, m.Stream); e != nil {
		s.refuse(e)
		return goOn
	}
	select {
	case s.c.reads <- struct{}{}:
		defer func() { <-s.c.reads }()
	case <-s.w.dead:
		return endStream
	}
	b := s.srv.o.Broker
	stream, err := b.FindStream(m.TenantID, m.Namespace, m.Stream)
	if err != nil {
		return s.refuseRead(err)
	}
	page, err := b.ReadPage(&core.ReadRequest{
		Stream: stream, Shard: m.Shard, From: m.From, End: m.End, MaxRecords: m.MaxRecords, MaxBytes: m.MaxBytes,
	})
	if err != nil {
		return s.refuseRead(err)
	}
	answer := &wire.StreamRecords{NextOffset: page.Next, RequestID: m.RequestID, Records: make([]wire.StreamRecord, len(page.Records))}
	size := 0
	for i := range page.Records {
		r := &page.Records[i]
		size += base64.StdEncoding.EncodedLen(len(r.Payload))
		answer.Records[i] = wire.StreamRecord{Offset: r.Offset, Payload: r.Payload, Publisher: r.Publisher, TimestampMicros: r.TimeMicros}
	}
	if size > readPayloadMax { // one record, since a page of several is smaller
		page.Release()
		return s.refuseRead(errReadTooLarge)
	}
	sent := s.reply(answer) // encodes it: the page is not needed any more
	page.Release()
	if sent {
		s.w.flush()
	}
	return goOn
}

func (s *session) offsetForTime(m *wire.OffsetForTime) verdict {
	if e := s.mayRead(m.TenantID, m.Namespace, m.Stream); e != nil {
		s.refuse(e)
		return goOn
	}
	b := s.srv.o.Broker
	answer := &wire.OffsetValue{RequestID: m.RequestID}
	stream, err := b.FindStream(m.TenantID, m.Namespace, m.Stream)
	if err == nil {
		var offset uint64
		var ok bool
		if offset, ok, err = b.OffsetForTime(stream, m.Shard, m.AtMicros); ok {
			answer.Offset = &offset
		}
	}
	if err != nil {
		return s.refuseRead(err)
	}
	s.reply(answer)
	return goOn
}

// refuseRead answers a read that failed; the stream goes on.
func (s *session) refuseRead(err error) verdict {
	if cursor, ok := errors.AsType[*core.CursorError](err); ok {
		s.reply(cursorError(cursor))
	} else {
		s.refuse(wire.AsError(err))
	}
	return goOn
}
