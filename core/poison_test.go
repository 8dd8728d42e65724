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

// scripted puts a scripted engine under a broker.
func (o Options) scripted(e ring.Engine) Options {
	o.openEngine = func(string) (ring.Engine, string, error) { return e, "", nil }
	return o
}

// pump carries out whatever reaches the engine, until stop is called.
func pump(t testing.TB, e *ringtest.Engine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := e.WaitPending(ctx, 1); err != nil {
				return
			}
			e.RunAll()
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func pending(t testing.TB, e *ringtest.Engine, n int) []*ring.Op {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	ops, err := e.WaitPending(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// LOG-10: when a periodic log is poisoned, records that were acknowledged from the page cache lie above
// the durable bound, and the replay ring holds them. Readers stop at the bound, wherever they would
// have got the rest from, and do not spin while they wait.
func TestPoisonedPeriodicLogStopsReadersAtTheDurableBound(t *testing.T) {
	for _, ringRecords := range []int{1, 1024} { // the ring does not reach back to the bound, and does
		t.Run(fmt.Sprint(ringRecords), func(t *testing.T) {
			fs := ringtest.NewFS(nil)
			o := Options{FS: fs, FsyncInterval: time.Millisecond, RingRecords: ringRecords}.in(t.TempDir())
			b, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close(context.Background())
			st := stream(t, b, StreamDef{Durable: true, Fsync: "periodic"})
			sh := st.shards[0]
			publish(t, b, st, "durable")
			eventually(t, "the record is synced", func() bool { return sh.log.Stats().Durable == 1 })
			entered, wait := make(chan struct{}, 1), make(chan struct{})
			fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: filepath.Base(b.streamDir(st.id)), Err: syscall.EIO, Entered: entered, Wait: wait})
			for i := range 3 {
				if res := publish(t, b, st, fmt.Sprint("page cache ", i)); res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			<-entered
			close(wait)
			eventually(t, "the log is poisoned", func() bool { return sh.failure.Load() != nil })
			if tail := st.Info().ShardInfo[0].Tail; tail != 1 {
				t.Errorf("tail %d is above the durable bound", tail)
			}
			r := newReader(t, wire.FlagEvOffsets)
			sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, r)
			eventually(t, "the reader has joined", func() bool { return sub.joined.Load() })
			steps := sh.exec.run.Stats().Steps
			if got := r.wait(1); got[0].payload != "durable" {
				t.Errorf("got %+v", got)
			}
			sub.Subscription.stop(1 + 4) // fanout.EndRevoked: what is queued is delivered first
			sub.wait(t)
			if n := len(r.got); n != 1 {
				t.Errorf("%d records were delivered: %+v", n, r.got)
			}
			if more := sh.exec.run.Stats().Steps - steps; more > 1000 {
				t.Errorf("the executor took %d steps for a waiting reader", more)
			}
			var cursor *CursorError
			if _, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: at(2)}); !errors.As(err, &cursor) || cursor.Available != 1 {
				t.Errorf("start above the bound: %v", err)
			}
			late, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: latest})
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := late.StartOffset(); n != 1 {
				t.Errorf("latest starts at %d", n)
			}
			late.Close()
		})
	}
}

// PUB-12, PUB-23, LOG-23: a batch and its resend wait in one group that fails. Both are told that
// nothing was written, the offset is free again and so is the sequence; a duplicate of an older,
// committed batch behind them is answered with its offset all the same.
func TestFailedGroupTakesItsDuplicatesWithIt(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	tag := uint64(0)
	send := func(seq uint64, record string) uint64 {
		r := request(b, st, record)
		r.Idempotent, r.ProducerID, r.Sequence = true, 9, seq
		r.Reply, r.Tag = res, tag
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		tag++
		return tag - 1
	}
	old := send(0, "old")
	engine.Run(pending(t, engine, 1)[0])
	res.wait(t, old)

	lead := send(1, "a") // in flight; the others fill the next group
	op := pending(t, engine, 1)[0]
	failed := []uint64{lead, send(2, "b"), send(2, "b"), send(1, "a")}
	again := send(0, "old")
	eventually(t, "all are claimed", func() bool { return b.Status().Executors[0].Claimed == 6 })
	engine.End(op, 0, syscall.ENOSPC)
	for _, n := range failed {
		if got := res.wait(t, n); !errors.Is(got.Err, wire.ErrOverloaded) || got.Err.Retry != wire.RetryAfter {
			t.Errorf("publish %d: %+v", n, got)
		}
	}
	if got := res.wait(t, again); got.Err != nil || got.Offset != 0 {
		t.Errorf("duplicate of a committed batch: %+v", got)
	}
	pump(t, engine)
	for seq, record := range []string{"old", "a", "b"} {
		if got := res.wait(t, send(uint64(seq), record)); got.Err != nil || got.Refused != nil || got.Offset != uint64(seq) {
			t.Errorf("resend of %d: %+v", seq, got)
		}
	}
	r := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, r)
	for i, e := range r.wait(3) {
		if want := (event{uint64(i), []string{"old", "a", "b"}[i]}); e != want {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	closeTest(t, b)
}

// LOG-23: an empty idempotent batch would be answered without a trace of its sequence in the log, and
// the producer's next one would be a gap. It is refused.
func TestEmptyIdempotentPublishIsRefused(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	r := request(b, st)
	r.Idempotent, r.ProducerID = true, 5
	if err := b.Publish(t.Context(), r); !errors.Is(err, wire.ErrInvalidRequest) {
		t.Fatalf("got %v", err)
	}
}
