package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// receiver is the goroutine side of a subscription: it opens event streams, one after another,
// and fills the queue from them. Nothing of it is shared.
type receiver struct {
	sub     *Subscription
	client  *Client
	cursor  cursor
	offer   offer
	backoff backoff
	missing time.Time // since when the stream is not found; zero = it is
}

func newReceiver(s *Subscription) *receiver {
	r := &receiver{
		sub: s, client: s.client, cursor: cursor{start: s.cfg.start}, offer: offerBasic,
		backoff: newBackoff(s.client.cfg.backoffBase, s.client.cfg.backoffMax),
	}
	if s.cfg.times {
		r.offer.flags |= wire.FlagEvTimes
		r.offer.features |= wire.FeatureRecordTimestamps
	}
	if s.cfg.publisher {
		r.offer.flags |= wire.FlagEvPublisher
	}
	return r
}

// errHole: a frame does not follow the one before it. The subscription is opened again where the
// records are missing.
var errHole = errors.New("client: broker left out records")

// run fills the queue until the subscription ends; the last thing it pushes is the reason.
func (r *receiver) run(ctx context.Context, es *eventStream) {
	for {
		end := r.read(ctx, es)
		es.stop()
		next, err := r.after(ctx, end)
		if err != nil {
			if ctx.Err() != nil {
				err = ErrClosed
			}
			_ = r.sub.queue.push(ctx, received{failure: err, last: true}) // waits for nothing
			return
		}
		es = next
	}
}

// after turns the end of an event stream into the next one, or into the end of the subscription.
func (r *receiver) after(ctx context.Context, end error) (*eventStream, error) {
	log := r.client.cfg.log
	switch {
	case ctx.Err() != nil:
		return nil, ErrClosed
	case errors.Is(end, io.EOF), errors.Is(end, ErrStreamDeleted):
		return nil, end
	}
	if e, refused := errors.AsType[*wire.Error](end); refused && decide(e.Retry, true) == verdictFail {
		return nil, end
	}
	if _, gap := errors.AsType[*GapError](end); gap {
		return nil, end
	}
	if !r.cursor.known && !errors.Is(end, errLagged) {
		// Without offsets nobody can tell what was missed.
		gap := r.gap("interrupted", 0, 0, fmt.Errorf("%w: %w", ErrInterrupted, end))
		if err := r.tell(ctx, gap); err != nil {
			return nil, err
		}
		r.cursor.start = wire.Start{Kind: wire.StartLatest} // what it began with was delivered
	}
	log.Info("subscription resumes", "stream", r.sub.stream, "shard", r.sub.cfg.shard,
		"offset", r.cursor.next, "err", end)
	if r.cursor.moved {
		r.backoff.reset()
	}
	if err := sleep(ctx, r.backoff.next(askedWait(end))); err != nil {
		return nil, err
	}
	return r.open(ctx, false)
}

