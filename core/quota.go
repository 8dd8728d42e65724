// Hot path.

package core

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// TenantQuota is what one tenant may publish per second on this broker. 0 = no bound.
type TenantQuota struct {
	// BytesPerSec counts records sections: payloads, and 4 bytes for each record, so that records
	// without a byte are not free.
	BytesPerSec int64
	// MsgsPerSec counts records.
	MsgsPerSec int64
}

// quota is the token buckets of one tenant (broker.md 1.8); nil = no bound. For anyone.
type quota struct {
	bytes, msgs *sched.Bucket // nil = no bound
	throttled   [throttleActions]atomic.Uint64
}

// throttleAction says what became of a publish over its tenant's quota.
type throttleAction uint8

const (
	throttleDropped throttleAction = iota
	throttleRefused
	throttleWaited
	throttleActions
)

// paid is what a publish has paid, so that it gets back exactly that when it is not accepted.
type paid struct{ bytes, msgs int64 }

func newQuota(q TenantQuota, burst time.Duration, now int64) *quota {
	if q.BytesPerSec == 0 && q.MsgsPerSec == 0 {
		return nil
	}
	made := &quota{}
	if q.BytesPerSec > 0 {
		made.bytes = sched.NewBucket(q.BytesPerSec, burst, now)
	}
	if q.MsgsPerSec > 0 {
		made.msgs = sched.NewBucket(q.MsgsPerSec, burst, now)
	}
	return made
}

// take pays for a publish, unless the tenant is in debt: debt is then how many ns it will be.
func (q *quota) take(r *PublishRequest, now int64) (p paid, debt int64) {
	if q.bytes != nil {
		if p.bytes, debt = q.bytes.Take(publishCost(r), now); debt > 0 {
			return paid{}, debt
		}
	}
	if q.msgs != nil {
		if p.msgs, debt = q.msgs.Take(int64(r.Count), now); debt > 0 {
			q.refund(paid{bytes: p.bytes})
			return paid{}, debt
		}
	}
	return p, 0
}

// refund gives back what a publish has paid that was not accepted.
func (q *quota) refund(p paid) {
	if p.bytes != 0 {
		q.bytes.Return(p.bytes)
	}
	if p.msgs != 0 {
		q.msgs.Return(p.msgs)
	}
}

// charge pays for r from its tenant's quota. Over it an acked publish is refused and told when to come
// back, an unacked one is dropped, or waits until the quota is paid or ctx ends with IngressWait.
func (b *Broker) charge(ctx context.Context, q *quota, r *PublishRequest) (paid, error) {
	p, debt := q.take(r, b.clock.Now())
	if debt == 0 {
		return p, nil
	}
	switch b.policy(r) {
	case policyFail, policyWait:
		q.throttled[throttleRefused].Add(1)
		return paid{}, overQuota(debt)
	case policyDrop:
		q.throttled[throttleDropped].Add(1)
		return paid{}, errTenantQuota // nobody is told how long
	}
	q.throttled[throttleWaited].Add(1)
	timer := time.NewTimer(time.Duration(debt))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			q.throttled[throttleDropped].Add(1)
			return paid{}, errTenantQuota
		case <-timer.C:
		}
		if p, debt = q.take(r, b.clock.Now()); debt == 0 {
			return p, nil
		}
		// At least a tick of the clock: it is what is waited for when the debt looks paid already.
		timer.Reset(max(time.Duration(debt), time.Millisecond))
	}
}

func overQuota(debt int64) *wire.Error {
	ms := (debt + int64(time.Millisecond) - 1) / int64(time.Millisecond)
	return errTenantQuota.WithReason("tenant_quota", uint64(ms))
}

var errTenantQuota = wire.NewError(wire.CodeOverloaded, "the tenant is over its publish quota")
