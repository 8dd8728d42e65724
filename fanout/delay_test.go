package fanout

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// TestNoTimerWithoutADelay: at delay 0 a lone event and a crowd are delivered without arming a timer.
func TestNoTimerWithoutADelay(t *testing.T) { // SUB-14, SUB-15
	pool := wire.NewPool(1 << 20)
	r := NewRegistry()
	s := NewSubscriber(SubscriberOptions{})
	r.Add(s)
	sink := memorySink{tell: make(chan struct{}, 1)}
	f := NewFeeder(s, &sink, Limits{})
	done := make(chan struct{})
	go func() { defer close(done); f.Run(t.Context()) }()
	for i := range uint64(200) {
		e := numbered(pool, i, 1)
		r.Publish(e)
		e.Release()
		if i%3 == 0 {
			<-sink.tell
		}
	}
	s.End(EndStopped)
	<-done
	if f.timer != nil || f.timers != 0 {
		t.Errorf("%d timers were armed", f.timers)
	}
	checkPool(t, pool)
}

// TestNoEventWaitsLongerThanTheDelay: with a delay and a steady stream of single events the deadline
// counts from the first event of the batch, and is not put off by those that follow.
func TestNoEventWaitsLongerThanTheDelay(t *testing.T) { // SUB-15
	synctest.Test(t, func(t *testing.T) {
		const delay, interval, write = 2 * time.Millisecond, 190 * time.Microsecond, 500 * time.Microsecond
		pool := wire.NewPool(1 << 20)
		r := NewRegistry()
		s := NewSubscriber(SubscriberOptions{Shape: offsets})
		r.Add(s)
		var sent [500]time.Time // each written before its event is published
		var worst time.Duration
		delivered := 0
		f := NewFeeder(s, sinkFunc(func(frames [][]byte) error {
			events, _ := decode(t, frames)
			for _, e := range events {
				worst = max(worst, time.Since(sent[e.Offset]))
				delivered++
			}
			<-time.After(write) // so that company queues
			return nil
		}), Limits{Delay: delay})
		var wg sync.WaitGroup
		wg.Go(func() { f.Run(t.Context()) })
		for i := range uint64(len(sent)) {
			sent[i] = time.Now()
			e := numbered(pool, i, 1)
			r.Publish(e)
			e.Release()
			synctest.Wait()
			<-time.After(interval)
		}
		s.End(EndStopped)
		wg.Wait()
		if delivered != 500 || f.timers == 0 {
			t.Errorf("%d events, %d timers", delivered, f.timers)
		}
		if worst > delay+write { // the deadline counts from when the batch was begun, at most a write later
			t.Errorf("an event waited %v", worst)
		}
		if st := s.Stats(); st.Writes > 200 {
			t.Errorf("%d writes: the delay joined nothing", st.Writes)
		}
		checkPool(t, pool)
	})
}