// open subscribes at the cursor, again and again until the broker grants it, refuses for good, or
// ctx ends.
func (r *receiver) open(ctx context.Context, first bool) (*eventStream, error) {
	for {
		es, err := r.attach(ctx)
		if err == nil {
			r.missing = time.Time{}
			return es, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		if gap, is := errors.AsType[*GapError](err); is {
			if err := r.tell(ctx, gap); err != nil {
				return nil, err
			}
			r.cursor.next, r.cursor.known = gap.Next, true
			continue
		}
		if r.final(err, first) {
			return nil, err
		}
		if err := sleep(ctx, r.backoff.next(askedWait(err))); err != nil {
			return nil, err
		}
	}
}

// final says whether a failed attempt ends the subscription.
func (r *receiver) final(err error, first bool) bool {
	if isNotFound(err) {
		if r.missing.IsZero() {
			r.missing = time.Now()
		}
		return first || time.Since(r.missing) > notFoundPatience
	}
	if _, dial := errors.AsType[*DialError](err); dial {
		return hopeless(err)
	}
	if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported || errors.Is(err, ErrClosed) {
		return true
	}
	if _, broken := errors.AsType[*ProtocolError](err); broken {
		return first
	}
	return decideError(err, true) == verdictFail && !lost(err)
}

// tell reports a gap to the reader, or returns it when it has to end the subscription.
func (r *receiver) tell(ctx context.Context, gap *GapError) error {
	if !r.sub.cfg.afterGap {
		return gap
	}
	return r.sub.queue.push(ctx, received{failure: gap})
}

func (r *receiver) gap(reason string, from, next uint64, err error) *GapError {
	return &GapError{Stream: r.sub.stream, Shard: r.sub.cfg.shard, From: from, Next: next, Reason: reason, Err: err}
}

// attach makes one attempt to subscribe.
func (r *receiver) attach(ctx context.Context) (*eventStream, error) {
	ss, err := r.client.session(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	st, err := ss.open(ctx, r.offer)
	if err != nil {
		return nil, err
	}
	stop := st.guard(ctx)
	granted := false
	defer func() {
		stop()
		if granted {
			st.io.CancelRead(netio.ResetNone) // its FIN is sent, and it owes nothing more
		} else {
			st.abort()
		}
	}()
	req, err := r.request(st.peer)
	if err != nil {
		return nil, err
	}
	failed := ss.greetFailed()
	if err := st.send(req); err != nil {
		return nil, ctxFirst(ctx, err)
	}
	if err := st.io.Close(); err != nil { // no more requests
		return nil, ctxFirst(ctx, err)
	}
	m, err := st.receive()
	if err != nil {
		return nil, ctxFirst(ctx, err)
	}
	switch m := m.(type) {
	case *wire.Subscribed:
		es, err := ss.claim(ctx, m.SubscriptionID, failed)
		if err != nil {
			return nil, err
		}
		granted = true
		es.frames.SetMax(wire.MaxFrameBytes)
		r.cursor.subscribed(m.StartOffset)
		return es, nil
	case *wire.SubscribeCursorError:
		return nil, r.gap(m.Reason.String(), m.Requested, m.Available, nil)
	}
	return nil, protocolError("answer to subscribe is "+m.Type(), nil)
}

func (r *receiver) request(p peer) (*wire.Subscribe, error) {
	cfg := r.sub.cfg
	m := &wire.Subscribe{TenantID: r.client.cfg.tenant, Namespace: cfg.namespace, Stream: r.sub.stream}
	if start := r.cursor.request(); start.Kind != wire.StartLatest {
		if p.flags&wire.FlagEvOffsets == 0 {
			// It would silently start at the tail (wire.md 3.3).
			return nil, &UnsupportedError{What: "subscribing at an offset"}
		}
		m.Start = &start
	}
	if cfg.shard != 0 {
		m.Shard = &cfg.shard
	}
	if cfg.queueCapacity != nil && p.features.Has(wire.FeatureSubscribeQueue) {
		m.QueueCapacity = cfg.queueCapacity
	}
	return m, nil
}

// stop tells the broker to end the subscription behind an event stream.
func (es *eventStream) stop() { es.io.CancelRead(netio.ResetNone) }

// read fills the queue from one event stream and returns why it ended: io.EOF for an orderly end,
// a last message's meaning, or what broke.
func (r *receiver) read(ctx context.Context, es *eventStream) error {
	defer context.AfterFunc(ctx, es.stop)()
	for {
		h, buf, err := es.frames.Next()
		if err != nil {
			return err
		}
		if h.Flags == 0 {
			err = r.message(ctx, es, buf.Bytes())
			buf.Release()
		} else {
			err = r.events(ctx, h.Flags, es, buf)
		}
		if err != nil {
			return err
		}
	}
}

// events takes over buf, a binary event batch.
func (r *receiver) events(ctx context.Context, flags wire.Flags, es *eventStream, buf *wire.Buf) error {
	item := received{buf: buf, bytes: int64(buf.Len())}
	err := flags.FromBroker(r.offer.flags)
	if err == nil {
		err = wire.DecodeEvents(flags, buf.Bytes(), &item.events)
	}
	if err != nil {
		buf.Release()
		return protocolError("event frame", err)
	}
	if flags&wire.FlagEventsShared == 0 && item.events.SubscriptionID != es.id {
		buf.Release()
		return protocolError("events of another subscription", nil)
	}
	return r.push(ctx, item)
}

// push puts a frame in the queue, or what is new of it. It takes over item.buf.
func (r *receiver) push(ctx context.Context, item received) error {
	e := &item.events
	var verdict frameVerdict
	verdict, item.skip = r.cursor.frame(e.Flags&wire.FlagEvOffsets != 0, e.Base, e.Skipped, e.Count)
	switch verdict {
	case frameSeen:
		item.buf.Release()
		return nil
	case frameBroken:
		item.buf.Release()
		return protocolError("event frame without usable offsets", nil)
	case frameHole:
		// Once may be an accident of the broker; when it happens again at the same place, the
		// records are not to be had.
		if r.cursor.holes++; r.cursor.holes == 1 {
			item.buf.Release()
			return errHole
		}
		if err := r.tell(ctx, r.gap("dropped", r.cursor.next, e.Base, nil)); err != nil {
			item.buf.Release()
			return err
		}
		r.cursor.resumeAt(e.Base)
		return r.push(ctx, item)
	}
	return r.sub.queue.push(ctx, item)
}

// message handles a JSON frame on an event stream: events in their old form, or the last message.
func (r *receiver) message(ctx context.Context, es *eventStream, payload []byte) error {
	m, err := wire.DecodeMessage(payload)
	if err != nil {
		return protocolError("unreadable message", err)
	}
	switch m := m.(type) {
	case *wire.Event:
		return r.push(ctx, r.convert(m.Offset, m.Payload))
	case *wire.EventBatch:
		return r.push(ctx, r.convert(m.BaseOffset, m.Payloads...))
	case *wire.SubscriptionLagged:
		r.cursor.lagged(m.ResumeFrom)
		return errLagged
	case *wire.ShardMoved:
		if m.ResumeFrom != nil {
			r.cursor.resumeAt(*m.ResumeFrom)
		}
		return errMoved
	case *wire.StreamDeleted:
		return ErrStreamDeleted
	case *wire.ErrorMessage:
		return m.Err()
	}
	return protocolError(m.Type()+" on an event stream", nil)
}

var (
	errLagged = errors.New("client: subscription fell behind")
	errMoved  = errors.New("client: shard moved")
)

// convert puts events of the JSON form into the binary one, in memory of their own.
func (r *receiver) convert(base *uint64, payloads ...[]byte) received {
	n := 0
	for _, p := range payloads {
		n += recordOverhead + len(p)
	}
	buf := r.client.pool.Get(n)
	records := buf.Bytes()[:0]
	for _, p := range payloads {
		records = wire.AppendRecord(records, p)
	}
	item := received{buf: buf, bytes: int64(n)}
	item.events = wire.BinaryEvents{Flags: wire.FlagEventsShared, Count: uint32(len(payloads)), Records: records}
	if base != nil {
		item.events.Flags |= wire.FlagEvOffsets
		item.events.Base = *base
	}
	return item
}
