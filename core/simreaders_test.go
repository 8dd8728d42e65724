package core

import (
	"context"
	"errors"

	"github.com/ringcast/ringcast/internal/sim"
	"github.com/ringcast/ringcast/wire"
)

// simSink decodes frames and gives every record to a function.
type simSink struct {
	give func(offset uint64, hasOffset bool, record []byte) error
	all  []byte
}

func (s *simSink) WriteFrames(frames [][]byte) error {
	all := s.all[:0]
	for _, f := range frames {
		all = append(all, f...)
	}
	s.all = all
	for len(all) > 0 {
		h, err := wire.ParseHeader(all)
		if err != nil {
			return err
		}
		payload := all[wire.HeaderSize : wire.HeaderSize+int(h.Length)]
		all = all[wire.HeaderSize+int(h.Length):]
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(h.Flags, payload, &e); err != nil {
			return err
		}
		for off := e.Base; ; off++ {
			rec, _, ok := e.Next()
			if !ok {
				break
			}
			if err := s.give(off, h.Flags&wire.FlagEvOffsets != 0, rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// simReader is a client that reads one shard, when the seed says.
type simReader struct {
	shard *simShard
	sub   *Subscription
	d     *delivery
	model *sim.Reader
	// gone: its sink fails from now on. closed: it was told to end.
	gone, closed bool
}

var errSimGone = errors.New("the reader has gone")

func (w *simWorld) subscribe() {
	if len(w.shards) == 0 || len(w.readers) >= 8 {
		return
	}
	s := sim.Pick(w.c, w.shards)
	tail := s.model.Tail()
	req := &SubscribeRequest{
		Stream: s.stream.st, Shard: s.real.num, Start: latest, Lagged: w.c.One(2),
		Shape: wire.FlagEvOffsets | []wire.Flags{0, wire.FlagEvTimes, wire.FlagEvPublisher, wire.FlagEvSkipped}[w.c.N(4)],
	}
	want := tail
	switch kind := w.c.N(3); {
	case kind == 0:
		req.Start, want = earliest, 0
	case kind == 1 && s.model.Durable:
		want = uint64(w.c.N(int(tail) + 1))
		req.Start = at(want)
	}
	if w.c.One(2) {
		req.QueueCapacity = new(uint32(w.c.Between(1, 4)))
	}
	late := s.model.Uncertain()
	sub, err := w.b.Subscribe(context.Background(), req)
	w.trace.Add("subscribe", s.stream.st.id, uint64(s.real.num), want, tail)
	switch {
	case w.off:
		if err == nil {
			sub.Close()
		}
		return
	case err != nil:
		if !(s.stream.deleted && errors.Is(err, wire.ErrNotFound)) && !(s.real.fence.Load() != nil && errors.Is(err, wire.ErrUnavailable)) {
			w.fail("subscribe to %s at %+v, tail %d: %v", s.model.Name, req.Start, tail, err)
		}
		return
	}
	w.seen.Readers++
	if late == s.model.Uncertain() && (sub.start < want || sub.start > s.model.Tail() || s.model.Durable && req.Start != latest && sub.start != want) {
		w.fail("subscribe to %s at %+v, tail %d: starts at %d", s.model.Name, req.Start, tail, sub.start)
	}
	r := &simReader{shard: s, sub: sub, model: sim.NewReader(s.model, sub.start, !req.Lagged || !s.model.Durable, late)}
	r.d, _ = sub.deliver(&simSink{give: func(offset uint64, hasOffset bool, record []byte) error {
		if r.gone {
			return errSimGone
		}
		if !w.off {
			w.must(r.model.Given(offset, hasOffset, record))
		}
		return nil
	}})
	w.readers = append(w.readers, r)
}

// readOn lets a reader take what there is for it, once, and says whether there was anything.
func (w *simWorld) readOn(r *simReader) bool {
	if !w.calm && w.c.One(4) {
		w.background() // while it is written to
	}
	before := r.model.Next()
	wasLive := r.d.live
	worked, end, err := r.d.step(context.Background())
	w.trace.Add("read", r.shard.stream.st.id, uint64(r.shard.real.num), r.model.Next())
	if !wasLive {
		w.seen.History += int(r.model.Next() - before)
	}
	if end.Cause == 0 {
		return worked
	}
	r.sub.Close()
	w.dropReader(r)
	if w.off {
		return true
	}
	s := r.shard
	ok := false
	switch end.Cause {
	case EndSink:
		ok = r.gone || r.closed
	case EndLagged:
		w.seen.Lagged++
		w.must(r.model.Lagged(end.ResumeFrom))
		ok = true
	case EndDeleted:
		ok = s.stream.deleted
	case EndStopped:
		ok = w.b.draining.Load()
	case EndStorage:
		ok = s.stream.deleted
	}
	if !ok {
		w.fail("a reader of %s ended with %+v: %v", s.model.Name, end, err)
	}
	return true
}

func (w *simWorld) dropReader(r *simReader) {
	w.seen.DroppedRecords += int(r.sub.sub.Dropped())
	for i := range w.readers {
		if w.readers[i] == r {
			w.readers = append(w.readers[:i], w.readers[i+1:]...)
			return
		}
	}
}

// leave ends a reader: it closes, or its sink fails.
func (w *simWorld) leave(r *simReader) {
	if w.c.One(2) {
		r.gone = true
		w.seen.FailedSinks++
		return
	}
	r.closed = true
	r.sub.Close()
	for i := 0; ; i++ {
		n := len(w.readers)
		w.readOn(r)
		if len(w.readers) < n {
			return
		}
		if i > 100 {
			w.fail("a closed reader does not end")
		}
	}
}
