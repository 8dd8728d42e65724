// Hot path.

package client

import (
	"errors"

	"github.com/ringcast/ringcast/wire"
)

// outbox holds what one publisher has accepted for one shard and what the broker has not answered
// yet. It is a state machine without a goroutine, a clock or a stream: the publisher's mutex
// guards it, times are nanoseconds handed in, and tests step it by hand.
//
//	add -> open --seal--> queue --next--> flight --answered/refused--> done (results to deliver)
//	                        ^               |
//	                        +-- refused, and nothing applied; or lost, and repeatable
//
// Batches keep their order: queue and flight are sorted by number, and what comes back from flight
// goes to its old place. A refused batch of a plain publisher may still land behind the ones that
// were in flight with it; an idempotent one cannot, because the broker refuses those for their
// gap in the sequence. See sequence.go for that half.
type outbox struct {
	limits outboxLimits
	frame  wire.BinaryPublish // the parts that all frames share
	shard  uint32

	window int // most batches in flight on the stream as it is; 0 while there is none
	number uint64
	open   *batch
	queue  fifo
	flight fifo
	free   []*batch
	done   []settlement // settled and not yet delivered
	spare  []settlement // empty memory for done

	pushUpTo   uint64 // an open batch up to this number is sent without lingering (Flush)
	holdUntil  int64  // after a refusal nothing is sent before
	retry      backoff
	lastErr    error // newest refusal or loss, told when the delivery timeout runs out
	delivering int   // settlements that takeDone gave out and whose callbacks may still run

	seq sequencer
	sum OutboxStats
}

// outboxLimits is fixed when the publisher is made. Times are ns.
type outboxLimits struct {
	batchBytes   int // a frame that would grow beyond is sent as it is
	batchRecords uint32
	flight       int   // most batches in flight, whatever the broker grants
	linger       int64 // how long an open batch waits for company; 0 = only while it cannot be sent
	delivery     int64 // from the first record of a batch until it is given up while unsent; 0 = never
	answer       int64 // silence in flight after which the stream counts as broken
	acked        bool
	repeatable   bool // a batch of unknown outcome is sent again
	idempotent   bool // and the broker drops the second copy
}

// OutboxStats counts what went through one shard of a publisher.
type OutboxStats struct {
	Batches, Records uint64 // answered with success
	Resent           uint64 // batches sent again
	Failed           uint64 // records that failed
}

// settlement is the outcome of one batch.
type settlement struct {
	b   *batch
	ack Ack
	err error
}

const batchesFreeMax = 64

// add accepts one record, for which cost was taken from the budget. A batch that it opens is
// created at 0: the caller dates it, so that the clock is read per batch and not per record.
func (o *outbox) add(rec Record, cost int64, r result) {
	keyed := rec.Key != nil
	if b := o.open; b != nil && (b.keyed != keyed || b.count >= o.limits.batchRecords ||
		len(b.buf)+len(rec.Value)+recordOverhead > o.limits.batchBytes) {
		o.sealOpen()
	}
	if o.open == nil {
		o.open = o.newBatch()
		o.open.begin(&o.frame, rec.Key, keyed)
	}
	o.open.add(rec.Value, cost, r)
}

func (o *outbox) newBatch() *batch {
	var b *batch
	if n := len(o.free); n > 0 {
		b, o.free = o.free[n-1], o.free[:n-1]
	} else {
		b = &batch{}
	}
	o.number++
	b.number, b.holds = o.number, 1
	return b
}

func (o *outbox) sealOpen() {
	o.open.seal()
	o.queue.insert(o.open)
	o.open = nil
}

// ready says whether the sender has something to do for what waits: send it, as far as room goes,
// or get the stream that it is to be sent on. It is what decides to wake the sender.
func (o *outbox) ready() bool {
	if o.open == nil && o.queue.len() == 0 {
		return false
	}
	return o.window == 0 || o.flight.len() < o.window
}

