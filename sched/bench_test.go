package sched

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkInbox(b *testing.B) {
	b.Run("one goroutine", func(b *testing.B) {
		q := NewInbox[int](nil)
		n := &Node[int]{}
		b.ReportAllocs()
		for b.Loop() {
			q.Push(n)
			q.Pop()
		}
	})
	b.Run("batch=64", func(b *testing.B) {
		q := NewInbox[int](nil)
		nodes := make([]Node[int], 64)
		b.ReportAllocs()
		for b.Loop() {
			for i := range nodes {
				q.Push(&nodes[i])
			}
			for range nodes {
				q.Pop()
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(64*b.N), "ns/item")
	})
	// Producers and consumer on different goroutines; nodes come back to their producer.
	b.Run("two goroutines", func(b *testing.B) {
		q, back := NewInbox[int](nil), NewInbox[int](nil)
		nodes := make([]Node[int], 256)
		for i := range nodes {
			back.Push(&nodes[i])
		}
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				if n, ok := q.Pop(); ok {
					back.Push(n)
					continue
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		b.ReportAllocs()
		for b.Loop() {
			n, ok := back.Pop()
			for !ok {
				n, ok = back.Pop()
			}
			q.Push(n)
		}
		close(stop)
		<-done
	})
}

// BenchmarkExecutorRoundTrip: one item to an executor that sleeps, and the answer back through a
// channel.
func BenchmarkExecutorRoundTrip(b *testing.B) {
	run := func(name string, o ExecutorOptions) {
		b.Run(name, func(b *testing.B) {
			var inbox *Inbox[chan struct{}]
			e := NewExecutor(o, stepFunc(func(int64) (bool, int64) {
				n, ok := inbox.Pop()
				if ok {
					n.Value <- struct{}{}
				}
				return ok, 0
			}))
			inbox = NewInbox[chan struct{}](e.Wake)
			stop := start(b, e)
			n := &Node[chan struct{}]{Value: make(chan struct{}, 1)}
			b.ReportAllocs()
			for b.Loop() {
				inbox.Push(n)
				<-n.Value
			}
			b.StopTimer()
			stop()
		})
	}
	cpus := UsableCPUs()
	run("unpinned", ExecutorOptions{CPU: -1})
	run("pinned", ExecutorOptions{CPU: cpus[len(cpus)-1]})
}

// BenchmarkWakeAwake is what a push pays for the wake of an executor that was told already, and of
// one that runs.
func BenchmarkWakeAwake(b *testing.B) {
	e := NewExecutor(ExecutorOptions{CPU: -1}, nil)
	b.Run("told", func(b *testing.B) {
		for b.Loop() {
			e.Wake()
		}
	})
	b.Run("running", func(b *testing.B) {
		for b.Loop() {
			e.state.Store(execRunning)
			e.Wake()
		}
	})
}

func BenchmarkFairQueue(b *testing.B) {
	for _, tenants := range []int{1, 16} {
		for _, lanes := range []int{1, 64, 1024} {
			if lanes < tenants {
				continue
			}
			b.Run(fmt.Sprintf("tenants=%d/lanes=%d", tenants, lanes), func(b *testing.B) {
				q := NewFairQueue[int]()
				a := NewAdmission(1, 1)
				accounts := make([]*Tenant, tenants)
				for i := range accounts {
					accounts[i] = a.NewTenant()
				}
				for i := range lanes {
					l := q.NewLane(accounts[i%tenants])
					q.Push(l, i, 16<<10)
					q.Push(l, i, 16<<10)
				}
				b.ReportAllocs()
				for b.Loop() { // every lane has a job at any time
					l, _ := q.Next()
					job, _ := q.Pop(l)
					q.Done(l)
					q.Push(l, job, 16<<10)
				}
			})
		}
	}
}

func BenchmarkBudget(b *testing.B) {
	budget := NewBudget(1 << 30)
	b.ReportAllocs()
	for b.Loop() {
		budget.TryAcquire(4096)
		budget.Release(4096)
	}
}

func BenchmarkSharedBudget(b *testing.B) {
	budget := NewSharedBudget(1 << 30)
	t := budget.NewTenant()
	b.ReportAllocs()
	for b.Loop() {
		budget.TryAcquire(t, 4096)
		budget.Release(t, 4096)
	}
}

func BenchmarkBucket(b *testing.B) {
	bucket := NewBucket(1<<40, time.Second, 0)
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now += 100
		bucket.Take(64, now)
	}
}

// BenchmarkJoin is a job that stands in line and is let in by the next one that leaves.
func BenchmarkJoin(b *testing.B) {
	a := NewAdmission(1, 1)
	t := a.NewTenant()
	a.TryEnter(t)
	w := &parked{r: &recorder{got: make([]int, 0, 1)}}
	b.ReportAllocs()
	for b.Loop() {
		w.r.got = w.r.got[:0]
		a.Join(t, &w.w, w)
		a.Leave(t)
	}
}

func BenchmarkAdmission(b *testing.B) {
	a := NewAdmission(64, 4)
	t := a.NewTenant()
	b.ReportAllocs()
	for b.Loop() {
		a.TryEnter(t)
		a.Leave(t)
	}
}

func BenchmarkClock(b *testing.B) {
	c := NewClock()
	b.Run("coarse", func(b *testing.B) {
		for b.Loop() {
			c.Now()
		}
	})
	b.Run("exact", func(b *testing.B) {
		for b.Loop() {
			Mono()
		}
	})
}
