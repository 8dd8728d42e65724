package sched

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// job is a Granter that notes when it is let in, as a parked publish goes to its inbox.
type job struct {
	w  Waiter
	id int
	in *[]int
}

func (j *job) Granted() { *j.in = append(*j.in, j.id) }

// Jobs that stand in line without a goroutine are let in in the order in which they joined, each once,
// and what is cancelled never; nothing is left in line, whatever the order of joins, leaves and cancels.
func TestJoinedJobsKeepTheirPlace(t *testing.T) { // PUB-15
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 3).Draw(t, "depth")
		a := NewAdmission(depth, rapid.IntRange(1, 3).Draw(t, "factor"))
		tenants := make([]*Tenant, 3)
		in := make([][]int, len(tenants))
		waits := make([][]*job, len(tenants)) // in line, oldest first, and perhaps some that were let in
		granted := make([]int, len(tenants))  // jobs that are in
		seen := make([]int, len(tenants))     // of in, judged already
		for i := range tenants {
			tenants[i] = a.NewTenant()
		}
		id := 0
		judge := func() {
			for i := range tenants {
				for ; seen[i] < len(in[i]); seen[i]++ {
					if len(waits[i]) == 0 || waits[i][0].id != in[i][seen[i]] {
						t.Fatalf("tenant %d: job %d was let in, first in line is %v", i, in[i][seen[i]], waits[i])
					}
					waits[i] = waits[i][1:]
					granted[i]++
				}
				if len(waits[i]) > 0 && granted[i] < depth {
					t.Fatalf("tenant %d has %d in, is guaranteed %d, and %d wait", i, granted[i], depth, len(waits[i]))
				}
			}
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			i := rapid.IntRange(0, len(tenants)-1).Draw(t, "tenant")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				if a.TryEnter(tenants[i]) {
					if len(waits[i]) > 0 {
						t.Fatal("overtook the line")
					}
					granted[i]++
					break
				}
				j := &job{id: id, in: &in[i]}
				id++
				waits[i] = append(waits[i], j)
				a.Join(tenants[i], &j.w, j)
			case 2:
				if granted[i] > 0 {
					granted[i]--
					a.Leave(tenants[i])
				}
			case 3:
				if n := len(waits[i]); n > 0 {
					k := rapid.IntRange(0, n-1).Draw(t, "which")
					j := waits[i][k]
					waits[i] = append(waits[i][:k:k], waits[i][k+1:]...)
					if !a.Cancel(tenants[i], &j.w) {
						t.Fatal("a job in line could not be cancelled")
					}
					if a.Cancel(tenants[i], &j.w) {
						t.Fatal("cancelled twice")
					}
				}
			}
			judge()
		}
		for i := range tenants {
			for granted[i] > 0 {
				granted[i]--
				a.Leave(tenants[i])
				judge()
			}
		}
		if a.Entered() != 0 || a.Waiting() != 0 {
			t.Fatalf("at rest %d in, %d wait", a.Entered(), a.Waiting())
		}
	})
}

// recorder is the queue behind an admission: who got in by standing in line and who found room at once
// must come in the order of one producer.
type recorder struct {
	mu  sync.Mutex
	got []int
}

type parked struct {
	w Waiter
	n int
	r *recorder
}

func (p *parked) Granted() { p.r.add(p.n) }

func (r *recorder) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, n)
}

// A producer that goes on while earlier jobs of it stand in line never overtakes them, not even in the
// moment in which the last one of the line is let in.
func TestProducerNeverOvertakesItsOwnLine(t *testing.T) { // PUB-15
	a := NewAdmission(2, 1)
	tenant := a.NewTenant()
	r := &recorder{}
	const jobs = 30_000
	var wg sync.WaitGroup
	wg.Go(func() { // the consumer
		rng := rand.New(rand.NewPCG(1, 2))
		for left := 0; left < jobs; {
			r.mu.Lock()
			n := len(r.got)
			r.mu.Unlock()
			for ; left < n; left++ {
				a.Leave(tenant)
				if rng.IntN(3) == 0 {
					left++
					break
				}
			}
		}
	})
	for n := range jobs {
		if a.TryEnter(tenant) {
			r.add(n)
			continue
		}
		p := &parked{n: n, r: r}
		a.Join(tenant, &p.w, p)
	}
	wg.Wait()
	for i, n := range r.got {
		if i != n {
			t.Fatalf("job %d came as number %d", n, i)
		}
	}
	if a.Entered() != 0 || a.Waiting() != 0 {
		t.Errorf("at rest %d in, %d wait", a.Entered(), a.Waiting())
	}
}

// Standing in line allocates nothing.
func TestJoinAllocatesNothing(t *testing.T) {
	a := NewAdmission(1, 1)
	tenant := a.NewTenant()
	in := make([]int, 0, 4096)
	j := &job{in: &in}
	n := testing.AllocsPerRun(1000, func() {
		in = in[:0]
		a.TryEnter(tenant)
		a.Join(tenant, &j.w, j)
		a.Leave(tenant)
		a.Leave(tenant)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// asker is a Granter that tries, in the moment in which it is let in, to get another job in.
type asker struct {
	w         Waiter
	a         *Admission
	tenant    *Tenant
	granted   bool
	overtaken bool
}

func (k *asker) Granted() {
	k.granted = true
	k.overtaken = k.a.TryEnter(k.tenant)
}

// The two moments in which a line could be overtaken, held open: room has come free and is not given to
// the line yet; the last one in line has been let in and is not on its way yet.
func TestLineIsNotOvertakenWhileItMoves(t *testing.T) { // PUB-15
	a := NewAdmission(2, 1)
	k := &asker{a: a, tenant: a.NewTenant()}
	a.TryEnter(k.tenant)
	a.TryEnter(k.tenant)
	a.Join(k.tenant, &k.w, k)
	a.mu.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { a.Leave(k.tenant) })
	wg.Go(func() { a.Leave(k.tenant) })
	for a.Entered() > 0 {
		runtime.Gosched() // until both have left, and want the lock
	}
	if a.TryEnter(k.tenant) {
		t.Error("the line was overtaken before it was served")
	}
	a.mu.Unlock()
	wg.Wait()
	if !k.granted || k.overtaken {
		t.Errorf("let in %v, overtaken on the way %v", k.granted, k.overtaken)
	}
	if !a.TryEnter(k.tenant) {
		t.Error("no room behind an empty line")
	}
}

// Who gives up in front of a line lets those behind it go: they may have the room that was too small for
// it.
func TestWhoGivesUpLetsTheNextGo(t *testing.T) { // CORE-3
	synctest.Test(t, func(t *testing.T) {
		b := NewSharedBudget(100)
		tenant := b.NewTenant()
		b.TryAcquire(tenant, 20)
		ctx, cancel := context.WithCancel(t.Context())
		large, small := make(chan error, 1), make(chan error, 1)
		go func() { large <- b.Acquire(ctx, tenant, 90) }()
		synctest.Wait()
		go func() { small <- b.Acquire(t.Context(), tenant, 5) }()
		synctest.Wait()
		if b.Waiting() != 2 {
			t.Fatalf("%d wait", b.Waiting())
		}
		cancel()
		if err := <-large; err == nil {
			t.Error("110 of 100 bytes")
		}
		if err := <-small; err != nil {
			t.Error(err)
		}
		b.Release(tenant, 20)
		b.Release(tenant, 5)
	})
}