// next takes the batch to send now. Without one it returns the time at which to ask again
// (0 = when something happens). The caller writes b.buf and then calls wrote.
func (o *outbox) next(now int64) (b *batch, wake int64) {
	if o.flight.len() >= o.window || o.seq.blocked {
		return nil, o.deadline()
	}
	if now < o.holdUntil {
		return nil, o.holdUntil
	}
	if o.queue.len() == 0 {
		if o.open == nil {
			return nil, o.deadline()
		}
		full := o.open.count >= o.limits.batchRecords || len(o.open.buf) >= o.limits.batchBytes
		if at := o.open.created + o.limits.linger; now < at && !full && o.open.number > o.pushUpTo {
			return nil, at
		}
		o.sealOpen()
	}
	b = o.queue.take(o.queue.front().number)
	if o.limits.idempotent {
		o.seq.assign(b)
	}
	b.stamp(o.limits.acked, o.seq.producer)
	if b.sent != 0 {
		o.sum.Resent++
	}
	b.sent = now
	b.holds++
	if o.limits.acked {
		o.flight.insert(b)
	}
	return b, 0
}

// wrote ends the write that next began. An unacked batch is settled by it.
func (o *outbox) wrote(b *batch, err error) {
	if !o.limits.acked {
		if err != nil {
			err = unknown(err)
		}
		o.settle(b, Ack{}, err)
	}
	o.drop(b)
}

// answered settles the batch of that request id with success.
func (o *outbox) answered(number uint64, offset uint64, hasOffset bool) error {
	b := o.flight.take(number)
	if b == nil {
		return errNotInFlight(number)
	}
	o.retry.reset()
	o.settle(b, Ack{Shard: o.shard, Offset: offset, HasOffset: hasOffset}, nil)
	return nil
}

// refused handles a refusal by its class.
func (o *outbox) refused(number uint64, e *wire.Error, now int64) error {
	b := o.flight.take(number)
	if b == nil {
		return errNotInFlight(number)
	}
	o.lastErr = e
	v := decide(e.Retry, o.limits.repeatable)
	if e.Code == wire.CodeNotFound {
		v = verdictFail // waiting for someone to create the stream is the caller's decision
	}
	if v == verdictFail {
		o.fail(b, e)
		return nil
	}
	if v == verdictRepeat {
		b.maybe = true
	}
	o.holdUntil = max(o.holdUntil, now+int64(o.retry.next(askedWait(e))))
	o.queue.insert(b)
	return nil
}

// lost is called when the stream is gone: nothing in flight will be answered any more.
func (o *outbox) lost(cause error) {
	o.window = 0
	if cause != nil {
		o.lastErr = cause
	}
	for o.flight.len() > 0 {
		b := o.flight.take(o.flight.front().number)
		b.maybe = true
		if o.limits.repeatable && !o.seq.renew {
			o.queue.insert(b)
		} else {
			o.fail(b, unknown(cause))
		}
	}
}

// expire gives up what waited longer than the delivery timeout and is not in flight. It returns
// errSilent when the oldest batch in flight has been without an answer for too long.
func (o *outbox) expire(now int64) error {
	if o.limits.delivery > 0 {
		if o.open != nil && now >= o.open.created+o.limits.delivery {
			o.sealOpen()
		}
		for b := o.queue.front(); b != nil && now >= b.created+o.limits.delivery; b = o.queue.front() {
			o.fail(o.queue.take(b.number), o.timeoutError())
		}
	}
	if b := o.flight.front(); b != nil && now >= b.sent+o.limits.answer {
		return errSilent
	}
	return nil
}

// deadline is when expire has to run next, 0 if never.
func (o *outbox) deadline() int64 {
	var at int64
	if b := o.flight.front(); b != nil {
		at = b.sent + o.limits.answer
	}
	if o.limits.delivery > 0 {
		oldest := o.queue.front()
		if oldest == nil {
			oldest = o.open
		}
		if oldest != nil && (at == 0 || oldest.created+o.limits.delivery < at) {
			at = oldest.created + o.limits.delivery
		}
	}
	return at
}

