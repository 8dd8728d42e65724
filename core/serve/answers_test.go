package serve

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// plainEncoder writes "id", or "id!code" for a failure, and a space.
type plainEncoder struct{}

func (plainEncoder) appendAnswer(dst []byte, s *slot, r *core.PublishResult) []byte {
	dst = strconv.AppendUint(dst, s.requestID, 10)
	if r.Err != nil {
		dst = append(append(dst, '!'), r.Err.Code.String()...)
	}
	return append(dst, ' ')
}

func newAnswers(window, limit int) (*answers, *counters) {
	a, count := &answers{}, &counters{}
	a.init(limit, count, make(chan struct{}, 1))
	if window > 0 {
		a.pipeline(window)
	}
	return a, count
}

func (a *answers) collected() string {
	dst, n := a.collect(nil, plainEncoder{})
	a.written(n)
	return strings.TrimSpace(string(dst))
}

func (a *answers) swept(tick, ack, overdue uint32) (string, bool) {
	dst, n, stuck := a.sweep(nil, plainEncoder{}, tick, waits{queueTicks: overdue, ackTicks: ack, overdueTicks: overdue})
	dst, m := a.collect(dst, plainEncoder{})
	a.written(n + m)
	return strings.TrimSpace(string(dst)), stuck
}

// On a pipelined stream answers leave in request order even when a later publish finished first,
// refusals included (PUB-20).
func TestPipelinedAnswersKeepRequestOrder(t *testing.T) {
	a, _ := newAnswers(4, 4)
	s := []*slot{a.take(10, formBinary, 0), a.take(11, formBinary, 0), a.take(12, formBinary, 0)}
	s[2].Published(0, core.PublishResult{})
	s[1].refuse(wire.ErrForbidden)
	if got := a.collected(); got != "" {
		t.Fatalf("answers %q overtook the first publish", got)
	}
	if a.unanswered.Load() != 3 {
		t.Fatalf("%d unanswered, want 3", a.unanswered.Load())
	}
	s[0].Published(0, core.PublishResult{})
	if got := a.collected(); got != "10 11!forbidden 12" {
		t.Fatalf("answers %q", got)
	}
	if a.unanswered.Load() != 0 {
		t.Fatalf("%d unanswered, want 0", a.unanswered.Load())
	}
}

// Without a window answers leave as outcomes come (wire.md 6.3).
func TestOtherAnswersLeaveInCompletionOrder(t *testing.T) {
	a, _ := newAnswers(0, 4)
	s := []*slot{a.take(10, formBinary, 0), a.take(11, formBinary, 0), a.take(12, formBinary, 0)}
	s[2].Published(0, core.PublishResult{})
	s[0].Published(0, core.PublishResult{})
	if got := a.collected(); got != "12 10" {
		t.Fatalf("answers %q", got)
	}
}

// A publish that takes too long is answered unacknowledged, once; its slot is not used again
// before the outcome came, so that no other publish can get that answer.
func TestLateOutcomeNeverAnswersAnotherPublish(t *testing.T) {
	for _, window := range []int{0, 1} {
		a, count := newAnswers(window, 1)
		s := a.take(1, formBinary, 5)
		if got, _ := a.swept(100, 10, 1000); got != "" {
			t.Fatalf("window %d: answered %q while the broker may still wait for room", window, got)
		}
		s.admit(100)
		if got, _ := a.swept(109, 10, 1000); got != "" {
			t.Fatalf("window %d: answered %q before the ack wait was over", window, got)
		}
		if got, _ := a.swept(110, 10, 1000); got != "1!unacknowledged" {
			t.Fatalf("window %d: answers %q", window, got)
		}
		if got, _ := a.swept(120, 10, 1000); got != "" {
			t.Fatalf("window %d: answered twice: %q", window, got)
		}
		other := a.take(2, formBinary, 121)
		if other == s {
			t.Fatalf("window %d: the slot was used again", window)
		}
		s.Published(0, core.PublishResult{Err: wire.ErrStorage})
		if got := a.collected(); got != "" {
			t.Fatalf("window %d: the late outcome was sent: %q", window, got)
		}
		other.Published(0, core.PublishResult{})
		if got := a.collected(); got != "2" {
			t.Fatalf("window %d: answers %q", window, got)
		}
		if count.ackTimeouts.Load() != 1 || count.lateOutcomes.Load() != 1 {
			t.Fatalf("window %d: %d timeouts, %d late outcomes; want 1, 1", window, count.ackTimeouts.Load(), count.lateOutcomes.Load())
		}
	}
}

// While every slot is held by a publish whose outcome never came, no more are taken; each outcome
// frees one.
func TestOutcomesThatNeverComeBoundTheSlots(t *testing.T) {
	a, _ := newAnswers(2, 2)
	var held []*slot
	for a.hasRoom() {
		s := a.take(uint64(len(held)), formBinary, 0)
		s.admit(0)
		held = append(held, s)
		if !a.hasRoom() {
			a.swept(10, 10, 1000)
		}
	}
	if len(held) != 4 {
		t.Fatalf("%d slots, want twice the window", len(held))
	}
	held[1].Published(0, core.PublishResult{})
	a.collected()
	if !a.hasRoom() {
		t.Fatal("the slot of a late outcome did not come back")
	}
}

