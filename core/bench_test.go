package core

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// bed is a broker without a disk and without a network: files in memory, and an engine for which every
// operation is done at once. Its one executor has lanes of one shard each, spread over tenants.
type bed struct {
	tb     testing.TB
	b      *Broker
	e      *executor
	shards []*shard
	accs   []*Account // by tenant
	tenant []int      // of each shard

	section []byte
	records int
	size    int
	burst   int // frames in a row for one lane
}

type bedOptions struct {
	durable        bool
	fsync          string
	records, size  int
	lanes, tenants int
	burst          int // default 1
	shards         int // core shards
	pin            bool
}

func newBed(tb testing.TB, o bedOptions) *bed {
	opts := Options{
		FS: ringtest.NullFS{FS: crashfs.New()}, SegmentBytes: 64 << 30, NoPreallocate: true,
		// Room for 64 publishes of 256 KiB under way.
		PublishInflightBytes: 64 << 20, PublishConnInflightBytes: 64 << 20,
		// Rings that are soon full: what is measured is the state that lasts.
		RingRecords: 128, CoreShards: o.shards, CorePin: o.pin,
	}.in(tb.TempDir())
	opts.openEngine = func(string) (ring.Engine, string, error) { return &ringtest.NullEngine{}, "", nil }
	m := &bed{tb: tb, b: openTest(tb, opts), records: o.records, size: o.size, burst: max(o.burst, 1)}
	m.e = m.b.executors[0]
	lanes, tenants := max(o.lanes, 1), max(o.tenants, 1)
	for n := range tenants {
		st := stream(tb, m.b, StreamDef{
			Tenant: fmt.Sprint("tenant-", n), Durable: o.durable, Fsync: o.fsync, Shards: uint32(lanes / tenants),
		})
		m.accs = append(m.accs, m.b.NewIdentity(m.b.NewAccount()))
		for _, s := range st.shards {
			m.shards, m.tenant = append(m.shards, s), append(m.tenant, n)
		}
	}
	raw := make([][]byte, o.records)
	for i := range raw {
		raw[i] = make([]byte, o.size)
	}
	m.section = wire.AppendSection(nil, raw...)
	return m
}

// request is the i-th decoded frame: so many for one lane, then for the next, round and round.
func (m *bed) request(i int, reply Replier, tag uint64) PublishRequest {
	n := i / m.burst % len(m.shards)
	s := m.shards[n]
	const prefix = 32 // what a frame has before its records
	buf := m.b.opts.Pool.Get(prefix + len(m.section))
	return PublishRequest{
		Stream: s.stream, Shard: s.num, Buf: buf, Pos: prefix, SectionLen: len(m.section), Count: uint32(m.records),
		PayloadBytes: m.records * m.size, Account: m.accs[m.tenant[n]], Acked: true, Reply: reply, Tag: tag,
	}
}

// fill puts the records where the transport would have read them.
func (m *bed) fill(r *PublishRequest) { copy(r.Buf.Bytes()[r.Pos:], m.section) }

// stepped runs fn on the executor's own goroutine, inside a task: fn calls Step itself, and between its
// calls nothing runs but what it does. So what is measured is the broker's code and no hand-off.
func (m *bed) stepped(fn func()) {
	if err := m.e.call(fn); err != nil {
		m.tb.Fatal(err)
	}
}

// answers counts; it is only ever called by the goroutine that steps.
type answersStepped struct{ n int }

func (a *answersStepped) Published(_ uint64, r PublishResult) {
	if r.Err != nil {
		panic(r.Err)
	}
	a.n++
}

// round publishes depth times, over the lanes in turn, and steps until all is answered.
func (m *bed) round(a *answersStepped, at, depth int) {
	want := a.n + depth
	for i := range depth {
		r := m.request(at+i, a, 0)
		m.fill(&r)
		if err := m.b.Publish(context.Background(), &r); err != nil {
			panic(err)
		}
	}
	for a.n < want {
		m.e.Step(sched.Mono())
	}
}

