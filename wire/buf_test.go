package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/ringcast/ringcast/internal/invariants"
)

// mustPanic returns what f panics with.
func mustPanic(t *testing.T, what string, f func()) (text string) {
	t.Helper()
	defer func() {
		t.Helper()
		r := recover()
		if r == nil {
			t.Errorf("%s: no panic", what)
		}
		text = fmt.Sprint(r)
	}()
	f()
	return ""
}

// requireIdle fails unless every Buf of p came back.
func requireIdle(t *testing.T, p *Pool) {
	t.Helper()
	if s := p.Stats(); s.InUse != 0 || s.InUseBytes != 0 {
		t.Errorf("%d Bufs of %d bytes are still in use", s.InUse, s.InUseBytes)
	}
}

func TestEverySizeHasTheSmallestClass(t *testing.T) {
	sizes := []int{0, 1, 511, 512, 513, 768, 769, 1024, 1025, 65535, 65536, 65537, 98304, 98305, 12 << 20, 12<<20 + 1,
		16 << 20, 16<<20 + 65536}
	for i := range classCount {
		sizes = append(sizes, classCap(i)-1, classCap(i), classCap(i)+1)
	}
	for _, n := range sizes {
		want := classNone
		for i := classCount - 1; i >= 0; i-- {
			if classCap(i) >= n {
				want = i
			}
		}
		if got := classOf(n); got != want {
			t.Errorf("%d bytes: class %d, want %d", n, got, want)
		}
	}
	for i := 1; i < classCount; i++ {
		if a, b := classCap(i-1), classCap(i); a >= b || b > 2*a {
			t.Errorf("class %d holds %d, class %d holds %d", i-1, a, i, b)
		}
	}
}

func TestBufKeepsRoomForAHeaderBeforeAnyPosition(t *testing.T) {
	p := NewPool(1 << 20)
	b := p.Get(100)
	if len(b.Bytes()) != 100 || cap(b.Bytes()) != 100 || b.Len() != 100 || b.Cap() != classMin || b.Size() != classMin+Headroom {
		t.Errorf("len %d, cap %d, Cap %d, Size %d", len(b.Bytes()), cap(b.Bytes()), b.Cap(), b.Size())
	}
	b.SetLen(b.Cap())
	copy(b.Bytes(), "0123456789")
	if head := b.Before(10, 10); string(head) != "0123456789" {
		t.Errorf("the bytes before 10 are %q", head)
	}
	head := b.Before(0, Headroom)
	if len(head) != Headroom || cap(head) != Headroom {
		t.Errorf("headroom of %d, cap %d", len(head), cap(head))
	}
	copy(b.Before(4, 6), "ABCDEF")
	if got := string(b.Bytes()[:6]); got != "CDEF45" {
		t.Errorf("overwritten to %q", got)
	}
	mustPanic(t, "Before beyond the headroom", func() { b.Before(10, Headroom+11) })
	mustPanic(t, "SetLen beyond the capacity", func() { b.SetLen(b.Cap() + 1) })
	mustPanic(t, "negative SetLen", func() { b.SetLen(-1) })
	b.Release()
	requireIdle(t, p)
}

func TestReleasedBufIsReused(t *testing.T) {
	p := NewPool(1 << 20)
	b := p.Get(1000)
	mem := &b.Bytes()[0]
	b.Retain()
	b.Release()
	if s := p.Stats(); s.InUse != 1 || s.PooledBytes != 0 {
		t.Errorf("with one reference left: %+v", s)
	}
	b.Release()
	if s := p.Stats(); s.InUse != 0 || s.PooledBytes != 1024+Headroom {
		t.Errorf("released: %+v", s)
	}
	c := p.Get(900)
	if &c.Bytes()[0] != mem || c.Len() != 900 {
		t.Error("the memory was not used again")
	}
	if s := p.Stats(); s != (PoolStats{InUse: 1, InUseBytes: 1024 + Headroom, Gets: 2, Misses: 1}) {
		t.Errorf("%+v", s)
	}
	c.Release()
}

func TestReleasingTwicePanics(t *testing.T) {
	p := NewPool(1 << 20)
	b := p.Get(10)
	b.Release()
	text := mustPanic(t, "Release", b.Release)
	if invariants.Enabled && !strings.Contains(text, "TestReleasingTwicePanics") {
		t.Errorf("the panic does not name the last holder: %s", text)
	}
	b = p.Get(10)
	b.Release()
	mustPanic(t, "Retain", b.Retain)
}

