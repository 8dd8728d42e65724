package core

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// PUB-16, PUB-30: while the disk stands still the byte budget stays taken. An acked publish then waits
// and is refused with reason and hint, an unacked one is dropped and counted, and when the disk goes
// on everything accepted is answered.
func TestBudgetIsHeldUntilThePublishIsFinished(t *testing.T) {
	engine := ringtest.NewEngine(8)
	o := Options{PublishInflightBytes: 5000, PublishConnInflightBytes: 5000, PublishQueueWait: 20 * time.Millisecond}.in(t.TempDir())
	o.openEngine = func(string) (ring.Engine, string, error) { return engine, "", nil }
	b, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	pumped := make(chan struct{})
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	big := string(make([]byte, 1000))
	for i := range uint64(4) {
		r := request(b, st, big)
		r.Reply, r.Tag = res, i
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatalf("publish %d: %v", i, err)
		}
	}
	err = b.Publish(t.Context(), request(b, st, big))
	we := wire.AsError(err)
	if !errors.Is(err, wire.ErrOverloaded) || we.Reason != "publish_queue_full" || we.RetryAfterMS == 0 || we.Retry != wire.RetryAfter {
		t.Fatalf("acked beyond the budget: %+v", we)
	}
	r := request(b, st, big)
	r.Acked = false
	if err := b.Publish(t.Context(), r); !errors.Is(err, wire.ErrOverloaded) {
		t.Fatalf("unacked beyond the budget: %v", err)
	}
	tenant := b.Status().Tenants[0]
	if tenant.DroppedQueueFull != 1 || tenant.RefusedQueueFull != 1 {
		t.Fatalf("counted %+v", tenant)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(pumped)
		for ctx.Err() == nil {
			if _, err := engine.WaitPending(ctx, 1); err == nil {
				engine.RunAll()
			}
		}
	}()
	for i := range uint64(4) {
		if got := res.wait(t, i); got.Err != nil || got.Offset != i {
			t.Fatalf("publish %d: %+v", i, got)
		}
	}
	closeTest(t, b)
	cancel()
	<-pumped
}

// LOG-10, BUG-1: a failed sync fails the publishes that it covered with outcome unknown and all later
// ones for good; readers stop at what is durable; other streams go on.
func TestFailedSyncPoisonsOneLog(t *testing.T) {
	fs := ringtest.NewFS(nil)
	o := Options{FS: fs}.in(t.TempDir())
	b, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	bad := stream(t, b, StreamDef{Stream: "bad", Durable: true})
	good := stream(t, b, StreamDef{Stream: "good", Durable: true})
	publish(t, b, bad, "durable")
	fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: filepath.Base(b.streamDir(bad.id)), Err: syscall.EIO})
	res := publish(t, b, bad, "lost")
	if !errors.Is(res.Err, wire.ErrStorage) || res.Err.Retry != wire.RetryUnknown {
		t.Fatalf("covered by the failed sync: %+v", res)
	}
	fs.Clear()
	err = b.Publish(t.Context(), request(b, bad, "later"))
	if !errors.Is(err, wire.ErrStorage) || wire.AsError(err).Retry != wire.RetryFatal {
		t.Fatalf("after the failure: %v", err)
	}
	if res := publish(t, b, good, "fine"); res.Err != nil {
		t.Fatalf("another stream: %+v", res)
	}
	r := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: bad, Start: earliest}, r)
	if e := r.wait(1)[0]; e.payload != "durable" {
		t.Fatalf("got %+v", e)
	}
	if st := b.Status(); st.FailedShards != 1 || len(st.FailedLogs) != 1 || st.FailedLogs[0] != fmt.Sprintf("streams/%016x/0", bad.id) {
		t.Fatalf("%d failed shards, %v", st.FailedShards, st.FailedLogs)
	}
	if bad.Info().ShardInfo[0].Tail != 1 {
		t.Fatalf("readable up to %d", bad.Info().ShardInfo[0].Tail)
	}
}

// LOG-11, HZ-10: a full disk refuses the publish with overloaded, nothing of it is readable, its offset
// goes to the next one, and the log heals by itself.
func TestFullDiskHeals(t *testing.T) {
	fs := ringtest.NewFS(nil)
	b := openTest(t, Options{FS: fs}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	publish(t, b, st, "a")
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: ".seg", Err: syscall.ENOSPC}) // not the mark, which may be on its way
	res := publish(t, b, st, "refused")
	if !errors.Is(res.Err, wire.ErrOverloaded) || res.Err.Reason != "disk_full" {
		t.Fatalf("on the full disk: %+v", res)
	}
	fs.Clear()
	if res := publish(t, b, st, "b"); res.Err != nil || res.Offset != 1 {
		t.Fatalf("after space returned: %+v", res)
	}
	r := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, r)
	if got := r.wait(2); got[0].payload != "a" || got[1].payload != "b" {
		t.Fatalf("got %+v", got)
	}
}

// PUB-29: Drain waits for what was accepted and refuses what comes later as draining.
func TestDrainFinishesWhatWasAccepted(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	for i := range uint64(50) {
		r := request(b, st, fmt.Sprint(i))
		r.Reply, r.Tag = res, i
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(res.tags); n != 50 {
		t.Fatalf("%d of 50 answered", n)
	}
	for i, tag := range res.tags { // PUB-2, PUB-6
		if tag != uint64(i) {
			t.Fatalf("answer %d is that of publish %d", i, tag)
		}
	}
	if err := b.Publish(t.Context(), request(b, st, "late")); !errors.Is(err, wire.ErrDraining) {
		t.Fatalf("got %v", err)
	}
}
