package netio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// dialStagger is how long an address may be silent before the next one is tried beside it.
const dialStagger = 250 * time.Millisecond

// Dial connects to host:port. Every connection has a socket of its own, which closes with it. When a
// name has several addresses they are tried one after another, IPv4 first, and the first to finish
// its handshake wins.
//
// Errors: *HandshakeError (certificates, protocol names), ErrRefused, ErrHandshakeTimeout (also: nobody
// there), the context's, or a resolver's or socket's error.
func Dial(ctx context.Context, addr string, o DialOptions) (Conn, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.KeepAlive = clampKeepAlive(o.KeepAlive, o.IdleTimeout, o.Logger)
	addrs, err := resolve(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("netio: dial %s: %w", addr, err)
	}
	c, err := dialFirst(ctx, addrs, dialStagger, func(ctx context.Context, a netip.AddrPort) (Conn, error) {
		return dialOne(ctx, a, o)
	})
	if err != nil {
		return nil, fmt.Errorf("netio: dial %s: %w", addr, err)
	}
	return c, nil
}

// resolve returns the addresses of host:port, IPv4 before IPv6.
func resolve(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	host, portName, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portName, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("port %q is not a number from 1 to 65535", portName)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(port))}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.AddrPort, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	slices.SortStableFunc(addrs, func(a, b netip.AddrPort) int {
		return a.Addr().BitLen() - b.Addr().BitLen()
	})
	return slices.Compact(addrs), nil
}

// dialFirst starts one attempt after another, the next when one failed or was silent for a while,
// and returns the first connection. It waits for the attempts it cancels; one that got through after
// all is closed.
func dialFirst(ctx context.Context, addrs []netip.AddrPort, stagger time.Duration,
	dial func(context.Context, netip.AddrPort) (Conn, error)) (Conn, error) {
	if len(addrs) == 1 {
		return dial(ctx, addrs[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		conn Conn
		err  error
	}
	results := make(chan outcome, len(addrs))
	timer := time.NewTimer(stagger)
	defer timer.Stop()
	var wg sync.WaitGroup
	started, ended := 0, 0
	startNext := func() {
		a := addrs[started]
		started++
		timer.Reset(stagger)
		wg.Go(func() {
			c, err := dial(ctx, a)
			results <- outcome{c, err}
		})
	}

	var won Conn
	var errs []error
	for won == nil && ended < len(addrs) {
		if started == ended {
			startNext()
		}
		var stale <-chan time.Time
		if started < len(addrs) {
			stale = timer.C
		}
		select {
		case <-stale:
			startNext()
		case r := <-results:
			ended++
			if r.err != nil {
				errs = append(errs, r.err)
			} else {
				won = r.conn
			}
		}
	}
	cancel()
	wg.Wait()
	close(results)
	for r := range results {
		if r.conn != nil {
			r.conn.CloseWithError(CloseShutdown, "")
		}
	}
	if won == nil {
		return nil, errors.Join(errs...)
	}
	return won, nil
}

func dialOne(ctx context.Context, to netip.AddrPort, o DialOptions) (Conn, error) {
	any := &net.UDPAddr{IP: net.IPv4zero}
	if to.Addr().Is6() {
		any.IP = net.IPv6unspecified
	}
	sock, err := openSocket(any, o.SocketBuffer, o.DisableGSO, o.Logger)
	if err != nil {
		return nil, err
	}
	tr := &quic.Transport{Conn: sock}
	c, err := tr.Dial(ctx, net.UDPAddrFromAddrPort(to), o.tlsConfig(), o.quicConfig())
	if err != nil {
		tr.Close()
		sock.Close()
		if err = convert(err); err == ErrIdleTimeout {
			err = ErrHandshakeTimeout // what quic-go calls idle here is that nobody answered
		}
		return nil, err
	}
	released := make(chan struct{})
	context.AfterFunc(c.Context(), func() {
		defer close(released)
		tr.Close()
		sock.Close()
	})
	return &quicConn{c: c, released: released}, nil
}
