package netio

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// ConnLimiter bounds connections in total and per address. Several listeners may share one. An IPv4
// address written as IPv6 counts as IPv4.
type ConnLimiter struct {
	connsMax, perIPMax int // 0 or less: no bound

	mu    sync.Mutex // guards the two below; taken once when a connection begins and once when it ends
	conns int
	perIP map[netip.Addr]int
}

// NewConnLimiter returns a limiter; a bound of 0 or less does not bound.
func NewConnLimiter(connsMax, perIPMax int) *ConnLimiter {
	return &ConnLimiter{connsMax: connsMax, perIPMax: perIPMax, perIP: make(map[netip.Addr]int)}
}

// Conns returns how many connections hold a place.
func (l *ConnLimiter) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns
}

// Why a connection is turned down before the handshake.
var (
	errConnsFull      = errors.New("netio: too many connections")
	errIPFull         = errors.New("netio: too many connections from one address")
	errHandshakesFull = errors.New("netio: too many handshakes in progress")
	errStopped        = errors.New("netio: listener stopped accepting")
)

func (l *ConnLimiter) acquire(ip netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connsMax > 0 && l.conns >= l.connsMax {
		return errConnsFull
	}
	if l.perIPMax > 0 && l.perIP[ip] >= l.perIPMax {
		return errIPFull
	}
	l.conns++
	l.perIP[ip]++
	return nil
}

func (l *ConnLimiter) release(ip netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns--
	if l.perIP[ip]--; l.perIP[ip] == 0 {
		delete(l.perIP, ip)
	}
}

// addrPort returns the peer's address with an IPv4 address in its own form, without a zone.
func addrPort(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := u.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// place is one connection's hold on the limiter and on the count of unfinished handshakes.
type place struct {
	s  *Server
	ip netip.Addr
	// established: the handshake is over; set by Accept, read by release.
	established atomic.Bool
}

// establish ends the handshake's hold, once.
func (p *place) establish() {
	if p.established.CompareAndSwap(false, true) {
		p.s.handshakes.Add(-1)
	}
}

func (p *place) release() {
	p.establish()
	p.s.o.Limiter.release(p.ip)
	p.s.held.Add(-1)
	p.s.places.Done()
}

// refusals counts connection attempts turned down. quic-go asks per first packet, and one hello may
// take two packets (or be sent again), so an address that was just counted is not counted twice.
// Used by the listener's own goroutine; the counters are read by anyone.
type refusals struct {
	conns, perIP, handshakes, stopped atomic.Uint64

	recent [64]netip.AddrPort
	next   int
}

func (r *refusals) count(from netip.AddrPort, why error) {
	for _, a := range r.recent {
		if a == from {
			return
		}
	}
	r.recent[r.next] = from
	r.next = (r.next + 1) % len(r.recent)
	switch why {
	case errConnsFull:
		r.conns.Add(1)
	case errIPFull:
		r.perIP.Add(1)
	case errHandshakesFull:
		r.handshakes.Add(1)
	case errStopped:
		r.stopped.Add(1)
	}
}
