// Hot path.

package sched

import "context"

// Admission bounds the jobs that wait in one executor's queue. It is decided on the session's
// goroutine, before a job is pushed: who is let in finds room in the queue for certain.
//
// Each tenant is guaranteed depth jobs, whatever the others do. Beyond that it may borrow room
// that is idle, but never the last depth slots of the whole (broker.md 1.4): so a tenant that
// floods is refused while a quiet one still gets in. With more than factor tenants at their
// guarantee the whole is exceeded; their number bounds it then, and bytes do at any time.
type Admission struct {
	gate
	depth int64 // guaranteed to each tenant
	loan  int64 // borrowing ends when so many are in, of all tenants
}

// NewAdmission returns an admission for a queue of depth*factor jobs, of which each tenant is
// guaranteed depth.
func NewAdmission(depth, factor int) *Admission {
	if depth <= 0 || factor <= 0 {
		panic("sched: admission without room")
	}
	a := &Admission{depth: int64(depth), loan: int64(depth) * int64(factor-1)}
	a.take = func(t *Tenant, _ int64, _ bool) bool { return a.enter(t) }
	return a
}

// Entered is how many jobs are in.
func (a *Admission) Entered() int64 { return a.used.Load() }

// TryEnter lets one job of t in if there is room for it and nobody of t waits.
func (a *Admission) TryEnter(t *Tenant) bool {
	return t.waiting.Load() == 0 && a.enter(t)
}

// Join has w stand in t's line for a job of it that found no room. to is told when the job is in,
// which may be before Join returns.
func (a *Admission) Join(t *Tenant, w *Waiter, to Granter) { a.join(t, w, 1, to) }

// Cancel takes w out of t's line and says whether it stood there still: if not, its job is in.
func (a *Admission) Cancel(t *Tenant, w *Waiter) bool { return a.cancel(t, w) }

// Enter lets one job of t in, in the order of arrival, as soon as there is room, and has the caller
// wait for it. If ctx ends first it returns its error, and the job is not in.
func (a *Admission) Enter(ctx context.Context, t *Tenant) error {
	if a.TryEnter(t) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := newCall()
	a.join(t, &c.Waiter, 1, c)
	return c.await(ctx, func() bool { return a.cancel(t, &c.Waiter) })
}

// Leave takes one job of t out: it is finished. Every job that was let in leaves once.
func (a *Admission) Leave(t *Tenant) {
	if t.held.Add(-1) < 0 || a.used.Add(-1) < 0 {
		panic("sched: more jobs left than entered")
	}
	if a.waiting.Load() != 0 {
		a.back()
	}
}

// enter lets one job of t in if there is room. No count is ever raised on trial: a refused job must
// not make another, guaranteed one be refused.
func (a *Admission) enter(t *Tenant) bool {
	for {
		mine := t.held.Load()
		if mine < a.depth {
			if t.held.CompareAndSwap(mine, mine+1) {
				a.used.Add(1)
				return true
			}
			continue
		}
		all := a.used.Load()
		if all >= a.loan {
			return false
		}
		if a.used.CompareAndSwap(all, all+1) {
			t.held.Add(1)
			return true
		}
	}
}
