package core

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// quotaBroker is a broker whose tenants have the quota q, on a clock that only the test moves.
func quotaBroker(t *testing.T, q TenantQuota, change func(*Options)) (*Broker, func(time.Duration)) {
	o := Options{AutoCreate: true, TenantPublishQuota: q, stopClock: true}
	if change != nil {
		change(&o)
	}
	b := openTest(t, o)
	now := int64(0)
	b.clock.Set(now, 0)
	return b, func(d time.Duration) {
		now += int64(d)
		b.clock.Set(now, 0)
	}
}

// broker.md 1.8: a tenant that is not in debt publishes whatever it costs; in debt its acked publishes are
// refused, with the reason and the time after which it is paid, and its unacked ones dropped. Each is
// counted; another tenant, and one with a quota of its own, do not notice (PUB-30).
func TestTenantQuota(t *testing.T) {
	b, pass := quotaBroker(t, TenantQuota{BytesPerSec: 1000}, func(o *Options) {
		o.TenantPublishQuotas = map[string]TenantQuota{"vip": {}, "msgs": {MsgsPerSec: 10}}
	})
	st := stream(t, b, StreamDef{Tenant: "t"})
	other := stream(t, b, StreamDef{Tenant: "other"})
	vip := stream(t, b, StreamDef{Tenant: "vip"})
	pass(0)
	ok := func(st *Stream, bytes int) {
		t.Helper()
		if got := publish(t, b, st, string(make([]byte, bytes-8))); got.Err != nil { // 8: its two counts
			t.Fatal(got.Err)
		}
	}
	refused := func(st *Stream, ms uint64) {
		t.Helper()
		err := wire.AsError(b.Publish(t.Context(), request(b, st, "x")))
		if err == nil || err.Code != wire.CodeOverloaded || err.Retry != wire.RetryAfter || err.Reason != "tenant_quota" || err.RetryAfterMS != ms {
			t.Fatalf("%+v, want a refusal for %d ms", err, ms)
		}
	}
	pass(time.Hour)
	ok(st, 400)
	ok(st, 3100) // beyond the burst: it passes and is paid off
	refused(st, 2500)
	pass(1500500 * time.Microsecond)
	refused(st, 1000)
	unacked := request(b, st, "x")
	unacked.Acked = false
	if err := b.Publish(t.Context(), unacked); err == nil {
		t.Fatal("an unacked publish passed")
	}
	ok(other, 500)
	for range 10 {
		ok(vip, 5000)
	}
	pass(time.Second)
	ok(st, 500_000) // owes five seconds, not 500
	refused(st, 5000)
	pass(5 * time.Second)
	ok(st, 100)

	msgs := stream(t, b, StreamDef{Tenant: "msgs"})
	pass(time.Hour)
	for range 11 { // ten are in the bucket, one more finds it empty and not in debt
		ok(msgs, 100)
	}
	refused(msgs, 100)

	eventually(t, "all is finished", func() bool { return b.outstanding.Load() == 0 })
	for _, ts := range b.Status().Tenants {
		want := map[string][3]uint64{"t": {1, 3, 0}, "msgs": {0, 1, 0}}[ts.Tenant]
		if got := [3]uint64{ts.ThrottledDropped, ts.ThrottledRefused, ts.ThrottledWaited}; got != want {
			t.Errorf("tenant %s: dropped, refused, waited %v, want %v", ts.Tenant, got, want)
		}
		if ts.DroppedQueueFull+ts.RefusedQueueFull != 0 {
			t.Errorf("tenant %s: a quota counts as a full queue", ts.Tenant)
		}
	}
}

// A publish that is not accepted does not pay: not one that finds no room, nor one that either bound of
// the quota keeps out, nor one that is withdrawn from the line.
func TestRefusedPublishPaysNothing(t *testing.T) {
	b, pass := quotaBroker(t, TenantQuota{BytesPerSec: 1000, MsgsPerSec: 10}, func(o *Options) {
		o.PublishQueueDepth, o.PublishQueueFactor, o.PublishQueueWait = 1, 1, time.Millisecond
	})
	st := stream(t, b, StreamDef{})
	pass(time.Hour)
	release := hold(t, b.executors[0])
	send := func(acked bool, at *Place, records ...string) error {
		r := request(b, st, records...)
		r.Acked, r.Place = acked, at
		return b.Publish(t.Context(), r)
	}
	q := st.tenant.quota
	before := q.left(b)
	if err := send(true, nil, "x"); err != nil {
		t.Fatal(err)
	}
	after := q.left(b)
	if before == after {
		t.Fatal("an accepted publish paid nothing")
	}
	at := newSpot()
	for name, f := range map[string]func(){
		"refused":   func() { _ = send(true, nil, "x") },
		"dropped":   func() { _ = send(false, nil, "x") },
		"withdrawn": func() { _ = send(true, &at.Place, "x"); b.Withdraw(&at.Place, WaitedTooLong) },
	} {
		f()
		if q.left(b) != after {
			t.Errorf("a publish that was %s paid", name)
		}
	}
	release()
	eventually(t, "there is room", func() bool { return b.outstanding.Load() == 0 })
	if got := publish(t, b, st, make([]string, 20)...); got.Err != nil { // in debt with records, not with bytes
		t.Fatal(got.Err)
	}
	after = q.left(b)
	if err := send(true, nil, "x"); err == nil {
		t.Fatal("passed in debt")
	}
	if q.left(b) != after {
		t.Error("a publish that one bound kept out paid the other")
	}
}

// left is what is in the buckets, in ns of their rates.
func (q *quota) left(b *Broker) paid {
	long := int64(24 * time.Hour) // a bucket that is asked about a past in which it was in debt tells the debt
	_, bytes := q.bytes.Take(0, b.clock.Now()-long)
	_, msgs := q.msgs.Take(0, b.clock.Now()-long)
	return paid{long - bytes, long - msgs}
}

// With ingress wait an unacked publish over the quota is slowed and not dropped; it ends with its client.
// However many streams wait, the tenant gets no more than its quota (HZ-43).
func TestIngressWaitSlowsATenantDownToItsQuota(t *testing.T) {
	b := openTest(t, Options{
		AutoCreate: true, IngressWait: true, TenantPublishQuota: TenantQuota{MsgsPerSec: 200}, TenantPublishBurst: time.Millisecond,
	})
	st := stream(t, b, StreamDef{})
	began := time.Now()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for range 4 {
				r := request(b, st, "x", "y")
				r.Acked = false
				if err := b.Publish(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// 40 records, of which the first 2 may be early: at least 38 - 1 fifths of 1/200 s each.
	if d := time.Since(began); d < 180*time.Millisecond {
		t.Errorf("40 records at 200 per second took %v", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	big := request(b, st, make([]string, 10_000)...)
	big.Acked = false
	if err := b.Publish(ctx, big); err != nil { // owes five seconds
		t.Fatal(err)
	}
	cancel()
	late := request(b, st, "x")
	late.Acked = false
	if err := b.Publish(ctx, late); err == nil {
		t.Fatal("passed in debt")
	}
	eventually(t, "all is finished", func() bool { return b.outstanding.Load() == 0 })
	if ts := b.Status().Tenants[0]; ts.PublishedRecords != 40+10_000 || ts.ThrottledDropped != 1 || ts.ThrottledWaited == 0 || ts.ThrottledRefused != 0 {
		t.Errorf("%+v", ts)
	}
}
