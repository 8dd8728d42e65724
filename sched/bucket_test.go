package sched

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// broker.md 1.8: whoever finds the bucket not in debt passes whatever he costs; the debt keeps the next
// ones out until it is paid, and is never more than five seconds of the rate.
func TestBucketPassesWhoeverFindsNoDebt(t *testing.T) {
	const second = int64(time.Second)
	b := NewBucket(1000, time.Second, 0)
	take := func(n, now, wantPaid, wantDebt int64) {
		t.Helper()
		if paid, debt := b.Take(n, now); paid != wantPaid || debt != wantDebt {
			t.Fatalf("%d at %v: paid %v, debt %v; want %v, %v", n, time.Duration(now),
				time.Duration(paid), time.Duration(debt), time.Duration(wantPaid), time.Duration(wantDebt))
		}
	}
	take(400, 0, second*4/10, 0)
	take(600, 0, second*6/10, 0)           // the burst is used up: empty, not in debt
	take(2000, 0, 2*second, 0)             // one batch beyond it passes
	take(1, 0, 0, 2*second)                // and keeps the next out
	take(1, second, 0, second)             // until it is paid
	take(0, 2*second, 0, 0)                // now
	take(1_000_000, 2*second, 5*second, 0) // a thousand seconds' worth
	take(1, 2*second, 0, 5*second)         // owe five
	take(1, 7*second-1, 0, 1)              // to the end
	take(1, 7*second, second/1000, 0)      //
	take(1000, 60*second, second, 0)       // a minute's silence saves one second up
	take(1, 60*second, second/1000, 0)     //
	take(1, 60*second, 0, second/1000)     //
	b.Return(second / 1000)                // what was not done after all
	take(3, 60*second, second*3/1000, 0)   //
	take(1<<62, 70*second, 6*second, 0)    // no overflow
	if b := NewBucket(1, 0, 0); b.cost(0) != 0 || b.cost(-5) != 0 {
		t.Error("nothing costs something")
	}
}

// Against the definition, with numbers that rounding does not touch: a bucket of tokens.
func TestBucketModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rate = 1000 // a unit is a millisecond
		burst := rapid.Int64Range(0, 3000).Draw(t, "burst")
		now := int64(0)
		b := NewBucket(rate, time.Duration(burst)*time.Millisecond, 0)
		tokens := burst
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "wait") {
				ms := rapid.Int64Range(0, 4000).Draw(t, "ms")
				now += ms * int64(time.Millisecond)
				tokens = min(tokens+ms, burst)
				continue
			}
			n := rapid.Int64Range(0, 8000).Draw(t, "n")
			paid, debt := b.Take(n, now)
			if tokens < 0 {
				if debt != -tokens*int64(time.Millisecond) {
					t.Fatalf("debt %v with %d tokens", time.Duration(debt), tokens)
				}
				continue
			}
			before := tokens
			tokens = max(tokens-n, -5000)
			if debt != 0 || paid != (before-tokens)*int64(time.Millisecond) {
				t.Fatalf("paid %v, debt %v; %d tokens of %d", time.Duration(paid), time.Duration(debt), tokens, before)
			}
			if rapid.IntRange(0, 3).Draw(t, "return") == 0 {
				b.Return(paid)
				tokens = before
			}
		}
	})
}

// However many take at the same moment, one of them gets the last token.
func TestBucketUnderConcurrency(t *testing.T) {
	b := NewBucket(1, 10*time.Second, 0)
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if _, debt := b.Take(1, 0); debt == 0 {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 11 { // ten in it, and one that finds it empty and not in debt
		t.Errorf("%d passed, want 11", n)
	}
}

func TestBucketMisuseIsNotHidden(t *testing.T) {
	for _, f := range []func(){func() { NewBucket(0, 0, 0) }, func() { NewBucket(1, -1, 0) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}
