package netio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// listenPorts is ListenPorts for a test.
func (tt testTLS) listenPorts(t testing.TB, n int, change func(*ServerOptions)) []*Server {
	t.Helper()
	o := ServerOptions{Addr: "127.0.0.1:0", TLS: NewServerTLS(tt.cert, nil)}
	if change != nil {
		change(&o)
	}
	all, err := ListenPorts(o, n, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range all {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return all
}

// gate stands between a socket and the loop that receives from it: while it is shut no datagram is
// taken from the socket, as if the loop's CPU were busy with something else.
type gate struct {
	mu      sync.Mutex
	opened  sync.Cond
	shut    bool
	waiting int // loops that stand before it
	batches int // times that something was taken from the socket
}

func newGate() *gate {
	g := &gate{}
	g.opened.L = &g.mu
	return g
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	for g.shut {
		g.opened.Wait()
	}
	g.waiting--
	g.batches++
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.opened.Broadcast()
}

func (g *gate) stands() (waiting, batches int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting, g.batches
}

// gated is a socket behind a gate. quic-go reads through its raw connection.
type gated struct {
	*udpSocket
	gate *gate
}

func (s gated) SyscallConn() (syscall.RawConn, error) {
	raw, err := s.udpSocket.SyscallConn()
	return gatedRaw{raw, s.gate}, err
}

type gatedRaw struct {
	syscall.RawConn
	gate *gate
}

func (r gatedRaw) Read(f func(fd uintptr) bool) error {
	return r.RawConn.Read(func(fd uintptr) bool {
		r.gate.pass()
		return f(fd)
	})
}

// ask sends one message on a stream of its own and returns what the other end made of it.
func ask(ctx context.Context, c Conn, text string) (string, error) {
	st, err := c.OpenStream(ctx)
	if err != nil {
		return "", err
	}
	defer st.CancelRead(ResetNone)
	stop := context.AfterFunc(ctx, func() { st.CancelRead(ResetNone) })
	defer stop()
	if _, err := io.WriteString(st, text); err != nil {
		return "", err
	}
	if err := st.Close(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(st)
	return string(b), err
}

// serveEcho answers every stream of c with its own bytes until the connection ends.
func serveEcho(wg *sync.WaitGroup, c Conn) {
	wg.Go(func() {
		for {
			st, err := c.AcceptStream(c.Context())
			if err != nil {
				return
			}
			wg.Go(func() {
				b, _ := io.ReadAll(st)
				st.Write(b)
				st.Close()
			})
		}
	})
}

// CORE-4: four listeners serve four connections with four receive loops that have nothing to do with each
// other. Attacked by stopping the loop of one listener dead, as a CPU that it does not get would:
// whatever the other three connections ask is answered meanwhile, however much that is, nothing is
// taken from the stopped socket, and its own connection goes on where it was once the loop is let go.
func TestOneStoppedListenerDoesNotSlowAnother(t *testing.T) { // CORE-4
	tt := newTestTLS(t)
	const n, rounds = 4, 200
	gates := make([]*gate, 0, n)
	all := tt.listenPorts(t, n, func(o *ServerOptions) {
		o.IdleTimeout = time.Minute
		o.wrapSocket = func(s *udpSocket) net.PacketConn {
			g := newGate()
			gates = append(gates, g)
			return gated{s, g}
		}
	})
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	conns := make([]Conn, n)
	for i, s := range all {
		var server Conn
		conns[i], server = tt.pair(t, s, func(o *DialOptions) { o.IdleTimeout = time.Minute })
		serveEcho(&serving, server)
		if got, err := ask(t.Context(), conns[i], "hello"); got != "hello" || err != nil {
			t.Fatalf("listener %d: %q %v", i, got, err)
		}
	}
	for i, s := range all {
		if st := s.Stats(); st.Accepted != 1 || st.Conns != 1 || st.Port != all[0].Port()+uint16(i) {
			t.Errorf("listener %d: %+v", i, st)
		}
	}

	for stopped := range n {
		gates[stopped].set(true)
		answered := make(chan error, 1)
		go func() {
			got, err := ask(t.Context(), conns[stopped], "held")
			if err == nil && got != "held" {
				err = fmt.Errorf("answer %q", got)
			}
			answered <- err
		}()
		waitFor(t, 10*time.Second, "the loop stands before the gate", func() bool { w, _ := gates[stopped].stands(); return w == 1 })
		_, before := gates[stopped].stands()

		var others sync.WaitGroup
		for i, c := range conns {
			if i == stopped {
				continue
			}
			others.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a hang must not hang the test
				defer cancel()
				for r := range rounds {
					text := fmt.Sprint(i, r)
					if got, err := ask(ctx, c, text); got != text || err != nil {
						t.Errorf("listener %d is stopped, on listener %d: %q %v", stopped, i, got, err)
						return
					}
				}
			})
		}
		others.Wait()
		if _, after := gates[stopped].stands(); after != before {
			t.Errorf("listener %d: %d batches were read while it was stopped", stopped, after-before)
		}
		select {
		case err := <-answered:
			t.Errorf("listener %d is stopped and answered: %v", stopped, err)
			answered <- nil
		default:
		}
		gates[stopped].set(false)
		if err := <-answered; err != nil {
			t.Errorf("listener %d was let go: %v", stopped, err)
		}
	}
}

// The ports of a range follow each other from the asked one on; a range that is taken in the middle, or
// that ends beyond the last port, leaves nothing open behind (CORE-4).
func TestPortRangeIsTakenWholeOrNotAtAll(t *testing.T) { // CORE-4
	tt := newTestTLS(t)
	all := tt.listenPorts(t, 3, nil)
	for i, s := range all {
		if s.Port() != all[0].Port()+uint16(i) {
			t.Errorf("listener %d on port %d, the first is on %d", i, s.Port(), all[0].Port())
		}
	}
	at := func(port int) ServerOptions {
		return ServerOptions{Addr: fmt.Sprintf("127.0.0.1:%d", port), TLS: NewServerTLS(tt.cert, nil)}
	}
	// A free port before one that is taken.
	for try := 0; ; try++ {
		free := tt.listenPorts(t, 2, nil)
		first := int(free[0].Port())
		if err := free[0].Close(); err != nil {
			t.Fatal(err)
		}
		got, err := ListenPorts(at(first), 2, false)
		if len(got) != 0 || !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), fmt.Sprint(first+1)) {
			t.Fatalf("%d listeners, %v", len(got), err)
		}
		again, err := ListenPorts(at(first), 2, true)
		if errors.Is(err, syscall.EADDRINUSE) && try < 5 {
			continue // somebody else on this machine was quicker
		}
		if err != nil || len(again) != 1 || int(again[0].Port()) != first {
			t.Fatalf("the first port is not free again: %v", err)
		}
		if err := again[0].Close(); err != nil {
			t.Error(err)
		}
		break
	}
	if got, err := ListenPorts(at(65534), 3, false); got != nil || err == nil || !strings.Contains(err.Error(), "65536") {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ListenPorts(ServerOptions{}, 1, false); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("no address: %v", err)
	}
}

// The ports of one range share their limits: what one listener lets in, another refuses (OPS-10).
func TestPortRangeSharesOneLimiter(t *testing.T) {
	tt := newTestTLS(t)
	all := tt.listenPorts(t, 2, func(o *ServerOptions) { o.MaxConns = 1 })
	tt.pair(t, all[0], nil)
	if _, err := tt.dial(t, all[1], nil); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	if a, b := all[0].Stats(), all[1].Stats(); a.Conns != 1 || b.Conns != 0 || b.RefusedConns != 1 {
		t.Errorf("%+v\n%+v", a, b)
	}
}
