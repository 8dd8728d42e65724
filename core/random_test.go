package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

type tester = testing.TB

// LOG-2, LOG-3, LOG-11, PUB-6, PUB-12, PUB-23, SUB-6, SUB-8, SUB-24, HZ-12, HZ-13, HZ-14, HZ-40: writers of
// every kind, readers that come and go, streams that are made and deleted, a disk that is full now
// and then and that fails a sync, power cuts and orderly ends, against a naive model.
func TestRandomLife(t *testing.T) {
	for seed := range uint64(lifeSeeds) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { randomLife(t, seed) })
	}
}

const lifeShards = 2

const lifeSeeds = 8

func randomLife(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := newMachine(t)
	l := newLedger()
	var writers []*writer
	for id := range 5 {
		writers = append(writers, &writer{id: id, shard: uint32(id % lifeShards), idempotent: id >= 3})
	}
	for round := range 4 {
		fs := ringtest.NewFS(m.fs())
		o := Options{
			FS: fs, SegmentBytes: 64 << 10, CoreShards: int(seed % 3), RingRecords: 1 + rng.IntN(64),
			PublishInflightBytes: 1 << 16, PublishConnInflightBytes: 1 << 16,
		}
		b, err := Open(t.Context(), o.in(m.dir))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if names := m.orphans(b); len(names) > 0 {
			t.Fatalf("round %d: files of nobody: %v", round, names)
		}
		st := stream(t, b, StreamDef{Durable: true, Shards: lifeShards})
		if err := l.check(readAll(t, b, st)); err != nil {
			t.Fatalf("round %d, at the start: %v", round, err)
		}
		promised, after := liveRound(t, rng, m, fs, b, st, l, writers)
		if err := l.check(readAll(t, b, st)); err != nil {
			t.Fatalf("round %d, at the end: %v", round, err)
		}
		status := b.Status()
		t.Logf("round %d: %d records acknowledged, %d refused, %d failed shards, %d delivered, power cut %t",
			round, len(l.acked), len(l.refused), status.FailedShards, status.DeliveredRecords, after != nil)
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		if err := b.Close(ctx); err != nil && !errors.Is(err, log.ErrPoisoned) {
			t.Fatal(err)
		}
		cancel()
		nothingHeld(t, b)
		if after != nil {
			// What was answered after the cut was not: the power was off.
			m, l = after, promised
			for _, w := range writers {
				if w.idempotent {
					w.forget(l)
				}
			}
		}
	}
}

// forget goes back to the first batch that has no answer in l.
func (w *writer) forget(l *ledger) {
	for w.next > 0 {
		if _, ok := l.acked[w.batch(w.next - 1).records[0]]; ok {
			return
		}
		w.next--
	}
}

// liveRound lets everything happen at once. It returns what had been promised when the power was cut,
// and what the cut left; nil without a cut.
func liveRound(t *testing.T, rng *rand.Rand, m *machine, fs *ringtest.FS, b *Broker, st *Stream, l *ledger, writers []*writer) (promised *ledger, after *machine) {
	var writing, others sync.WaitGroup
	done := make(chan struct{})
	windows := 20 + rng.IntN(30)
	for _, w := range writers {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 2))
		writing.Go(func() {
			for range windows {
				if !w.window(t, b, st, l, 1+rng.IntN(12), rng.IntN(3) == 0) {
					return
				}
			}
		})
	}
	for range 3 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 3))
		others.Go(func() {
			for !over(done) {
				randomReader(t, rng, b, st)
			}
		})
	}
	faults := rand.New(rand.NewPCG(rng.Uint64(), 4))
	others.Go(func() {
		poisoned := faults.IntN(3) > 0 // in this round one log fails for good
		for !over(done) {
			if poisoned && faults.IntN(6) == 0 {
				fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: b.shardDir(st.id, faults.Uint32N(lifeShards)), Err: syscall.EIO})
				return
			}
			fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: ".seg", Nth: 1 + faults.IntN(30), Err: syscall.ENOSPC})
			nap(time.Millisecond)
			if faults.IntN(4) == 0 {
				fs.Clear()
			}
		}
	})
	others.Go(func() {
		for !over(done) {
			comeAndGo(t, b)
		}
	})
	if rng.IntN(4) > 0 {
		nap(time.Duration(rng.IntN(15)) * time.Millisecond)
		promised = l.copy() // before the cut: all of it must be there
		after = m.powerCut(b, rng.Uint64())
	}
	writing.Wait()
	close(done)
	others.Wait()
	fs.Clear()
	return promised, after
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// nap lets others work for a while; nothing depends on how long.
func nap(d time.Duration) { <-time.NewTimer(d).C }