// warm fills the rings and the pools, so that what follows is steady.
func (m *bed) warm(a *answersStepped, depth int) {
	perLane := 128/m.records + 2
	for at := 0; at < len(m.shards)*max(perLane, m.burst); at += depth {
		m.round(a, at, depth)
	}
}

// steppedDepth is how many publishes are under way: as many as one lane claims at once.
const steppedDepth = claimJobsMax

// BenchmarkPublish is what one core does between a decoded frame and its answer: budgets, admission, queue,
// claim, the log up to the operation, replay ring, answer. The frame's bytes are copied into its Buf, as
// the transport does. One goroutine does all of it, 64 publishes at a time; disk and network are not there,
// nor is a hand-off between goroutines (BenchmarkPublishers has those). With a burst of 1 each publish
// goes to another lane and shares a claim, an envelope and a group with nobody; with 64 it is the number
// of lanes alone that differs from one lane. The unit is one publish; records/s is what one core would do
// with nothing else.
func BenchmarkPublish(b *testing.B) {
	row := func(o bedOptions) {
		o.burst = max(o.burst, 1)
		name := fmt.Sprintf("durable=%t/records=%d/size=%d/lanes=%d/tenants=%d/burst=%d", o.durable, o.records, o.size, o.lanes, o.tenants, o.burst)
		b.Run(name, func(b *testing.B) { benchStepped(b, o) })
	}
	for _, durable := range []bool{false, true} {
		for _, records := range []int{1, 64} {
			for _, size := range []int{256, 4096} {
				row(bedOptions{durable: durable, records: records, size: size, lanes: 1, tenants: 1})
			}
		}
	}
	for _, durable := range []bool{false, true} {
		for _, lanes := range []int{1, 64, 1024} {
			for _, tenants := range []int{1, 16} {
				for _, burst := range []int{1, steppedDepth} {
					if lanes >= tenants && lanes > 1 {
						row(bedOptions{durable: durable, records: 1, size: 256, lanes: lanes, tenants: tenants, burst: burst})
					}
				}
			}
		}
	}
}

func benchStepped(b *testing.B, o bedOptions) {
	m := newBed(b, o)
	b.SetBytes(int64(o.records * o.size))
	b.ReportAllocs()
	m.stepped(func() {
		a := &answersStepped{}
		m.warm(a, steppedDepth)
		at := 0
		for b.Loop() {
			if at++; at%steppedDepth == 0 {
				m.round(a, at, steppedDepth)
			}
		}
	})
	b.ReportMetric(float64(b.N)*float64(o.records)/b.Elapsed().Seconds(), "records/s")
}

// A publish allocates nothing per record and at most twice in all, once pools and rings are full: alone in
// its step, and 64 at a time. Bytes are counted too, since a rounded count of allocations may hide some.
func TestPublishAllocatesNothingPerRecord(t *testing.T) {
	if invariants.Enabled {
		t.Skip("released Bufs are not used again in invariants builds")
	}
	for _, durable := range []bool{false, true} {
		for _, depth := range []int{1, steppedDepth} {
			var allocs, bytes [2]float64
			for i, records := range []int{1, 64} {
				m := newBed(t, bedOptions{durable: durable, records: records, size: 256, lanes: 1, tenants: 1})
				m.stepped(func() { allocs[i], bytes[i] = m.steadyAllocations(depth) })
				if allocs[i] > 2 {
					t.Errorf("durable %t, %d records, %d at a time: %.2f allocations per publish, %.0f bytes", durable, records, depth, allocs[i], bytes[i])
				}
			}
			t.Logf("durable %t, %d at a time: %.3f and %.3f allocations, %.1f and %.1f bytes per publish of 1 and 64 records",
				durable, depth, allocs[0], allocs[1], bytes[0], bytes[1])
			// 63 records more: not one allocation in ten of them, nor a byte each.
			if d := allocs[1] - allocs[0]; d > 0.5 {
				t.Errorf("durable %t, %d at a time: 63 records more cost %.2f allocations", durable, depth, d)
			}
			if d := bytes[1] - bytes[0]; d > 63 {
				t.Errorf("durable %t, %d at a time: 63 records more cost %.1f bytes", durable, depth, d)
			}
		}
	}
}

