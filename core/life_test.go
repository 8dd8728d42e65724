package core

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// HZ-25, HZ-40: a subscription that is closed without having run, because its event stream could not
// be opened, lets go of the backlog that it joined with.
func TestUnusedSubscriptionReleasesItsBacklog(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true})
	st := stream(t, b, StreamDef{})
	for range 3 {
		publish(t, b, st, "x")
	}
	for _, runs := range []bool{false, true} {
		sub, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: earliest})
		if err != nil {
			t.Fatal(err)
		}
		sub.Close()
		sub.Close()
		r := newReader(t, 0)
		if runs {
			if _, err := sub.Run(t.Context(), r); err != nil || len(r.got) != 0 {
				t.Errorf("ran after it was closed: %v, %d events", err, len(r.got))
			}
		}
	}
	closeTest(t, b) // counts frame memory
}

// PUB-29, HZ-40: a publish that waits for room when the broker closes gets room from those that are
// thrown out, and arrives when the executor is about to end. It is answered, or refused, exactly once.
func TestParkedPublishIsAnsweredWhenTheBrokerCloses(t *testing.T) {
	for round := range 100 {
		engine := ringtest.NewEngine(8)
		o := Options{PublishInflightBytes: 64, PublishConnInflightBytes: 64, PublishQueueWait: waitMax}
		b, err := Open(t.Context(), o.in(t.TempDir()).scripted(engine))
		if err != nil {
			t.Fatal(err)
		}
		st := stream(t, b, StreamDef{Durable: true})
		const parked = 3
		res := newResults()
		var wg sync.WaitGroup
		answered := make(chan struct{}, parked+1)
		send := func(tag uint64) {
			r := request(b, st, string(make([]byte, 100)))
			r.Reply, r.Tag = res, tag
			if err := b.Publish(t.Context(), r); err == nil {
				res.wait(t, tag)
			}
			answered <- struct{}{}
		}
		wg.Go(func() { send(0) })
		op := pending(t, engine, 1)[0]
		for i := range uint64(parked) {
			wg.Go(func() { send(1 + i) })
		}
		eventually(t, "publishes are parked", func() bool { return b.inflight.Waiting() == parked })
		wg.Go(func() {
			if round%2 == 0 {
				eventually(t, "the broker drains", b.draining.Load)
			}
			engine.Run(op)
			stop := pump(t, engine)
			for range parked + 1 {
				<-answered
			}
			stop()
		})
		closeTest(t, b)
		wg.Wait()
	}
}

