package netio

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// The total bound: one more is refused in the handshake and counted once; a place that becomes free is
// usable (OPS-10).
func TestConnectionsBeyondTheBoundAreRefused(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, func(o *ServerOptions) { o.MaxConns = 2 })
	first, _ := tt.pair(t, s, nil)
	tt.pair(t, s, nil)
	for i := range 3 {
		if _, err := tt.dial(t, s, nil); !errors.Is(err, ErrRefused) || !IsClosed(err) {
			t.Fatalf("connection %d: %v", 3+i, err)
		}
	}
	if st := s.Stats(); st.RefusedConns != 3 || st.RefusedPerIP != 0 || st.Conns != 2 || st.Accepted != 2 {
		t.Fatalf("%+v", st)
	}
	first.CloseWithError(CloseShutdown, "")
	waitFor(t, 5*time.Second, "the place is free", func() bool { return s.Stats().Conns == 1 })
	tt.pair(t, s, nil)
}

// The bound per address holds across the listeners of a broker (OPS-10).
func TestConnectionsOfOneAddressAreBoundedAcrossListeners(t *testing.T) {
	tt := newTestTLS(t)
	limiter := NewConnLimiter(0, 2)
	share := func(o *ServerOptions) { o.Limiter = limiter }
	one, two := tt.listen(t, share), tt.listen(t, share)
	tt.pair(t, one, nil)
	tt.pair(t, two, nil)
	for _, s := range []*Server{one, two} {
		if _, err := tt.dial(t, s, nil); !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		if n := s.Stats().RefusedPerIP; n != 1 {
			t.Fatalf("%d refusals counted", n)
		}
	}
	if limiter.Conns() != 2 {
		t.Fatal(limiter.Conns())
	}
}

func TestIPv4WrittenAsIPv6CountsAsIPv4(t *testing.T) {
	l := NewConnLimiter(0, 1)
	v4 := addrPort(&net.UDPAddr{IP: net.ParseIP("10.0.0.1").To4(), Port: 1})
	mapped := addrPort(&net.UDPAddr{IP: net.ParseIP("::ffff:10.0.0.1").To16(), Port: 2})
	if err := l.acquire(v4.Addr()); err != nil {
		t.Fatal(err)
	}
	if err := l.acquire(mapped.Addr()); err != errIPFull {
		t.Fatal(err)
	}
	if err := l.acquire(netip.MustParseAddr("::1")); err != nil {
		t.Fatal(err)
	}
	l.release(v4.Addr())
	if err := l.acquire(mapped.Addr()); err != nil {
		t.Fatal(err)
	}
}

// initials sends n first packets of handshakes that go no further, each from a port of its own, and returns
// when they are out.
func initials(t *testing.T, tt testTLS, to string, n int) {
	t.Helper()
	packet := firstPacket(t, tt)
	addr, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		c, err := net.DialUDP("udp", nil, addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(packet); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		packet = firstPacket(t, tt)
	}
}

// firstPacket records what a client sends first, to a socket that never answers.
func firstPacket(t *testing.T, tt testTLS) []byte {
	t.Helper()
	sink, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { Dial(ctx, sink.LocalAddr().String(), DialOptions{RootCAs: tt.pool}) })
	b := make([]byte, 2000)
	sink.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, err := sink.Read(b)
	cancel()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// Handshakes that stall hold a bounded number of places, delay nobody, make newcomers prove their address
