package netio

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
)

// Server is one QUIC listener on one UDP socket.
//
// Life: Listen, Accept in a loop, StopAccepting (newcomers are refused, old connections live), Close.
type Server struct {
	o    ServerOptions
	sock *udpSocket
	tr   *quic.Transport
	ln   *quic.Listener

	// handshakes counts unfinished ones: up when a first packet is let in, down at Accept or at the end.
	handshakes atomic.Int64
	// held counts this listener's places in the limiter, which other listeners may share.
	held     atomic.Int64
	accepted atomic.Uint64
	refused  refusals
	// places is one per connection that holds a place in the limiter.
	places sync.WaitGroup

	mu      sync.Mutex // guards what follows
	conns   map[*quicConn]struct{}
	refuser *quic.Listener // answers newcomers after StopAccepting
	stopped bool
	closed  bool
}

type placeKey struct{}

// Listen opens the socket and starts to take connections. Accept must be called soon and often: at
// most 32 finished handshakes wait for it, more are refused.
func Listen(o ServerOptions) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.KeepAlive = clampKeepAlive(o.KeepAlive, o.IdleTimeout, o.Logger)

	addr, err := net.ResolveUDPAddr("udp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("netio: listen on %s: %w", o.Addr, err)
	}
	sock, err := openSocket(addr, o.SocketBuffer, o.DisableGSO, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("netio: listen on %s: %w", o.Addr, err)
	}
	if o.wrapSend != nil {
		sock.send = o.wrapSend(sock.send)
	}
	s := &Server{o: o, sock: sock, conns: make(map[*quicConn]struct{})}
	var conn net.PacketConn = sock
	if o.wrapSocket != nil {
		conn = o.wrapSocket(sock)
	}
	s.tr = &quic.Transport{
		Conn:                conn,
		ConnContext:         s.admit,
		VerifySourceAddress: s.suspicious,
	}
	if len(o.StatelessResetKey) == 32 {
		k := quic.StatelessResetKey(o.StatelessResetKey)
		s.tr.StatelessResetKey = &k
	}
	if len(o.TokenKey) == 32 {
		k := quic.TokenGeneratorKey(o.TokenKey)
		s.tr.TokenGeneratorKey = &k
	}
	s.ln, err = s.tr.Listen(serverTLS(o.TLS, o.RequireALPN), o.quicConfig())
	if err != nil {
		sock.Close()
		return nil, fmt.Errorf("netio: listen on %s: %w", o.Addr, err)
	}
	return s, nil
}

// serverTLS applies the rules of wire.md 1.1: TLS 1.3 only, and a protocol is selected exactly when
// the client lists one, because either side of crypto/tls refuses a half-used ALPN in QUIC.
func serverTLS(base *tls.Config, requireALPN bool) *tls.Config {
	plain := base.Clone()
	plain.MinVersion = tls.VersionTLS13
	plain.SessionTicketsDisabled = true // nothing to resume, so no early data either (HZ-37)
	plain.NextProtos = nil

	named := plain.Clone()
	named.NextProtos = []string{ALPN}

	c := plain.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) > 0 || requireALPN {
			return named, nil
		}
		return plain, nil
	}
	return c
}

// suspicious makes a newcomer prove its address while many handshakes are unfinished.
func (s *Server) suspicious(net.Addr) bool {
	return s.handshakes.Load() >= int64(max(1, s.o.MaxHandshakes/handshakesRetryShare))
}

// admit gives a newcomer a place, or refuses it before any state exists for it. Called by the
// listener's goroutine for each first packet; ctx ends with the connection or its handshake.
func (s *Server) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	from := addrPort(info.RemoteAddr)
	err := errHandshakesFull
	if s.handshakes.Load() < int64(s.o.MaxHandshakes) {
		err = s.o.Limiter.acquire(from.Addr())
	}
	if err != nil {
		s.refused.count(from, err)
		return nil, err
	}
	s.handshakes.Add(1)
	s.held.Add(1)
	s.places.Add(1)
	p := &place{s: s, ip: from.Addr()}
	context.AfterFunc(ctx, p.release)
	return context.WithValue(ctx, placeKey{}, p), nil
}

