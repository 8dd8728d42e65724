package sim

import (
	"strings"
	"testing"
)

// history is a shard and what is told of it; the first wrong thing ends it.
type history struct {
	*Shard
	batches *Batches
	tried   map[*Batch]*Attempt
	err     error
}

func newHistory(durable, onCommit bool) *history {
	bs := NewBatches()
	return &history{Shard: NewShard("s", bs, durable, onCommit), batches: bs, tried: map[*Batch]*Attempt{}}
}

// batch is number n of publisher 1, of two records; those of producers have numbers below 100.
func (h *history) batch(n uint32) *Batch {
	return h.batches.Add(Batch{BatchID: BatchID{Publisher: 1, Number: n}, Count: 2, Idempotent: n < 100})
}

func (h *history) note(err error) {
	if h.err == nil {
		h.err = err
	}
}

func (h *history) accept(ns ...uint32) {
	for _, n := range ns {
		b := h.batch(n)
		h.tried[b] = h.Accept(b, true, false)
	}
}

func (h *history) records(ns ...uint32) (records [][]byte) {
	for _, n := range ns {
		for k := range 2 {
			records = append(records, h.batch(n).AppendRecord(nil, k))
		}
	}
	return records
}

func (h *history) readable(ns ...uint32) {
	for _, r := range h.records(ns...) {
		h.note(h.Readable(r))
	}
}

func (h *history) ok(n uint32, offset uint64) {
	h.note(h.Answer(h.tried[h.batch(n)], Answer{Offset: offset, HasOffset: h.Durable}, false))
}

func (h *history) answer(n uint32, a Answer, mayFail bool) {
	h.note(h.Answer(h.tried[h.batch(n)], a, mayFail))
}

func (h *history) end()   { h.note(h.EndStep()) }
func (h *history) quiet() { h.note(h.Quiet()) }

