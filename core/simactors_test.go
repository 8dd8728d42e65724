package core

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/ringcast/ringcast/internal/sim"
	"github.com/ringcast/ringcast/wire"
)

// simPublisher is a client with one connection, that publishes to one shard.
type simPublisher struct {
	id         uint32
	shard      *simShard
	conn       *Account // nil where the process's budget says the same
	account    *Account
	idempotent bool
	// next is the number of its next batch. An idempotent one goes back when it is told to, or when one
	// failed.
	next uint32
}

// simGone is the context of a client that does not wait: what finds no room is refused.
var simGone = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (w *simWorld) newPublisher() *simPublisher {
	w.nextPub++
	conn := w.b.NewAccount()
	if n := len(w.publishers); n > 0 && w.c.One(3) {
		conn = w.publishers[n-1].conn // another identity on that connection
	}
	p := &simPublisher{
		id: w.nextPub, shard: sim.Pick(w.c, w.shards), conn: conn, account: w.b.NewIdentity(conn), idempotent: w.c.N(100) < w.plan.idempotent,
	}
	w.publishers = append(w.publishers, p)
	return p
}

// publish has somebody send some batches, one after the other.
func (w *simWorld) publish() {
	if len(w.shards) == 0 {
		return
	}
	if len(w.publishers) < w.plan.publishers || len(w.publishers) < 12 && w.c.One(20) {
		w.newPublisher()
	}
	p := sim.Pick(w.c, w.publishers)
	for range 1 + w.c.N(w.plan.burst) {
		w.send(p, w.nextBatch(p))
	}
}

// flood has several tenants fill the queues of memory shards at once, before anything is served: what
// their shares are is then seen in the order of the answers.
func (w *simWorld) flood() {
	var memory []*simPublisher
	for _, s := range w.shards {
		if s.model.Durable || s.stream.deleted {
			continue
		}
		w.nextPub++
		conn := w.b.NewAccount()
		memory = append(memory, &simPublisher{id: w.nextPub, shard: s, conn: conn, account: w.b.NewIdentity(conn)})
	}
	if len(memory) < 2 {
		return
	}
	for range 20 {
		if !w.run() {
			break
		}
	}
	w.publishers = append(w.publishers, memory...)
	for range w.c.Between(10, 120) {
		p := sim.Pick(w.c, memory[:w.c.Between(1, len(memory))])
		w.send(p, w.batches.Add(sim.Batch{
			BatchID: sim.BatchID{Publisher: p.id, Number: p.next}, Count: 1, Size: w.c.Between(1, 16<<10),
		}))
		p.next++
	}
}

// nextBatch is what p sends next: something new; or, of an idempotent one, something again, too early, or other
// records under an old number.
func (w *simWorld) nextBatch(p *simPublisher) *sim.Batch {
	id := sim.BatchID{Publisher: p.id, Number: p.next}
	if p.idempotent && p.next > 0 {
		switch w.c.N(12) {
		case 0, 1, 2:
			id.Number = p.next - 1 - uint32(w.c.N(min(int(p.next), 100)))
		case 3:
			id.Number += uint32(w.c.Between(1, 3))
		case 4:
			id.Number = p.next - 1
			id.Variant = 1
		}
	}
	if id.Number == p.next {
		p.next++
	}
	b := sim.Batch{BatchID: id, Count: w.c.Between(1, 4), Size: w.c.N(200), Hollow: w.c.One(8), Idempotent: p.idempotent}
	switch {
	case w.c.N(100) < w.plan.big:
		b.Count, b.Size = 1, w.c.N(24<<10)
	case w.c.One(200):
		b.Count, b.Size = 1, w.c.N(160<<10)
	case !p.idempotent && w.c.One(16):
		b.Count = 0
	}
	return w.batches.Add(b)
}

