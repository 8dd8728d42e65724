package sched

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestInboxKeepsTheOrderOfEachProducer pushes from several goroutines while the consumer pops, and
// checks that nothing is lost, doubled or reordered within a producer.
func TestInboxKeepsTheOrderOfEachProducer(t *testing.T) {
	const producers, each = 8, 5000
	type item struct{ producer, seq int }
	wake := make(chan struct{}, 1)
	q := NewInbox[item](func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				q.Push(&Node[item]{Value: item{p, i}})
			}
		})
	}
	var next [producers]int
	for got := 0; got < producers*each; {
		n, ok := q.Pop()
		if !ok {
			<-wake // the push that found it empty has called wake
			continue
		}
		v := n.Value
		if v.seq != next[v.producer] {
			t.Fatalf("producer %d: got %d, want %d", v.producer, v.seq, next[v.producer])
		}
		next[v.producer]++
		got++
	}
	wg.Wait()
	if !q.Empty() {
		t.Error("not empty after the last item")
	}
}

// TestInboxIsAQueue compares random pushes and pops of one goroutine with a slice, reusing nodes,
// and checks that wake is called by exactly the pushes that find the shared part empty.
func TestInboxIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wakes := 0
		q := NewInbox[int](func() { wakes++ })
		var model []int
		var free []*Node[int]
		shared := 0 // pushed since the consumer last took
		taken := 0
		for i := range rapid.IntRange(0, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") {
				n := &Node[int]{}
				if len(free) > 0 {
					n, free = free[len(free)-1], free[:len(free)-1]
				}
				n.Value = i
				before := wakes
				q.Push(n)
				if (wakes > before) != (shared == 0) {
					t.Fatalf("wake called: %v with %d in the shared part", wakes > before, shared)
				}
				model = append(model, i)
				shared++
				continue
			}
			n, ok := q.Pop()
			if ok != (len(model) > 0) {
				t.Fatalf("Pop: %v with %d queued", ok, len(model))
			}
			if !ok {
				continue
			}
			if taken == 0 {
				taken, shared = shared, 0
			}
			taken--
			if n.Value != model[0] {
				t.Fatalf("got %d, want %d", n.Value, model[0])
			}
			model = model[1:]
			free = append(free, n)
		}
		if q.Empty() != (len(model) == 0) {
			t.Fatalf("Empty is %v with %d queued", q.Empty(), len(model))
		}
	})
}

func TestInboxPushAllocatesNothing(t *testing.T) {
	q := NewInbox[int](nil)
	n := &Node[int]{}
	if got := testing.AllocsPerRun(100, func() { q.Push(n); q.Pop() }); got != 0 {
		t.Errorf("%v allocations per push and pop", got)
	}
}