// A checker that finds nothing proves nothing: each history is right, or wrong in one way that must be found.
func TestModelFindsWhatIsWrong(t *testing.T) {
	refused := Answer{Err: "overloaded"}
	unknown := Answer{Err: "storage", Unknown: true}
	for _, c := range []struct {
		name string
		do   func(h *history)
		want string // part of the error, "" for none
	}{
		{"in order", func(h *history) {
			h.accept(100, 101)
			h.readable(100, 101)
			h.ok(100, 0)
			h.ok(101, 2)
			h.end()
			h.quiet()
		}, ""},
		{"out of order", func(h *history) { h.accept(100, 101); h.readable(101, 100) }, "overtaken"},
		{"of nobody", func(h *history) { h.batch(100); h.readable(100) }, "never accepted"},
		{"changed bytes", func(h *history) {
			h.accept(100)
			r := h.records(100)
			r[1][3]++
			h.note(h.Readable(r[0]))
			h.note(h.Readable(r[1]))
		}, "is not record 1"},
		{"twice", func(h *history) { h.accept(100); h.readable(100); h.ok(100, 0); h.accept(100); h.readable(100) }, "twice"},
		{"half a batch", func(h *history) { h.accept(100); h.note(h.Readable(h.records(100)[0])); h.end() }, "a part of batch"},
		{"acknowledged and lost", func(h *history) { h.accept(100); h.ok(100, 0) }, "cannot be read"},
		{"another offset", func(h *history) { h.accept(100); h.readable(100); h.ok(100, 1) }, "is at 0"},
		{"answered before an earlier one", func(h *history) { h.accept(100, 101); h.readable(100, 101); h.ok(101, 2) }, "accepted earlier"},
		{"answered twice", func(h *history) { h.accept(100); h.readable(100); h.ok(100, 0); h.ok(100, 0) }, "answered twice"},
		{"never answered", func(h *history) { h.accept(100); h.quiet() }, "never answered"},
		{"passed over", func(h *history) { h.accept(100, 101); h.readable(101); h.ok(101, 0) }, "accepted earlier"},
		{"passed over, no answer", func(h *history) { h.accept(100, 101); h.readable(101); h.end() }, "no answer"},
		{"refused, then there", func(h *history) { h.accept(100); h.answer(100, refused, false); h.readable(100) }, "refused"},
		{"there, then refused", func(h *history) { h.accept(100); h.readable(100); h.answer(100, refused, false) }, "and was answered"},
		{"unknown for nothing", func(h *history) { h.accept(100); h.answer(100, unknown, false) }, "outcome unknown"},
		{"unknown, of a failed log", func(h *history) { h.accept(100); h.Failed(); h.answer(100, unknown, true); h.end(); h.quiet() }, ""},
		{"producer in order", func(h *history) { h.accept(0, 1); h.readable(0, 1); h.ok(0, 0); h.ok(1, 2); h.end() }, ""},
		{"producer with a gap", func(h *history) { h.accept(1); h.readable(1) }, "was to come"},
		{"resend", func(h *history) {
			h.accept(0)
			h.readable(0)
			h.ok(0, 0)
			h.end()
			h.accept(0)
			h.ok(0, 0)
			h.end()
		}, ""},
		{"resend at another offset", func(h *history) {
			h.accept(0)
			h.readable(0)
			h.ok(0, 0)
			h.end()
			h.accept(0)
			h.ok(0, 2)
		}, "is at 0"},
		{"gap, rightly", func(h *history) { h.accept(1); h.answer(1, Answer{Refused: RefusedUnknownProducer}, false); h.end() }, ""},
		{"gap, but it is next", func(h *history) { h.accept(0); h.answer(0, Answer{Refused: RefusedGap}, false) }, "was expected"},
		{"gap, but it was accepted", func(h *history) {
			h.accept(0, 1, 2)
			h.answer(2, Answer{Refused: RefusedGap, Expected: 1}, false)
		}, "accepted before"},
		{"expired at once", func(h *history) { h.accept(0, 1); h.answer(0, Answer{Refused: RefusedExpired}, false) }, "expired"},
		{"another one, of which there is none", func(h *history) { h.accept(0); h.answer(0, Answer{Refused: RefusedReused}, false) }, "there is none"},
		{"taken back", func(h *history) { h.accept(100); h.readable(100); h.Failed(); h.note(h.TakeBack(0)) }, "the tail went"},
		{"lost by a power cut", func(h *history) {
			h.accept(100)
			h.readable(100)
			h.ok(100, 0)
			h.end()
			h.note(h.Recovered(nil, 0, false))
		}, "lost"},
		{"under way at a power cut", func(h *history) {
			h.accept(100, 101, 102)
			h.readable(100)
			h.ok(100, 0)
			h.end()
			h.note(h.Recovered(h.records(100, 102), 0, false))
		}, ""},
		{"under way, and torn", func(h *history) { h.accept(100); h.note(h.Recovered(h.records(100)[:1], 0, false)) }, "torn"},
		{"refused, and back after a power cut", func(h *history) {
			h.accept(100)
			h.answer(100, refused, false)
			h.end()
			h.note(h.Recovered(h.records(100), 0, false))
		}, "refused"},
		{"unknown, and there after a restart", func(h *history) {
			h.accept(100)
			h.Failed()
			h.answer(100, unknown, true)
			h.end()
			h.note(h.Recovered(h.records(100), 0, true))
		}, ""},
		{"from nowhere", func(h *history) { h.accept(100); h.note(h.Recovered(h.records(100), 0, true)) }, "nowhere"},
		{"another record after a restart", func(h *history) {
			h.accept(100, 101)
			h.readable(100)
			h.ok(100, 0)
			h.end()
			h.note(h.Recovered(h.records(101), 0, false))
		}, "another one"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			h := newHistory(true, true)
			c.do(h)
			if c.want == "" && h.err != nil || c.want != "" && (h.err == nil || !strings.Contains(h.err.Error(), c.want)) {
				t.Errorf("found %v, want %q", h.err, c.want)
			}
		})
	}
}

