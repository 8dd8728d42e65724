package cache

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/wire"
)

// clock is a hand-set clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newTestCache(maxBytes int64) (*Cache, *clock) {
	ck := &clock{now: time.Unix(1_700_000_000, 0)}
	return New(Options{MaxBytes: maxBytes, Now: ck.Now}), ck
}

func mustPut(t *testing.T, c *Cache, id uint64, key, value string, ttlMS uint64) uint64 {
	t.Helper()
	v, err := c.Put(id, key, []byte(value), ttlMS)
	if err != nil {
		t.Fatalf("Put(%d, %q): %v", id, key, err)
	}
	return v
}

func wantValue(t *testing.T, c *Cache, id uint64, key, want string) Entry {
	t.Helper()
	e, ok := c.Get(id, key)
	if !ok || string(e.Value) != want {
		t.Fatalf("Get(%d, %q) = %q, %v; want %q", id, key, e.Value, ok, want)
	}
	return e
}

func wantMissing(t *testing.T, c *Cache, id uint64, key string) {
	t.Helper()
	if e, ok := c.Get(id, key); ok {
		t.Fatalf("Get(%d, %q) = %q; want nothing", id, key, e.Value)
	}
}

// What was put is read back, a delete answers what it removed, and a key of one cache is not a
// key of another (CACHE-1, without the restart).
func TestPutGetDeleteRoundTrip(t *testing.T) {
	c, _ := newTestCache(0)
	v1 := mustPut(t, c, 1, "k", "one", 0)
	if e := wantValue(t, c, 1, "k", "one"); e.Version != v1 {
		t.Errorf("version %d, the put said %d", e.Version, v1)
	}
	wantMissing(t, c, 2, "k")
	if v2 := mustPut(t, c, 1, "k", "", 0); v2 <= v1 {
		t.Errorf("version fell from %d to %d", v1, v2)
	}
	wantValue(t, c, 1, "k", "")
	if e, ok := c.Delete(1, "k"); !ok || e.Value == nil || len(e.Value) != 0 {
		t.Errorf("Delete = %q, %v; want the empty value", e.Value, ok)
	}
	if _, ok := c.Delete(1, "k"); ok {
		t.Error("the second Delete found something")
	}
	wantMissing(t, c, 1, "k")
	want := Stats{Puts: 2, Deletes: 2, Hits: 2, Misses: 2}
	if diff := cmp.Diff(want, c.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// An entry lives exactly for its time from the put on, each put sets the time anew, and 0 means
// for ever (CACHE-1; wire.md 4.5).
func TestExpiryIsAbsoluteFromThePut(t *testing.T) {
	c, ck := newTestCache(0)
	mustPut(t, c, 1, "k", "v", 100)
	ck.advance(99 * time.Millisecond)
	wantValue(t, c, 1, "k", "v") // reading does not prolong
	ck.advance(time.Millisecond)
	wantMissing(t, c, 1, "k")
	if _, ok := c.Delete(1, "k"); ok {
		t.Error("Delete returned an expired value")
	}

	mustPut(t, c, 1, "k", "v", 100)
	ck.advance(60 * time.Millisecond)
	mustPut(t, c, 1, "k", "w", 100)
	ck.advance(60 * time.Millisecond)
	wantValue(t, c, 1, "k", "w")
	mustPut(t, c, 1, "k", "x", 0)
	ck.advance(1000 * time.Hour)
	wantValue(t, c, 1, "k", "x")
	if s := c.Stats(); s.Expired != 1 {
		t.Errorf("expired %d, want 1", s.Expired)
	}
}

func TestTTLBeyondTheClockNeverExpires(t *testing.T) {
	c, ck := newTestCache(0)
	for _, ttl := range []uint64{math.MaxUint64, math.MaxInt64, math.MaxInt64 / 1_000_000} {
		mustPut(t, c, 1, "k", "v", ttl)
		ck.advance(24 * 365 * time.Hour)
		wantValue(t, c, 1, "k", "v")
	}
}

// Expired entries that nobody reads again give their memory back as the cache is written to.
func TestWritesFreeExpiredMemory(t *testing.T) {
	c, ck := newTestCache(0)
	for i := range 10_000 {
		mustPut(t, c, 1, fmt.Sprint("short", i), "value", 10)
	}
	ck.advance(time.Second)
	for i := range 10_000 {
		mustPut(t, c, 1, fmt.Sprint("long", i), "value", 0)
	}
	s := c.Stats()
	if s.Entries != 10_000 || s.Expired != 10_000 || s.Evicted != 0 {
		t.Errorf("%d entries, %d expired, %d evicted; want 10000, 10000, 0", s.Entries, s.Expired, s.Evicted)
	}
	checkAudit(t, c)
}

// The bytes never pass the bound, whatever is put; the newest entry is always there; expired ones
// go before live ones (HZ-47).
func TestBytesStayWithinTheBound(t *testing.T) {
	const limit = 1 << 20
	c, ck := newTestCache(limit)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		key := fmt.Sprint(rng.IntN(3000))
		value := string(make([]byte, rng.IntN(20_000)))
		ttl := uint64(rng.IntN(3) * 50)
		mustPut(t, c, uint64(rng.IntN(3)), key, value, ttl)
		if got := c.Stats().Bytes; got > limit {
			t.Fatalf("put %d: %d bytes, the bound is %d", i, got, limit)
		}
		ck.advance(time.Millisecond)
	}
	mustPut(t, c, 9, "last", "here", 0)
	wantValue(t, c, 9, "last", "here")
	s := c.Stats()
	if s.Evicted == 0 || s.Expired == 0 {
		t.Errorf("evicted %d, expired %d: the test must see both", s.Evicted, s.Expired)
	}
	checkAudit(t, c)
}

// What was read lately outlives what was not: among the entries of one part the one that is read
// all the time is still there when the others were evicted.
func TestEvictionPrefersWhatNobodyReads(t *testing.T) {
	const entries = 40
	c, _ := newTestCache(entries * (entryOverhead + 1100))
	hot := scope{1, "hot"}
	mustPut(t, c, hot.id, hot.key, string(make([]byte, 1000)), 0)
	p, same := c.partOf(hot), 0
	for i := 0; same < 10*entries; i++ {
		s := scope{1, fmt.Sprint("cold", i)}
		if c.partOf(s) != p {
			continue
		}
		same++
		wantValue(t, c, hot.id, hot.key, string(make([]byte, 1000)))
		mustPut(t, c, s.id, s.key, string(make([]byte, 1000)), 0)
	}
	if s := c.Stats(); s.Evicted < 8*entries {
		t.Errorf("evicted %d: the test must evict", s.Evicted)
	}
}

func TestValueThatCannotFitIsRefused(t *testing.T) {
	c, _ := newTestCache(1000)
	mustPut(t, c, 1, "k", "stays", 0)
	_, err := c.Put(1, "k", make([]byte, 1000), 0)
	if !errors.Is(err, wire.ErrLimitExceeded) {
		t.Fatalf("error %v, want limit_exceeded", err)
	}
	wantValue(t, c, 1, "k", "stays")
	if s := c.Stats(); s.Refused != 1 || s.Evicted != 0 {
		t.Errorf("refused %d, evicted %d; want 1, 0", s.Refused, s.Evicted)
	}
}

func TestDropFreesOneCacheOnly(t *testing.T) {
	c, _ := newTestCache(0)
	for i := range 500 {
		mustPut(t, c, 1, fmt.Sprint(i), "a", 0)
		mustPut(t, c, 2, fmt.Sprint(i), "b", uint64(i))
	}
	if n := c.Drop(1); n != 500 {
		t.Errorf("dropped %d, want 500", n)
	}
	wantMissing(t, c, 1, "7")
	wantValue(t, c, 2, "7", "b")
	checkAudit(t, c)
}

// Writers, readers and deleters on few keys: no race, no lost byte in the accounting, and a key
// only ever shows a value that was put under it.
func TestConcurrentUseKeepsTheBooks(t *testing.T) {
	c := New(Options{MaxBytes: 64 << 10})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for range 5000 {
				key := fmt.Sprint(rng.IntN(200))
				switch rng.IntN(4) {
				case 0:
					c.Delete(1, key)
				case 1, 2:
					if _, err := c.Put(1, key, []byte(key+string(make([]byte, rng.IntN(1000)))), uint64(rng.IntN(3))); err != nil {
						t.Error(err)
					}
				default:
					if e, ok := c.Get(1, key); ok && string(e.Value[:len(key)]) != key {
						t.Errorf("key %q holds %q", key, e.Value[:len(key)])
					}
				}
			}
		})
	}
	wg.Wait()
	checkAudit(t, c)
	if s := c.Stats(); s.Bytes > 64<<10 {
		t.Errorf("%d bytes at rest, the bound is %d", s.Bytes, 64<<10)
	}
}

