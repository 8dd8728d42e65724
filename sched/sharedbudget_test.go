package sched

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A tenant whose permits never come back does not take what everybody else needs: it is kept out of the
// last eighth, and those who stand in its line keep nobody out.
func TestHangingTenantLeavesBytesToOthers(t *testing.T) { // PUB-13
	synctest.Test(t, func(t *testing.T) {
		b := NewSharedBudget(64)
		hangs, quiet := b.NewTenant(), b.NewTenant()
		n := int64(0)
		for b.TryAcquire(hangs, 4) {
			n += 4
		}
		if n != 56 || hangs.Held() != 56 {
			t.Fatalf("one tenant took %d of 64", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- b.Acquire(ctx, hangs, 4) }()
		synctest.Wait()
		for range 100 {
			if !b.TryAcquire(quiet, 8) {
				t.Fatal("the quiet tenant was refused")
			}
			if b.TryAcquire(quiet, 1) {
				t.Fatal("beyond the whole")
			}
			b.Release(quiet, 8)
		}
		cancel()
		if err := <-gaveUp; err == nil {
			t.Fatal("the hanging tenant got in")
		}
		b.Release(hangs, 56)
		if b.Used() != 0 || b.Waiting() != 0 {
			t.Errorf("at rest %d used, %d wait", b.Used(), b.Waiting())
		}
	})
}

// Who holds a quarter passes nobody who waits; who holds less does.
func TestTenantAboveItsQuarterPassesNobody(t *testing.T) { // PUB-13, PUB-15
	synctest.Test(t, func(t *testing.T) {
		b := NewSharedBudget(64)
		flood, large, small := b.NewTenant(), b.NewTenant(), b.NewTenant()
		for range 12 {
			b.TryAcquire(flood, 4)
		}
		done := make(chan error, 1)
		go func() { done <- b.Acquire(t.Context(), large, 20) }() // 48 are taken
		synctest.Wait()
		if b.TryAcquire(flood, 4) {
			t.Fatal("the flood passed who waits")
		}
		if !b.TryAcquire(small, 4) {
			t.Fatal("who has little waits for who has much")
		}
		b.Release(small, 4)
		b.Release(flood, 4)
		synctest.Wait()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		b.Release(large, 20)
		b.Release(flood, 44)
	})
}

// TestSharedBudgetModel compares random steps with the rule: beyond seven eighths only who holds less
// than a quarter, and a request beyond everything alone.
func TestSharedBudgetModel(t *testing.T) { // PUB-17
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 100).Draw(t, "size")
		b := NewSharedBudget(size)
		tenants := make([]*Tenant, rapid.IntRange(1, 4).Draw(t, "tenants"))
		taken := make([][]int64, len(tenants))
		held := make([]int64, len(tenants))
		for i := range tenants {
			tenants[i] = b.NewTenant()
		}
		used := int64(0)
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			i := rapid.IntRange(0, len(tenants)-1).Draw(t, "tenant")
			if rapid.Bool().Draw(t, "release") {
				if k := len(taken[i]); k > 0 {
					n := taken[i][k-1]
					taken[i] = taken[i][:k-1]
					b.Release(tenants[i], n)
					held[i] -= min(n, size)
					used -= min(n, size)
				}
			} else {
				n := rapid.Int64Range(0, 2*size).Draw(t, "n")
				cost := min(n, size)
				want := used+cost <= size && (used+cost <= size-size/8 || held[i] < max(1, size/4))
				if got := b.TryAcquire(tenants[i], n); got != want {
					t.Fatalf("%d of %d used, tenant holds %d, asks %d: %v", used, size, held[i], n, got)
				}
				if want {
					taken[i] = append(taken[i], n)
					held[i] += cost
					used += cost
				}
			}
			if b.Used() != used || tenants[i].Held() != held[i] {
				t.Fatalf("counts %d, %d; want %d, %d", b.Used(), tenants[i].Held(), used, held[i])
			}
		}
	})
}

// Random acquires, give-ups and releases from many goroutines leave nothing behind.
func TestSharedBudgetIsZeroAtRest(t *testing.T) { // HZ-40
	b := NewSharedBudget(50)
	tenants := []*Tenant{b.NewTenant(), b.NewTenant(), b.NewTenant()}
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			tenant := tenants[g%len(tenants)]
			for i := range 300 {
				n := int64((g*7+i*13)%60 + 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*time.Millisecond)
				if i%3 == 0 {
					cancel()
				}
				if b.Acquire(ctx, tenant, n) == nil {
					if u := b.Used(); u < 0 || u > 50 {
						t.Errorf("used %d of 50", u)
					}
					b.Release(tenant, n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 || b.Waiting() != 0 {
		t.Errorf("at rest %d used, %d wait", b.Used(), b.Waiting())
	}
	for i, tenant := range tenants {
		if tenant.Held() != 0 {
			t.Errorf("tenant %d holds %d", i, tenant.Held())
		}
	}
}