// send publishes a batch and says what the broker must say at once.
func (w *simWorld) send(p *simPublisher, b *sim.Batch) {
	s := p.shard
	r := w.request(p, b)
	kind := w.c.N(4)
	if !b.Idempotent && b.Count > 0 && !(w.plan.fair && !s.model.Durable) {
		r.Acked = kind != 0
		r.AckOnQueue = kind == 1
	}
	waits, onQueue := r.Acked && !r.AckOnQueue, r.AckOnQueue
	r.Tag = uint64(len(w.sent))
	if r.Acked {
		r.Reply = simReplier{w}
	}
	room := w.room(p, publishCost(r))
	failure := s.real.failure.Load()
	job := sim.Job{Lane: s.lane, Bytes: int(publishCost(r))}
	for i, name := range simTenants {
		if s.stream.def.Tenant == name {
			job.Tenant = i
		}
	}
	w.sent = append(w.sent, simSent{pub: p, shard: s, batch: b, waits: waits, onQueue: onQueue, job: job})
	place := &simPlace{w: w, tag: r.Tag, may: waits && !w.c.One(4)}
	place.Owner = place
	if waits {
		r.Place = &place.Place
	}
	err := w.b.Publish(simGone, r)
	w.trace.Add("publish", uint64(b.Publisher), uint64(b.Number), uint64(b.Count), r.Tag)
	if err == nil {
		if w.b.draining.Load() || s.stream.deleted || failure != nil || room == simNoBytes || room == simNoSlot && !place.asked {
			w.fail("batch %v was accepted: draining %t, deleted %t, failed %v, room %d", b.BatchID, w.b.draining.Load(), s.stream.deleted, failure, room)
		}
		if why := s.real.fence.Load(); why != nil {
			w.fail("batch %v was accepted by a fenced shard: %v", b.BatchID, why)
		}
		w.seen.Accepted++
		if place.asked {
			w.seen.Parked++
			w.parked = append(w.parked, place)
			return
		}
		if !waits {
			w.admit(r.Tag)
		}
		if onQueue {
			w.seen.OnQueue++
			if n := len(w.answers); n == 0 || w.answers[n-1].tag != r.Tag || w.answers[n-1].res != (PublishResult{}) {
				w.fail("batch %v was not acknowledged when it was queued", b.BatchID)
			}
			w.answers = w.answers[:len(w.answers)-1]
		}
		return
	}
	w.sent = w.sent[:len(w.sent)-1]
	w.refuse(p, b, r, err, room == simRoom, failure)
}

// refuse checks that a publish that was not accepted had to be refused so.
func (w *simWorld) refuse(p *simPublisher, b *sim.Batch, r *PublishRequest, err error, room bool, failure *wire.Error) {
	p.goBack(b)
	deleted, draining := p.shard.stream.deleted, w.b.draining.Load()
	e, fence := wire.AsError(err), p.shard.real.fence.Load()
	switch {
	case draining && errors.Is(err, wire.ErrDraining):
		w.seen.Draining++
	case deleted && errors.Is(err, wire.ErrNotFound):
		w.seen.NotFound++
	case fence != nil && errors.Is(err, wire.ErrUnavailable):
		w.seen.FencedAtOnce++
	case failure != nil && errors.Is(err, wire.ErrStorage) && e.Retry != wire.RetryUnknown:
		w.seen.FailedShard++
	case !draining && !deleted && failure == nil && fence == nil && !room && errors.Is(err, wire.ErrOverloaded):
		switch {
		case r.AckOnQueue:
			w.seen.QueueFull++
			w.counted(p.shard, queueFullRefused)
		case r.Acked:
			w.seen.QueueFull++
			w.counted(p.shard, queueFullWithdrawn) // it did not wait
		default:
			w.seen.QueueFullDropped++
			w.counted(p.shard, queueFullDropped)
		}
	default:
		w.fail("batch %v was refused: %v; draining %t, deleted %t, failed %v, room %t", b.BatchID, err, draining, deleted, failure, room)
	}
}

