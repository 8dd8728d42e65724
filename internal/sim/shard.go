package sim

import "fmt"

// Shard is the naive model of one shard: a slice of the records that can be read, and the publishes that
// were accepted and have no outcome yet, in the order in which they were.
type Shard struct {
	// Name is for messages.
	Name string
	// Durable: it has a log, and answers carry offsets. OnCommit: what can be read survives a power cut.
	Durable, OnCommit bool

	batches *Batches
	log     []place
	queue   []*Attempt
	open    *Batch // the batch whose records are being told
	changed bool   // something was told since EndStep

	// next is the sequence that continues each producer in log, before what it was at the last EndStep.
	next, before map[uint32]uint32
	// high is one more than the highest sequence accepted of each since the start: what was claimed and void has
	// pushed older batches out of the broker's memory, and they do not come back before a restart.
	high map[uint32]uint32
	// failed: the log takes nothing more until the next restart.
	failed bool
	// Vanished counts publishes that nobody waited for and that came to nothing, since NewShard.
	Vanished int
	// VanishedOnQueue are those of them that were acknowledged when they were queued.
	VanishedOnQueue int
}

// place is one record: record k of a batch.
type place struct {
	batch *Batch
	k     int
}

// Attempt is one accepted publish.
type Attempt struct {
	Batch *Batch
	// Waits: there will be an answer. OnQueue: there was one when it was accepted.
	Waits, OnQueue bool

	written  bool // its batch became readable by it
	passed   bool // a later one became readable: it will not
	answered bool
	unknown  bool // the answer, if any, left open what becomes of it
}

// Refusal says why an idempotent publish was not applied.
type Refusal uint8

// The refusals of idempotent publishes.
const (
	RefusedNot Refusal = iota
	RefusedGap
	RefusedUnknownProducer
	RefusedExpired
	RefusedReused
)

// Answer is what a publisher is told.
type Answer struct {
	Offset    uint64
	HasOffset bool
	// Err is the error's text, "" for none. Unknown: it does not say what became of the publish.
	Err     string
	Unknown bool

	Refused  Refusal
	Expected uint64 // with RefusedGap
}

// NewShard returns an empty shard.
func NewShard(name string, batches *Batches, durable, onCommit bool) *Shard {
	return &Shard{
		Name: name, Durable: durable, OnCommit: onCommit, batches: batches,
		next: map[uint32]uint32{}, before: map[uint32]uint32{}, high: map[uint32]uint32{},
	}
}

// Tail is how many records can be read.
func (s *Shard) Tail() uint64 { return uint64(len(s.log)) }

// Uncertain: the log failed, and it does not sync each commit. Records may have become readable and been taken
// back in one step, which nobody saw but who was given or told them.
func (s *Shard) Uncertain() bool { return s.failed && s.Durable && !s.OnCommit }

// Waiting is how many accepted publishes have no outcome yet.
func (s *Shard) Waiting() int { return len(s.queue) }

// Accept notes that the broker took a publish.
func (s *Shard) Accept(b *Batch, waits, onQueue bool) *Attempt {
	a := &Attempt{Batch: b, Waits: waits, OnQueue: onQueue}
	s.queue = append(s.queue, a)
	if b.Idempotent {
		s.high[b.Publisher] = max(s.high[b.Publisher], b.Number+1)
	}
	return a
}

// Readable notes that the next record can be read. It must belong to a batch that was accepted after
// everything that became readable before, that is not there yet, and that was not answered with a
// failure; a batch becomes readable whole and, of an idempotent producer, in the order of its sequence.
func (s *Shard) Readable(payload []byte) error { return s.readable(payload, false) }

