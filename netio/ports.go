package netio

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// ListenPorts opens n listeners on consecutive ports from that of o.Addr on, each with a socket and a
// receive loop of its own, and one limiter for all: one loop is at most one CPU's work (CORE-4). With
// port 0 it looks for n free ports in a row. Either all listen or none. The caller closes them.
func ListenPorts(o ServerOptions, n int) ([]*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.KeepAlive = clampKeepAlive(o.KeepAlive, o.IdleTimeout, o.Logger) // one warning, not n
	first, err := net.ResolveUDPAddr("udp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("netio: listen on %s: %w", o.Addr, err)
	}
	if first.Port != 0 {
		if last := first.Port + n - 1; last > portMax {
			return nil, fmt.Errorf("netio: listen on %s: %d consecutive ports pass %d", o.Addr, n, portMax)
		}
		return listenFrom(o, *first, n)
	}
	for range portTriesMax {
		var all []*Server
		if all, err = listenFrom(o, *first, n); err == nil {
			return all, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, errPortsEnd) {
			return nil, err
		}
	}
	return nil, err
}

var errPortsEnd = errors.New("no ports are left behind it")

// listenFrom opens n listeners from at on; it undoes what it did if one cannot be opened.
func listenFrom(o ServerOptions, at net.UDPAddr, n int) (all []*Server, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, s := range all {
			err = errors.Join(err, s.Close())
		}
		all = nil
	}()
	for len(all) < n {
		o.Addr = at.String()
		s, err := Listen(o)
		if err != nil {
			return all, err
		}
		all = append(all, s)
		if at.Port = int(s.Port()) + 1; at.Port > portMax && len(all) < n {
			return all, fmt.Errorf("netio: listen on port %d: %w", s.Port(), errPortsEnd)
		}
	}
	return all, nil
}