// A stream that does not sync each commit may lose what was readable, but not what was durable, and no part of
// a batch.
func TestModelOfWeakerSyncModes(t *testing.T) {
	written := func() *history {
		h := newHistory(true, false)
		h.accept(100, 101)
		h.readable(100, 101)
		h.ok(100, 0)
		h.ok(101, 2)
		h.end()
		return h
	}
	h := written()
	if err := h.Recovered(h.records(100), 2, false); err != nil || h.Tail() != 2 {
		t.Errorf("a batch that was not durable: %v", err)
	}
	if h = written(); h.Recovered(h.records(100), 3, false) == nil {
		t.Error("a durable record was lost")
	}
	if h = written(); h.Recovered(h.records(100, 101)[:3], 2, false) == nil {
		t.Error("a batch was torn")
	}
	h = written()
	h.Failed()
	if err := h.TakeBack(2); err != nil || h.Tail() != 2 {
		t.Errorf("records of a failed log: %v", err)
	}
	if err := h.Recovered(h.records(100, 101), 2, true); err != nil || h.Tail() != 4 {
		t.Errorf("what was taken back comes back: %v", err)
	}
}

// Readers get every record once and in order, or a counted hole.
func TestModelOfReaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		holes   bool
		given   []uint64
		dropped uint64
		ok      bool
	}{
		{"all", false, []uint64{0, 1, 2, 3}, 0, true},
		{"twice", true, []uint64{0, 1, 1}, 2, false},
		{"backwards", true, []uint64{2, 1}, 2, false},
		{"a counted hole", true, []uint64{0, 3}, 2, true},
		{"an uncounted hole", true, []uint64{0, 3}, 0, false},
		{"a hole for one that asked for none", false, []uint64{0, 3}, 2, false},
		{"the end is missing", false, []uint64{0, 1}, 0, false},
		{"the end was dropped", true, []uint64{0, 1}, 2, true},
		{"more than there is", false, []uint64{0, 1, 2, 3, 4}, 0, false},
	} {
		h := newHistory(true, true)
		h.accept(100, 101)
		h.readable(100, 101)
		r := NewReader(h.Shard, 0, c.holes, false)
		records := append(h.records(100, 101), []byte("more"))
		for _, offset := range c.given {
			h.note(r.Given(offset, true, records[offset]))
		}
		h.note(r.CaughtUp(c.dropped))
		if (h.err == nil) != c.ok {
			t.Errorf("%s: found %v", c.name, h.err)
		}
	}
}

// A tenant with many lanes is served no more than its share while another waits.
func TestCheckShares(t *testing.T) {
	var flood, fair, greedy []Job
	for i := range 64 {
		flood = append(flood, Job{Tenant: 1, Lane: i % 8, Bytes: 1000})
	}
	quiet := Job{Tenant: 2, Lane: 100, Bytes: 1000}
	queued := append(flood[:len(flood):len(flood)], quiet)
	fair = append(append(append(fair, flood[:16]...), quiet), flood[16:]...)
	greedy = append(append(greedy, flood...), quiet)
	if err := CheckShares(queued, fair, 16_000, 64, 1<<20); err != nil {
		t.Error(err)
	}
	if CheckShares(queued, greedy, 16_000, 64, 1<<20) == nil {
		t.Error("the quiet tenant was served last, and nothing was found")
	}
}

// The same seed makes the same choices, and a trace tells runs apart.
func TestChoicesAreTheSeeds(t *testing.T) {
	run := func(seed uint64) uint64 {
		c, tr := NewChooser(seed), Trace{}
		for range 200 {
			tr.Add("n", uint64(c.N(10)), uint64(c.Weighted([]int{1, 0, 3})), c.Seed())
		}
		if !strings.Contains(tr.String(), "199 n [") || tr.Steps() != 200 {
			t.Errorf("trace of %d steps: %s", tr.Steps(), &tr)
		}
		return tr.Hash()
	}
	first, again, other := run(1), run(1), run(2)
	if first != again || first == other {
		t.Error("seeds do not tell runs apart")
	}
}
