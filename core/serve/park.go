// Hot path.

package serve

import (
	"context"
	"sync/atomic"

	"github.com/ringcast/ringcast/core"
)

// parking is the unacked publishes of one client stream that stand in line for room in a queue, at most
// unackedParkedMax. Nothing limits the window of an unacked client, so a deep line would only move its
// wait to the byte budget, which hurts everybody: when all places are taken the reader waits itself.
//
// place and settle are called by the stream's goroutine; places come free on any.
type parking struct {
	places []*parkedPlace // made when they are needed; most streams need one
	free   int            // where the last free place was found
	taken  atomic.Int32
	left   chan struct{} // cap 1: a place came free
}

// parkedPlace is one of them. It is the core.PlaceOwner of its place.
type parkedPlace struct {
	core.Place
	of *parking
	// taken is set by the reader and cleared by whoever lets the publish in.
	taken atomic.Bool
}

// place returns a free place, nil when there is none.
func (p *parking) place() *core.Place {
	for range p.places {
		if at := p.places[p.free]; !at.taken.Load() {
			return &at.Place
		}
		p.free = (p.free + 1) % len(p.places)
	}
	if len(p.places) == unackedParkedMax {
		return nil
	}
	if p.places == nil {
		p.left = make(chan struct{}, 1)
	}
	at := &parkedPlace{of: p}
	at.Owner = at
	p.free = len(p.places)
	p.places = append(p.places, at)
	return &at.Place
}

// Park lets the publish stand in line. It implements core.PlaceOwner.
func (at *parkedPlace) Park() bool {
	at.taken.Store(true)
	at.of.taken.Add(1)
	return true
}

// Admitted gives the place free. It implements core.PlaceOwner.
func (at *parkedPlace) Admitted() {
	if at.taken.Load() {
		at.giveFree()
	}
}

func (at *parkedPlace) giveFree() {
	at.taken.Store(false)
	at.of.taken.Add(-1)
	select {
	case at.of.left <- struct{}{}:
	default:
	}
}

// settle waits until everything that stands in line got in, or the connection has ended: it is
// withdrawn then.
func (p *parking) settle(ctx context.Context, b *core.Broker) {
	for p.taken.Load() > 0 {
		select {
		case <-p.left:
			continue
		case <-ctx.Done():
		}
		for _, at := range p.places {
			if b.Withdraw(&at.Place, core.ClientGone) {
				at.giveFree()
			}
		}
		return
	}
}
