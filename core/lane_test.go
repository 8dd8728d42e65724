package core

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// hold keeps an executor from stepping until release is called.
func hold(t testing.TB, e *executor) (release func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	go func() {
		_ = e.call(func() {
			close(held)
			<-free
		})
	}()
	<-held
	return func() { close(free) }
}

// design.md 3, step 7: while one group is in flight the next fills, also when more is queued than two
// groups hold: the lane that waited for room goes on as soon as a group was handed out.
func TestNextGroupFillsWhileOneIsInFlight(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{PublishQueueDepth: 1000}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	send := func(tag uint64) {
		r := request(b, st, fmt.Sprint(tag))
		r.Reply, r.Tag = res, tag
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	send(0)
	first := pending(t, engine, 1)[0]
	for i := range uint64(400) { // a group of 256, and a part of another
		send(1 + i)
	}
	eventually(t, "the second group is full", func() bool { return b.Status().Executors[0].Claimed == 1+256 })
	engine.Run(first)
	eventually(t, "the second group is in flight", func() bool {
		ops := engine.Pending()
		return len(ops) == 1 && ops[0] != nil && res.count() == 1
	})
	eventually(t, "the third takes the rest meanwhile", func() bool { return b.Status().Executors[0].Claimed == 401 })
	if n := res.count(); n != 1 {
		t.Fatalf("%d answers with the second group in flight", n)
	}
	pump(t, engine)
	for i := range uint64(401) {
		if got := res.wait(t, i); got.Err != nil || got.Offset != i {
			t.Fatalf("publish %d: %+v", i, got)
		}
	}
	for i, tag := range res.tags { // PUB-2
		if tag != uint64(i) {
			t.Fatalf("answer %d is that of publish %d", i, tag)
		}
	}
	closeTest(t, b)
}

func (r *results) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// No wake-up is lost when the engine has room for one operation and many logs want it, some of which
// fail: every publish is answered (HZ-23, HZ-12).
func TestEveryLogGetsItsTurnInAFullEngine(t *testing.T) {
	engine := ringtest.NewEngine(1)
	b := openTest(t, Options{PublishQueueDepth: 500}.in(t.TempDir()).scripted(engine))
	const streams, each = 12, 20
	res := newResults()
	for n := range streams {
		st := stream(t, b, StreamDef{Stream: fmt.Sprint(n), Durable: true, Fsync: []string{"on_commit", "periodic", "none"}[n%3]})
		for i := range each {
			r := request(b, st, "x")
			r.Reply, r.Tag = res, uint64(n*each+i)
			if err := b.Publish(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := 0; res.count() < streams*each; n++ {
		eventually(t, "something happens", func() bool { return len(engine.Pending()) > 0 || res.count() == streams*each })
		for _, op := range engine.Pending() {
			if n%5 == 2 {
				engine.End(op, 0, syscall.ENOSPC)
			} else {
				engine.Run(op)
			}
		}
	}
	pump(t, engine)
	closeTest(t, b)
}

// PUB-13, HZ-44: records without a byte are not free: a tenant that queues many of them has its turn,
// and then another tenant has.
func TestEmptyRecordsAreChargedToTheirTenant(t *testing.T) {
	b := openTest(t, Options{AutoCreate: true, PublishQueueDepth: 500})
	flood := stream(t, b, StreamDef{Tenant: "flood"})
	quiet := stream(t, b, StreamDef{Tenant: "quiet"})
	release := hold(t, b.executors[0])
	res := newResults()
	const queued = 250
	records := make([]string, 4096)
	for i := range uint64(queued) {
		r := request(b, flood, records...)
		r.Reply, r.Tag = res, i
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	r := request(b, quiet, "x")
	r.Reply, r.Tag = res, queued
	if err := b.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	release()
	res.wait(t, queued)
	for i := range uint64(queued) {
		res.wait(t, i)
	}
	for i, tag := range res.tags {
		if tag == queued && i > 64 { // one claim of 1 MiB
			t.Errorf("%d publishes of the flood were served first", i)
		}
	}
}

// PUB-6, PUB-8, PUB-10: plain, empty and idempotent publishes and refusals on one lane: those that are
// accepted are answered in send order, and log, ring and live readers have them in that order.
func TestLaneOrderIsLogOrder(t *testing.T) {
	b := openTest(t, Options{PublishQueueDepth: 500}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	live := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest, QueueCapacity: new(uint32(4096))}, live)
	res := newResults()
	var want []string
	accepted := map[uint64]bool{}
	release := hold(t, st.shards[0].exec)
	seq := uint64(0)
	for tag := range uint64(300) {
		r := request(b, st, fmt.Sprint(tag))
		switch tag % 5 {
		case 1: // next of an idempotent producer
			r.Idempotent, r.ProducerID, r.Sequence = true, 3, seq
			seq++
		case 2: // a gap: refused
			r.Idempotent, r.ProducerID, r.Sequence = true, 3, seq+9
		case 3:
			r.Buf.Release()
			r = request(b, st)
		}
		if tag%5 != 2 {
			accepted[tag] = true
			if tag%5 != 3 {
				want = append(want, fmt.Sprint(tag))
			}
		}
		r.Reply, r.Tag = res, tag
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	release()
	for tag := range uint64(300) {
		res.wait(t, tag)
	}
	last := -1
	for _, tag := range res.tags {
		if accepted[tag] {
			if int(tag) < last {
				t.Fatalf("publish %d was answered after %d", tag, last)
			}
			last = int(tag)
		}
	}
	replay := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, replay)
	for name, r := range map[string]*reader{"live": live, "replay": replay} {
		for i, e := range r.wait(len(want)) {
			if e.offset != uint64(i) || e.payload != want[i] {
				t.Fatalf("%s: event %d is %+v, want %s", name, i, e, want[i])
			}
		}
	}
}

// HZ-47: with several executors, one whose rings are old and full gives way to one that is busy.
func TestIdleExecutorGivesItsRingsUp(t *testing.T) {
	const budget = 256 << 10
	b := openTest(t, Options{AutoCreate: true, CoreShards: 2, RetainedBytes: budget})
	st := stream(t, b, StreamDef{Shards: 2})
	big := string(make([]byte, 20<<10))
	send := func(shard uint32) {
		for range 30 {
			r := request(b, st, big)
			r.Shard = shard
			if res := publishRequest(t, b, r); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
	}
	held := func(shard uint32) (n int64) {
		s := st.shards[shard]
		if err := s.exec.call(func() { n = s.replay.Bytes() }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	send(0)
	if n := held(0); n < budget/2 {
		t.Fatalf("alone it holds %d bytes", n)
	}
	send(1)
	eventually(t, "the rings fit their budget", func() bool { return b.Status().RetainedBytes <= budget })
	for shard := range uint32(2) {
		if n := held(shard); n < budget/4 || n > budget*3/4 {
			t.Errorf("executor %d holds %d bytes", shard, n)
		}
	}
}