// while there are many, and are gone after their time (OPS-2, HZ-38).
func TestStalledHandshakesDoNotBlockAccepts(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, func(o *ServerOptions) {
		o.MaxHandshakes = 16
		o.HandshakeTimeout = 300 * time.Millisecond
	})
	initials(t, tt, s.Addr().String(), 2)
	waitFor(t, 2*time.Second, "two handshakes stall", func() bool { return s.Stats().Handshakes == 2 })
	// An eighth of the bound is reached: others must prove themselves, and those who can are served.
	initials(t, tt, s.Addr().String(), 40)
	start := time.Now()
	client, server := tt.pair(t, s, nil)
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("took %s", took)
	}
	if n := s.Stats().Handshakes; n > 2 {
		t.Fatalf("%d handshakes hold state", n)
	}
	echo(t, client, server)
	waitFor(t, 5*time.Second, "the stalled ones are gone", func() bool {
		st := s.Stats()
		return st.Handshakes == 0 && st.Conns == 1
	})
}

// The bound itself: no state for more than that, and a refusal that is counted.
func TestHandshakesInProgressAreBounded(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, func(o *ServerOptions) { o.MaxHandshakes = 1; o.HandshakeTimeout = time.Second })
	initials(t, tt, s.Addr().String(), 1)
	waitFor(t, 2*time.Second, "one handshake stalls", func() bool { return s.Stats().Handshakes == 1 })
	if _, err := tt.dial(t, s, nil); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	if n := s.Stats().RefusedHandshakes; n != 1 {
		t.Fatalf("%d counted", n)
	}
}

// echo sends something each way on one stream.
func echo(t testing.TB, client, server Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cs, err := client.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.CancelRead(ResetNone)
	cs.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := cs.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	cs.Close()
	ss, err := server.AcceptStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ss.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, err := readAll(ss)
	if string(b) != "ping" || err != nil {
		t.Fatalf("%q %v", b, err)
	}
	if _, err := ss.Write([]byte("pong")); err != nil {
		t.Fatal(err)
	}
	ss.Close()
	if b, err := readAll(cs); string(b) != "pong" || err != nil {
		t.Fatalf("%q %v", b, err)
	}
}

func readAll(r ReceiveStream) ([]byte, error) {
	var b bytes.Buffer
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}

// Codes of wire.md 1.4 reach the peer; each end can tell who closed.
func TestCloseCodeReachesThePeer(t *testing.T) {
	tt := newTestTLS(t)
	for _, c := range []struct {
		code   uint64
		reason string
	}{{CloseShutdown, ""}, {CloseAuthTimeout, "authentication timeout"}} {
		s := tt.listen(t, nil)
		client, server := tt.pair(t, s, nil)
		server.CloseWithError(c.code, c.reason)
		waitEnd(t, client)
		_, err := client.AcceptStream(t.Context())
		ce, ok := errors.AsType[*CloseError](err)
		if !ok || *ce != (CloseError{c.code, c.reason, true}) || !IsClosed(err) {
			t.Fatalf("the client sees %v", err)
		}
		if code, remote, ok := CloseCode(context.Cause(client.Context())); code != c.code || !remote || !ok {
			t.Fatalf("the client's context says %v", context.Cause(client.Context()))
		}
		if code, remote, ok := CloseCode(context.Cause(server.Context())); code != c.code || remote || !ok {
			t.Fatalf("the server's context says %v", context.Cause(server.Context()))
		}
		if _, err := client.OpenUniStream(t.Context()); !IsClosed(err) || errors.Is(err, ErrStreamLimit) {
			t.Fatalf("opening on a closed connection: %v", err)
		}
	}
}

func waitEnd(t testing.TB, c Conn) {
	t.Helper()
	select {
	case <-c.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the connection does not end")
	}
}