// A real outcome that comes while the timed-out answer is held back behind an earlier publish is
// what the client gets.
func TestOutcomeBeatsAHeldBackTimeout(t *testing.T) {
	a, count := newAnswers(4, 4)
	first, second := a.take(1, formBinary, 0), a.take(2, formBinary, 0)
	second.admit(0)
	if got, _ := a.swept(50, 10, 1000); got != "" {
		t.Fatalf("answers %q", got)
	}
	second.Published(0, core.PublishResult{})
	first.Published(0, core.PublishResult{})
	if got := a.collected(); got != "1 2" {
		t.Fatalf("answers %q", got)
	}
	if count.ackTimeouts.Load() != 0 || count.lateOutcomes.Load() != 0 {
		t.Error("counted a timeout that nobody saw")
	}
}

// An answer that is held back for twice the queue wait and the ack wait says that the stream is
// stuck (wire.md 6.3).
func TestHeldBackAnswerOverdueIsStuck(t *testing.T) {
	a, _ := newAnswers(4, 4)
	a.take(1, formBinary, 7)
	if _, stuck := a.swept(36, 9, 30); stuck {
		t.Error("stuck too early")
	}
	if _, stuck := a.swept(37, 9, 30); !stuck {
		t.Error("not stuck")
	}
}

// Against a model: whatever the order of takes, outcomes, timeouts and collections, every publish
// is answered exactly once, pipelined ones in order, and the window is never passed.
func TestEveryPublishIsAnsweredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(0, 5).Draw(t, "window")
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		a, _ := newAnswers(window, limit)
		if window > 0 {
			limit = window
		}
		var open []*slot // with the broker
		var got []string
		var taken uint64
		tick := uint32(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				if a.hasRoom() {
					s := a.take(taken, formBinary, tick)
					s.admit(tick)
					taken++
					open = append(open, s)
				}
			case 1:
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					open[i].Published(0, core.PublishResult{})
					open = append(open[:i], open[i+1:]...)
				}
			case 2:
				got = append(got, strings.Fields(a.collected())...)
			case 3:
				tick++
				swept, _ := a.swept(tick, 3, 1000)
				got = append(got, strings.Fields(swept)...)
			}
			if n := int(a.unanswered.Load()); n > limit {
				t.Fatalf("%d unanswered, the limit is %d", n, limit)
			}
		}
		for _, s := range open {
			s.Published(0, core.PublishResult{})
		}
		got = append(got, strings.Fields(a.collected())...)
		seen := map[string]bool{}
		for i, text := range got {
			id, _, _ := strings.Cut(text, "!")
			if seen[id] {
				t.Fatalf("%s answered twice: %v", id, got)
			}
			seen[id] = true
			if window > 0 && id != strconv.Itoa(i) {
				t.Fatalf("out of order: %v", got)
			}
		}
		if len(got) != int(taken) || a.unanswered.Load() != 0 {
			t.Fatalf("%d answers for %d publishes, %d unanswered", len(got), taken, a.unanswered.Load())
		}
	})
}

// Reader, several executors and the writer at once: exactly one answer each, in order.
func TestAnswersUnderConcurrency(t *testing.T) {
	const publishes, executors = 20_000, 4
	a, _ := newAnswers(64, 64)
	work := make(chan *slot, 64)
	room := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for i := range executors {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			var held []*slot
			flush := func() {
				for _, s := range held {
					s.Published(0, core.PublishResult{})
				}
				held = held[:0]
			}
			for {
				var s *slot
				select {
				case s = <-work:
				default:
					flush() // before it sleeps: what is held would stop the reader for good
					s = <-work
				}
				if s == nil {
					flush()
					return
				}
				if held = append(held, s); len(held) > rng.IntN(4) {
					flush()
				}
			}
		})
	}
	wg.Go(func() {
		defer close(work)
		for id := range uint64(publishes) {
			for !a.hasRoom() {
				<-room
			}
			s := a.take(id, formBinary, 0)
			s.admit(0)
			work <- s
		}
	})
	next := uint64(0)
	for next < publishes {
		<-a.wake
		dst, n := a.collect(nil, plainEncoder{})
		for _, text := range strings.Fields(string(dst)) {
			if text != strconv.FormatUint(next, 10) {
				t.Fatalf("answer %s, want %d", text, next)
			}
			next++
		}
		a.written(n)
		select {
		case room <- struct{}{}:
		default:
		}
	}
	wg.Wait()
}

// A stream's slots are made once; publishing allocates nothing after that.
func TestAnswersAllocateNothing(t *testing.T) {
	a, _ := newAnswers(16, 16)
	buf := make([]byte, 0, 4096)
	round := func() {
		var s [8]*slot
		for i := range s {
			s[i] = a.take(uint64(i), formBinary, 0)
			s[i].admit(0)
		}
		for i := range s {
			s[i].Published(0, core.PublishResult{Offset: 1, HasOffset: true})
		}
		_, n := a.collect(buf, plainEncoder{})
		a.written(n)
	}
	round()
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations per 8 publishes, want 0", n)
	}
}

func TestFaultNamesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for f := range faultCount {
		seen[f.String()] = true
	}
	for e := range endingCount {
		seen["ending "+e.String()] = true
	}
	if diff := cmp.Diff(int(faultCount)+int(endingCount), len(seen)); diff != "" || seen[""] {
		t.Errorf("names are not distinct: %s", diff)
	}
}
