package client

import (
	"context"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

func (s *fakeStream) subscribe(m *wire.Subscribe) {
	b := s.b
	b.mu.Lock()
	n := b.subs
	b.subs++
	b.lastSub = append(b.lastSub, *m)
	id := uint64(n + 1)
	shard := uint32(0)
	if m.Shard != nil {
		shard = *m.Shard
	}
	tail := uint64(len(b.logs[shard]))
	from := tail
	if m.Start != nil {
		switch m.Start.Kind {
		case wire.StartEarliest:
			from = b.base
		case wire.StartOffset:
			from = m.Start.Offset
		}
	}
	base := b.base
	b.mu.Unlock()
	if b.onSubscribe != nil {
		if other := b.onSubscribe(n, m); other != nil {
			s.answer(other)
			return
		}
	}
	if from < base {
		s.answer(&wire.SubscribeCursorError{Reason: wire.CursorTooOld, Requested: from, Available: base})
		return
	}
	if from > tail {
		s.answer(&wire.SubscribeCursorError{Reason: wire.CursorInFuture, Requested: from, Available: tail})
		return
	}
	ev, err := s.conn.OpenUniStream(context.Background())
	if err != nil {
		return
	}
	if _, err := ev.Write(wire.AppendMessage(nil, &wire.EventStreamHello{SubscriptionID: id})); err != nil {
		return
	}
	r := &wire.Subscribed{SubscriptionID: id}
	if !b.noLog {
		live := max(tail, from)
		r.StartOffset, r.LiveOffset = &from, &live
	}
	if b.holdSubscribed != nil {
		hold := b.holdSubscribed
		s.answers <- func() error { <-hold; return s.write(r) }
	} else {
		s.answer(r)
	}
	b.wg.Go(func() { s.feed(ev, n, id, shard, from) })
}

// feed writes the events of one subscription, at most four in a frame.
func (s *fakeStream) feed(ev netio.SendStream, sub int, id uint64, shard uint32, from uint64) {
	b := s.b
	for frame := 0; ; frame++ {
		b.mu.Lock()
		for uint64(len(b.logs[shard])) == from {
			grown := b.grown
			b.mu.Unlock()
			select {
			case <-grown:
			case <-s.conn.Context().Done():
				return
			case <-ev.Context().Done():
				return
			}
			b.mu.Lock()
		}
		f := &eventFrame{base: from}
		for i := from; i < uint64(len(b.logs[shard])) && len(f.records) < 4; i++ {
			f.records = append(f.records, b.logs[shard][i].payload)
		}
		b.mu.Unlock()
		next := from + uint64(len(f.records))
		action := frameSend
		if b.onFrame != nil {
			b.script.Lock()
			action = b.onFrame(sub, frame, f)
			b.script.Unlock()
		}
		var last wire.Message
		switch action {
		case frameResetNow:
			ev.CancelWrite(netio.ResetInterrupted)
			return
		case frameReset:
			drain(ev)
			ev.CancelWrite(netio.ResetInterrupted)
			return
		case frameLose:
			drain(ev)
			b.loseConn(s.conn)
			return
		case frameLag:
			last = &wire.SubscriptionLagged{SubscriptionID: id, ResumeFrom: from}
		case frameDelete:
			last = &wire.StreamDeleted{SubscriptionID: id}
		case frameRevoke:
			last = wire.NewErrorMessage(wire.ErrRevoked, s.feats)
		case frameFin:
			_ = ev.Close()
			return
		}
		if last != nil {
			_, _ = ev.Write(wire.AppendMessage(nil, last))
			_ = ev.Close()
			return
		}
		if _, err := ev.Write(s.encode(f)); err != nil {
			return
		}
		from = next
	}
}

// drain waits until the client has read what was written.
func drain(ev netio.SendStream) {
	p, ok := ev.(*pipeStream)
	for ok {
		p.out.mu.Lock()
		empty, changed := len(p.out.buf) == 0 || p.out.err != nil, p.out.changed
		p.out.mu.Unlock()
		if empty {
			<-time.After(time.Millisecond) // virtual: what was read is also used
			return
		}
		<-changed
	}
}

func (s *fakeStream) encode(f *eventFrame) []byte {
	var raw [][]byte
	for _, r := range f.records {
		raw = append(raw, []byte(r))
	}
	if f.json {
		return wire.AppendMessage(nil, &wire.EventBatch{TenantID: "t", Namespace: "n", Stream: "s", Payloads: raw, BaseOffset: &f.base})
	}
	shape := wire.FlagEvOffsets
	if s.b.noLog {
		shape = 0
	}
	if f.skipped != 0 {
		shape |= wire.FlagEvSkipped
	}
	shape |= s.flags & wire.FlagEvPublisher
	if !s.b.noLog {
		shape |= s.flags & wire.FlagEvTimes
	}
	h := wire.EventHeader{Base: f.base, Skipped: f.skipped, Publisher: "somebody", Count: uint32(len(raw))}
	records := wire.AppendSection(nil, raw...)[4:]
	if shape&wire.FlagEvTimes != 0 {
		records = wire.AppendTimedRecords(nil, records, 1_700_000_000_000_000)
	}
	publisher := 0
	if shape&wire.FlagEvPublisher != 0 {
		publisher = len(h.Publisher)
	}
	out := make([]byte, wire.EventHeaderSize(shape, publisher))
	wire.PutEventHeader(out, shape, &h, len(records))
	return append(out, records...)
}