// failAll settles everything with err: the publisher ends.
func (o *outbox) failAll(err error) {
	o.window = 0
	if o.open != nil {
		o.sealOpen()
	}
	for o.flight.len() > 0 {
		b := o.flight.take(o.flight.front().number)
		b.maybe = true
		o.fail(b, err)
	}
	for o.queue.len() > 0 {
		o.fail(o.queue.take(o.queue.front().number), err)
	}
}

// fail settles b with err, as an unknown outcome if an earlier copy may have been applied.
func (o *outbox) fail(b *batch, err error) {
	if e, ok := errors.AsType[*wire.Error](err); b.maybe && (!ok || e.Retry != wire.RetryUnknown) {
		err = unknown(err)
	}
	if b.numbered {
		o.seq.broken() // the number is spent; what follows needs a new start
	}
	o.sum.Failed += uint64(b.count)
	o.settle(b, Ack{}, err)
}

func (o *outbox) settle(b *batch, ack Ack, err error) {
	if err == nil {
		o.sum.Batches++
		o.sum.Records += uint64(b.count)
	}
	o.done = append(o.done, settlement{b: b, ack: ack, err: err})
}

// takeDone hands out what was settled; delivered takes the list back.
func (o *outbox) takeDone() []settlement {
	if len(o.done) == 0 {
		return nil
	}
	list := o.done
	o.done, o.spare = o.spare, nil
	o.delivering += len(list)
	return list
}

// delivered ends what takeDone began: all results of list are known to whoever asked. It returns
// the bytes that the budget gets back.
func (o *outbox) delivered(list []settlement) (cost int64) {
	for _, s := range list {
		cost += s.b.cost
		o.drop(s.b)
	}
	o.delivering -= len(list)
	clear(list)
	if o.spare == nil {
		o.spare = list[:0]
	}
	return cost
}

// settledUpTo says whether every batch up to that number has its outcome, delivered.
func (o *outbox) settledUpTo(number uint64) bool {
	return o.oldest() > number && len(o.done) == 0 && o.delivering == 0
}

// empty says whether nothing waits for the sender or the broker.
func (o *outbox) empty() bool {
	return o.open == nil && o.queue.len() == 0 && o.flight.len() == 0
}

// setWindow opens the outbox on a new stream. granted is the broker's window, 0 if it names none.
func (o *outbox) setWindow(granted uint32) {
	o.window = o.limits.flight
	if granted > 0 && uint64(granted) < uint64(o.window) {
		o.window = int(granted)
	}
}

// reroute fails the keyed batches that were not sent: they were put together for another number
// of shards.
func (o *outbox) reroute(err error) {
	if o.open != nil {
		o.sealOpen()
	}
	for i := 0; i < o.queue.len(); {
		if b := o.queue.at(i); b.keyed {
			o.fail(o.queue.take(b.number), err)
		} else {
			i++
		}
	}
}

// push makes the open batch leave without lingering and returns the newest number given.
func (o *outbox) push() uint64 {
	o.pushUpTo = o.number
	return o.number
}

// drop gives back one hold on b: the write's or the delivery's.
func (o *outbox) drop(b *batch) {
	if b.holds--; b.holds > 0 {
		return
	}
	b.reset(2 * o.limits.batchBytes)
	if len(o.free) < batchesFreeMax {
		o.free = append(o.free, b)
	}
}

// oldest is the number of the oldest batch without an outcome, or the next number to be given.
func (o *outbox) oldest() uint64 {
	low := o.number + 1
	if o.open != nil {
		low = o.open.number
	}
	if b := o.queue.front(); b != nil {
		low = min(low, b.number)
	}
	if b := o.flight.front(); b != nil {
		low = min(low, b.number)
	}
	return low
}
