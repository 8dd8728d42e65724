package sched

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestBudgetIsReleasedOnlyByItsHolder: permits stay taken until Release, and at rest none is.
func TestBudgetIsReleasedOnlyByItsHolder(t *testing.T) { // PUB-16, HZ-40
	b := NewBudget(100)
	if !b.TryAcquire(60) || !b.TryAcquire(40) || b.TryAcquire(1) {
		t.Fatal("room was counted wrongly")
	}
	if b.Used() != 100 {
		t.Errorf("used %d", b.Used())
	}
	b.Release(60)
	if !b.TryAcquire(1) {
		t.Error("released bytes were not free")
	}
	b.Release(40)
	b.Release(1)
	if b.Used() != 0 {
		t.Errorf("used %d at rest", b.Used())
	}
}

// TestOversizedRequestIsAdmittedAlone: a request beyond the whole budget waits for all of it and
// then has it, instead of waiting for ever.
func TestOversizedRequestIsAdmittedAlone(t *testing.T) { // PUB-17
	b := NewBudget(100)
	if !b.TryAcquire(1000) {
		t.Fatal("refused with nothing in flight")
	}
	if b.TryAcquire(1) {
		t.Fatal("it was not alone")
	}
	b.Release(1000)
	if b.Used() != 0 {
		t.Fatalf("used %d after the release", b.Used())
	}
	b.TryAcquire(1)
	got := make(chan error, 1)
	go func() { got <- b.Acquire(t.Context(), 1000) }()
	for b.Waiting() == 0 {
		runtime.Gosched() // until it stands in line
	}
	b.Release(1)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	b.Release(1000)
}

// TestBudgetIsFirstComeFirstServed: nobody overtakes a waiter, not even a request that would fit,
// and a waiter that gives up lets those behind it go.
func TestBudgetIsFirstComeFirstServed(t *testing.T) { // PUB-15, CORE-3
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(10)
		b.TryAcquire(8)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var order []string
		wait := func(ctx context.Context, name string, n int64) {
			go func() {
				err := b.Acquire(ctx, n)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					name += " gave up"
				}
				order = append(order, name)
			}()
			synctest.Wait()
		}
		wait(ctx, "big", 9)
		wait(t.Context(), "small", 2)
		wait(t.Context(), "smaller", 1)
		if b.TryAcquire(1) {
			t.Error("overtook the waiters")
		}
		cancel()
		synctest.Wait()
		if len(order) != 2 || order[0] != "big gave up" && order[1] != "big gave up" {
			t.Fatalf("after the first gave up: %v", order)
		}
		if b.Waiting() != 1 || b.Used() != 10 {
			t.Fatalf("%d wait, %d used", b.Waiting(), b.Used())
		}
		b.Release(8)
		synctest.Wait()
		b.Release(2)
		b.Release(1)
		if b.Used() != 0 || b.Waiting() != 0 {
			t.Errorf("at rest %d used, %d wait", b.Used(), b.Waiting())
		}
	})
}

// TestBudgetIsZeroAtRest: many goroutines that acquire, give up and release at random leave nothing
// behind and are never let in beyond the budget.
func TestBudgetIsZeroAtRest(t *testing.T) { // HZ-40
	b := NewBudget(50)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				n := int64((g*7+i*13)%60 + 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*time.Millisecond)
				if i%3 == 0 {
					cancel()
				}
				err := b.Acquire(ctx, n)
				cancel()
				if err != nil {
					if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Acquire: %v", err)
					}
					continue
				}
				if u := b.Used(); u < 0 || u > 50 {
					t.Errorf("used %d of 50", u)
				}
				b.Release(n)
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 || b.Waiting() != 0 {
		t.Errorf("at rest %d used, %d wait", b.Used(), b.Waiting())
	}
}

