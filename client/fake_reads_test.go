package client

import "github.com/ringcast/ringcast/wire"

// fakeEpoch is the append time of offset 0; each later record is one microsecond younger.
const fakeEpoch = 1_700_000_000_000_000

func (s *fakeStream) read(m *wire.StreamRead) {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	records := b.logs[m.Shard]
	tail := uint64(len(records))
	switch {
	case m.From < b.base:
		s.answer(&wire.SubscribeCursorError{Reason: wire.CursorTooOld, Requested: m.From, Available: b.base})
		return
	case m.From > tail:
		s.answer(&wire.SubscribeCursorError{Reason: wire.CursorInFuture, Requested: m.From, Available: tail})
		return
	}
	end := tail
	if m.End != nil {
		end = max(m.From, min(tail, *m.End))
	}
	if m.MaxRecords != 0 {
		end = min(end, m.From+uint64(m.MaxRecords))
	}
	answer := &wire.StreamRecords{NextOffset: end, RequestID: m.RequestID}
	for at := m.From; at < end; at++ {
		answer.Records = append(answer.Records, wire.StreamRecord{
			Offset: at, Payload: []byte(records[at].payload), Publisher: "somebody", TimestampMicros: fakeEpoch + at,
		})
	}
	s.answer(answer)
}

func (s *fakeStream) offsetForTime(m *wire.OffsetForTime) {
	b := s.b
	b.mu.Lock()
	tail := uint64(len(b.logs[m.Shard]))
	answer := &wire.OffsetValue{RequestID: m.RequestID}
	at := b.base
	if m.AtMicros > fakeEpoch {
		at = max(at, m.AtMicros-fakeEpoch)
	}
	if at < tail {
		answer.Offset = &at
	}
	n := b.times
	b.times++
	b.mu.Unlock()
	if b.onTime != nil {
		b.onTime(n)
	}
	s.answer(answer)
}