// randomReader reads one shard from somewhere for a while: what it gets begins at its start and has no
// hole, or it is told where to go on.
func randomReader(t *testing.T, rng *rand.Rand, b *Broker, st *Stream) {
	shard := uint32(rng.IntN(lifeShards))
	tail := st.shards[shard].visible.Load()
	req := &SubscribeRequest{Stream: st, Shard: shard, Start: at(rng.Uint64N(tail + 1)), Shape: wire.FlagEvOffsets, Lagged: true}
	switch rng.IntN(4) {
	case 0:
		req.Start = latest
	case 1:
		req.QueueCapacity = new(uint32(1 + rng.IntN(4)))
	}
	sub, err := b.Subscribe(t.Context(), req)
	if err != nil {
		t.Errorf("subscribe at %+v, tail %d: %v", req.Start, tail, err)
		return
	}
	start, _ := sub.StartOffset()
	r := newReader(t, wire.FlagEvOffsets)
	ru := run(t, sub, r)
	nap(time.Duration(rng.IntN(4)) * time.Millisecond)
	if rng.IntN(2) == 0 {
		ru.Close()
	}
	ru.stop()
	next := start
	for _, e := range r.got {
		if e.offset != next {
			t.Errorf("reader from %d: got %d instead of %d", start, e.offset, next)
			return
		}
		next++
	}
	if ru.end.Cause == EndLagged && ru.end.ResumeFrom != next {
		t.Errorf("reader from %d lagged: told to resume from %d, had all before %d", start, ru.end.ResumeFrom, next)
	}
}

// comeAndGo makes a stream, uses it and deletes it while it is used. Every publish is answered.
func comeAndGo(t *testing.T, b *Broker) {
	st, _, err := b.createStream(StreamDef{Tenant: "t", Namespace: "n", Stream: "fleeting", Durable: true, Shards: 2, Fsync: "periodic"}, true)
	if err != nil {
		if !errors.Is(err, wire.ErrOverloaded) && !errors.Is(err, wire.ErrStorage) {
			t.Errorf("create: %v", err)
		}
		return
	}
	sub, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: earliest})
	if err != nil {
		t.Errorf("subscribe to the new stream: %v", err)
		return
	}
	ru := run(t, sub, newReader(t, 0))
	var wg sync.WaitGroup
	wg.Go(func() {
		res := newResults()
		for tag := range uint64(50) {
			r := request(b, st, "x")
			r.Reply, r.Tag, r.Shard = res, tag, uint32(tag%2)
			switch err := b.Publish(t.Context(), r); {
			case err == nil:
				res.wait(t, tag)
			case errors.Is(err, wire.ErrNotFound):
				return
			}
		}
	})
	nap(time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	if err := b.DeleteStream(ctx, "t", "n", "fleeting"); err != nil {
		t.Errorf("delete: %v", err)
	}
	wg.Wait()
	if end := ru.wait(t); end.Cause != EndDeleted {
		t.Errorf("reader of a deleted stream ended with %+v, %v", end, ru.err)
	}
}

// readAll reads every shard of st from the start to where it ends now.
func readAll(t *testing.T, b *Broker, st *Stream) (shards [][]event) {
	for shard := range st.Shards() {
		r := newReader(t, wire.FlagEvOffsets)
		ru := subscribe(t, b, &SubscribeRequest{Stream: st, Shard: shard, Start: earliest}, r)
		shards = append(shards, r.wait(int(st.shards[shard].visible.Load())))
		ru.stop()
	}
	return shards
}
