package core

import (
	"sync/atomic"

	"github.com/ringcast/ringcast/sched"
)

// tenantState is what the whole broker has of one tenant: its shares and its counters. Written by
// executors and session goroutines, read by anyone.
type tenantState struct {
	name string
	// bytes is the tenant's account in the process's byte budget, quota what it may publish per second
	// (nil = no bound). Set when the state is made.
	bytes *sched.Tenant
	quota *quota

	publishedRecords atomic.Uint64
	publishedBytes   atomic.Uint64
	queueFull        [queueFullActions]atomic.Uint64
	// lost counts unacked publishes that failed for another reason than room or quota, in front of the
	// queue or behind it.
	lost atomic.Uint64
}

// queueFullAction says what became of a publish that found no room.
type queueFullAction uint8

const (
	queueFullDropped   queueFullAction = iota // unacked
	queueFullRefused                          // acked, and told so
	queueFullWithdrawn                        // acked, and its client was gone before it had room
	queueFullActions
)

// noRoom counts a publish that got no room. gone: nobody is left to be told.
func (t *tenantState) noRoom(acked, gone bool) {
	action := queueFullDropped
	switch {
	case acked && gone:
		action = queueFullWithdrawn
	case acked:
		action = queueFullRefused
	}
	t.queueFull[action].Add(1)
}

// tenant is the state of a tenant, which is made if there is none.
func (b *Broker) tenant(name string) *tenantState {
	key := []byte(name)
	if t, ok := b.tenants.get(key); ok {
		return t
	}
	b.tenantsMu.Lock()
	defer b.tenantsMu.Unlock()
	t, ok := b.tenants.get(key)
	if !ok {
		q, own := b.opts.TenantPublishQuotas[name]
		if !own {
			q = b.opts.TenantPublishQuota
		}
		t = &tenantState{name: name, bytes: b.inflight.NewTenant(), quota: newQuota(q, b.opts.TenantPublishBurst, b.clock.Now())}
		b.tenants.put(key, t)
	}
	return t
}

// CountLost counts an unacked publish of a tenant whose token was verified that never came as far as
// Publish, or that Publish refused for another reason than room or quota.
func (b *Broker) CountLost(tenant string) { b.tenant(tenant).lost.Add(1) }
