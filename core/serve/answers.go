// Hot path.

package serve

import (
	"sync/atomic"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// answers holds the acked publishes of one stream from their acceptance to their answer. Three
// parties touch it:
//
//	reader    take: waits for room, fills a slot in, hands it to the broker as its Replier and Place
//	executor  Admitted: it is queued; Published: stores the outcome in the slot, pushes it to done
//	writer    collect: encodes outcomes; sweep: answers what took too long, withdraws what stood in
//	          line for too long
//
// On a pipelined stream answers leave in the order of the publishes: the reader notes each slot in
// a ring that the writer follows. Otherwise they leave as outcomes come.
//
// A publish that was answered `unacknowledged` keeps its slot until the broker reports the outcome
// after all: a slot that were used again before that would get the answer of another publish. So
// there are twice as many slots as may be unanswered; when all are held by such late outcomes, the
// reader stops until one comes back.
//
// Bounds: limit unanswered publishes, 2*limit slots, ackedParkedMax that stand in line. Nothing here allocates once the slots of the
// stream's usual depth exist.
type answers struct {
	// pipelined is set by auth, before the first publish; the writer is running by then.
	pipelined atomic.Bool
	limit     int32 // unanswered publishes; reader only once it takes slots
	count     *counters
	wake      chan struct{} // cap 1; wakes the writer
	clock     *sweepClock
	broker    *core.Broker

	// done and free carry slots: executors (and the reader, for refusals) to the writer, and the
	// writer back to the reader.
	done, free *sched.Inbox[*slot]

	// unanswered is raised by the reader, lowered by the writer once answers are written.
	unanswered atomic.Int32
	// parked is how many stand in line for room in a queue. Raised by the reader, lowered by whoever
	// ends their wait.
	parked atomic.Int32

	// chunks lists every slot. Extended by the reader; read by the writer's sweep.
	chunks atomic.Pointer[chunk]
	made   int32 // slots in chunks; reader only

	// order is the ring of a pipelined stream: slots in request order. Entries and tail are
	// written by the reader, head belongs to the writer. It holds limit slots, so it cannot
	// overflow.
	order []*slot
	tail  atomic.Uint64
	head  uint64
}

type chunk struct {
	slots [slotChunk]slot
	used  int32 // reader only, see made
	next  *chunk
}

// form is how the answer of a publish is encoded; it follows the request (wire.md 5.2).
type form uint8

const (
	formBinary form = iota
	formJSON
	formIdempotent
	formConditional
	formCommit
)

// pipelined says whether answers of this form keep the order of a pipelined stream (wire.md 6.3).
func (f form) pipelined() bool { return f <= formIdempotent }

// States of a slot. The reader moves it from free to taken, to parked if the publish stands in line, and
// whoever lets the publish into its queue to admitted; the writer moves it back to free.
const (
	slotFree     = uint64(iota)
	slotTaken    // accepted; the reader may still be waiting for bytes
	slotParked   // stands in line: the queue wait runs
	slotAdmitted // queued: the ack wait runs, from the tick above slotTickShift

	slotStates    = 3 // mask
	slotTickShift = 32
)

// slot is one acked publish. It is the core.Replier of its request, and the owner of its Place.
type slot struct {
	node  sched.Node[*slot]
	owner *answers

	// written by the reader while the slot is its own
	requestID uint64
	form      form
	taken     uint32 // tick when it was taken

	// state is one of the states, and the tick at which the publish was queued.
	state atomic.Uint64
	place core.Place

	// result is written by whoever completes the publish, before the push to done.
	result core.PublishResult

	// writer only
	ready    bool // the outcome is there, the answer is held back
	timedOut bool // to be answered unacknowledged
	sent     bool // answered before the outcome came
}

func (a *answers) init(limit int, count *counters, wake chan struct{}) {
	a.limit, a.count, a.wake = int32(limit), count, wake
	a.done = sched.NewInbox[*slot](a.wakeWriter)
	a.free = sched.NewInbox[*slot](nil)
}

func (a *answers) wakeWriter() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Published stores the outcome. It implements core.Replier: it does not block and does not write.
func (s *slot) Published(_ uint64, r core.PublishResult) {
	s.result = r
	s.owner.done.Push(&s.node)
}

// refuse completes a slot whose publish never reached the broker.
func (s *slot) refuse(e *wire.Error) { s.Published(0, core.PublishResult{Err: e}) }

// Park lets the publish stand in line, unless too many of its stream do. It implements core.PlaceOwner.
func (s *slot) Park() bool {
	a := s.owner
	if a.parked.Load() >= ackedParkedMax {
		return false
	}
	a.parked.Add(1)
	s.state.Store(slotParked)
	return true
}

// Admitted starts the ack wait. It implements core.PlaceOwner.
func (s *slot) Admitted() { s.admit(s.owner.clock.now()) }

func (s *slot) admit(tick uint32) {
	if s.state.Load() == slotParked {
		s.owner.parked.Add(-1)
	}
	s.state.Store(slotAdmitted | uint64(tick)<<slotTickShift)
}

// withdraw takes the publish out of the line that it stands in. Its outcome is in done then. It may have
// been let in meanwhile, or not stand there yet.
func (s *slot) withdraw(why core.Withdrawal) {
	if s.state.Load() == slotParked && s.owner.broker.Withdraw(&s.place, why) {
		s.owner.parked.Add(-1)
	}
}

// withdrawAll takes everything out of line: nobody is left to be answered. The reader and the writer
// have ended.
func (a *answers) withdrawAll() {
	for c := a.chunks.Load(); c != nil && a.parked.Load() > 0; c = c.next {
		for i := range c.slots {
			c.slots[i].withdraw(core.ClientGone)
		}
	}
}

// hasRoom says whether take will succeed. Reader only.
func (a *answers) hasRoom() bool {
	return a.unanswered.Load() < a.limit && (a.made < 2*a.limit || !a.free.Empty())
}

// pipeline grants a window: from now on answers keep the order of the publishes. Before the first
// take only.
func (a *answers) pipeline(window int) {
	a.limit = int32(window)
	a.order = make([]*slot, window)
	a.pipelined.Store(true)
}

// take returns a slot for one acked publish. hasRoom must have said so. Reader only.
func (a *answers) take(requestID uint64, f form, tick uint32) *slot {
	n, ok := a.free.Pop()
	var s *slot
	if ok {
		s = n.Value
	} else {
		s = a.newSlot()
	}
	s.requestID, s.form, s.taken = requestID, f, tick
	s.state.Store(slotTaken)
	a.unanswered.Add(1)
	if f.pipelined() && a.pipelined.Load() {
		t := a.tail.Load()
		a.order[t%uint64(len(a.order))] = s
		a.tail.Store(t + 1)
	}
	return s
}

func (a *answers) newSlot() *slot {
	c := a.chunks.Load()
	if c == nil || c.used == slotChunk {
		c = &chunk{next: c}
		for i := range c.slots {
			s := &c.slots[i]
			s.owner, s.place.Owner = a, s
			s.node.Value = s
		}
		a.chunks.Store(c)
	}
	s := &c.slots[c.used]
	c.used++
	a.made++
	return s
}

// encoder appends the answer of a publish to dst.
type encoder interface {
	appendAnswer(dst []byte, s *slot, r *core.PublishResult) []byte
}

// collect appends every answer that may leave now and returns how many. Writer only.
func (a *answers) collect(dst []byte, enc encoder) ([]byte, int32) {
	var answered int32
	pipelined := a.pipelined.Load()
	for {
		n, ok := a.done.Pop()
		if !ok {
			break
		}
		s := n.Value
		switch {
		case s.sent:
			a.count.lateOutcomes.Add(1)
			a.release(s)
		case pipelined && s.form.pipelined():
			s.ready = true
		default:
			dst = enc.appendAnswer(dst, s, &s.result)
			a.release(s)
			answered++
		}
	}
	if !pipelined {
		return dst, answered
	}
	for tail := a.tail.Load(); a.head != tail; a.head++ {
		s := a.order[a.head%uint64(len(a.order))]
		if s.ready {
			dst = enc.appendAnswer(dst, s, &s.result)
			a.release(s)
		} else if s.timedOut {
			dst = a.giveUp(dst, enc, s)
		} else {
			break
		}
		answered++
	}
	return dst, answered
}

// sweep marks what has been queued for ackTicks, and appends the answers of those where order does not
// hold them back; what has waited for room for queueTicks it withdraws, and collect follows. stuck says
// that something has gone unanswered for overdueTicks. Writer only.
func (a *answers) sweep(dst []byte, enc encoder, tick uint32, w waits) (_ []byte, answered int32, stuck bool) {
	pipelined := a.pipelined.Load()
	for c := a.chunks.Load(); c != nil; c = c.next {
		for i := range c.slots {
			s := &c.slots[i]
			state := s.state.Load()
			if state == slotFree || s.sent {
				continue
			}
			age := tick - s.taken
			stuck = stuck || age >= w.overdueTicks
			switch {
			case state == slotParked && age >= w.queueTicks:
				s.withdraw(core.WaitedTooLong)
			case state&slotStates != slotAdmitted || s.ready || s.timedOut || tick-uint32(state>>slotTickShift) < w.ackTicks:
			case pipelined && s.form.pipelined():
				s.timedOut = true // collect follows
			default:
				dst = a.giveUp(dst, enc, s)
				answered++
			}
		}
	}
	return dst, answered, stuck
}

// giveUp answers that the outcome is unknown. The slot stays with the broker.
func (a *answers) giveUp(dst []byte, enc encoder, s *slot) []byte {
	a.count.ackTimeouts.Add(1)
	s.sent = true
	return enc.appendAnswer(dst, s, &unacknowledged)
}

// written lowers the count of unanswered publishes.
func (a *answers) written(n int32) {
	if n != 0 {
		a.unanswered.Add(-n)
	}
}

// release gives a slot back to the reader. Writer only.
func (a *answers) release(s *slot) {
	s.ready, s.timedOut, s.sent = false, false, false
	s.result = core.PublishResult{}
	s.state.Store(slotFree)
	a.free.Push(&s.node)
}
