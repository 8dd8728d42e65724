package core

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// PUB-7, BUG-21: a publish panics when it is claimed, before anything is changed: it is answered, its
// lane goes on with what was queued behind it, all permits are given back, and the restart counter
// moves by one.
func TestPanicInAClaimFailsThatPublishAlone(t *testing.T) {
	for _, durable := range []bool{true, false} {
		for _, idempotent := range []bool{true, false} {
			t.Run(fmt.Sprint("durable=", durable, "/idempotent=", idempotent), func(t *testing.T) {
				b := openTest(t, Options{}.in(t.TempDir()))
				st := stream(t, b, StreamDef{Durable: durable, Shards: 2})
				live := newReader(t, wire.FlagEvOffsets)
				subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
				s := newSender(t, b)
				release := hold(t, st.shards[0].exec)
				s.records(st, "a")
				bad := request(b, st, "bad")
				bad.SectionLen = 1 << 20 // outside of its Buf
				bad.Idempotent, bad.ProducerID = idempotent, 9
				s.send(bad)
				s.records(st, "b")
				s.records(st, "c")
				release()
				for tag, want := range map[uint64]uint64{0: 0, 2: 1, 3: 2} {
					if res := s.res.wait(t, tag); res.Err != nil || durable && res.Offset != want {
						t.Errorf("publish %d: %+v", tag, res)
					}
				}
				res := s.res.wait(t, 1)
				if !errors.Is(res.Err, wire.ErrInternal) || res.Err.Retry != wire.RetryNow {
					t.Errorf("the publish that panicked: %+v", res)
				}
				for i, e := range live.wait(3) {
					if want := []string{"a", "b", "c"}[i]; e.payload != want || e.offset != uint64(i) {
						t.Errorf("event %d is %+v", i, e)
					}
				}
				if res := publish(t, b, st, "d"); res.Err != nil {
					t.Errorf("afterwards: %+v", res)
				}
				eventually(t, "it is counted", func() bool { return b.Status().Executors[0].Restarts == 1 })
				if n := b.Status().FailedShards; n != 0 {
					t.Errorf("%d failed shards", n)
				}
			})
		}
	}
}

// PUB-7: a panic when the log, or what is remembered of producers, may have changed: the outcome of that
// publish and of those that the shard has claimed is unknown, and the shard takes nothing until the
// broker restarts. Its lane is free, other shards go on, and every record that was acknowledged is there
// after a restart.
func TestPanicBehindTheAppendEndsTheShardAlone(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprint("durable=", durable), func(t *testing.T) {
			engine := ringtest.NewEngine(8)
			o := Options{}.in(t.TempDir())
			b, err := Open(t.Context(), o.scripted(engine))
			if err != nil {
				t.Fatal(err)
			}
			st := stream(t, b, StreamDef{Durable: durable})
			other := stream(t, b, StreamDef{Stream: "other", Durable: durable})
			sh := st.shards[0]
			stop := pump(t, engine)
			publish(t, b, st, "acked")
			stop()
			s := newSender(t, b)
			if durable {
				s.records(st, "in flight")
				pending(t, engine, 1)
			}
			release := hold(t, sh.exec)
			sh.producers = &log.Producers{} // it cannot remember anything: Add panics
			claimed := s.records(st, "claimed")
			bad := request(b, st, "bad")
			bad.Idempotent, bad.ProducerID = true, 9
			panicked := s.send(bad)
			behind := s.records(st, "behind")
			release()
			if res := s.res.wait(t, panicked); !errors.Is(res.Err, wire.ErrInternal) || res.Err.Retry != wire.RetryUnknown {
				t.Errorf("the publish that panicked: %+v", res)
			}
			if res := s.res.wait(t, claimed); res.Err == nil || res.Err.Retry != wire.RetryUnknown {
				t.Errorf("claimed before it: %+v", res)
			}
			if res := s.res.wait(t, behind); res.Err == nil || res.Err.Retry != wire.RetryFatal {
				t.Errorf("queued behind it: %+v", res)
			}
			if durable {
				if res := s.res.wait(t, 0); res.Err == nil || res.Err.Retry != wire.RetryUnknown {
					t.Errorf("in flight: %+v", res)
				}
			}
			pump(t, engine)
			if err := b.Publish(t.Context(), request(b, st, "later")); !errors.Is(err, wire.ErrInternal) || wire.AsError(err).Retry != wire.RetryFatal {
				t.Errorf("later: %v", err)
			}
			if res := publish(t, b, other, "x"); res.Err != nil {
				t.Errorf("another shard: %+v", res)
			}
			if status := b.Status(); status.Executors[0].Restarts != 1 || status.FailedShards != 1 {
				t.Errorf("%d restarts, %d failed shards", status.Executors[0].Restarts, status.FailedShards)
			}
			ctx, cancel := context.WithTimeout(context.Background(), waitMax)
			defer cancel()
			if err := b.Close(ctx); (err != nil) != durable {
				t.Errorf("close: %v", err)
			}
			nothingHeld(t, b)
			if !durable {
				return
			}
			b = openTest(t, Options{}.in(o.DataDir))
			st = stream(t, b, StreamDef{Durable: true})
			r := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, r)
			if e := r.wait(1)[0]; e != (event{0, "acked"}) {
				t.Errorf("after the restart: %+v", e)
			}
			if res := publish(t, b, st, "again"); res.Err != nil {
				t.Errorf("after the restart: %+v", res)
			}
		})
	}
}

// PUB-7: a panic while claims are completed ends the shard, too: what is left of the batch is delivered
// to nobody twice. Nothing stays taken.
func TestPanicInACompletionEndsTheShardAlone(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprint("durable=", durable), func(t *testing.T) {
			b, err := Open(t.Context(), Options{}.in(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			st := stream(t, b, StreamDef{Durable: durable})
			other := stream(t, b, StreamDef{Stream: "other", Durable: durable})
			live := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
			s := newSender(t, b)
			release := hold(t, st.shards[0].exec)
			s.records(st, "a")
			bad := request(b, st, "b")
			bad.Reply = hook{newResults(), func(PublishResult) { panic("no room for the answer") }}
			if err := b.Publish(t.Context(), bad); err != nil {
				t.Fatal(err)
			}
			s.records(st, "c")
			release()
			if res := s.res.wait(t, 0); res.Err != nil {
				t.Errorf("answered before: %+v", res)
			}
			if res := s.res.wait(t, 1); !errors.Is(res.Err, wire.ErrInternal) || res.Err.Retry != wire.RetryUnknown {
				t.Errorf("answered after it: %+v", res)
			}
			if res := publish(t, b, other, "x"); res.Err != nil {
				t.Errorf("another shard: %+v", res)
			}
			for i, e := range live.wait(3) {
				if want := []string{"a", "b", "c"}[i]; e.payload != want {
					t.Errorf("event %d is %+v", i, e)
				}
			}
			if err := b.Publish(t.Context(), request(b, st, "later")); wire.AsError(err) == nil || wire.AsError(err).Retry != wire.RetryFatal {
				t.Errorf("later: %v", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), waitMax)
			defer cancel()
			_ = b.Close(ctx) // it says that a log was given up
			nothingHeld(t, b)
			if n := len(live.got); n != 3 {
				t.Errorf("%d records were delivered", n)
			}
			if n := b.Status().Executors[0].Restarts; n != 1 {
				t.Errorf("%d restarts", n)
			}
		})
	}
}