// In invariants builds a stale pointer is dead for ever, and a write through a stale slice is
// found when the memory is handed out again.
func TestUseAfterReleaseIsFound(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("needs -tags invariants")
	}
	p := NewPool(1 << 20)
	b := p.Get(10)
	stale := b.Bytes()
	b.Release()
	heir := p.Get(10)
	if heir == b {
		t.Error("the same Buf was handed out again")
	}
	mustPanic(t, "Bytes", func() { b.Bytes() })
	mustPanic(t, "Before", func() { b.Before(0, 1) })
	mustPanic(t, "SetLen", func() { b.SetLen(1) })
	mustPanic(t, "second Release while another holds the memory", b.Release)
	if heir.Bytes()[0] != poison {
		t.Errorf("not poisoned: %#x", heir.Bytes()[0])
	}
	heir.Release()
	stale[3] = 1
	text := mustPanic(t, "Get of memory that was written", func() { p.Get(10) })
	if !strings.Contains(text, "byte 3") || !strings.Contains(text, "TestUseAfterReleaseIsFound") {
		t.Errorf("the panic says %s", text)
	}
}

func TestFrameBeyondTheClassesIsNotPooled(t *testing.T) {
	p := NewPool(1 << 30)
	const n = 16<<20 + classSlack + 1
	b := p.Get(n)
	if s := p.Stats(); s != (PoolStats{InUse: 1, InUseBytes: n + Headroom, Gets: 1, Misses: 1}) {
		t.Errorf("%+v", s)
	}
	b.Release()
	requireIdle(t, p)
	if s := p.Stats(); s.PooledBytes != 0 {
		t.Errorf("retains %d bytes", s.PooledBytes)
	}
}

// A spike leaves no more behind than the bound, whatever its sizes (HZ-47).
func TestPoolRetainsNoMoreThanItsBound(t *testing.T) {
	const bound = 1 << 20
	p := NewPool(bound)
	spike := func(n, size int) {
		var held []*Buf
		for range n {
			held = append(held, p.Get(size))
		}
		for _, b := range held {
			b.Release()
			if got := p.Stats().PooledBytes; got > bound {
				t.Fatalf("retains %d bytes", got)
			}
		}
	}
	spike(100, 64<<10)
	half := p.Stats().PooledBytes
	if half > bound/2 || half < bound/4 {
		t.Errorf("one class retains %d bytes of %d", half, bound)
	}
	spike(10000, 300)
	spike(200, 10<<10)
	spike(2, 4<<20) // larger than a class may retain
	requireIdle(t, p)
	// The class that is in use has pushed the spike out.
	before := p.Stats()
	spike(20, 10<<10)
	if after := p.Stats(); after.Misses != before.Misses {
		t.Errorf("%d misses in a class that was just in use", after.Misses-before.Misses)
	}

	none := NewPool(0)
	none.Get(10).Release()
	if s := none.Stats(); s.PooledBytes != 0 {
		t.Errorf("a pool of nothing retains %d bytes", s.PooledBytes)
	}
}

// Trim halves what was not needed since the last one, and leaves alone what was.
func TestTrimGivesBackWhatASpikeLeft(t *testing.T) {
	p := NewPool(64 << 20)
	held := make([]*Buf, 100)
	for i := range held {
		held[i] = p.Get(64 << 10)
	}
	for _, b := range held {
		b.Release()
	}
	size := p.Stats().PooledBytes / 100
	use := func() { // ten at a time stay in use
		for i := range 10 {
			held[i] = p.Get(64 << 10)
		}
		for _, b := range held[:10] {
			b.Release()
		}
	}
	p.Trim() // the spike emptied the list within this period
	if got := p.Stats().PooledBytes; got != 100*size {
		t.Fatalf("%d bytes after the first Trim", got)
	}
	use()
	p.Trim()
	if got := p.Stats().PooledBytes; got != 55*size {
		t.Errorf("%d Bufs after 90 of 100 were not needed", got/size)
	}
	for range 10 {
		use()
		p.Trim()
	}
	if got := p.Stats().PooledBytes; got < 10*size || got > 12*size {
		t.Errorf("%d Bufs are left of 100", got/size)
	}
	misses := p.Stats().Misses
	use()
	if got := p.Stats().Misses; got != misses {
		t.Error("Trim took what was in use")
	}
}

// Many goroutines share Bufs and pool; nothing leaks and the bound holds.
func TestPoolIsSafeForConcurrentUse(t *testing.T) {
	p := NewPool(256 << 10)
	const workers, rounds = 8, 2000
	ch := make(chan *Buf, 64)
	var senders, receivers sync.WaitGroup
	for w := range workers {
		senders.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			for range rounds {
				b := p.Get(rnd.IntN(20000))
				if n := b.Len(); n > 0 {
					b.Bytes()[n-1] = byte(n)
				}
				b.Retain()
				ch <- b
				if n := b.Len(); n > 0 && b.Bytes()[n-1] != byte(n) {
					panic("someone else wrote to a held Buf")
				}
				b.Release()
				if rnd.IntN(100) == 0 {
					p.Trim()
				}
			}
		})
		receivers.Go(func() {
			for b := range ch {
				b.Release()
			}
		})
	}
	senders.Wait()
	close(ch)
	receivers.Wait()
	requireIdle(t, p)
	s := p.Stats()
	if s.Gets != workers*rounds || s.PooledBytes > 256<<10 || s.Misses == s.Gets {
		t.Errorf("%+v", s)
	}
}
