package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// majority is a Quorum that says what the test says.
type majority struct {
	mu      sync.Mutex
	mark    uint64
	refused bool
	asked   int
}

func (m *majority) Mark() (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return m.mark, !m.refused
}

// set says something else, and tells nobody.
func (m *majority) set(mark uint64, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mark, m.refused = mark, refused
}

// replicated puts a stream of one shard under a majority that holds nothing yet.
func replicated(t testing.TB, b *Broker, def StreamDef) (*Stream, *majority) {
	t.Helper()
	st, m := stream(t, b, def), &majority{}
	if err := b.Replicate(st, 0, m); err != nil {
		t.Fatal(err)
	}
	return st, m
}

// move moves the mark, and tells the broker.
func (m *majority) move(b *Broker, st *Stream, mark uint64) {
	m.set(mark, false)
	b.MarkMoved(st, 0)
}

// heldBack waits until so many publishes of the shard are committed and held back.
func heldBack(t testing.TB, sh *shard, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " publishes are held back"), func() bool {
		var held int
		if err := sh.exec.call(func() { held = sh.replica.Load().held }); err != nil {
			t.Fatal(err)
		}
		return held == n
	})
}

// visibleTo checks what every kind of reader sees of a shard of a durable stream.
func visibleTo(t testing.TB, b *Broker, st *Stream, want uint64) {
	t.Helper()
	page, err := b.ReadPage(&ReadRequest{Stream: st})
	if err != nil || uint64(len(page.Records)) != want || page.Next != want {
		t.Fatalf("page of %d records up to %d, %v; want %d", len(page.Records), page.Next, err, want)
	}
	page.Release()
	offset, ok, err := b.OffsetForTime(st, 0, 0)
	if err != nil || ok != (want > 0) || offset != 0 {
		t.Fatalf("offset_for_time: %d, %t, %v", offset, ok, err)
	}
	var cursor *CursorError
	if _, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: at(want + 1)}); !errors.As(err, &cursor) || cursor.Available != want {
		t.Fatalf("start behind what is visible: %v", err)
	}
	for _, start := range []wire.Start{earliest, latest} {
		sub, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: start})
		if err != nil {
			t.Fatal(err)
		}
		if live, _ := sub.LiveOffset(); live != want {
			t.Errorf("live at %d, want %d", live, want)
		}
		sub.Close()
	}
	history := newReader(t, wire.FlagEvOffsets)
	ru := subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, history)
	eventually(t, "the reader has joined", ru.joined.Load)
	history.wait(int(want))
	ru.stop()
	if n := uint64(len(history.got)); n != want {
		t.Fatalf("history of %d records, want %d", n, want)
	}
	if tail := st.Info().ShardInfo[0].Tail; tail != want {
		t.Errorf("tail %d, want %d", tail, want)
	}
}

// PUB-4: a claim whose majority does not confirm in time: every publish of it is answered quorum_timeout,
// outcome unknown; no reader of any kind sees a record of it. When the majority holds them after all they
// are delivered, and what they held is given back.
func TestQuorumTimeoutFailsTheWholeClaim(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprint("durable=", durable), func(t *testing.T) {
			b := openTest(t, Options{QuorumTimeout: 30 * time.Millisecond}.in(t.TempDir()))
			st, m := replicated(t, b, StreamDef{Durable: durable})
			live := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
			s := newSender(t, b)
			release := hold(t, st.shards[0].exec)
			for i := range 3 {
				s.records(st, fmt.Sprint(i))
			}
			early := request(b, st, "3") // an acknowledgement before the majority has it would be a lie
			early.AckOnQueue = true
			s.send(early)
			release()
			for tag := range uint64(4) {
				if res := s.res.wait(t, tag); !errors.Is(res.Err, wire.ErrQuorumTimeout) || res.Err.Retry != wire.RetryUnknown {
					t.Errorf("publish %d: %+v", tag, res)
				}
			}
			if n, sizes := claims(b); n != 1 || sizes[2] != 1 {
				t.Errorf("%d claims by size %v", n, sizes)
			}
			if durable {
				visibleTo(t, b, st, 0)
			}
			if n := envelopes(t, st.shards[0], 0); n != 0 || b.inflight.Used() == 0 || st.shards[0].exec.admission.Entered() != 0 {
				t.Errorf("%d deliveries, %d bytes and %d jobs are held", n, b.inflight.Used(), st.shards[0].exec.admission.Entered())
			}
			if err := b.Drain(t.Context()); err != nil { // nobody waits for them any more
				t.Error(err)
			}
			m.move(b, st, 4)
			for i, e := range live.wait(4) {
				if e != (event{uint64(i), fmt.Sprint(i)}) {
					t.Errorf("event %d is %+v", i, e)
				}
			}
			eventually(t, "the bytes are given back", func() bool { return b.inflight.Used() == 0 })
			if n := s.res.count(); n != 4 {
				t.Errorf("%d answers", n)
			}
		})
	}
}

