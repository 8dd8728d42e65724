package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// sender carries the outbox of one shard to the broker over a stream of its own, so that a shard
// that stands still does not hold up the others. Two goroutines: run writes, and while it has a
// stream, receive reads the answers.
type sender struct {
	p    *Publisher
	box  outbox        // guarded by p.mu
	wake chan struct{} // one token: look at the box again

	asleep    bool     // run waits for wake; guarded by p.mu
	learned   *session // the session on which the shard count was asked last; run's own
	rechecked bool     // the count was asked again after a first answer; run's own
	deadline  int64    // ns, of writes on the stream; run's own
}

func newSender(p *Publisher, shard uint32) *sender {
	l := p.cfg.limits
	s := &sender{p: p, wake: make(chan struct{}, 1)}
	f := wire.BinaryPublish{
		Flags: wire.FlagPublish, AckMode: wire.AckPerBatch,
		Tenant: []byte(p.client.cfg.tenant), Namespace: []byte(p.cfg.namespace), Stream: []byte(p.stream),
	}
	if l.acked {
		f.Flags |= wire.FlagAcked
	}
	if l.idempotent {
		f.Flags |= wire.FlagIdempotent
	}
	s.box = outbox{
		limits: l, frame: f, shard: shard,
		retry: newBackoff(p.client.cfg.backoffBase, p.client.cfg.backoffMax),
		seq:   sequencer{blocked: l.idempotent},
	}
	return s
}

// run serves the outbox until ctx ends or the publisher is closed and everything is said.
func (s *sender) run(ctx context.Context) {
	again := newBackoff(s.p.client.cfg.backoffBase, s.p.client.cfg.backoffMax)
	for s.awaitWork(ctx) {
		st, err := s.attach(ctx)
		attached := err == nil
		if attached {
			before := s.records()
			err = s.pump(ctx, st)
			if s.records() != before {
				again.reset()
			}
		}
		if errors.Is(err, errFinished) {
			return
		}
		if ctx.Err() != nil {
			break
		}
		s.lose(err, attached)
		s.rest(ctx, again.next(askedWait(err)))
	}
	s.p.mu.Lock()
	if s.p.ended == nil {
		s.p.ended = ErrClosed // whatever is accepted from here on would have no sender
	}
	s.box.failAll(ErrClosed)
	list := s.box.takeDone()
	s.p.mu.Unlock()
	s.p.deliver(s, list)
}

// errFinished: the publisher is closed and the stream ended in order.
var errFinished = errors.New("client: publish stream finished")

// records counts the outcomes so far.
func (s *sender) records() uint64 {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.box.sum.Records
}

