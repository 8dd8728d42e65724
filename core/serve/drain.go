package serve

import (
	"context"
	"time"

	"github.com/ringcast/ringcast/netio"
)

// Drain ends the service in order (design.md 11): no new connection, `auth` and requests are
// answered draining, publish-only streams are stopped; the broker finishes what it accepted, the
// answers and what is queued for subscribers are written; connections linger and are closed with code 0. Event streams get no
// FIN: their subscriptions are not over, they resume elsewhere (HZ-34).
//
// When ctx ends first, it closes what is left and returns the context's error.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.mu.Lock()
	for l := range s.listeners {
		l.StopAccepting()
	}
	s.mu.Unlock()
	for _, c := range s.open() {
		c.stopReaders()
	}
	err := s.o.Broker.Drain(ctx)
	if e := s.waitAnswered(ctx); err == nil {
		err = e
	}
	s.o.Broker.StopSubscriptions()
	s.waitDelivered(ctx)
	s.linger(ctx)
	for _, c := range s.open() {
		c.close(netio.CloseShutdown, "broker is shutting down")
	}
	return err
}

// waitAnswered polls: a drain is rare, and what it waits for must not cost a publish anything.
func (s *Server) waitAnswered(ctx context.Context) error {
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	for {
		owed := false
		for _, c := range s.open() {
			owed = owed || c.owed()
		}
		if !owed {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// waitDelivered waits until the subscriptions, which were told to stop, have written what was
// queued for them. A reader that takes nothing for the time of the linger is given up: what it
// missed it reads again from the log.
func (s *Server) waitDelivered(ctx context.Context) {
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	var open int64
	var delivered uint64
	for progress := time.Now(); ; {
		left, n := s.count.subsOpen.Load(), s.o.Broker.Status().DeliveredRecords
		if left == 0 {
			return
		}
		if now := time.Now(); left != open || n != delivered {
			open, delivered, progress = left, n, now
		} else if now.Sub(progress) > s.o.DrainLinger {
			s.o.Logger.Warn("subscribers did not take what was queued for them", "subscriptions", left)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// linger gives the transport time to deliver: it does not tell when stream data arrived. It ends
// early when no connection is left.
func (s *Server) linger(ctx context.Context) {
	end := time.NewTimer(s.o.DrainLinger)
	defer end.Stop()
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	for len(s.open()) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-t.C:
		}
	}
}