// Accept returns the next connection whose handshake is done. After StopAccepting it returns those
// that were done before, then an error for which IsClosed holds.
func (s *Server) Accept(ctx context.Context) (Conn, error) {
	for {
		c, err := s.ln.Accept(ctx)
		if err != nil {
			return nil, convert(err)
		}
		if p, ok := c.Context().Value(placeKey{}).(*place); ok {
			p.establish()
		}
		q := &quicConn{c: c}
		if !s.track(q) {
			q.CloseWithError(CloseShutdown, "")
			continue
		}
		s.accepted.Add(1)
		return q, nil
	}
}

// track remembers q until it ends, so that Close can close it. False: the server is closed.
func (s *Server) track(q *quicConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[q] = struct{}{}
	context.AfterFunc(q.c.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, q)
	})
	return true
}

// Addr is the address the socket is bound to.
func (s *Server) Addr() net.Addr { return s.sock.LocalAddr() }

// Port is the port of Addr.
func (s *Server) Port() uint16 { return addrPort(s.Addr()).Port() }

// StopAccepting refuses new connections and unfinished handshakes (CONNECTION_REFUSED) from now on.
// Connections that exist are not touched. It may be called twice.
//
// Closing quic-go's listener alone leaves newcomers without an answer until they time out, so a
// second listener takes its place on the same transport, which refuses everybody.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	s.ln.Close()
	conf := s.o.quicConfig()
	conf.GetConfigForClient = func(info *quic.ClientInfo) (*quic.Config, error) {
		s.refused.count(addrPort(info.RemoteAddr), errStopped)
		return nil, errStopped
	}
	// It fails only when the transport is dead already; then nobody is left to be told.
	s.refuser, _ = s.tr.Listen(serverTLS(s.o.TLS, s.o.RequireALPN), conf)
}

// Close stops accepting, closes every connection with CloseShutdown, and frees the socket. What was
// written and not sent yet is lost: whoever cares lets connections linger first. It may be called twice.
func (s *Server) Close() error {
	s.StopAccepting()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	open := make([]*quicConn, 0, len(s.conns))
	for q := range s.conns {
		open = append(open, q)
	}
	s.mu.Unlock()

	for { // those that nobody accepted
		c, err := s.ln.Accept(context.Background())
		if err != nil {
			break
		}
		open = append(open, &quicConn{c: c})
	}
	for _, q := range open {
		q.CloseWithError(CloseShutdown, "")
	}
	err := s.tr.Close()
	if serr := s.sock.Close(); err == nil && !errors.Is(serr, net.ErrClosed) {
		err = serr
	}
	s.places.Wait()
	return err
}

// Stats is a snapshot of a listener's state and counters.
type Stats struct {
	Port       uint16
	Conns      int // of this listener with a place in the limiter, unfinished handshakes included
	Handshakes int // unfinished
	Accepted   uint64

	// Attempts turned down: the total bound, the bound per address, too many unfinished handshakes,
	// after StopAccepting.
	RefusedConns, RefusedPerIP, RefusedHandshakes, RefusedStopped uint64

	Socket SocketStats
}

// Stats may be called from any goroutine.
func (s *Server) Stats() Stats {
	return Stats{
		Port:              s.Port(),
		Conns:             int(s.held.Load()),
		Handshakes:        int(s.handshakes.Load()),
		Accepted:          s.accepted.Load(),
		RefusedConns:      s.refused.conns.Load(),
		RefusedPerIP:      s.refused.perIP.Load(),
		RefusedHandshakes: s.refused.handshakes.Load(),
		RefusedStopped:    s.refused.stopped.Load(),
		Socket:            s.sock.stats(),
	}
}