// PUB-4: what the mark covers is visible and answered, with its offset; the rest waits, also the rest of a
// publish that the mark lies in. Duplicates and empty publishes wait for what they stand for.
func TestMarkCutsWhatIsVisible(t *testing.T) {
	b := openTest(t, Options{QuorumTimeout: time.Hour}.in(t.TempDir()))
	st, m := replicated(t, b, StreamDef{Durable: true})
	s := newSender(t, b)
	s.records(st, "0", "1")
	s.records(st, "2", "3", "4")
	for range 2 {
		r := request(b, st, "5")
		r.Idempotent, r.ProducerID = true, 7
		s.send(r)
	}
	s.records(st)
	heldBack(t, st.shards[0], 5)
	for _, step := range []struct {
		mark, visible uint64
		answers       int
	}{{1, 0, 0}, {2, 2, 1}, {4, 2, 1}, {5, 5, 2}, {3, 5, 2}, {6, 6, 5}} {
		m.move(b, st, step.mark)
		if err := st.shards[0].exec.call(st.shards[0].exec.settle); err != nil { // behind the mark in the inbox
			t.Fatal(err)
		}
		visibleTo(t, b, st, step.visible)
		if n := s.res.count(); n != step.answers {
			t.Errorf("mark %d: %d answers, want %d", step.mark, n, step.answers)
		}
	}
	if diff := cmp.Diff([]uint64{0, 2, 5, 5, 6}, s.offsets()); diff != "" {
		t.Error(diff)
	}
	closeTest(t, b)
}

// BUG-5: the mark of the last batch arrives while it may not be asked for. The batch is held; once the mark
// may be asked again it is released without anybody saying so, and live readers get it.
func TestHeldBatchIsReleasedByTheRecheck(t *testing.T) {
	b := openTest(t, Options{QuorumTimeout: time.Hour}.in(t.TempDir()))
	st, m := replicated(t, b, StreamDef{Durable: true})
	live := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
	s := newSender(t, b)
	s.records(st, "x")
	heldBack(t, st.shards[0], 1)
	m.set(1, true)
	b.MarkMoved(st, 0)
	asked := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.asked
	}
	before := asked()
	eventually(t, "it is asked again, in vain", func() bool { return asked() > before+1 })
	visibleTo(t, b, st, 0)
	m.set(1, false)
	if e := live.wait(1)[0]; e != (event{0, "x"}) {
		t.Errorf("got %+v", e)
	}
	s.offsets()
	steps := func() uint64 { return b.Status().Executors[0].Sched.Steps }
	eventually(t, "nothing is looked at any more", func() bool {
		var n int
		_ = st.shards[0].exec.call(func() { n = len(st.shards[0].exec.holding) })
		return n == 0
	})
	if n := steps(); n > 10_000 {
		t.Errorf("the executor took %d steps", n)
	}
}

