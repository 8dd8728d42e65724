package core

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/wire"
)

// hook is a Replier that does something on the executor before it passes the answer on.
type hook struct {
	*results
	do func(PublishResult)
}

func (h hook) Published(tag uint64, r PublishResult) {
	h.do(r)
	h.results.Published(tag, r)
}

// queued waits until something lies in the inbox of an executor that is held.
func queued(t testing.TB, e *executor) {
	t.Helper()
	eventually(t, "something is in the inbox", func() bool { return !e.inbox.Empty() })
}

func unavailableFor(t testing.TB, err error, reason string, hint uint64) {
	t.Helper()
	we := wire.AsError(err)
	if !errors.Is(err, wire.ErrUnavailable) || we.Reason != reason || we.RetryAfterMS != hint || we.Retry != wire.RetryNow {
		t.Fatalf("got %+v, want shard_unavailable %s with a hint of %d ms", we, reason, hint)
	}
}

// PUB-3: the fence is asked for each publish of a claim: one that it refuses is answered and left out,
// the others are written without a gap.
func TestFencedPublishIsLeftOutOfItsClaim(t *testing.T) {
	for _, durable := range []bool{true, false} {
		b := openTest(t, Options{}.in(t.TempDir()))
		st := stream(t, b, StreamDef{Durable: durable})
		sh := st.shards[0]
		s := newSender(t, b)
		release := hold(t, sh.exec)
		s.records(st, "a")
		s.records(st, "b")
		if durable {
			// An entry that the log refuses closes the fence, in the middle of the claim.
			bad := request(b, st, "bad")
			bad.Count = 2
			bad.Reply = hook{s.res, func(PublishResult) { sh.fence.Store(Moving.err()) }}
			bad.Tag = 100
			if err := b.Publish(t.Context(), bad); err != nil {
				t.Fatal(err)
			}
			fenced := request(b, st, "fenced")
			fenced.Reply = hook{s.res, func(PublishResult) { sh.fence.Store(nil) }}
			fenced.Tag = 101
			if err := b.Publish(t.Context(), fenced); err != nil {
				t.Fatal(err)
			}
		}
		s.records(st, "c")
		release()
		if offsets := s.offsets(); durable {
			if diff := cmp.Diff([]uint64{0, 1, 2}, offsets); diff != "" {
				t.Fatal(diff)
			}
			unavailableFor(t, s.res.wait(t, 101).Err, "moving", 100)
		}
		if e := b.Status().Executors[0]; e.Claims != 1 || e.Claimed != 3 {
			t.Errorf("durable %t: %d claims of %d publishes", durable, e.Claims, e.Claimed)
		}
		live := newReader(t, wire.FlagEvOffsets)
		subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, live)
		for i, e := range live.wait(3) {
			if want := []string{"a", "b", "c"}[i]; e.payload != want {
				t.Errorf("durable %t: record %d is %+v, want %s", durable, i, e, want)
			}
		}
	}
}

// BUG-3, BUG-30: a publish was accepted, and then its shard is fenced before it is claimed: it is refused
// and not on the log. One that had been acknowledged when it was queued is counted.
func TestPublishThatWaitedMeetsTheFence(t *testing.T) {
	for _, durable := range []bool{true, false} {
		b := openTest(t, Options{}.in(t.TempDir()))
		st := stream(t, b, StreamDef{Durable: durable})
		release := hold(t, st.shards[0].exec)
		done := make(chan error)
		go func() { done <- b.Fence(st, 0, Moving) }()
		queued(t, st.shards[0].exec)
		s := newSender(t, b)
		s.records(st, "x")
		early := request(b, st, "y")
		early.AckOnQueue = true
		s.send(early)
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		unavailableFor(t, s.res.wait(t, 0).Err, "moving", 100)
		if res := s.res.wait(t, 1); res.Err != nil {
			t.Fatalf("acknowledged when queued: %+v", res)
		}
		eventually(t, "both are counted", func() bool {
			e := b.Status().Executors[0]
			return e.Failed == 2 && e.AckedDropped["shard_unavailable"] == 1 && e.Claims == 0
		})
		if tail := st.Info().ShardInfo[0].Tail; tail != 0 {
			t.Errorf("durable %t: %d records are visible", durable, tail)
		}
		if err := b.Fence(st, 0, Served); err != nil {
			t.Fatal(err)
		}
		if res := publish(t, b, st, "z"); res.Err != nil || res.Offset != 0 {
			t.Errorf("durable %t: served again: %+v", durable, res)
		}
	}
}

// PUB-26, BUG-35: whoever meets a shard that is not served is told why, with the code and the reason of
// the wire, and never that the stream is missing. Other shards of the stream are served.
func TestUnservedShardSaysWhy(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true, Shards: 2})
	publish(t, b, st, "x")
	for why, reason := range map[Unavailable]string{
		NotAssigned: "not_assigned", OwnerUnavailable: "owner_unavailable", NotReady: "not_ready",
		Stale: "stale", Fenced: "fenced", Moving: "moving",
	} {
		hint := uint64(0)
		if why == Moving {
			hint = 100
		}
		if err := b.Fence(st, 0, why); err != nil {
			t.Fatal(err)
		}
		for _, acked := range []bool{true, false} {
			r := request(b, st, "x")
			r.Acked = acked
			unavailableFor(t, b.Publish(t.Context(), r), reason, hint)
		}
		for _, start := range []wire.Start{latest, earliest} {
			_, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: start})
			unavailableFor(t, err, reason, hint)
		}
		_, err := b.ReadPage(&ReadRequest{Stream: st})
		unavailableFor(t, err, reason, hint)
		_, _, err = b.OffsetForTime(st, 0, 0)
		unavailableFor(t, err, reason, hint)
		r := request(b, st, "x")
		r.Shard = 1
		if res := publishRequest(t, b, r); res.Err != nil {
			t.Fatalf("the other shard: %+v", res)
		}
	}
	if err := b.Fence(st, 7, Moving); !errors.Is(err, wire.ErrInvalidRequest) {
		t.Errorf("a shard that there is not: %v", err)
	}
	if res := publish(t, b, stream(t, b, StreamDef{Stream: "other"}), "x"); res.Err != nil {
		t.Errorf("another stream: %+v", res)
	}
}

// BUG-4: a reader subscribes in the moment in which its shard stops being served: it is refused, and
// not left in a registry where nothing will come.
func TestSubscribeRacingAFenceIsRefused(t *testing.T) {
	for i, start := range []wire.Start{latest, earliest} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			var asked atomic.Bool // for the time: whoever subscribes does, when it is past its early check
			b := openTest(t, Options{AutoCreate: true, Now: func() time.Time {
				asked.Store(true)
				return time.Now()
			}})
			st := stream(t, b, StreamDef{})
			sh := st.shards[0]
			release := hold(t, sh.exec)
			asked.Store(false)
			fenced := make(chan error)
			go func() { fenced <- b.Fence(st, 0, Moving) }()
			queued(t, sh.exec)
			subscribed := make(chan error)
			go func() {
				sub, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: start})
				if err == nil {
					sub.Close()
				}
				subscribed <- err
			}()
			eventually(t, "it is past its early check", asked.Load)
			release()
			if err := <-fenced; err != nil {
				t.Fatal(err)
			}
			unavailableFor(t, <-subscribed, "moving", 100)
			if n := len(sh.readers.Snapshot()); n != 0 {
				t.Errorf("%d readers are registered", n)
			}
			if n := len(b.Subscriptions()); n != 0 {
				t.Errorf("%d subscriptions are open", n)
			}
		})
	}
}