// Against a map that never evicts: whatever happens, Get answers the newest live put.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type value struct {
			v   string
			end time.Time
		}
		ck := &clock{now: time.Unix(0, 0)}
		c := New(Options{Now: ck.Now})
		model := map[scope]value{}
		live := func(s scope) (string, bool) {
			m, ok := model[s]
			return m.v, ok && (m.end.IsZero() || ck.Now().Before(m.end))
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			s := scope{rapid.Uint64Range(1, 2).Draw(t, "id"), rapid.StringMatching(`[ab]{0,2}`).Draw(t, "key")}
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				v, ttl := rapid.String().Draw(t, "value"), rapid.Uint64Range(0, 3).Draw(t, "ttl")
				if _, err := c.Put(s.id, s.key, []byte(v), ttl); err != nil {
					t.Fatal(err)
				}
				model[s] = value{v: v}
				if ttl > 0 {
					model[s] = value{v, ck.Now().Add(time.Duration(ttl) * time.Millisecond)}
				}
			case 1:
				want, wantOK := live(s)
				if got, ok := c.Delete(s.id, s.key); ok != wantOK || ok && string(got.Value) != want {
					t.Fatalf("Delete(%v) = %q, %v; want %q, %v", s, got.Value, ok, want, wantOK)
				}
				delete(model, s)
			case 2:
				ck.advance(time.Millisecond)
			default:
				want, wantOK := live(s)
				if got, ok := c.Get(s.id, s.key); ok != wantOK || ok && string(got.Value) != want {
					t.Fatalf("Get(%v) = %q, %v; want %q, %v", s, got.Value, ok, want, wantOK)
				}
			}
		}
	})
}

// checkAudit recomputes the gauges from the structures (HZ-40).
func checkAudit(t *testing.T, c *Cache) {
	t.Helper()
	var bytes int64
	for i := range c.parts {
		p := &c.parts[i]
		n, timed := 0, 0
		for e := p.lru.older; e != &p.lru; e = e.older {
			if p.entries[e.scope] != e {
				t.Fatalf("%v is in the list and not in the map", e.scope)
			}
			if e.expires != 0 {
				timed++
			}
			bytes += e.cost()
			n++
		}
		if n != len(p.entries) || timed != len(p.deadlines) {
			t.Fatalf("part %d: list %d, map %d; timed %d, heap %d", i, n, len(p.entries), timed, len(p.deadlines))
		}
	}
	if got := c.Stats().Bytes; got != bytes {
		t.Fatalf("bytes gauge %d, the entries cost %d", got, bytes)
	}
}