func (s *Shard) readable(payload []byte, recovering bool) error {
	s.changed = true
	at := len(s.log)
	if s.open == nil {
		b := s.batches.find(payload)
		switch {
		case b == nil:
			return s.wrong("record %d (%d bytes) was published by nobody", at, len(payload))
		case b.at >= 0:
			return s.wrong("batch %v is there twice, at %d and at %d", b.BatchID, b.at, at)
		}
		i := s.claimant(b, recovering)
		if i < 0 {
			return s.wrong("batch %v became readable at %d: it was overtaken, refused or never accepted", b.BatchID, at)
		}
		for _, a := range s.queue[:i] {
			a.passed = true
		}
		s.queue[i].written = true
		if b.Idempotent {
			if want := s.next[b.Publisher]; b.Number != want {
				return s.wrong("batch %v of an idempotent producer is at %d, sequence %d was to come", b.BatchID, at, want)
			}
			s.next[b.Publisher]++
		}
		b.at, s.open = at, b
	}
	k := at - s.open.at
	if !s.batches.is(s.open, k, payload) {
		return s.wrong("record %d is not record %d of batch %v", at, k, s.open.BatchID)
	}
	s.log = append(s.log, place{s.open, k})
	if k+1 == s.open.Count {
		s.open = nil
	}
	return nil
}

// claimant is the first accepted publish by which b may become readable.
func (s *Shard) claimant(b *Batch, recovering bool) int {
	for i, a := range s.queue {
		if a.Batch == b && !a.passed && (!a.answered || a.unknown && recovering) {
			return i
		}
	}
	return -1
}

// Answer notes an answer. mayFail says whether the log has failed for good, or was reset: only then
// an answer may leave the outcome open.
func (s *Shard) Answer(a *Attempt, r Answer, mayFail bool) error {
	s.changed = true
	b := a.Batch
	if !a.Waits || a.answered {
		return s.wrong("batch %v was answered twice", b.BatchID)
	}
	a.answered = true
	switch {
	case r.Refused != RefusedNot:
		return s.refused(a, r)
	case r.Err != "" && r.Unknown:
		a.unknown = true
		if !mayFail {
			return s.wrong("batch %v: outcome unknown without a failed log: %s", b.BatchID, r.Err)
		}
	case r.Err != "":
		if a.written {
			return s.wrong("batch %v is at %d and was answered %s", b.BatchID, b.at, r.Err)
		}
	default:
		return s.succeeded(a, r)
	}
	return nil
}

// succeeded checks an acknowledgement: the batch can be read, at the offset of the answer, and everything
// accepted before it has its answer.
func (s *Shard) succeeded(a *Attempt, r Answer) error {
	b := a.Batch
	if r.HasOffset != (s.Durable && b.Count > 0) {
		return s.wrong("batch %v was acknowledged with %+v", b.BatchID, r)
	}
	for _, other := range s.queue {
		if other == a {
			break
		}
		if other.Waits && !other.answered {
			return s.wrong("batch %v was acknowledged before batch %v, which was accepted earlier", b.BatchID, other.Batch.BatchID)
		}
	}
	if b.Count == 0 {
		return nil
	}
	if b.at < 0 && s.Uncertain() {
		a.unknown = true
		return nil
	}
	if b.at < 0 || s.open != nil {
		return s.wrong("batch %v was acknowledged, and cannot be read", b.BatchID)
	}
	if r.HasOffset && r.Offset != uint64(b.at) {
		return s.wrong("batch %v was acknowledged at %d and is at %d", b.BatchID, r.Offset, b.at)
	}
	return nil
}

// refused checks a refusal of an idempotent batch. What the broker knows of a producer lies between
// what was readable when the step began and what was accepted.
func (s *Shard) refused(a *Attempt, r Answer) error {
	b := a.Batch
	known := s.before[b.Publisher]
	if !b.Idempotent || a.written {
		return s.wrong("batch %v, at %d, was refused: %+v", b.BatchID, b.at, r)
	}
	expected, accepted, other := uint32(r.Expected), known, false
	for _, earlier := range s.queue {
		if earlier == a {
			break
		}
		if e := earlier.Batch; e.Publisher == b.Publisher {
			accepted = max(accepted, e.Number+1)
			other = other || e.Number == b.Number && e.Variant != b.Variant
		}
	}
	for v := range uint8(2) {
		if o := s.batches.byID[BatchID{b.Publisher, b.Number, v}]; o != nil && o != b && o.at >= 0 {
			other = true
		}
	}
	switch r.Refused {
	case RefusedGap, RefusedUnknownProducer:
		if r.Refused == RefusedUnknownProducer {
			expected = 0
		}
		if expected < known || expected >= b.Number || expected > accepted {
			return s.wrong("batch %v was refused, %d was expected; %d is readable, %d accepted", b.BatchID, expected, known, accepted)
		}
		for _, earlier := range s.queue {
			if earlier == a {
				break
			}
			if e := earlier.Batch; !earlier.answered && e.Publisher == b.Publisher && e.Number == expected {
				return s.wrong("batch %v was refused, %d was expected, which had been accepted before", b.BatchID, expected)
			}
		}
	case RefusedExpired:
		if high := s.high[b.Publisher]; b.Number+remembered > high {
			return s.wrong("batch %v was refused as expired, %d were accepted", b.BatchID, high)
		}
	case RefusedReused:
		if !other {
			return s.wrong("batch %v was refused as another one under its number, and there is none", b.BatchID)
		}
	}
	return nil
}

