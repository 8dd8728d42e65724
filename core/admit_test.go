package core

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// PUB-6: with the queue full and refusing in between, the answers of a shard come in the order in which
// its publishes were sent, and the log holds exactly the accepted ones in that order.
func TestRefusalsLeaveOrderAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	o := Options{PublishQueueDepth: 3, PublishQueueFactor: 1, PublishQueueWait: time.Millisecond}
	b := openTest(t, o.in(dir))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	var accepted []uint64
	refused := uint64(0)
	tag := uint64(0)
	for range 20 {
		release := hold(t, b.executors[0])
		for range 8 {
			r := request(b, st, fmt.Sprint(tag))
			r.Reply, r.Tag = res, tag
			switch err := b.Publish(t.Context(), r); {
			case err == nil:
				accepted = append(accepted, tag)
			case !errors.Is(err, wire.ErrOverloaded):
				t.Fatal(err)
			default:
				refused++
			}
			tag++
		}
		release()
		for _, tag := range accepted {
			res.wait(t, tag)
		}
		eventually(t, "the queue is empty", func() bool { return b.outstanding.Load() == 0 })
	}
	if len(accepted) != 60 || refused != 100 || b.Status().Tenants[0].RefusedQueueFull != refused {
		t.Fatalf("%d accepted, %d refused", len(accepted), refused)
	}
	for i, tag := range res.tags {
		if tag != accepted[i] || res.got[tag].Offset != uint64(i) {
			t.Fatalf("answer %d is that of publish %d: %+v", i, tag, res.got[tag])
		}
	}
	closeTest(t, b)
	b = openTest(t, o.in(dir))
	st = stream(t, b, StreamDef{Durable: true})
	replay := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, replay)
	for i, e := range replay.wait(len(accepted)) {
		if e != (event{uint64(i), fmt.Sprint(accepted[i])}) {
			t.Fatalf("record %d is %+v, want %d", i, e, accepted[i])
		}
	}
	if next := st.shards[0].log.Next(); next != uint64(len(accepted)) {
		t.Fatalf("the log ends at %d", next)
	}
}

// broker.md 1.3: the four policies, in front of a full queue and in front of spent bytes. Drop and Fail
// end at once, Wait after its time, Backpressure with room or with the client; each is counted for its
// tenant (PUB-30, HZ-43).
func TestPolicies(t *testing.T) {
	for _, what := range []string{"queue", "bytes"} {
		t.Run(what, func(t *testing.T) {
			o := Options{AutoCreate: true, PublishQueueWait: 5 * time.Millisecond}
			if what == "queue" {
				o.PublishQueueDepth, o.PublishQueueFactor = 1, 1
			} else {
				o.PublishInflightBytes, o.PublishConnInflightBytes = 100, 100
			}
			for _, ingress := range []bool{false, true} {
				o.IngressWait = ingress
				b := openTest(t, o)
				st := stream(t, b, StreamDef{})
				release := hold(t, b.executors[0])
				payload := string(make([]byte, 80))
				res := newResults()
				r := request(b, st, payload)
				r.Reply = res
				if err := b.Publish(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				refused := func(r *PublishRequest, ctx context.Context) {
					t.Helper()
					err := wire.AsError(b.Publish(ctx, r))
					if err == nil || err.Code != wire.CodeOverloaded || err.Reason != "publish_queue_full" || err.RetryAfterMS == 0 {
						t.Fatalf("%+v", err)
					}
				}
				fail := request(b, st, payload)
				fail.AckOnQueue, fail.Reply, fail.Tag = true, res, 1
				refused(fail, t.Context())
				refused(request(b, st, payload), t.Context())
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				refused(request(b, st, payload), gone)
				unacked := request(b, st, payload)
				unacked.Acked = false
				want := TenantStatus{Tenant: "t", RefusedQueueFull: 2, WithdrawnQueueFull: 1, DroppedQueueFull: 1}
				if ingress {
					refused(unacked, gone)
					unacked = request(b, st, payload)
					unacked.Acked = false
					got := make(chan error, 1)
					go func() { got <- b.Publish(context.Background(), unacked) }()
					eventually(t, "it waits", func() bool { return b.inflight.Waiting()+b.executors[0].admission.Waiting() == 1 })
					release()
					if err := <-got; err != nil {
						t.Fatal(err)
					}
				} else {
					refused(unacked, t.Context())
					release()
				}
				if got := res.wait(t, 0); got.Err != nil || res.count() != 1 {
					t.Fatalf("%+v, %d answers", got, res.count())
				}
				eventually(t, "all is finished", func() bool { return b.outstanding.Load() == 0 })
				got := b.Status().Tenants[0]
				got.PublishedRecords, got.PublishedBytes = 0, 0
				if got != want {
					t.Fatalf("ingress wait %v: counted %+v, want %+v", ingress, got, want)
				}
			}
		})
	}
}

// broker.md 1.3: a publish that is acknowledged when it is queued does not wait for the queue. Its wait
// would be as long as the test.
func TestAckOnQueueIsRefusedAtOnce(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true, PublishQueueDepth: 1, PublishQueueFactor: 1, PublishQueueWait: time.Hour})
	st := stream(t, b, StreamDef{})
	release := hold(t, b.executors[0])
	defer release()
	res := newResults()
	for i := range uint64(3) {
		at := newSpot()
		r := request(b, st, "x")
		r.AckOnQueue, r.Reply, r.Tag, r.Place = true, res, i, &at.Place
		err := b.Publish(t.Context(), r)
		if (err == nil) != (i == 0) || at.asked.Load() != 0 {
			t.Fatalf("publish %d: %v", i, err)
		}
	}
	if got := res.wait(t, 0); got.Err != nil || got.HasOffset {
		t.Fatalf("%+v", got)
	}
}

