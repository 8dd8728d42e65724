package core

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// sender publishes with rising tags and keeps the answers.
type sender struct {
	t   testing.TB
	b   *Broker
	res *results
	tag uint64
}

func newSender(t testing.TB, b *Broker) *sender { return &sender{t: t, b: b, res: newResults()} }

// send queues a publish and returns its tag.
func (s *sender) send(r *PublishRequest) uint64 {
	s.t.Helper()
	tag := s.tag
	s.tag++
	r.Reply, r.Tag = s.res, tag
	if err := s.b.Publish(s.t.Context(), r); err != nil {
		s.t.Fatalf("publish %d: %v", tag, err)
	}
	return tag
}

// records queues a publish of records.
func (s *sender) records(st *Stream, records ...string) uint64 {
	s.t.Helper()
	return s.send(request(s.b, st, records...))
}

// offsets waits for every answer, in order, and returns the offsets.
func (s *sender) offsets() (offsets []uint64) {
	s.t.Helper()
	for tag := range s.tag {
		res := s.res.wait(s.t, tag)
		if res.Err != nil || res.Refused != nil {
			s.t.Fatalf("publish %d: %+v", tag, res)
		}
		offsets = append(offsets, res.Offset)
	}
	return offsets
}

// envelopes is how many deliveries the records from offset on were.
func envelopes(t testing.TB, s *shard, offset uint64) (n int) {
	t.Helper()
	err := s.exec.call(func() {
		var envs []*fanout.Envelope
		envs, _ = s.replay.From(offset)
		n = len(envs)
		for _, e := range envs {
			e.Release()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// claims is what the executor claimed so far: all, and by size.
func claims(b *Broker) (n uint64, sizes [ClaimSizes]uint64) {
	e := b.Status().Executors[0]
	return e.Claims, e.ClaimSizes
}

// PUB-1: eight publishes queued on one lane, the third of three records, are claimed as one append:
// each has its own offset, the disk sees one write, a subscriber one delivery.
func TestQueuedPublishesAreOneClaim(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	live := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
	s := newSender(t, b)
	release := hold(t, st.shards[0].exec)
	for i := range 8 {
		if i == 2 {
			s.records(st, "2a", "2b", "2c")
		} else {
			s.records(st, fmt.Sprint(i))
		}
	}
	release()
	pending(t, engine, 1)
	pump(t, engine)
	if diff := cmp.Diff([]uint64{0, 1, 2, 5, 6, 7, 8, 9}, s.offsets()); diff != "" {
		t.Error(diff)
	}
	e := b.Status().Executors[0]
	if e.Claims != 1 || e.Claimed != 8 || e.Ops != 1 {
		t.Errorf("%d claims of %d publishes, %d operations", e.Claims, e.Claimed, e.Ops)
	}
	if n := envelopes(t, st.shards[0], 0); n != 1 {
		t.Errorf("%d deliveries", n)
	}
	want := []event{{0, "0"}, {1, "1"}, {2, "2a"}, {3, "2b"}, {4, "2c"}, {5, "3"}, {6, "4"}, {7, "5"}, {8, "6"}, {9, "7"}}
	if diff := cmp.Diff(want, live.wait(10), cmp.AllowUnexported(event{})); diff != "" {
		t.Error(diff)
	}
}

// PUB-2: whoever sees the answer of the last publish of a claim finds those of the others given.
func TestAnswersOfAClaimComeInItsOrder(t *testing.T) {
	for _, durable := range []bool{true, false} {
		b := openTest(t, Options{}.in(t.TempDir()))
		st := stream(t, b, StreamDef{Durable: durable})
		s := newSender(t, b)
		release := hold(t, st.shards[0].exec)
		for range claimJobsMax {
			s.records(st, "x")
		}
		release()
		s.offsets()
		if n, _ := claims(b); n != 1 {
			t.Errorf("durable %t: %d claims", durable, n)
		}
		for i, tag := range s.res.tags {
			if tag != uint64(i) {
				t.Fatalf("durable %t: answer %d is that of publish %d", durable, i, tag)
			}
		}
	}
}

// PUB-8: idempotent and empty publishes are claimed alone, and nothing overtakes them; all of them share
// one write.
func TestOnlyPlainPublishesAreJoined(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprint("durable=", durable), func(t *testing.T) {
			engine := ringtest.NewEngine(8)
			b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
			st := stream(t, b, StreamDef{Durable: durable})
			s := newSender(t, b)
			idempotent := func(seq uint64) {
				r := request(b, st, "i")
				r.Idempotent, r.ProducerID, r.Sequence = true, 7, seq
				s.send(r)
			}
			release := hold(t, st.shards[0].exec)
			s.records(st, "p") // 2
			s.records(st, "p")
			idempotent(0)      // 1
			s.records(st, "p") // 1
			s.records(st)      // 1
			s.records(st, "p") // 3
			s.records(st, "p")
			s.records(st, "p")
			idempotent(1) // 1
			idempotent(2) // 1
			release()
			if durable {
				pending(t, engine, 1)
				pump(t, engine)
			}
			if diff := cmp.Diff([]uint64{0, 1, 2, 3, 4, 4, 5, 6, 7, 8}, s.offsets()); diff != "" {
				t.Error(diff)
			}
			n, sizes := claims(b)
			if want := [ClaimSizes]uint64{5, 1, 1}; n != 7 || sizes != want {
				t.Errorf("%d claims by size %v, want %v", n, sizes, want)
			}
			for i, tag := range s.res.tags {
				if tag != uint64(i) {
					t.Errorf("answer %d is that of publish %d", i, tag)
				}
			}
			if e := b.Status().Executors[0]; durable && e.Ops != 1 {
				t.Errorf("%d writes", e.Ops)
			}
			if n := envelopes(t, st.shards[0], 0); n != 1 {
				t.Errorf("%d deliveries", n)
			}
		})
	}
}

// PUB-1: a claim ends at 64 publishes, and before the publish that would make it more than 1 MiB; one
// that is larger is claimed alone. A turn in which nothing could be claimed is no claim.
func TestClaimIsBounded(t *testing.T) {
	const mib = 1 << 20
	size := func(n int) string { return string(make([]byte, n-8)) } // with its count and its length
	for _, row := range []struct {
		name    string
		records []string
		want    [ClaimSizes]uint64
	}{
		{"64 publishes", make([]string, 65), [ClaimSizes]uint64{0: 1, 6: 1}},
		{"exactly 1 MiB", []string{size(mib / 2), size(mib / 2), size(100)}, [ClaimSizes]uint64{1, 1}},
		{"one byte more", []string{size(mib / 2), size(mib/2 + 1), size(100)}, [ClaimSizes]uint64{1, 1}},
		{"alone", []string{size(100), size(2 * mib), size(100), size(100)}, [ClaimSizes]uint64{2, 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := openTest(t, Options{PublishQueueDepth: 100}.in(t.TempDir()))
			st := stream(t, b, StreamDef{Durable: true})
			s := newSender(t, b)
			var refused uint64
			release := hold(t, st.shards[0].exec)
			r := request(b, st, "refused")
			r.Idempotent, r.ProducerID, r.Sequence = true, 1, 9
			r.Reply = newResults()
			refused = 1
			if err := b.Publish(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			for _, record := range row.records {
				s.records(st, record)
			}
			release()
			s.offsets()
			if _, sizes := claims(b); sizes != row.want {
				t.Errorf("claims by size %v, want %v", sizes, row.want)
			}
			if e := b.Status().Executors[0]; e.Refused != refused || e.Claimed != uint64(len(row.records)) {
				t.Errorf("%d refused, %d claimed", e.Refused, e.Claimed)
			}
		})
	}
}

// PUB-9: on one CPU, a backlog of 32 queued in-memory publishes and a subscriber whose queue holds 4
// deliveries: it gets all 32, also when each is a claim of its own.
func TestBacklogDoesNotOverrunAShortQueueOnOneCPU(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, idempotent := range []bool{false, true} {
		b := openTest(t, Options{AutoCreate: true})
		st := stream(t, b, StreamDef{})
		live := newReader(t, wire.FlagEvOffsets)
		sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest, QueueCapacity: new(uint32(4))}, live)
		s := newSender(t, b)
		release := hold(t, st.shards[0].exec)
		for i := range uint64(32) {
			r := request(b, st, fmt.Sprint(i))
			r.Idempotent, r.ProducerID, r.Sequence = idempotent, 5, i
			s.send(r)
		}
		release()
		s.offsets()
		for i, e := range live.wait(32) {
			if e.payload != fmt.Sprint(i) {
				t.Fatalf("idempotent %t: event %d is %+v", idempotent, i, e)
			}
		}
		if n := sub.sub.Dropped(); n != 0 {
			t.Errorf("idempotent %t: %d deliveries dropped", idempotent, n)
		}
		if n, _ := claims(b); idempotent && n != 32 {
			t.Errorf("%d claims", n)
		}
	}
}

// What a step claims in memory is one delivery, but not without bound.
func TestLargeInMemoryBacklogIsSeveralDeliveries(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true})
	st := stream(t, b, StreamDef{})
	s := newSender(t, b)
	release := hold(t, st.shards[0].exec)
	for i := range uint64(10) {
		r := request(b, st, string(make([]byte, 40<<10)))
		r.Idempotent, r.ProducerID, r.Sequence = true, 5, i // each a claim of its own
		s.send(r)
	}
	release()
	s.offsets()
	if n := envelopes(t, st.shards[0], 0); n != 5 {
		t.Errorf("%d deliveries", n)
	}
}

