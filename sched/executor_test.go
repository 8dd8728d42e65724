package sched

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stepFunc is a Stepper.
type stepFunc func(now int64) (bool, int64)

func (f stepFunc) Step(now int64) (bool, int64) { return f(now) }

// start runs e and returns how to stop it.
func start(t testing.TB, e *Executor) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// parkers are the ways in which executors sleep.
func parkers(t testing.TB, f func(t *testing.T, p Parker)) {
	t.(*testing.T).Run("channel", func(t *testing.T) { f(t, NewChannelParker()) })
	t.(*testing.T).Run("eventfd", func(t *testing.T) {
		p, err := NewEventfdParker()
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { p.Close() })
		f(t, p)
	})
}

// TestNoWakeIsLost: an item pushed to an inbox whose wake is Executor.Wake is processed although
// nothing else ever happens. Attacked by producers that push one item and wait for it to be
// processed, so that the executor goes to sleep at every possible moment of a push.
func TestNoWakeIsLost(t *testing.T) {
	parkers(t, func(t *testing.T, p Parker) {
		const producers, each = 4, 1500
		var inbox *Inbox[chan struct{}]
		e := NewExecutor(ExecutorOptions{CPU: -1, Parker: p}, stepFunc(func(int64) (bool, int64) {
			n, ok := inbox.Pop()
			if ok {
				n.Value <- struct{}{}
			}
			return ok, 0
		}))
		inbox = NewInbox[chan struct{}](e.Wake)
		start(t, e)
		var wg sync.WaitGroup
		for range producers {
			wg.Go(func() {
				n := &Node[chan struct{}]{Value: make(chan struct{}, 1)}
				for i := range each {
					inbox.Push(n)
					select {
					case <-n.Value:
					case <-time.After(20 * time.Second):
						t.Errorf("item %d was never processed", i)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestWakeModel checks the protocol of Executor.Wake and park exhaustively: every interleaving of
// one executor that steps and parks with two producers that push and wake, at the grain of single
// atomic operations. In no end state is an item left and the executor asleep without a token.
func TestWakeModel(t *testing.T) {
	type world struct {
		state uint32 // of the executor
		token bool   // in the parker
		items int    // pushed and not seen
		exec  int    // program counters
		prod  [2]int
		saw   [2]uint32 // what each producer's load or swap returned
	}
	seen := map[world]bool{}
	asleep := 0
	var visit func(w world)
	visit = func(w world) {
		if seen[w] {
			return
		}
		seen[w] = true
		moved := false
		move := func(n world) { moved = true; visit(n) }

		n := w
		switch w.exec {
		case 0: // state.Store(running)
			n.state, n.exec = execRunning, 1
			move(n)
		case 1: // Step takes what it sees
			n.items, n.exec = 0, 2
			move(n)
		case 2: // CompareAndSwap(running, parked)
			if w.state == execRunning {
				n.state, n.exec = execParked, 3
			} else {
				n.exec = 0
			}
			move(n)
		case 3: // Park
			if w.token {
				n.token, n.exec = false, 0
				move(n)
			}
		}
		for p := range w.prod {
			n := w
			switch w.prod[p] {
			case 0: // push
				n.items++
				n.prod[p] = 1
			case 1: // state.Load()
				n.prod[p] = 2
				if w.state == execNotified {
					n.prod[p] = 4
				}
			case 2: // state.Swap(notified)
				n.saw[p], n.state, n.prod[p] = w.state, execNotified, 4
				if w.state == execParked {
					n.prod[p] = 3
				}
			case 3: // Unpark
				n.token, n.prod[p] = true, 4
			default:
				continue
			}
			move(n)
		}
		if !moved {
			asleep++
			if w.items != 0 {
				t.Errorf("asleep for ever with %d items: %+v", w.items, w)
			}
		}
	}
	visit(world{})
	if asleep == 0 {
		t.Error("the model never came to rest")
	}
}

// TestFinalStepComesAfterTheContextEnded: what was pushed before the end is processed, also when it
// takes several steps.
func TestFinalStepComesAfterTheContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	left, ended := 5, false
	e := NewExecutor(ExecutorOptions{CPU: -1}, stepFunc(func(int64) (bool, int64) {
		if ctx.Err() == nil {
			cancel()
			return false, 0
		}
		ended = true
		left--
		return left > 0, 0
	}))
	if err := e.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !ended || left > 0 {
		t.Errorf("ended %v, %d steps left", ended, left)
	}
}

// TestRunEndsThoughTheStepperNeverDoes: the final turns are bounded in time.
func TestRunEndsThoughTheStepperNeverDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := NewExecutor(ExecutorOptions{CPU: -1}, stepFunc(func(int64) (bool, int64) {
			cancel()
			<-time.After(time.Millisecond) // work
			return true, 0
		}))
		began := time.Now()
		e.Run(ctx)
		if d := time.Since(began); d > 2*stopStepsMax {
			t.Errorf("ran for %v after the end", d)
		}
	})
}

// TestExecutorSleepsUntilWakeAt: the next step comes at the time that the stepper asked for, and
// not before; an executor without a time sleeps for good.
func TestExecutorSleepsUntilWakeAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []int64
		e := NewExecutor(ExecutorOptions{CPU: -1}, stepFunc(func(now int64) (bool, int64) {
			steps = append(steps, now)
			if len(steps) < 3 {
				return false, now + int64(5*time.Millisecond)
			}
			return false, 0
		}))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { e.Run(ctx) })
		<-time.After(time.Hour)
		synctest.Wait()
		if len(steps) != 3 || steps[1]-steps[0] != 5e6 || steps[2]-steps[1] != 5e6 {
			t.Errorf("steps at %v", steps)
		}
		cancel()
		wg.Wait()
	})
}