// steadyAllocations returns allocations and bytes per publish. Without a collection meanwhile: it would
// empty the pools.
func (m *bed) steadyAllocations(depth int) (allocs, bytes float64) {
	a := &answersStepped{}
	m.warm(a, depth)
	rounds := max(1024/depth, 64)
	for range rounds {
		m.round(a, 0, depth)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	m.round(a, 0, depth)
	runtime.ReadMemStats(&before)
	for range rounds {
		m.round(a, 0, depth)
	}
	runtime.ReadMemStats(&after)
	n := float64(rounds * depth)
	return float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n
}

// loops are publishers that publish and wait for the answers, each with some of them under way.
type loops struct {
	m          *bed
	publishers int
	window     int // of each
}

// loopReply is the replier of one publisher.
type loopReply struct {
	n, want atomic.Int64
	done    chan struct{}
}

func (l *loopReply) Published(_ uint64, r PublishResult) {
	if r.Err != nil {
		panic(r.Err)
	}
	if l.n.Add(1) == l.want.Load() {
		l.done <- struct{}{}
	}
}

// run has each publisher publish n times, window after window.
func (l *loops) run(n int) {
	var wg sync.WaitGroup
	for p := range l.publishers {
		wg.Go(func() {
			reply := &loopReply{done: make(chan struct{}, 1)}
			for sent := 0; sent < n; sent += l.window {
				reply.want.Store(int64(sent + l.window))
				for range l.window {
					r := l.m.request(p, reply, 0)
					l.m.fill(&r)
					if err := l.m.b.Publish(l.m.tb.Context(), &r); err != nil {
						panic(err)
					}
				}
				<-reply.done
			}
		})
	}
	wg.Wait()
}

// BenchmarkPublishers is the same path between goroutines, on one stream: publishers that each have so many
// publishes under way, to an executor that is an ordinary goroutine, or locked to a thread and pinned to a
// CPU. With 64 times 64 under way most of them wait for one of the 256 places in the queue. One iteration is
// 4,096 publishes; ns/publish and allocs/publish are per publish, those of the publishers included.
func BenchmarkPublishers(b *testing.B) {
	const each = 4096
	for _, durable := range []bool{false, true} {
		for _, executor := range []string{"unlocked", "pinned"} {
			for _, l := range []loops{{publishers: 1, window: 1}, {publishers: 1, window: 64}, {publishers: 64, window: 1}, {publishers: 64, window: 64}} {
				b.Run(fmt.Sprintf("durable=%t/executor=%s/publishers=%d/window=%d", durable, executor, l.publishers, l.window), func(b *testing.B) {
					o := bedOptions{durable: durable, records: 1, size: 256}
					if executor == "pinned" {
						if len(sched.UsableCPUs()) < 2 {
							b.Skip("an executor is pinned only where there is another CPU")
						}
						o.shards, o.pin = 1, true
					}
					m := newBed(b, o)
					l.m = m
					l.run(each / l.publishers)
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for b.Loop() {
						l.run(each / l.publishers)
					}
					n := float64(b.N) * each
					runtime.ReadMemStats(&after)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/publish")
					b.ReportMetric(n/b.Elapsed().Seconds(), "records/s")
					b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/publish")
					if m.e.run.Stats().Pinned != (executor == "pinned") {
						b.Errorf("pinned: %t", m.e.run.Stats().Pinned)
					}
				})
			}
		}
	}
}

// BenchmarkStreamLookup is what a publish pays for its stream's name.
func BenchmarkStreamLookup(b *testing.B) {
	br, err := Open(b.Context(), Options{AutoCreate: true})
	if err != nil {
		b.Fatal(err)
	}
	defer closeTest(b, br)
	for i := range 1000 {
		if _, err := br.Stream("tenant", "namespace", fmt.Sprint("stream-", i)); err != nil {
			b.Fatal(err)
		}
	}
	tenant, namespace, name := []byte("tenant"), []byte("namespace"), []byte("stream-500")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := br.StreamBytes(tenant, namespace, name); err != nil {
			b.Fatal(err)
		}
	}
}
