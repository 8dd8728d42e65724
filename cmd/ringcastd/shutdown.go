package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcast/ringcast/core"
)

// flushShare is the part of the shutdown budget that is kept for the logs, so that waiting for
// clients can never cost data that is only waiting to be flushed; flushReserveMax caps it.
const (
	flushShare      = 5
	flushReserveMax = 5 * time.Second
)

// shutdown ends the broker in the order of design.md 11: readiness, sessions, listener, logs, HTTP.
// The waits share one budget; hurry ends them. What was cut short is counted and returned by name.
func (s *server) shutdown(hurry <-chan struct{}) error {
	began := time.Now()
	s.http.Draining()
	s.dev.gone()
	wait(time.Duration(s.l.Predrain.V)*time.Millisecond, hurry)

	budget := time.Duration(s.l.DrainTimeout.V) * time.Millisecond
	reserve := min(budget/flushShare, flushReserveMax)
	drain, cancel := context.WithTimeout(context.Background(), budget-reserve)
	defer cancel()
	go func() { // ends with drain at the latest
		select {
		case <-hurry:
			cancel()
		case <-drain.Done():
		}
	}()

	var forced []string
	var errs []error
	lost := func(part string, err error) {
		if err != nil {
			forced = append(forced, part)
			errs = append(errs, fmt.Errorf("shutdown: %s: %w", part, err))
			s.lg.Error("shutdown was cut short", "subsystem", part, "err", err)
		}
	}
	err := s.sessions.Drain(drain)
	if de, ok := errors.AsType[*core.DrainError](err); ok {
		lost("publishes", de)
	} else {
		lost("sessions", err)
	}
	cancel()
	s.stopServe()
	<-s.served
	for _, l := range s.listeners {
		lost("listener", l.Close())
	}

	flush, done := context.WithTimeout(context.Background(), reserve+max(0, budget-reserve-time.Since(began)))
	defer done()
	lost("storage", s.broker.Close(flush))

	s.http.Drained(time.Since(began), forced...)
	last, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	if err := s.http.Close(last); err != nil {
		s.lg.Debug("http requests were cut off", "err", err)
	}
	s.lg.Info("stopped", "took", time.Since(began).Round(time.Millisecond), "forced", forced)
	return errors.Join(errs...)
}

// abandon undoes a start that failed.
func (s *server) abandon() error {
	var errs []error
	if s.stopServe != nil {
		s.stopServe()
		<-s.served
	}
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushReserveMax)
	defer cancel()
	if s.broker != nil {
		errs = append(errs, s.broker.Close(ctx))
	}
	if s.http != nil {
		errs = append(errs, s.http.Close(ctx))
	}
	return errors.Join(errs...)
}

// wait waits for d, or until hurry is closed.
func wait(d time.Duration, hurry <-chan struct{}) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-hurry:
	}
}