// TestWakeAtWithEventfd: timed parking works in the kernel too.
func TestWakeAtWithEventfd(t *testing.T) {
	p, err := NewEventfdParker()
	if err != nil {
		t.Skip(err)
	}
	defer p.Close()
	began := time.Now()
	p.Park(3 * time.Millisecond)
	if d := time.Since(began); d < time.Millisecond {
		t.Errorf("slept %v", d)
	}
	p.Unpark()
	p.Unpark()
	p.Park(-1) // one token for both
	p.Close()
	p.Unpark() // must not touch the descriptor
}

// TestStepPanicIsNotSwallowed: a broken invariant ends the process unless the caller of Run decides
// otherwise; the executor does not go on with that state.
func TestStepPanicIsNotSwallowed(t *testing.T) {
	e := NewExecutor(ExecutorOptions{CPU: -1}, stepFunc(func(int64) (bool, int64) { panic("broken") }))
	defer func() {
		if r := recover(); r != "broken" {
			t.Errorf("recovered %v", r)
		}
	}()
	e.Run(t.Context())
	t.Error("Run returned")
}

// TestBusyExecutorLetsOthersRun is PUB-9's and HZ-45's property: on one processor a stepper that
// always has more to do does not keep another goroutine waiting until the runtime's preemption: each
// time that the executor yields, the other one runs. Counted, not timed: an executor that only said that it
// yields would let it run once in fifty times, when it is preempted.
func TestBusyExecutorLetsOthersRun(t *testing.T) { // PUB-9
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	_, executors, stop := burn(t, []int{-1})
	e := executors[0]
	begin, ran := e.Stats().Yields, uint64(0)
	for e.Stats().Yields-begin < 400 {
		ran++
		runtime.Gosched() // the only way to run again is that the executor lets us
	}
	yields := e.Stats().Yields - begin
	stop()
	if ran < yields/4 {
		t.Errorf("the executor yielded %d times and another goroutine ran %d times", yields, ran)
	}
	if s := e.Stats(); s.Steps < s.Yields {
		t.Errorf("stats %+v", s)
	}
}

// TestPinnedExecutorRunsOnItsCPU also checks that it parks and wakes on its own thread.
func TestPinnedExecutorRunsOnItsCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("pinning needs linux")
	}
	cpus := UsableCPUs()
	cpu := cpus[len(cpus)-1]
	seen := make(chan []int, 1)
	var ask atomic.Bool
	e := NewExecutor(ExecutorOptions{CPU: cpu}, stepFunc(func(int64) (bool, int64) {
		if ask.CompareAndSwap(true, false) {
			got, _ := affinity()
			seen <- got
		}
		return false, 0
	}))
	stop := start(t, e)
	for range 3 {
		ask.Store(true)
		e.Wake()
		if got := <-seen; len(got) != 1 || got[0] != cpu {
			t.Errorf("runs on %v, want %d", got, cpu)
		}
	}
	stop()
	if s := e.Stats(); !s.Pinned || s.PinRefused != 0 || s.Steps < 3 {
		t.Errorf("stats %+v", s)
	}
}

// TestRefusedPinRunsUnpinned: a CPU that the process may not use costs a warning and a count, not
// the start (HZ-46).
func TestRefusedPinRunsUnpinned(t *testing.T) { // HZ-46
	var out bytes.Buffer
	ran := make(chan struct{}, 1)
	e := NewExecutor(ExecutorOptions{Shard: 3, CPU: 100_000, Logger: slog.New(slog.NewTextHandler(&out, nil))},
		stepFunc(func(int64) (bool, int64) {
			select {
			case ran <- struct{}{}:
			default:
			}
			return false, 0
		}))
	stop := start(t, e)
	<-ran
	stop()
	if s := e.Stats(); s.Pinned || s.PinRefused != 1 {
		t.Errorf("stats %+v", s)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "shard=3") {
		t.Errorf("logged %q", got)
	}
}

// TestClockFollowsTime: Run keeps the clock within its tick, Set puts it anywhere.
func TestClockFollowsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(ctx) })
		<-time.After(time.Minute)
		synctest.Wait()
		if lag := Mono() - c.Now(); lag < 0 || lag > int64(clockTick) {
			t.Errorf("the clock lags by %v", time.Duration(lag))
		}
		if got, want := c.UnixMicros(), uint64(time.Now().UnixMicro()); want-got > 1000 {
			t.Errorf("UnixMicros %d, want %d", got, want)
		}
		cancel()
		wg.Wait()
		c.Set(7, 8)
		if c.Now() != 7 || c.UnixMicros() != 8 {
			t.Error("Set did not take")
		}
	})
}