// request is b as it would lie in a frame.
func (w *simWorld) request(p *simPublisher, b *sim.Batch) *PublishRequest {
	const prefix = 30
	section := binary.BigEndian.AppendUint32(w.section[:0], uint32(b.Count))
	payload := 0
	for k := range b.Count {
		at := len(section) + 4
		section = b.AppendRecord(append(section, 0, 0, 0, 0), k)
		binary.BigEndian.PutUint32(section[at-4:], uint32(len(section)-at))
		payload += len(section) - at
	}
	w.section = section
	buf := w.b.opts.Pool.Get(prefix + len(section))
	copy(buf.Bytes()[prefix:], section)
	r := &PublishRequest{
		Stream: p.shard.stream.st, Shard: p.shard.real.num, Buf: buf, Pos: prefix, SectionLen: len(section),
		Count: uint32(b.Count), PayloadBytes: payload, Account: p.account, Acked: true,
		Idempotent: b.Idempotent, ProducerID: uint64(b.Publisher), Sequence: uint64(b.Number),
	}
	if p.id%3 == 0 {
		r.Publisher = "somebody"
	}
	return r
}

// goBack has an idempotent publisher send again what failed.
func (p *simPublisher) goBack(b *sim.Batch) {
	if p.idempotent && b.Variant == 0 {
		p.next = min(p.next, b.Number)
	}
}

type simReplier struct{ w *simWorld }

func (r simReplier) Published(tag uint64, res PublishResult) {
	r.w.answers = append(r.w.answers, simAnswer{tag, res})
}

// answered tells the model an answer, and the publisher.
func (w *simWorld) answered(got simAnswer) {
	s := w.sent[got.tag]
	r, b := got.res, s.batch
	if s.attempt == nil {
		w.fail("batch %v stands in line and was answered %+v", b.BatchID, r)
	}
	a := sim.Answer{Offset: r.Offset, HasOffset: r.HasOffset}
	code := uint64(0)
	switch {
	case r.Refused != nil:
		w.refused++
		a.Refused, a.Expected = w.verdict(r.Refused), r.Refused.Expected
		switch a.Refused {
		case sim.RefusedGap:
			s.pub.next = min(s.pub.next, uint32(a.Expected))
		case sim.RefusedUnknownProducer:
			s.pub.next = 0
		}
		code = 1000 + uint64(a.Refused)
	case r.Err != nil:
		w.failed++
		a.Err, a.Unknown = r.Err.Error(), r.Err.Retry == wire.RetryUnknown
		code = uint64(r.Err.Code)
		switch {
		case a.Unknown:
			w.seen.Unknown++
		case errors.Is(r.Err, errDiskFull):
			w.seen.DiskFull++
		case errors.Is(r.Err, wire.ErrUnavailable):
			w.seen.FencedLater++
			if s.shard.real.fence.Load() == nil {
				w.fail("batch %v was refused, and its shard is not fenced: %v", b.BatchID, r.Err)
			}
		default:
			w.seen.Failed++
		}
		s.pub.goBack(b)
	case b.Idempotent && b.Number+1 < s.pub.next:
		w.seen.Duplicates++ // or a late one
		fallthrough
	default:
		w.seen.Acked++
	}
	w.trace.Add("answer", got.tag, code, r.Offset)
	w.must(s.shard.model.Answer(s.attempt, a, s.shard.broken || s.shard.real.failure.Load() != nil))
}

func (w *simWorld) verdict(r *Refusal) sim.Refusal {
	switch r.Kind {
	case RefusedGap:
		w.seen.Gaps++
		return sim.RefusedGap
	case RefusedUnknownProducer:
		w.seen.UnknownProducers++
		return sim.RefusedUnknownProducer
	case RefusedExpired:
		w.seen.Expired++
		return sim.RefusedExpired
	case RefusedReused:
		w.seen.Reused++
		return sim.RefusedReused
	}
	w.fail("refused: %v", r)
	return 0
}