// awaitWork waits until there is something to send. It reports false when there never will be.
func (s *sender) awaitWork(ctx context.Context) bool {
	for {
		s.p.mu.Lock()
		empty, finish := s.box.empty(), s.p.finish
		s.asleep = empty && !finish
		s.p.mu.Unlock()
		if !empty {
			return ctx.Err() == nil
		}
		if finish {
			return false
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// lose tells the outbox that its stream is gone, or could not be had. A stream that worked is
// worth another try whatever ended it, unless the broker said that it is not.
func (s *sender) lose(err error, attached bool) {
	_, refused := errors.AsType[*wire.Error](err)
	s.p.mu.Lock()
	if hopeless(err) && (refused || !attached) {
		s.box.failAll(err)
	} else {
		s.box.lost(err)
		_ = s.box.expire(s.p.now()) // in flight is nothing now
	}
	list := s.box.takeDone()
	s.p.mu.Unlock()
	s.p.deliver(s, list)
}

// rest waits between attempts, at most until something runs out.
func (s *sender) rest(ctx context.Context, wait time.Duration) {
	s.p.mu.Lock()
	if at := s.box.deadline(); at > 0 {
		wait = min(wait, max(0, time.Duration(at-s.p.now())))
	}
	s.p.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// attach opens a publish stream. What waits in the outbox bounds how long that may take.
func (s *sender) attach(ctx context.Context) (*stream, error) {
	s.p.mu.Lock()
	limit := answerTimeout
	if at := s.box.deadline(); at > 0 {
		limit = min(limit, max(time.Millisecond, time.Duration(at-s.p.now())))
	}
	s.p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	ss, err := s.p.client.session(ctx)
	if err != nil {
		return nil, err
	}
	if s.learned != ss {
		if err := s.p.relearn(ctx); err != nil {
			return nil, err
		}
		s.learned = ss
	}
	o := offerBasic
	o.features |= wire.FeaturePublishPipeline
	if !s.p.cfg.queuedAcks {
		o.features |= wire.FeatureAckOnCommit
	}
	st, err := ss.open(ctx, o)
	if err != nil {
		return nil, err
	}
	if s.named() && !st.peer.features.Has(wire.FeatureExplicitShard) {
		st.abort() // it would not look at the shard that is named
		return nil, errNamedShard
	}
	s.deadline = 0
	s.p.mu.Lock()
	s.box.setWindow(st.peer.window)
	s.p.mu.Unlock()
	return st, nil
}

// pump writes what the outbox releases until the stream ends.
func (s *sender) pump(ctx context.Context, st *stream) error {
	answers := make(chan error, 1)
	go func() { answers <- s.receive(st) }() // joined below
	stop := st.guard(ctx)
	ended := false // receive has returned
	defer func() {
		stop()
		st.abort()
		if !ended {
			<-answers
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		turn := s.turn()
		s.p.deliver(s, turn.done)
		switch {
		case turn.err != nil:
			return turn.err
		case turn.producer:
			if err := s.initProducer(ctx); err != nil {
				return err
			}
			continue
		case turn.relearn:
			s.rechecked = true
			if err := s.p.relearn(ctx); err != nil {
				return err
			}
			continue
		case turn.batch != nil:
			err := s.write(st, turn.batch)
			s.p.mu.Lock()
			s.box.wrote(turn.batch, err)
			list := s.box.takeDone()
			s.p.mu.Unlock()
			s.p.deliver(s, list)
			if err != nil {
				return ctxFirst(ctx, err)
			}
			continue
		case turn.finish:
			// The broker answers our FIN with its own once it has read everything (HZ-34).
			if err := st.io.Close(); err != nil {
				return err
			}
			timer.Reset(closeTimeout)
			select {
			case <-answers:
				ended = true
			case <-timer.C:
			case <-ctx.Done():
			}
			return errFinished
		}
		var expired <-chan time.Time
		if turn.wake > 0 {
			timer.Reset(max(0, time.Duration(turn.wake-s.p.now())))
			expired = timer.C
		}
		select {
		case <-s.wake:
		case <-expired:
		case err := <-answers:
			ended = true
			return ctxFirst(ctx, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// turn is what run has to do next.
type turn struct {
	batch    *batch
	done     []settlement
	producer bool  // ask for a producer id
	relearn  bool  // ask for the number of shards
	finish   bool  // end the stream
	wake     int64 // nothing to do before this time; 0 = before a wake
	err      error
}

func (s *sender) turn() (t turn) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	now := s.p.now()
	t.err = s.box.expire(now)
	if t.err == nil {
		if s.box.needsProducer() {
			if t.producer = now >= s.box.holdUntil; !t.producer {
				t.wake = s.box.holdUntil
			}
		} else if s.p.width == 0 && s.box.sum.Batches > 0 && !s.rechecked {
			t.relearn = true // the stream did not exist; the first record made it
		} else {
			t.batch, t.wake = s.box.next(now)
		}
	}
	t.done = s.box.takeDone()
	t.finish = s.p.finish && s.box.empty()
	s.asleep = t.err == nil && t.batch == nil && !t.producer && !t.relearn && !t.finish
	return t
}

// write sends one batch, in the form that the broker reads.
func (s *sender) write(st *stream, b *batch) error {
	if now := s.p.now(); now > s.deadline-int64(answerTimeout)/2 {
		// A write blocked by flow control ends with the deadline (HZ-33). Moved rarely: it
		// costs as much as a small write.
		s.deadline = now + int64(answerTimeout)
		if err := st.io.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
	}
	h, err := wire.ParseHeader(b.buf)
	if err != nil {
		return err
	}
	if missing := (h.Flags &^ wire.FlagPublish) &^ st.peer.flags; missing != 0 || s.named() {
		return s.writeJSON(st, b)
	}
	_, err = st.io.Write(b.buf)
	return err
}

// named says whether the shard must be named, which binary publishes cannot. Records without a key go to
// shard 0.
func (s *sender) named() bool { return s.p.cfg.shard != nil && s.box.shard != 0 }

// writeJSON sends one batch to a broker that does not read its binary form (wire.md 3.3), or names its shard.
func (s *sender) writeJSON(st *stream, b *batch) error {
	var p wire.BinaryPublish
	h, err := wire.ParseHeader(b.buf)
	if err != nil {
		return err
	}
	if err := wire.DecodePublish(h.Flags, b.buf[wire.HeaderSize:], &p); err != nil {
		return err
	}
	payloads := make([][]byte, 0, p.Count)
	for rec, rest, ok := wire.NextRecord(b.records()); ok; rec, rest, ok = wire.NextRecord(rest) {
		payloads = append(payloads, rec)
	}
	var key []byte
	if p.HasKey {
		key = p.Key
	}
	var shard *uint32
	if s.named() {
		shard = &s.box.shard // does not change
	}
	if s.box.limits.idempotent { // limits do not change
		return st.send(&wire.PublishIdempotent{
			TenantID: string(p.Tenant), Namespace: string(p.Namespace), Stream: string(p.Stream),
			Payloads: payloads, Key: key, Shard: shard, RequestID: p.RequestID, ProducerID: p.ProducerID, Sequence: p.Sequence,
		})
	}
	m := &wire.PublishBatch{
		TenantID: string(p.Tenant), Namespace: string(p.Namespace), Stream: string(p.Stream),
		Payloads: payloads, Key: key, Shard: shard, Ack: wire.AckNone,
	}
	if s.box.limits.acked {
		m.Ack, m.RequestID = wire.AckPerBatch, &p.RequestID
	}
	return st.send(m)
}

// initProducer asks for a producer id; the stream it is asked on does not matter.
func (s *sender) initProducer(ctx context.Context) error {
	ss, err := s.p.client.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, _, err := ss.call(ctx, &wire.ProducerInit{RequestID: 1})
	if err != nil {
		return err
	}
	ok, is := m.(*wire.ProducerInitOK)
	if !is {
		return protocolError("answer to producer_init is "+m.Type(), nil)
	}
	s.p.mu.Lock()
	s.box.setProducer(ok.ProducerID)
	list := s.box.takeDone()
	s.p.mu.Unlock()
	s.p.deliver(s, list)
	return nil
}

// receive reads the answers of one stream until it ends.
func (s *sender) receive(st *stream) error {
	for {
		h, buf, err := st.frames.Next()
		if err != nil {
			return err
		}
		err = s.answer(st, h, buf.Bytes())
		buf.Release()
		if err != nil {
			return err
		}
	}
}

// answer handles one frame: the answer to a publish, or the end of the stream.
func (s *sender) answer(st *stream, h wire.Header, payload []byte) error {
	if err := h.Flags.FromBroker(st.offer.flags); err != nil {
		return protocolError("frame flags", err)
	}
	if h.Flags&wire.FlagAck != 0 {
		a, err := wire.DecodeAck(h.Flags, payload)
		if err != nil {
			return protocolError("publish ack", err)
		}
		if a.Err != nil {
			return s.settle(func(now int64) error { return s.box.refused(a.RequestID, a.Err, now) })
		}
		return s.acked(a.RequestID, a.Offset, a.HasOffset)
	}
	if h.Flags != 0 {
		return protocolError(fmt.Sprintf("frame %#04x on a publish stream", uint16(h.Flags)), nil)
	}
	m, err := wire.DecodeMessage(payload)
	if err != nil {
		return protocolError("unreadable message", err)
	}
	switch m := m.(type) {
	case *wire.PublishOK:
		if m.Offset == nil {
			return s.acked(m.RequestID, 0, false)
		}
		return s.acked(m.RequestID, *m.Offset, true)
	case *wire.PublishError:
		return s.settle(func(now int64) error { return s.box.refused(m.RequestID, m.Err(), now) })
	case *wire.PublishRefused:
		return s.settle(func(now int64) error { return s.box.refusedSequence(m, now) })
	case *wire.ErrorMessage:
		return m.Err() // it answers nothing that we sent: the stream is over
	}
	return protocolError(m.Type()+" on a publish stream", nil)
}

// acked is the usual answer.
func (s *sender) acked(number, offset uint64, hasOffset bool) error {
	s.p.mu.Lock()
	err := s.box.answered(number, offset, hasOffset)
	list := s.box.takeDone()
	s.wakeIfReady()
	s.p.mu.Unlock()
	s.p.deliver(s, list)
	return err
}

// settle is every other one.
func (s *sender) settle(step func(now int64) error) error {
	s.p.mu.Lock()
	err := step(s.p.now())
	list := s.box.takeDone()
	s.p.wakeLocked(s) // to learn how long to wait
	s.p.mu.Unlock()
	s.p.deliver(s, list)
	return err
}

// wakeIfReady wakes run when an answer made room; the mutex is held.
func (s *sender) wakeIfReady() {
	if s.asleep && (s.box.ready() || s.box.needsProducer() || s.p.finish) {
		s.p.wakeLocked(s)
	}
}