// BUG-31: a shard whose leader is its only replica is its own majority: everything is answered when it is
// on the disk, and nothing is held back.
func TestSingleReplicaIsItsOwnMajority(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	publish(t, b, st, "before")
	if err := b.Replicate(st, 0, &majority{mark: math.MaxUint64}); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(10) {
		if res := publish(t, b, st, "x"); res.Err != nil || res.Offset != 1+i {
			t.Fatalf("publish %d: %+v", i, res)
		}
	}
	if err := st.shards[0].exec.call(func() {
		if e := st.shards[0].exec; len(e.holding) != 0 || st.shards[0].replica.Load().listed {
			t.Error("something is held back")
		}
	}); err != nil {
		t.Fatal(err)
	}
	visibleTo(t, b, st, 11)
	if err := b.Replicate(st, 0, &majority{mark: 10}); !errors.Is(err, errMarkBehind) {
		t.Errorf("a majority that has less than the shard: %v", err)
	}
}

// What is held back survives what happens to the log behind it: a failed write or a reset voids what is
// not committed, and the held records become visible when their mark comes. A reset answers their
// publishes at once, outcome unknown (PUB-27).
func TestHeldRecordsOutliveAFailureBehindThem(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprint("reset=", reset), func(t *testing.T) {
			engine := ringtest.NewEngine(8)
			b := openTest(t, Options{QuorumTimeout: time.Hour}.in(t.TempDir()).scripted(engine))
			st, m := replicated(t, b, StreamDef{Durable: true})
			live := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
			s := newSender(t, b)
			idempotent := func(seq uint64, record string) *PublishRequest {
				r := request(b, st, record)
				r.Idempotent, r.ProducerID, r.Sequence = true, 3, seq
				return r
			}
			s.send(idempotent(0, "held"))
			engine.Run(pending(t, engine, 1)[0])
			heldBack(t, st.shards[0], 1)
			s.records(st, "void")
			op := pending(t, engine, 1)[0]
			s.records(st, "void")
			s.send(idempotent(0, "held")) // a duplicate of what is held, behind what is void
			eventually(t, "all are claimed", func() bool { return b.Status().Executors[0].Claimed == 4 })
			if reset {
				if err := b.Reset(st, 0); err != nil {
					t.Fatal(err)
				}
				engine.Run(op)
			} else {
				engine.End(op, 0, syscall.ENOSPC)
			}
			want := wire.ErrOverloaded
			if reset {
				want = wire.ErrUnacknowledged
			}
			for tag := uint64(1); tag < 3; tag++ {
				if res := s.res.wait(t, tag); !errors.Is(res.Err, want) {
					t.Errorf("publish %d: %+v", tag, res)
				}
			}
			pump(t, engine)
			visibleTo(t, b, st, 0)
			next := s.records(st, "next")
			heldBack(t, st.shards[0], 3)
			m.move(b, st, 2)
			if got := live.wait(2); got[0] != (event{0, "held"}) || got[1] != (event{1, "next"}) {
				t.Errorf("got %+v", got)
			}
			if res := s.res.wait(t, 0); reset != (res.Err != nil) || reset && !errors.Is(res.Err, wire.ErrUnacknowledged) {
				t.Errorf("held: %+v", res)
			}
			if res := s.res.wait(t, 3); res.Err != nil || res.Offset != 0 {
				t.Errorf("its duplicate: %+v", res)
			}
			if res := s.res.wait(t, next); res.Err != nil || res.Offset != 1 {
				t.Errorf("next: %+v", res)
			}
			visibleTo(t, b, st, 2)
			closeTest(t, b)
		})
	}
}

