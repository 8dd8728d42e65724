package append

import (
	"context"
	"sync/atomic"
	"time"
)

// phase is a stretch of a turn that every writer reaches the end of: it lasts its time, and until
// each of them has done what the phase is for. So the shortest turn on the slowest disk measures
// something.
type phase struct {
	left atomic.Int32
	done chan struct{}
}

func newPhase(writers int) *phase {
	p := &phase{done: make(chan struct{})}
	p.left.Store(int32(writers))
	return p
}

// arrive is called once by each writer, also when it gives up.
func (p *phase) arrive() {
	if p.left.Add(-1) == 0 {
		close(p.done)
	}
}

// wait returns when both are over, d and the phase, or earlier when ctx or early ends.
func (p *phase) wait(ctx context.Context, d time.Duration, early <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-p.done:
	case <-early:
	case <-ctx.Done():
	}
}
