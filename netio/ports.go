package netio

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// ListenPorts opens n listeners on consecutive ports from that of o.Addr on, each with a socket and a
// receive loop of its own, and one limiter for all: one loop is at most one CPU's work (CORE-4). With
// port 0 it looks for n free ports in a row. Either all listen or none, unless fewer will do: those
// before the first port that is taken, or the last there is, then listen, with a warning, and at least
// one. The caller closes them.
func ListenPorts(o ServerOptions, n int, fewer bool) ([]*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.KeepAlive = clampKeepAlive(o.KeepAlive, o.IdleTimeout, o.Logger) // one warning, not n
	first, err := net.ResolveUDPAddr("udp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("netio: listen on %s: %w", o.Addr, err)
	}
	tries := 1
	if first.Port == 0 {
		tries = portTriesMax
	}
	for try := 1; ; try++ {
		all, err := listenFrom(o, *first, n)
		switch {
		case err == nil:
			return all, nil
		case !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, errPortsEnd):
		case len(all) > 0 && fewer && try == tries:
			o.Logger.Warn("fewer listeners than CPUs allow", "listeners", len(all), "wanted", n, "err", err)
			return all, nil
		case try < tries:
			err = nil
		}
		if e := closeAll(all); err != nil {
			return nil, errors.Join(err, e)
		}
	}
}

var errPortsEnd = fmt.Errorf("no port is left below %d", portMax+1)

// listenFrom opens n listeners from at on. With an error it returns those that it has opened.
func listenFrom(o ServerOptions, at net.UDPAddr, n int) (all []*Server, err error) {
	for len(all) < n {
		if at.Port > portMax {
			return all, fmt.Errorf("netio: listener %d of %d: %w", len(all)+1, n, errPortsEnd)
		}
		o.Addr = at.String()
		s, err := Listen(o)
		if err != nil {
			return all, err
		}
		all = append(all, s)
		at.Port = int(s.Port()) + 1
	}
	return all, nil
}

func closeAll(all []*Server) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