// A log that fails for good while publishes wait for their majority, a stream that is deleted and a broker
// that stops: every publish is answered, in time, and nothing stays taken (HZ-40).
func TestHeldPublishesEndWithTheirShard(t *testing.T) {
	t.Run("the log fails", func(t *testing.T) {
		engine := ringtest.NewEngine(8)
		b, err := Open(t.Context(), Options{QuorumTimeout: time.Hour}.in(t.TempDir()).scripted(engine))
		if err != nil {
			t.Fatal(err)
		}
		st, m := replicated(t, b, StreamDef{Durable: true})
		s := newSender(t, b)
		s.records(st, "held")
		engine.Run(pending(t, engine, 1)[0])
		heldBack(t, st.shards[0], 1)
		s.records(st, "lost")
		op := pending(t, engine, 1)[0]
		engine.End(op, 1<<20, syscall.EIO)
		if res := s.res.wait(t, 1); !errors.Is(res.Err, wire.ErrStorage) {
			t.Errorf("lost: %+v", res)
		}
		m.move(b, st, 1)
		if res := s.res.wait(t, 0); res.Err != nil {
			t.Errorf("held: %+v", res)
		}
		visibleTo(t, b, st, 1)
		_ = b.Close(context.Background()) // it says what failed
		nothingHeld(t, b)
	})
	t.Run("the stream is deleted", func(t *testing.T) {
		for _, durable := range []bool{true, false} {
			b := openTest(t, Options{QuorumTimeout: time.Hour}.in(t.TempDir()))
			st, _ := replicated(t, b, StreamDef{Durable: durable})
			s := newSender(t, b)
			s.records(st, "held")
			heldBack(t, st.shards[0], 1)
			if err := b.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
				t.Fatal(err)
			}
			if res := s.res.wait(t, 0); !errors.Is(res.Err, wire.ErrNotFound) || res.Err.Retry != wire.RetryUnknown {
				t.Errorf("durable %t: %+v", durable, res)
			}
			closeTest(t, b)
		}
	})
	t.Run("the broker stops", func(t *testing.T) {
		for _, durable := range []bool{true, false} {
			b := openTest(t, Options{QuorumTimeout: 300 * time.Millisecond}.in(t.TempDir()))
			st, _ := replicated(t, b, StreamDef{Durable: durable})
			s := newSender(t, b)
			s.records(st, "held")
			heldBack(t, st.shards[0], 1)
			closeTest(t, b)
			if res := s.res.wait(t, 0); !errors.Is(res.Err, wire.ErrQuorumTimeout) {
				t.Errorf("durable %t: %+v", durable, res)
			}
		}
	})
}

// PUB-4, SUB-23's half of it: at every moment no reader has more than a majority holds, while publishers,
// readers that come and go and the mark move at random; in the end everybody has everything, in order, and
// every publish that was not answered in time is there, too.
func TestReadersStayBelowTheMark(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 4))
		o := Options{QuorumTimeout: time.Duration(1+rng.IntN(20)) * time.Millisecond, SegmentBytes: 64 << 10, RingRecords: 8, CoreShards: int(seed % 2)}
		b := openTest(t, o.in(t.TempDir()))
		st, m := replicated(t, b, StreamDef{Durable: true})
		const publishes = 300
		var most, total uint64 // what the mark ever was, guarded by m.mu; records in all
		readers := make(map[*reader]*running)
		join := func(start wire.Start) {
			r := newReader(t, wire.FlagEvOffsets)
			readers[r] = subscribe(t, b, &SubscribeRequest{Stream: st, Start: start, QueueCapacity: new(uint32(4096))}, r)
		}
		join(latest)
		s := newSender(t, b)
		for i := range publishes {
			var records []string
			for range 1 + rng.IntN(3) {
				records = append(records, fmt.Sprint(total))
				total++
			}
			s.records(st, records...)
			switch rng.IntN(6) {
			case 0, 1:
				m.mu.Lock()
				most = max(most, rng.Uint64N(total+1))
				m.mark, m.refused = most, rng.IntN(4) == 0
				m.mu.Unlock()
				b.MarkMoved(st, 0)
			case 2:
				if i%20 == 0 {
					join(earliest)
				}
			case 3:
				for r := range readers {
					r.mu.Lock() // what it has was written before the mark is read
					n := uint64(len(r.got))
					r.mu.Unlock()
					if n > most {
						t.Fatalf("seed %d: a reader has %d records, the mark was never above %d", seed, n, most)
					}
				}
			}
		}
		m.move(b, st, total)
		for r := range readers {
			for i, e := range r.wait(int(total)) {
				if e != (event{uint64(i), fmt.Sprint(i)}) {
					t.Fatalf("seed %d: event %d is %+v", seed, i, e)
				}
			}
		}
		for tag := range s.tag {
			if res := s.res.wait(t, tag); res.Err != nil && !errors.Is(res.Err, wire.ErrQuorumTimeout) {
				t.Fatalf("seed %d: publish %d: %+v", seed, tag, res)
			}
		}
		visibleTo(t, b, st, total)
		closeTest(t, b)
	}
}