// remembered is how many batches of a producer the broker keeps.
const remembered = 64

// Failed notes that the log takes nothing more until the next restart.
func (s *Shard) Failed() { s.failed, s.changed = true, true }

// TakeBack notes that only n records can be read any more: the log failed, and the others are not proven to
// be on the disk. They may be there after a restart.
func (s *Shard) TakeBack(n uint64) error {
	if !s.Uncertain() || n > s.Tail() {
		return s.wrong("the tail went from %d to %d", s.Tail(), n)
	}
	lost, err := s.drop(int(n))
	if err != nil {
		return err
	}
	var back []*Attempt
	for _, b := range lost {
		back = append(back, &Attempt{Batch: b, answered: true, unknown: true})
	}
	s.queue = append(back, s.queue...)
	s.changed = true
	return nil
}

// drop takes the records from n on out of the log, and returns their batches.
func (s *Shard) drop(n int) (lost []*Batch, err error) {
	if n < len(s.log) && s.log[n].k != 0 {
		return nil, s.wrong("batch %v was torn at record %d", s.log[n].batch.BatchID, s.log[n].k)
	}
	for _, p := range s.log[n:] {
		if p.k > 0 {
			continue
		}
		p.batch.at = -1
		lost = append(lost, p.batch)
		if p.batch.Idempotent {
			s.next[p.batch.Publisher] = min(s.next[p.batch.Publisher], p.batch.Number)
		}
	}
	s.log = s.log[:n]
	return lost, nil
}

// EndStep is called when a step of the executor is over and everything that it did was told. A batch that was passed
// over has been answered by then; one that nobody waits for has vanished.
func (s *Shard) EndStep() error {
	if !s.changed {
		return nil
	}
	s.changed = false
	if s.open != nil {
		return s.wrong("a part of batch %v became readable", s.open.BatchID)
	}
	kept := s.queue[:0]
	for _, a := range s.queue {
		switch {
		case a.answered && !a.unknown, a.written && !a.Waits:
		case a.answered:
			kept = append(kept, a) // it may come back
		case a.passed && a.Waits, a.written:
			return s.wrong("batch %v has no answer, and later ones can be read", a.Batch.BatchID)
		case a.passed:
			s.vanish(a)
		default:
			kept = append(kept, a)
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
	for p, n := range s.next {
		if s.before[p] != n {
			s.before[p] = n
		}
	}
	return nil
}

func (s *Shard) vanish(a *Attempt) {
	s.Vanished++
	if a.OnQueue {
		s.VanishedOnQueue++
	}
}

// Quiet is called when nothing is left to be done: every publish that waits has its answer.
func (s *Shard) Quiet() error {
	kept := s.queue[:0]
	for _, a := range s.queue {
		switch {
		case a.Waits && !a.answered:
			return s.wrong("batch %v is never answered", a.Batch.BatchID)
		case a.answered:
			kept = append(kept, a)
		default:
			s.vanish(a)
			if s.failed { // it may be on the disk
				a.answered, a.unknown = true, true
				kept = append(kept, a)
			}
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
	return nil
}

func (s *Shard) wrong(format string, args ...any) error {
	return fmt.Errorf("shard %s: %w", s.Name, fmt.Errorf(format, args...))
}