// A connection's identities together hold no more than the connection may, each no more than its own.
func TestConnectionBoundsItsIdentities(t *testing.T) {
	b := openTest(t, Options{
		AutoCreate: true, PublishInflightBytes: 10_000, PublishConnInflightBytes: 1000, PublishConnTotalInflightBytes: 2000,
	})
	st := stream(t, b, StreamDef{})
	release := hold(t, b.executors[0])
	conn := b.NewAccount()
	send := func(a *Account) error {
		r := request(b, st, string(make([]byte, 392))) // 400 with its counts
		r.Acked, r.Account = false, a
		return b.Publish(t.Context(), r)
	}
	for i := range 3 {
		a := b.NewIdentity(conn)
		for j := range 3 {
			want := j < 2
			if i == 2 {
				want = j < 1
			}
			if err := send(a); (err == nil) != want {
				t.Fatalf("identity %d, publish %d: %v", i, j, err)
			}
		}
		if i == 2 && a.Used() != 400 {
			t.Fatalf("a refused publish keeps %d bytes of its identity", a.Used()-400)
		}
	}
	if conn.Used() != 2000 {
		t.Fatalf("the connection holds %d bytes", conn.Used())
	}
	if err := send(b.NewIdentity(b.NewAccount())); err != nil {
		t.Fatalf("another connection: %v", err)
	}
	release()
	eventually(t, "all is given back", func() bool { return conn.Used() == 0 })
}

// PUB-13: a tenant whose disk hangs holds its bytes until the disk goes on. It cannot take those that
// another tenant needs, however much it sends; and nobody's queue stands behind its waiters.
func TestHangingDiskLeavesBytesToOtherTenants(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{
		PublishInflightBytes: 80_000, PublishConnInflightBytes: 80_000, PublishQueueDepth: 1000, IngressWait: true,
	}.in(t.TempDir()).scripted(engine))
	hangs := stream(t, b, StreamDef{Tenant: "hangs", Durable: true})
	quiet := stream(t, b, StreamDef{Tenant: "quiet"})
	ctx, cancel := context.WithCancel(t.Context())
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for ctx.Err() == nil {
			r := request(b, hangs, string(make([]byte, 992)))
			r.Acked = false
			_ = b.Publish(ctx, r) // the last one is dropped with its client
		}
	}()
	eventually(t, "it waits for bytes", func() bool { return b.inflight.Waiting() == 1 })
	if n := b.inflight.Used(); n != 70_000 {
		t.Fatalf("it holds %d of 80000 bytes", n)
	}
	for i := range 20 {
		if got := publish(t, b, quiet, string(make([]byte, 5000))); got.Err != nil {
			t.Fatalf("publish %d of the quiet tenant: %v", i, got.Err)
		}
	}
	cancel()
	<-flooded
	pump(t, engine)
	closeTest(t, b)
}

// BUG-30, PUB-30: a publish that was acknowledged when it was queued and fails later is counted with the
// reason; an unacked one is counted for its tenant.
func TestBrokenPromisesAreCounted(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	for i := range uint64(5) {
		r := request(b, st, "x")
		if i < 3 {
			r.AckOnQueue, r.Reply, r.Tag = true, res, i
		} else {
			r.Acked = false
		}
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if res.count() != 3 {
		t.Fatalf("%d acknowledged when queued", res.count())
	}
	eventually(t, "the full disk has ended them all", func() bool {
		for _, op := range engine.Pending() {
			engine.End(op, 0, syscall.ENOSPC)
		}
		return b.outstanding.Load() == 0
	})
	eventually(t, "the executor shows its counters", func() bool { return b.Status().Executors[0].Failed == 5 })
	b.CountLost("t") // one that never came as far as Publish
	b.CountLost("a tenant without streams")
	got := map[string]uint64{}
	for _, tenant := range b.Status().Tenants {
		got[tenant.Tenant] = tenant.Lost
	}
	if diff := cmp.Diff(map[string]uint64{"t": 3, "a tenant without streams": 1}, got); diff != "" {
		t.Errorf("lost unacked publishes: %s", diff)
	}
	want := map[string]uint64{"overloaded": 3, "storage": 0, "not_found": 0, "shard_unavailable": 0, "draining": 0, "other": 0}
	if diff := cmp.Diff(want, b.Status().Executors[0].AckedDropped); diff != "" {
		t.Errorf("broken promises: %s", diff)
	}
	for code, reason := range map[wire.Code]dropReason{
		wire.CodeStorage: dropStorage, wire.CodeNotFound: dropNotFound, wire.CodeDraining: dropDraining,
		wire.CodeShardUnavailable: dropMoved, wire.CodeInternal: dropOther,
	} {
		if got := dropReasonOf(wire.NewError(code, "")); got != reason {
			t.Errorf("%v counts as %v", code, got)
		}
	}
	pump(t, engine)
	closeTest(t, b)
}
