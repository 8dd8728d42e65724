package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/wire"
)

func newTestOutbox(idempotent bool, records uint32) *outbox {
	f := wire.BinaryPublish{Flags: wire.FlagPublish | wire.FlagAcked, AckMode: wire.AckPerBatch,
		Tenant: []byte("t"), Namespace: []byte("n"), Stream: []byte("s")}
	if idempotent {
		f.Flags |= wire.FlagIdempotent
	}
	return &outbox{
		limits: outboxLimits{batchBytes: 4096, batchRecords: records, flight: 4, answer: int64(answerTimeout),
			acked: true, repeatable: idempotent, idempotent: idempotent},
		frame: f, retry: newBackoff(time.Millisecond, time.Second), seq: sequencer{blocked: idempotent},
	}
}

// A frame built in place is the frame that wire would make of the same records.
func TestBatchBuiltInPlaceIsTheFrameOfTheSpec(t *testing.T) {
	for _, idempotent := range []bool{false, true} {
		for _, key := range [][]byte{nil, {}, []byte("k")} {
			o := newTestOutbox(idempotent, 100)
			o.setProducer(77)
			o.seq.next = 5
			o.setWindow(0)
			records := [][]byte{[]byte("a"), {}, []byte("ccc")}
			for _, r := range records {
				o.add(Record{Key: key, Value: r}, 1, result{})
			}
			b, _ := o.next(1)
			want := o.frame
			want.RequestID, want.HasKey, want.Key = 1, key != nil, key
			if key != nil {
				want.Flags |= wire.FlagKeyed
			}
			if idempotent {
				want.ProducerID, want.Sequence = 77, 5
			}
			want.Section = wire.AppendSection(nil, records...)
			if got, want := b.buf, wire.AppendPublish(nil, &want); !slices.Equal(got, want) {
				t.Errorf("idempotent %v key %q:\n got %x\nwant %x", idempotent, key, got, want)
			}
		}
	}
}

// Keyed and unkeyed records never share a frame: the frame has one key, which decides its shard.
func TestKeyedAndUnkeyedRecordsDoNotShareAFrame(t *testing.T) {
	o := newTestOutbox(false, 100)
	o.setWindow(0)
	for _, key := range [][]byte{nil, nil, {}, []byte("k"), nil} {
		o.add(Record{Key: key, Value: []byte("x")}, 1, result{})
	}
	var counts []uint32
	for b, _ := o.next(1); b != nil; b, _ = o.next(1) {
		counts = append(counts, b.count)
	}
	if !slices.Equal(counts, []uint32{2, 2, 1}) {
		t.Errorf("records per frame %v", counts)
	}
}

// Whatever happens to batches, each is settled exactly once, an idempotent outbox's log is in order, and
// nothing is in flight beyond the window. The broker here is a model that follows the rules of
// broker.md 1.9.
func TestEveryBatchHasExactlyOneOutcome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		idempotent := rapid.Bool().Draw(t, "idempotent")
		o := newTestOutbox(idempotent, 1)
		window := rapid.IntRange(1, 6).Draw(t, "window")
		o.setWindow(uint32(window))
		if idempotent {
			o.setProducer(1)
		}
		var (
			now       int64
			added     int
			outcomes  = map[int]int{}
			succeeded []int
			order     []int // in the broker's log
			applied   = map[int]int{}
			expected  uint64 // of the broker, for the producer
			known     bool
			producer  = uint64(1)
			sent      []*batch // on the wire, in order
		)
		deliver := func() {
			list := o.takeDone()
			for _, s := range list {
				for _, r := range s.b.results {
					r.done(s.ack, s.err)
				}
			}
			o.delivered(list)
		}
		answer := func(b *batch, fate int) {
			n := int(b.buf[len(b.buf)-1])
			if idempotent {
				switch {
				case b.sequence > expected && !known:
					_ = o.refusedSequence(&wire.PublishRefused{RequestID: b.number, Reason: wire.RefusedReason{Kind: wire.RefusedUnknownProducer}}, now)
					return
				case b.sequence > expected:
					_ = o.refusedSequence(&wire.PublishRefused{RequestID: b.number, Reason: wire.RefusedReason{Kind: wire.RefusedSequenceGap, Expected: expected}}, now)
					return
				}
			}
			apply := func() {
				if !idempotent {
					applied[n]++
				} else if b.sequence == expected {
					applied[n]++
					order = append(order, n)
					expected++
					known = true
				}
			}
			var err error
			switch fate {
			case 0, 1, 2:
				apply()
				err = o.answered(b.number, 1, true)
			case 3:
				err = o.refused(b.number, wire.ErrOverloaded, now)
			case 4:
				apply()
				err = o.refused(b.number, wire.ErrStorage, now)
			case 5:
				err = o.refused(b.number, wire.ErrForbidden, now)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		step := func(op int) {
			now += int64(time.Second)
			switch op {
			case 0, 1, 2:
				if added >= 200 {
					return
				}
				n := added
				added++
				o.add(Record{Value: []byte{byte(n)}}, 1, result{done: func(_ Ack, err error) {
					outcomes[n]++
					if err == nil {
						succeeded = append(succeeded, n)
					}
				}})
				o.open.created = now
			case 3, 4:
				if o.needsProducer() {
					producer++
					expected, known = 0, false
					o.setProducer(producer)
				}
				if b, _ := o.next(now); b != nil {
					o.wrote(b, nil)
					sent = append(sent, b)
				}
				if len(sent) > window {
					t.Fatalf("%d in flight under a window of %d", len(sent), window)
				}
			case 5, 6, 7:
				if len(sent) > 0 {
					b := sent[0]
					sent = sent[1:]
					answer(b, rapid.IntRange(0, 5).Draw(t, "fate"))
				}
			case 8:
				for _, b := range sent { // the broker may have read some of it
					if rapid.Bool().Draw(t, "read") && (!idempotent || b.sequence == expected) {
						n := int(b.buf[len(b.buf)-1])
						applied[n]++
						if idempotent {
							order = append(order, n)
							expected++
							known = true
						}
					} else {
						break
					}
				}
				sent = nil
				o.lost(errors.New("gone"))
				o.setWindow(uint32(window))
			}
			deliver()
		}
		for range rapid.IntRange(20, 300).Draw(t, "steps") {
			step(rapid.IntRange(0, 8).Draw(t, "op"))
		}
		o.failAll(ErrClosed)
		deliver()
		for n := range added {
			if outcomes[n] != 1 {
				t.Fatalf("record %d has %d outcomes", n, outcomes[n])
			}
			if applied[n] > 1 {
				t.Fatalf("record %d was applied %d times", n, applied[n])
			}
		}
		for _, n := range succeeded {
			if applied[n] != 1 {
				t.Fatalf("record %d succeeded and was applied %d times", n, applied[n])
			}
		}
		if idempotent && !slices.IsSorted(order) {
			t.Fatalf("log out of order: %v", order)
		}
		if !o.empty() || !o.settledUpTo(o.number) {
			t.Fatal("something is left")
		}
	})
}

