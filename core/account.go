// Hot path.

package core

import (
	"context"

	"github.com/ringcast/ringcast/sched"
)

// Account is a byte budget in front of that of the process: of one connection, or of one identity on
// a connection, which draws on its connection's.
type Account struct {
	budget *sched.Budget
	conn   *Account // of an identity: its connection's
}

// NewAccount returns the account of a connection, of all its identities together, with nothing taken. It
// is nil, which bounds nothing, where a connection may hold as much as the process: the process's budget
// says so already, as it does by default.
func (b *Broker) NewAccount() *Account {
	if b.opts.PublishConnTotalInflightBytes >= b.opts.PublishInflightBytes {
		return nil
	}
	return &Account{budget: sched.NewBudget(b.opts.PublishConnTotalInflightBytes)}
}

// NewIdentity returns the account of one identity on the connection whose account conn is; it may be nil.
func (b *Broker) NewIdentity(conn *Account) *Account {
	return &Account{budget: sched.NewBudget(b.opts.PublishConnInflightBytes), conn: conn}
}

// Used is how many bytes of accepted, unfinished publishes the account holds.
func (a *Account) Used() int64 { return a.budget.Used() }

// Waiting is how many publishes wait for bytes of the account.
func (a *Account) Waiting() int64 { return a.budget.Waiting() }

// tryAcquire takes n bytes of a and of the account behind it, or nothing. nil has no bounds.
func (a *Account) tryAcquire(n int64) bool {
	if a == nil {
		return true
	}
	if !a.budget.TryAcquire(n) {
		return false
	}
	if a.conn != nil && !a.conn.budget.TryAcquire(n) {
		a.budget.Release(n)
		return false
	}
	return true
}

// acquire waits for n bytes, of a first and then of the account behind it.
func (a *Account) acquire(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	if err := a.budget.Acquire(ctx, n); err != nil {
		return err
	}
	if err := a.conn.acquire(ctx, n); err != nil {
		a.budget.Release(n)
		return err
	}
	return nil
}

func (a *Account) release(n int64) {
	for ; a != nil; a = a.conn {
		a.budget.Release(n)
	}
}
