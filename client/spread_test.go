package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// ports is a network on which a fake broker answers at some addresses and is silent at the others.
type ports struct {
	b *fakeBroker

	mu      sync.Mutex
	answers map[string]bool
	dialed  []string
}

func newPorts(b *fakeBroker, answers ...string) *ports {
	p := &ports{b: b, answers: map[string]bool{}}
	p.answer(answers...)
	return p
}

// answer makes these the only addresses that answer.
func (p *ports) answer(addrs ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.answers)
	for _, a := range addrs {
		p.answers[a] = true
	}
}

// took returns what was dialled since the last call.
func (p *ports) took() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := strings.Join(p.dialed, " ")
	p.dialed = nil
	return s
}

func (p *ports) connect(ctx context.Context, addr string, o netio.DialOptions) (netio.Conn, error) {
	p.mu.Lock()
	p.dialed = append(p.dialed, addr)
	ok := p.answers[addr]
	p.mu.Unlock()
	if !ok {
		<-ctx.Done()
		return nil, netio.ErrHandshakeTimeout
	}
	return p.b.connect(1<<20)(ctx, addr, o)
}

func (p *ports) live() int {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	n := 0
	for c := range p.b.conns {
		if c.Context().Err() == nil {
			n++
		}
	}
	return n
}

func four() *fakeBroker {
	b := newFakeBroker()
	b.ports = []uint16{1000, 1001, 1002, 1003}
	return b
}

var fourAddrs = []string{"fake:1000", "fake:1001", "fake:1002", "fake:1003"}

// seeded makes a client whose seed is known.
func seeded(t *testing.T, p *ports, addr string, seed uint32, opts ...Option) *Client {
	t.Helper()
	c, err := New(addr, append([]Option{WithToken("t"), withConnect(p.connect)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.manager.ports.seed = seed // run has nothing to do yet
	return c
}

func mustCall(t *testing.T, c *Client) {
	t.Helper()
	if _, err := c.StreamShards(bounded(t), "s"); err != nil {
		t.Fatal(err)
	}
}

// Each client of one process takes a listener by its own seed, with one connection in the end, and
// goes straight back there when it was lost (CORE-4).
func TestEachClientTakesAListenerOfItsOwn(t *testing.T) { // CORE-4
	synctest.Test(t, func(t *testing.T) {
		b := four()
		defer b.close()
		p := newPorts(b, fourAddrs...)
		for seed, want := range []string{"fake:1000", "fake:1000 fake:1001", "fake:1000 fake:1002", "fake:1000 fake:1003"} {
			c := seeded(t, p, "fake:1000", uint32(seed))
			mustCall(t, c)
			if got := p.took(); got != want {
				t.Errorf("seed %d dialled %s, want %s", seed, got, want)
			}
			synctest.Wait()
			if n := p.live(); n != seed+1 {
				t.Errorf("%d connections of %d clients", n, seed+1)
			}
		}
		c := seeded(t, p, "fake:1000", 7)
		mustCall(t, c)
		p.took()
		b.loseAll()
		mustCall(t, c)
		if got := p.took(); got != "fake:1003" {
			t.Errorf("after the loss it dialled %s", got)
		}
	})
	var seeds []uint32
	for range 8 {
		seeds = append(seeds, newSpread().seed)
	}
	slices.Sort(seeds)
	if len(slices.Compact(seeds)) < 7 {
		t.Errorf("seeds of 8 clients: %v", seeds)
	}
}

// A port that does not answer costs a bounded wait once, and the client stays where it is.
func TestClientStaysWhenAnAnnouncedPortIsSilent(t *testing.T) { // CORE-4
	synctest.Test(t, func(t *testing.T) {
		b := four()
		defer b.close()
		p := newPorts(b, "fake:1000")
		c := seeded(t, p, "fake:1000", 2)
		began := time.Now()
		mustCall(t, c)
		if took := time.Since(began); took > moveTimeoutMax {
			t.Errorf("it took %v", took)
		}
		if got := p.took(); got != "fake:1000 fake:1002" {
			t.Errorf("dialled %s", got)
		}
		for range 3 { // the other ports, each once at most
			b.loseAll()
			mustCall(t, c)
		}
		if got := strings.Fields(p.took()); len(got) > 5 || slices.Contains(got, "fake:1002") {
			t.Errorf("dialled again: %s", got)
		}
		if n := p.live(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// A client whose listener is gone returns to its address in the same attempt; a broker that was away
// altogether has all its ports tried again.
func TestClientReturnsToItsAddressWhenItsListenerIsGone(t *testing.T) { // CORE-4
	synctest.Test(t, func(t *testing.T) {
		b := four()
		defer b.close()
		p := newPorts(b, fourAddrs...)
		c := seeded(t, p, "fake:1000", 2)
		mustCall(t, c)
		p.took()
		p.answer("fake:1000")
		b.ports = nil // restarted with one listener
		b.loseAll()
		mustCall(t, c)
		if got := p.took(); got != "fake:1002 fake:1000" {
			t.Errorf("dialled %s", got)
		}

		p.answer()
		b.loseAll()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if _, err := c.StreamShards(ctx, "s"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody answers: %v", err)
		}
		b.ports = []uint16{1000, 1001, 1002, 1003}
		p.answer(fourAddrs...)
		p.took()
		mustCall(t, c)
		if got := p.took(); !strings.HasSuffix(got, "fake:1000 fake:1002") {
			t.Errorf("dialled %s", got)
		}
	})
}

// Where the address's own port is not among the announced ones something maps ports: none of them is
// dialled. The same for a client that was told to stay.
func TestClientDoesNotDialMappedPorts(t *testing.T) { // CORE-4
	synctest.Test(t, func(t *testing.T) {
		b := four()
		defer b.close()
		p := newPorts(b, append(fourAddrs, "fake:9")...)
		mustCall(t, seeded(t, p, "fake:9", 2))
		if got := p.took(); got != "fake:9" {
			t.Errorf("dialled %s", got)
		}
		mustCall(t, seeded(t, p, "fake:1000", 2, WithListenerSpread(false)))
		if got := p.took(); got != "fake:1000" {
			t.Errorf("told to stay, it dialled %s", got)
		}
	})
}

// A refusal of the token at another port does not end what works at the address.
func TestRefusalAtAnotherPortKeepsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := four()
		defer b.close()
		b.onAuth = func(n int, _ *wire.Auth) *wire.Error {
			if n == 1 {
				return wire.NewError(wire.CodeUnauthenticated, "auth failed")
			}
			return nil
		}
		p := newPorts(b, fourAddrs...)
		mustCall(t, seeded(t, p, "fake:1000", 1))
		if got := p.took(); got != "fake:1000 fake:1001" {
			t.Errorf("dialled %s", got)
		}
	})
}
