//go:build !linux

package sched

import "errors"

// EventfdParker is a ChannelParker where there is no eventfd.
type EventfdParker struct{ ChannelParker }

// NewEventfdParker fails: only Linux has eventfds.
func NewEventfdParker() (*EventfdParker, error) {
	return nil, errors.New("sched: eventfd: not supported on this system")
}

// Close does nothing.
func (p *EventfdParker) Close() error { return nil }