// PUB-29: everybody who drains is told.
func TestDrainMayBeCalledTwice(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	if err := b.Publish(t.Context(), request(b, st, "x")); err != nil {
		t.Fatal(err)
	}
	op := pending(t, engine, 1)[0]
	short, cancel := context.WithCancel(t.Context())
	cancel()
	var cut *DrainError
	if err := b.Drain(short); !errors.As(err, &cut) || cut.Outstanding != 1 {
		t.Fatalf("a drain without time: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := b.Drain(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	engine.Run(op)
	wg.Wait()
}

// A stuck disk: Close returns when its context ends, whatever it waits for, and closes in order once
// the disk moves again. Another Close waits for that.
func TestCloseIsBoundedByItsContext(t *testing.T) {
	t.Run("write in flight", func(t *testing.T) {
		engine := ringtest.NewEngine(8)
		b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
		st := stream(t, b, StreamDef{Durable: true})
		res := newResults()
		r := request(b, st, "x")
		r.Reply = res
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		op := pending(t, engine, 1)[0]
		closeShort(t, b)
		engine.Run(op)
		closeTest(t, b)
		if got := res.wait(t, 0); got.Err != nil || got.Offset != 0 {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("last sync", func(t *testing.T) {
		fs := ringtest.NewFS(nil)
		b := openTest(t, Options{FS: fs}.in(t.TempDir()).scripted(ringtest.NewSyncEngine()))
		st := stream(t, b, StreamDef{Durable: true, Fsync: "none"})
		publish(t, b, st, "x")
		wait := make(chan struct{})
		fs.Add(ringtest.Rule{Kind: ringtest.Sync, Wait: wait})
		closeShort(t, b)
		close(wait)
		closeTest(t, b)
	})
}

func closeShort(t *testing.T, b *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- b.Close(ctx) }()
	select {
	case err := <-closed:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("close on a stuck disk: %v", err)
		}
	case <-time.After(waitMax):
		t.Fatal("close waits for the disk although its context has ended")
	}
}

// While another executor still waits for its disk, one that is done begins nothing new: a sync that
// was submitted then would outlive the executor, and its log could not be closed.
func TestStoppedExecutorStartsNoSync(t *testing.T) {
	var engines []*ringtest.Engine
	o := Options{CoreShards: 2, FsyncInterval: 30 * time.Millisecond}.in(t.TempDir())
	o.openEngine = func(string) (ring.Engine, string, error) {
		engines = append(engines, ringtest.NewEngine(8))
		return engines[len(engines)-1], "", nil
	}
	b := openTest(t, o)
	st := stream(t, b, StreamDef{Durable: true, Shards: 2, Fsync: "periodic"})
	quiet, stuck := st.shards[0].exec, st.shards[1].exec
	for shard := range uint32(2) {
		r := request(b, st, "x")
		r.Shard = shard
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	pending(t, engines[stuck.id], 1)
	stopPump := pump(t, engines[quiet.id])
	eventually(t, "one is written", func() bool { return st.shards[0].log.Committed() == 1 })
	eventually(t, "nothing is in flight there", func() bool { return len(engines[quiet.id].Pending()) == 0 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closeTest(t, b)
	}()
	<-quiet.quiet
	stopPump()
	n := len(engines[quiet.id].Batches())
	timer := time.NewTimer(3 * o.FsyncInterval)
	<-timer.C
	if batches := engines[quiet.id].Batches(); len(batches) != n {
		t.Errorf("submitted after it was quiet: %d operations", len(batches)-n)
	}
	pump(t, engines[quiet.id])
	pump(t, engines[stuck.id])
	<-closed
}

// A stream that is deleted while its disk stands still: whoever deletes gets his time-out, its readers
// end, other streams can be made meanwhile, and the files go when the disk moves again.
func TestDeleteOnAStuckDisk(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, newReader(t, wire.FlagEvOffsets))
	if err := b.Publish(t.Context(), request(b, st, "x")); err != nil {
		t.Fatal(err)
	}
	op := pending(t, engine, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	deleted := make(chan error, 1)
	go func() { deleted <- b.DeleteStream(ctx, "t", "n", "s") }()
	eventually(t, "the stream is gone", func() bool { _, ok := b.GetStream("t", "n", "s"); return !ok })
	made := make(chan struct{})
	go func() {
		defer close(made)
		stream(t, b, StreamDef{Stream: "other", Durable: true})
	}()
	select {
	case <-made:
	case <-time.After(waitMax):
		t.Fatal("a stuck delete keeps others from making streams")
	}
	if err := <-deleted; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("delete on a stuck disk: %v", err)
	}
	engine.Run(op)
	pump(t, engine)
	if end := sub.wait(t); end.Cause != EndDeleted {
		t.Fatalf("ended with %+v", end)
	}
	eventually(t, "the files are gone", func() bool {
		_, err := b.opts.FS.Stat(b.streamDir(st.id))
		return errors.Is(err, ring.ErrNotExist)
	})
	closeTest(t, b)
}

// A reader that is reading history when its stream is deleted ends as deleted, also when what it was
// about to open is gone.
func TestDeleteWhileHistoryIsRead(t *testing.T) {
	fs := ringtest.NewFS(nil)
	b := openTest(t, Options{FS: fs, SegmentBytes: 64 << 10}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	for range 4 {
		publish(t, b, st, string(make([]byte, 40<<10)))
	}
	eventually(t, "the first segment is sealed", func() bool {
		_, err := fs.Stat(filepath.Join(b.shardDir(st.id, 0), fmt.Sprintf("%020d.idx", 0)))
		return err == nil
	})
	entered, wait := make(chan struct{}, 1), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: fmt.Sprintf("%020d.seg", 0), Entered: entered, Wait: wait})
	sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, newReader(t, wire.FlagEvOffsets))
	<-entered
	if err := b.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	close(wait)
	if end := sub.wait(t); end.Cause != EndDeleted {
		t.Fatalf("ended with %+v: %v", end, sub.err)
	}
}

// Definitions, publishes, subscriptions and deletions race with Close. Everything accepted is
// answered, nobody hangs, and what exists afterwards opens again.
func TestCloseRacesEverything(t *testing.T) {
	for round := range 15 {
		dir := t.TempDir()
		b, err := Open(t.Context(), Options{CoreShards: 2, FsyncInterval: time.Millisecond}.in(dir))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		for worker := range 6 {
			wg.Go(func() {
				<-start
				for i := 0; ; i++ {
					name := fmt.Sprint("s", (worker+i)%3)
					st, _, err := b.createStream(StreamDef{Tenant: "t", Namespace: "n", Stream: name, Durable: true, Shards: 2, Fsync: "periodic"}, true)
					if err != nil {
						if !errors.Is(err, wire.ErrDraining) {
							t.Errorf("create: %v", err)
						}
						return
					}
					switch (worker + i) % 4 {
					case 0:
						if err := b.DeleteStream(t.Context(), "t", "n", name); err != nil && !errors.Is(err, wire.ErrNotFound) && !errors.Is(err, wire.ErrDraining) {
							t.Errorf("delete: %v", err)
						}
					case 1:
						if sub, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: earliest}); err == nil {
							sub.stop(1)
							_, _ = sub.Run(t.Context(), newReader(t, 0))
						}
					default:
						r, res := request(b, st, "x"), newResults()
						r.Reply, r.Shard = res, uint32(i%2)
						if err := b.Publish(t.Context(), r); err == nil {
							res.wait(t, 0)
						}
					}
				}
			})
		}
		close(start)
		timer := time.NewTimer(time.Duration(round) * 2 * time.Millisecond)
		<-timer.C
		closeTest(t, b)
		wg.Wait()
		b, err = Open(t.Context(), Options{}.in(dir))
		if err != nil {
			t.Fatal(err)
		}
		closeTest(t, b)
	}
}