func TestBudgetMisuseIsNotHidden(t *testing.T) {
	for name, f := range map[string]func(){
		"release of what was not acquired": func() { NewBudget(5).Release(1) },
		"negative":                         func() { NewBudget(5).TryAcquire(-1) },
		"empty budget":                     func() { NewBudget(0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// TestAdmissionGuaranteesEachTenantItsSlots compares random enters and leaves with the rule of
// broker.md 1.4: a tenant below its depth is always let in, above it only while all tenants together
// leave the last depth slots free.
func TestAdmissionGuaranteesEachTenantItsSlots(t *testing.T) { // PUB-13
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 5).Draw(t, "depth")
		factor := rapid.IntRange(1, 4).Draw(t, "factor")
		a := NewAdmission(depth, factor)
		tenants := make([]*Tenant, rapid.IntRange(1, 6).Draw(t, "tenants"))
		in := make([]int, len(tenants))
		for i := range tenants {
			tenants[i] = a.NewTenant()
		}
		all := 0
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			i := rapid.IntRange(0, len(tenants)-1).Draw(t, "tenant")
			if rapid.Bool().Draw(t, "leave") {
				if in[i] > 0 {
					a.Leave(tenants[i])
					in[i]--
					all--
				}
			} else {
				want := in[i] < depth || all < depth*factor-depth
				if got := a.TryEnter(tenants[i]); got != want {
					t.Fatalf("tenant with %d of %d, %d in all: let in %v", in[i], depth, all, got)
				}
				if want {
					in[i]++
					all++
				}
			}
			if a.Entered() != int64(all) || tenants[i].Held() != int64(in[i]) {
				t.Fatalf("counts %d, %d; want %d, %d", a.Entered(), tenants[i].Held(), all, in[i])
			}
		}
	})
}

// TestQuietTenantGetsInWhileAnotherFloods: with one tenant refused at every attempt, from several
// goroutines, another is never refused below its guarantee.
func TestQuietTenantGetsInWhileAnotherFloods(t *testing.T) { // PUB-13
	a := NewAdmission(4, 4)
	flood, quiet := a.NewTenant(), a.NewTenant()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if a.TryEnter(flood) && i%2 == 0 {
					a.Leave(flood)
				}
			}
		})
	}
	for range 2000 {
		for range 4 {
			if !a.TryEnter(quiet) {
				t.Fatal("the quiet tenant was refused")
			}
		}
		for range 4 {
			a.Leave(quiet)
		}
	}
	close(stop)
	wg.Wait()
	for flood.Held() > 0 {
		a.Leave(flood)
	}
	if a.Entered() != 0 {
		t.Errorf("%d in at rest", a.Entered())
	}
}

// TestAdmissionWaitersKeepTheirPlace: waiters of a tenant are let in in the order of arrival, a new
// job does not overtake them, and one that gave up leaves no trace.
func TestAdmissionWaitersKeepTheirPlace(t *testing.T) { // PUB-15
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(1, 1)
		x, y := a.NewTenant(), a.NewTenant()
		a.TryEnter(x)
		got := make(chan int, 8)
		wait := func(ctx context.Context, i int) {
			go func() {
				if a.Enter(ctx, x) != nil {
					i = -i
				}
				got <- i
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(t.Context(), 1)
		wait(ctx, 2)
		wait(t.Context(), 3)
		if !a.TryEnter(y) {
			t.Error("one tenant's line kept another out")
		}
		cancel()
		if i := <-got; i != -2 {
			t.Fatalf("got %d, want -2", i)
		}
		a.Leave(x)
		if i := <-got; i != 1 {
			t.Fatalf("got %d, want 1", i)
		}
		if a.TryEnter(x) {
			t.Error("overtook the line")
		}
		a.Leave(x)
		if i := <-got; i != 3 {
			t.Fatalf("got %d, want 3", i)
		}
		a.Leave(x)
		a.Leave(y)
		if a.Entered() != 0 || a.Waiting() != 0 {
			t.Errorf("at rest %d in, %d wait", a.Entered(), a.Waiting())
		}
	})
}

// TestAdmissionIsZeroAtRest: random enters, give-ups and leaves from many goroutines.
func TestAdmissionIsZeroAtRest(t *testing.T) { // HZ-40
	a := NewAdmission(2, 3)
	tenants := []*Tenant{a.NewTenant(), a.NewTenant(), a.NewTenant()}
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			tenant := tenants[g%len(tenants)]
			for i := range 400 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%4)*time.Millisecond)
				if a.Enter(ctx, tenant) == nil {
					a.Leave(tenant)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if a.Entered() != 0 || a.Waiting() != 0 {
		t.Errorf("at rest %d in, %d wait", a.Entered(), a.Waiting())
	}
}