// The backoff never exceeds its ceiling, spreads below it, and honours what the broker asked.
func TestBackoffIsFullJitterUnderACeiling(t *testing.T) {
	b := newBackoff(20*time.Millisecond, time.Second)
	b.rand = func() float64 { return 0.999 }
	for i, want := range []int{20, 40, 80, 160, 320, 640, 1000, 1000} {
		if got := b.next(0); got > time.Duration(want)*time.Millisecond || got < time.Duration(want)*time.Millisecond*9/10 {
			t.Errorf("wait %d: %s, ceiling %d ms", i, got, want)
		}
	}
	b.rand = rand.Float64
	var low, high bool
	for range 200 {
		d := b.next(0)
		low, high = low || d < 300*time.Millisecond, high || d > 700*time.Millisecond
	}
	if !low || !high {
		t.Error("waits are not spread")
	}
	if got := b.next(3 * time.Second); got < 3*time.Second {
		t.Errorf("%s, asked for 3s", got)
	}
	b.reset()
	if got := b.next(0); got > 20*time.Millisecond {
		t.Errorf("after reset: %s", got)
	}
	for range 100 {
		b.next(0) // no overflow
	}
}

// Waiters for the budget are served in order, and giving up does not lose bytes.
func TestBudgetServesInOrderAndLosesNothing(t *testing.T) {
	b := budget{size: 10}
	if !b.take(6) || b.take(5) {
		t.Fatal("bound not kept")
	}
	big, small, gone := b.wait(9), b.wait(1), b.wait(1)
	if b.take(1) {
		t.Error("overtook those who wait")
	}
	if !b.leave(gone) {
		t.Error("left twice")
	}
	b.give(6)
	granted := func(w *budgetWaiter) bool {
		select {
		case <-w.granted:
			return true
		default:
			return false
		}
	}
	if !granted(big) || !granted(small) || b.used != 10 || b.leave(big) {
		t.Errorf("used %d, waiters %d", b.used, len(b.waiters))
	}
	b.give(10)
	if b.used != 0 || b.clamp(99) != 10 {
		t.Error(b.used)
	}
}

// The order of a refusal's retries is kept by number, also through many refusals.
func TestFifoIsSortedByNumber(t *testing.T) {
	var q fifo
	model := map[uint64]*batch{}
	rng := rand.New(rand.NewPCG(1, 2))
	next := uint64(1)
	for range 20_000 {
		switch rng.IntN(4) {
		case 0, 1:
			b := &batch{number: next}
			next++
			model[b.number] = b
			q.insert(b)
		case 2: // take one and perhaps put it back
			if f := q.front(); f != nil {
				n := f.number + uint64(rng.IntN(3))
				b := q.take(n)
				if b != model[n] {
					t.Fatal("took another batch")
				}
				if b != nil && rng.IntN(2) == 0 {
					q.insert(b)
				} else {
					delete(model, n)
				}
			}
		default:
			if q.len() != len(model) {
				t.Fatalf("%d batches, want %d", q.len(), len(model))
			}
			for i := 1; i < q.len(); i++ {
				if q.at(i-1).number >= q.at(i).number {
					t.Fatal(fmt.Sprint("not sorted at ", i))
				}
			}
		}
	}
}