// PUB-18: both groups of a shard are full and the disk holds the first: the next claim waits, in its
// lane, and another shard of the same executor is written and answered meanwhile.
func TestClaimBehindTwoFullGroupsWaitsAlone(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{PublishQueueDepth: 1000}.in(t.TempDir()).scripted(engine))
	slow := stream(t, b, StreamDef{Stream: "slow", Durable: true})
	other := stream(t, b, StreamDef{Stream: "other", Durable: true})
	s := newSender(t, b)
	s.records(slow, "0")
	held := pending(t, engine, 1)[0]
	const full, more = 256, 40 // log.Options.GroupEntriesMax
	for range full + more {
		s.records(slow, "x")
	}
	waits := func() bool {
		e := b.Status().Executors[0]
		return e.Claimed == 1+full && e.Queued == more
	}
	eventually(t, "both groups are full", waits)
	o := newSender(t, b)
	for i := range 20 {
		o.records(other, fmt.Sprint(i))
		ops := pending(t, engine, 2)
		for _, op := range ops {
			if op != held {
				engine.Run(op)
			}
		}
		o.offsets()
	}
	if e := b.Status().Executors[0]; e.Claimed != 1+full+20 || e.Queued != more || s.res.count() != 0 {
		t.Errorf("%d claimed, %d queued, %d answered behind a held disk", e.Claimed, e.Queued, s.res.count())
	}
	pump(t, engine)
	for i, offset := range s.offsets() {
		if offset != uint64(i) {
			t.Fatalf("publish %d has offset %d", i, offset)
		}
	}
	closeTest(t, b)
}
