// Hot path.

package sched

import (
	"context"
	"sync"
	"sync/atomic"
)

// Admission bounds the jobs that wait in one executor's queue. It is decided on the session's
// goroutine, before a job is pushed: who is let in finds room in the queue for certain.
//
// Each tenant is guaranteed depth jobs, whatever the others do. Beyond that it may borrow room
// that is idle, but never the last depth slots of the whole (broker.md 1.4): so a tenant that
// floods is refused while a quiet one still gets in. With more than factor tenants at their
// guarantee the whole is exceeded; their number bounds it then, and bytes do at any time.
type Admission struct {
	depth int64 // guaranteed to each tenant
	loan  int64 // borrowing ends when so many are in, of all tenants

	// entered counts all jobs that are in. Written by anyone.
	entered atomic.Int64
	_       [cacheLine - 8]byte

	// waiting is how many callers of all tenants stand in line, or are about to. Written with mu
	// held; for its order with the other counters see Budget.waiting.
	waiting atomic.Int64
	mu      sync.Mutex // guards lines and the tenants' lines
	// lines are the tenants in whose line somebody stands, in the order in which they are served.
	lines []*Tenant
}

// Tenant is the account of one tenant in one executor's queue: its jobs in Admission, its share in
// the FairQueue. It belongs to the Admission that made it.
type Tenant struct {
	// entered counts the tenant's jobs that are in. Written by anyone.
	entered atomic.Int64
	// waiting is how many stand in line. Written with Admission.mu held.
	waiting atomic.Int64
	_       [cacheLine - 16]byte
	line    line // guarded by Admission.mu
}

// Entered is how many jobs of the tenant are in.
func (t *Tenant) Entered() int64 { return t.entered.Load() }

// NewAdmission returns an admission for a queue of depth*factor jobs, of which each tenant is
// guaranteed depth.
func NewAdmission(depth, factor int) *Admission {
	if depth <= 0 || factor <= 0 {
		panic("sched: admission without room")
	}
	return &Admission{depth: int64(depth), loan: int64(depth) * int64(factor-1)}
}

// NewTenant returns an account with nothing in it. There is one per tenant: a second one would be
// guaranteed as much again.
func (a *Admission) NewTenant() *Tenant { return &Tenant{} }

// Entered is how many jobs are in.
func (a *Admission) Entered() int64 { return a.entered.Load() }

// Waiting is how many callers stand in line.
func (a *Admission) Waiting() int64 { return a.waiting.Load() }

// TryEnter lets one job of t in if there is room for it and nobody of t waits.
func (a *Admission) TryEnter(t *Tenant) bool {
	return t.waiting.Load() == 0 && a.take(t)
}

// Enter lets one job of t in, in the order of arrival, as soon as there is room. If ctx ends first
// it returns its error, and the job is not in.
func (a *Admission) Enter(ctx context.Context, t *Tenant) error {
	if a.TryEnter(t) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &waiter{ready: make(chan struct{})}
	a.mu.Lock()
	if t.waiting.Add(1) == 1 {
		a.lines = append(a.lines, t)
	}
	a.waiting.Add(1)
	t.line.push(w)
	a.serve()
	a.mu.Unlock()
	return await(ctx, w, func() bool { return a.giveUp(t, w) })
}

// Leave takes one job of t out: it is finished. Every job that was let in leaves once.
func (a *Admission) Leave(t *Tenant) {
	if t.entered.Add(-1) < 0 || a.entered.Add(-1) < 0 {
		panic("sched: more jobs left than entered")
	}
	if a.waiting.Load() != 0 {
		a.mu.Lock()
		a.serve()
		a.mu.Unlock()
	}
}

// take lets one job of t in if there is room. No count is ever raised on trial: a refused job must
// not make another, guaranteed one be refused.
func (a *Admission) take(t *Tenant) bool {
	for {
		mine := t.entered.Load()
		if mine < a.depth {
			if t.entered.CompareAndSwap(mine, mine+1) {
				a.entered.Add(1)
				return true
			}
			continue
		}
		all := a.entered.Load()
		if all >= a.loan {
			return false
		}
		if a.entered.CompareAndSwap(all, all+1) {
			t.entered.Add(1)
			return true
		}
	}
}

// serve lets in whoever finds room, one of each tenant in turn. mu is held.
func (a *Admission) serve() {
	for idle := 0; idle < len(a.lines); {
		t := a.lines[0]
		if !a.take(t) {
			idle++
			a.rotate()
			continue
		}
		idle = 0
		t.line.grant()
		a.waiting.Add(-1)
		if t.waiting.Add(-1) == 0 {
			a.drop(0)
		} else {
			a.rotate()
		}
	}
}

// rotate moves the first tenant in line to the end.
func (a *Admission) rotate() {
	t := a.lines[0]
	copy(a.lines, a.lines[1:])
	a.lines[len(a.lines)-1] = t
}

// drop removes the i-th tenant, in whose line nobody stands any more.
func (a *Admission) drop(i int) {
	last := len(a.lines) - 1
	copy(a.lines[i:], a.lines[i+1:])
	a.lines[last] = nil
	a.lines = a.lines[:last]
}

// giveUp takes w out of t's line and says whether it was too late: its job is in.
func (a *Admission) giveUp(t *Tenant, w *waiter) (granted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.granted {
		return true
	}
	t.line.remove(w)
	a.waiting.Add(-1)
	if t.waiting.Add(-1) == 0 {
		for i := range a.lines {
			if a.lines[i] == t {
				a.drop(i)
				break
			}
		}
	}
	return false
}
