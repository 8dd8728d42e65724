package sched

import (
	"sync"
	"sync/atomic"
)

// gate is what Admission and SharedBudget have in common: a count that tenants share under a rule,
// and a line for each tenant, so that one which may have no more keeps nobody else out.
type gate struct {
	// used counts what all tenants hold. Written by anyone.
	used atomic.Int64
	_    [cacheLine - 8]byte

	// waiting is how many of all tenants stand in line, or are about to. Written with mu held. Who
	// joins raises it before he tries for the last time, who gives back reads it afterwards: one of
	// the two sees the other.
	waiting atomic.Int64
	mu      sync.Mutex // guards lines and the tenants' lines
	// lines are the tenants in whose line somebody stands, in the order in which they are served.
	lines []*Tenant
	// take takes n for t if the rule allows it. passing: somebody stands in line before t.
	take func(t *Tenant, n int64, passing bool) bool
}

// Tenant is the account of one tenant at one gate. It belongs to the gate that made it.
type Tenant struct {
	// held is what the tenant holds. Written by anyone.
	held atomic.Int64
	// waiting is how many stand in line. Written with gate.mu held.
	waiting atomic.Int64
	_       [cacheLine - 16]byte
	line    line // guarded by gate.mu
}

// Held is what the tenant holds: jobs that are in, or bytes that are taken.
func (t *Tenant) Held() int64 { return t.held.Load() }

// NewTenant returns an account with nothing in it. There is one per tenant: a second one would be
// guaranteed as much again.
func (g *gate) NewTenant() *Tenant { return &Tenant{} }

// Waiting is how many stand in line.
func (g *gate) Waiting() int64 { return g.waiting.Load() }

// join puts w at the end of t's line. It may be granted before join returns.
func (g *gate) join(t *Tenant, w *Waiter, n int64, to Granter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.n, w.to = n, to
	if t.waiting.Add(1) == 1 {
		g.lines = append(g.lines, t)
	}
	g.waiting.Add(1)
	t.line.push(w)
	g.serve()
}

// cancel takes w out of t's line. It is false when w does not stand there: it was granted, or never
// joined.
func (g *gate) cancel(t *Tenant, w *Waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.in != &t.line {
		return false
	}
	t.line.remove(w)
	w.to = nil
	g.waiting.Add(-1)
	if t.waiting.Add(-1) == 0 {
		for i := range g.lines {
			if g.lines[i] == t {
				g.drop(i)
				break
			}
		}
	}
	g.serve() // who stood behind it may have room
	return true
}

// back serves the lines after something was given back. Called when somebody waits.
func (g *gate) back() {
	g.mu.Lock()
	g.serve()
	g.mu.Unlock()
}

// serve lets in whoever finds room, one of each tenant in turn; a tenant that finds none keeps its
// turn. mu is held. The counts of those who wait fall after the granted one was told: until then
// nobody of its tenant gets in another way, so none can overtake it.
func (g *gate) serve() {
	passing := false
	for i := 0; i < len(g.lines); {
		t := g.lines[i]
		if !g.take(t, t.line.head.n, passing) {
			passing = true
			i++
			continue
		}
		t.line.grant()
		g.waiting.Add(-1)
		left := t.waiting.Add(-1)
		g.drop(i)
		if left > 0 {
			g.lines = append(g.lines, t)
		}
	}
}

// drop takes the i-th tenant out of the lines.
func (g *gate) drop(i int) {
	last := len(g.lines) - 1
	copy(g.lines[i:], g.lines[i+1:])
	g.lines[last] = nil
	g.lines = g.lines[:last]
}