// A listener that stopped refuses newcomers at once, while its connections live and work on.
func TestStoppedListenerRefusesNewcomersAndKeepsItsConnections(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	client, server := tt.pair(t, s, nil)
	s.StopAccepting()
	s.StopAccepting()
	start := time.Now()
	if _, err := tt.dial(t, s, nil); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("the refusal took %s", took)
	}
	if n := s.Stats().RefusedStopped; n != 1 {
		t.Fatalf("%d counted", n)
	}
	if _, err := s.Accept(t.Context()); !IsClosed(err) {
		t.Fatal(err)
	}
	echo(t, client, server)
	s.Close()
	waitEnd(t, client)
	if code, remote, ok := CloseCode(context.Cause(client.Context())); code != CloseShutdown || !remote || !ok {
		t.Fatal(context.Cause(client.Context()))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A connection that nobody accepted is closed with the listener, and its peer told.
func TestClosedListenerTellsConnectionsInItsQueue(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	client, err := tt.dial(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseWithError(0, "")
	s.Close()
	waitEnd(t, client)
	// Refused when this end had not quite finished the handshake.
	end := context.Cause(client.Context())
	if code, remote, ok := CloseCode(end); !(ok && remote && code == CloseShutdown) && !errors.Is(convert(end), ErrRefused) {
		t.Fatal(end)
	}
}

// Keep-alives hold a quiet connection open far beyond the idle timeout, whichever end sends them (HZ-35).
func TestQuietConnectionOutlivesItsIdleTimeout(t *testing.T) {
	tt := newTestTLS(t)
	const idle = 600 * time.Millisecond
	s := tt.listen(t, func(o *ServerOptions) { o.IdleTimeout = idle })
	client, server := tt.pair(t, s, func(o *DialOptions) { o.IdleTimeout = idle })
	select {
	case <-client.Context().Done():
		t.Fatal(context.Cause(client.Context()))
	case <-server.Context().Done():
		t.Fatal(context.Cause(server.Context()))
	case <-time.After(5 * idle):
	}
	echo(t, client, server)
}

// A peer that is gone without a word is noticed at both ends' idle timeout.
func TestSilentPeerIsNoticed(t *testing.T) {
	tt := newTestTLS(t)
	const idle = 600 * time.Millisecond
	s := tt.listen(t, func(o *ServerOptions) { o.IdleTimeout = idle })
	relay := newRelay(t, s.Addr())
	o := DialOptions{RootCAs: tt.pool, IdleTimeout: idle}
	client, err := Dial(t.Context(), relay.addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseWithError(0, "")
	server := accept(t, s)
	relay.pause()
	waitEnd(t, client)
	waitEnd(t, server)
	for _, c := range []Conn{client, server} {
		if err := context.Cause(c.Context()); !IsIdleTimeout(err) || !IsClosed(err) {
			t.Fatal(err)
		}
		if _, err := c.AcceptUniStream(t.Context()); !errors.Is(err, ErrIdleTimeout) {
			t.Fatal(err)
		}
	}
}

// relay passes datagrams between one client and a server, until it is paused (T2).
type relay struct {
	front, back *net.UDPConn
	mu          sync.Mutex
	paused      bool
	client      *net.UDPAddr
	target      *net.UDPAddr
}

func newRelay(t *testing.T, target net.Addr) *relay {
	t.Helper()
	local := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	front, err := net.ListenUDP("udp", local)
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.ListenUDP("udp", local)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{front: front, back: back, target: target.(*net.UDPAddr)}
	var wg sync.WaitGroup
	wg.Go(func() { r.pass(front, back) })
	wg.Go(func() { r.pass(back, front) })
	t.Cleanup(func() { front.Close(); back.Close(); wg.Wait() })
	return r
}

func (r *relay) addr() string { return r.front.LocalAddr().String() }

func (r *relay) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = true
}

func (r *relay) pass(from, to *net.UDPConn) {
	b := make([]byte, 2000)
	for {
		n, addr, err := from.ReadFromUDP(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		dest := r.client
		if from == r.front {
			r.client, dest = addr, r.target
		}
		paused := r.paused
		r.mu.Unlock()
		if !paused && dest != nil {
			to.WriteToUDP(b[:n], dest)
		}
	}
}

// A server that restarts with the same key tells old clients at their next packet; without the key they
// would wait for their idle timeout (HZ-36).
func TestRestartedServerIsNoticedAtTheNextPacket(t *testing.T) {
	tt := newTestTLS(t)
	reset, token, err := Secret(t.TempDir() + "/secret")
	if err != nil {
		t.Fatal(err)
	}
	keys := func(o *ServerOptions) { o.StatelessResetKey, o.TokenKey = reset, token }
	s := tt.listen(t, keys)
	addr := s.Addr().String()
	client, server := tt.pair(t, s, func(o *DialOptions) { o.IdleTimeout = time.Minute; o.KeepAlive = 20 * time.Second })
	echo(t, client, server)
	// Die as a process does: the socket goes, nobody is told.
	s.sock.Close()
	var again *Server
	waitFor(t, 5*time.Second, "the port is free", func() bool {
		o := ServerOptions{Addr: addr, TLS: NewServerTLS(tt.cert, nil)}
		keys(&o)
		again, err = Listen(o)
		return err == nil
	})
	defer again.Close()
	st, err := client.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := st.Write([]byte("a packet")); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err = st.Read(make([]byte, 1))
	if !errors.Is(err, ErrPeerRestarted) || !IsClosed(err) {
		t.Fatalf("after %s: %v", time.Since(start), err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("noticed after %s", took)
	}
}

// Early data is not offered and session tickets are not given, so nothing can be replayed (HZ-37).
func TestEarlyDataIsRefused(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	if s.o.quicConfig().Allow0RTT {
		t.Fatal("early data allowed")
	}
	sessions := &sessionSpy{}
	o := DialOptions{RootCAs: tt.pool}.withDefaults()
	tls := o.tlsConfig()
	tls.ClientSessionCache = sessions
	for range 2 {
		c, err := quic.DialAddrEarly(t.Context(), s.Addr().String(), tls, o.quicConfig())
		if err != nil {
			t.Fatal(err)
		}
		server := accept(t, s)
		echo(t, &quicConn{c: c}, server)
		if st := c.ConnectionState(); st.Used0RTT || st.TLS.DidResume {
			t.Fatalf("early data %v, resumed %v", st.Used0RTT, st.TLS.DidResume)
		}
		c.CloseWithError(0, "")
	}
	if sessions.puts != 0 {
		t.Fatalf("%d session tickets were given", sessions.puts)
	}
}

// Every problem is named, all at once (OPS-8).
func TestServerOptionsNameEveryProblem(t *testing.T) {
	err := ServerOptions{StatelessResetKey: make([]byte, 5), TokenKey: make([]byte, 33), StreamWindow: 1 << 30, IdleTimeout: -1}.Validate()
	for _, part := range []string{"address", "TLS", "reset key", "token key", "stream window", "negative"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	if _, err := Listen(ServerOptions{}); err == nil {
		t.Error("listened without an address")
	}
	if _, err := Dial(t.Context(), "127.0.0.1:1", DialOptions{StreamWindow: 1 << 40}); err == nil {
		t.Error("dialled with a stream window above the connection's")
	}
}

// A keep-alive above a third of the idle timeout is lowered, and said so (HZ-35).
func TestKeepAliveIsAtMostAThirdOfIdle(t *testing.T) {
	for _, c := range []struct {
		keep, idle, want time.Duration
		warned           bool
	}{
		{2 * time.Second, 6 * time.Second, 2 * time.Second, false},
		{3 * time.Second, 6 * time.Second, 2 * time.Second, true},
		{time.Minute, 9 * time.Second, 3 * time.Second, true},
		{0, 3 * time.Second, time.Second, false},
		{0, time.Minute, 2 * time.Second, false},
	} {
		var log bytes.Buffer
		o := ServerOptions{KeepAlive: c.keep, IdleTimeout: c.idle, Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults()
		got := clampKeepAlive(o.KeepAlive, o.IdleTimeout, o.Logger)
		if got != c.want || (log.Len() > 0) != c.warned {
			t.Errorf("%+v: %s, log %q", c, got, log.String())
		}
	}
}
