package serve

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// nullStream is a stream of which nothing comes and whose answers are thrown away.
type nullStream struct {
	bytes atomic.Int64
	ctx   context.Context
}

func (n *nullStream) Read([]byte) (int, error)         { return 0, io.EOF }
func (n *nullStream) Write(p []byte) (int, error)      { n.bytes.Add(int64(len(p))); return len(p), nil }
func (n *nullStream) Close() error                     { return nil }
func (n *nullStream) CancelRead(uint64)                {}
func (n *nullStream) CancelWrite(uint64)               {}
func (n *nullStream) SetReadDeadline(time.Time) error  { return nil }
func (n *nullStream) SetWriteDeadline(time.Time) error { return nil }
func (n *nullStream) Context() context.Context         { return n.ctx }
func (n *nullStream) StreamID() int64                  { return 0 }

// driver feeds frames to a session without a transport: decoding, authorisation, routing, the
// executor, the answer's encoding and its write.
type driver struct {
	w   *world
	s   *session
	st  *nullStream
	end func()
}

func newDriver(tb testing.TB, feats wire.Features) *driver {
	return newWorld(tb, worldOptions{}).driver("t1", feats)
}

// driver opens a session of a tenant. Its end is the caller's.
func (w *world) driver(tenant string, feats wire.Features) *driver {
	_, far := fakePair(1 << 16)
	c := w.srv.newConn(far)
	st := &nullStream{ctx: far.ctx}
	s := newSession(c, st)
	c.preauth <- struct{}{}
	d := &driver{w: w, s: s, st: st}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.w.run()
	}()
	d.end = func() {
		s.w.finish()
		<-done
		s.clock.stop()
	}
	d.frame(wire.AppendMessage(nil, authMessage(tenant, w.tokenOf(tenant, "alice"), offerFlags, feats)))
	if s.id == nil {
		w.t.Fatal("not authenticated")
	}
	return d
}

func (d *driver) frame(b []byte) {
	h, err := wire.ParseHeader(b)
	if err != nil {
		panic(err)
	}
	buf := d.w.pool.Get(int(h.Length))
	copy(buf.Bytes(), b[wire.HeaderSize:])
	if d.s.frame(context.Background(), h, buf) != goOn {
		panic("the stream ended")
	}
}

func (d *driver) settle() {
	for !d.s.w.wait(func() bool { return d.s.ans.unanswered.Load() == 0 }) {
		return
	}
}

// sessions are drivers with the frames that they send in turn.
type sessions struct {
	w       *world
	drivers []*driver
	frames  [][][]byte // of each driver: one per lane
}

type sessionOptions struct {
	durable        bool
	records, size  int
	lanes, tenants int
	publishers     int // sessions of each tenant
	feats          wire.Features
	pin            bool
}

// newSessions spreads lanes over tenants, as shards of one stream of each.
func newSessions(tb testing.TB, o sessionOptions) *sessions {
	wo := worldOptions{durable: o.durable}
	for n := range o.tenants {
		wo.tenants = append(wo.tenants, fmt.Sprint("tenant-", n))
	}
	wo.core = func(c *core.Options) {
		// A segment without an end, rings that are soon full: what is measured is the state that lasts.
		c.SegmentBytes, c.NoPreallocate, c.RingRecords = 64<<30, true, 128
		if o.durable {
			c.FS = ringtest.NullFS{FS: crashfs.New()}
		}
		if o.pin {
			c.CoreShards, c.CorePin = 1, true
		}
	}
	s := &sessions{w: newWorld(tb, wo)}
	records := repeat(string(make([]byte, o.size)), o.records)
	shards := uint32(o.lanes / o.tenants)
	for _, tenant := range wo.tenants {
		s.w.stream(core.StreamDef{Tenant: tenant, Namespace: "default", Stream: "bench", Shards: shards, Durable: o.durable})
		var frames [][]byte
		for key := 0; uint32(len(frames)) < shards; key++ {
			p := wire.BinaryPublish{
				Flags: wire.FlagPublish | wire.FlagAcked | wire.FlagKeyed, RequestID: 1, AckMode: wire.AckPerMessage,
				Tenant: []byte(tenant), Namespace: []byte("default"), Stream: []byte("bench"),
				Key: fmt.Append(nil, key), HasKey: true, Section: section(records...),
			}
			if wire.ShardOf(p.Key, true, shards, wire.RoutingModulo) == uint32(len(frames)) {
				frames = append(frames, wire.AppendPublish(nil, &p))
			}
		}
		for range o.publishers {
			s.drivers, s.frames = append(s.drivers, s.w.driver(tenant, o.feats)), append(s.frames, frames)
		}
	}
	return s
}

// run has every session publish n times, over its lanes in turn, and waits for the answers.
func (s *sessions) run(n int) {
	var wg sync.WaitGroup
	for i, d := range s.drivers {
		wg.Go(func() {
			for k := range n {
				d.frame(s.frames[i][k%len(s.frames[i])])
			}
			d.settle()
		})
	}
	wg.Wait()
}

func (s *sessions) end() {
	for _, d := range s.drivers {
		d.end()
	}
}

// BenchmarkAckedPublish is the path from the bytes of a frame to the bytes of its answer: decoding,
// authorisation, route, executor, encoding, the write's call. Reader, executor and writer of a session are
// goroutines of their own. The durable rows have the portable engine over files that keep nothing: its
// hand-over to a thread is in them, since the engine of core's benchmarks cannot be given from here. One
// iteration is 4,096 publishes, of all sessions together.
func BenchmarkAckedPublish(b *testing.B) {
	row := func(o sessionOptions) {
		o.lanes, o.tenants, o.publishers = max(o.lanes, 1), max(o.tenants, 1), max(o.publishers, 1)
		window := o.feats.Has(wire.FeaturePublishPipeline)
		name := fmt.Sprintf("durable=%t/records=%d/size=%d/lanes=%d/tenants=%d/publishers=%d/window=%t/pinned=%t",
			o.durable, o.records, o.size, o.lanes, o.tenants, o.publishers, window, o.pin)
		b.Run(name, func(b *testing.B) { benchSessions(b, o) })
	}
	for _, durable := range []bool{false, true} {
		for _, records := range []int{1, 64} {
			for _, size := range []int{256, 4096} {
				row(sessionOptions{durable: durable, records: records, size: size, feats: offerWindow})
			}
		}
		for _, lanes := range []int{64, 1024} {
			for _, tenants := range []int{1, 16} {
				row(sessionOptions{durable: durable, records: 1, size: 256, lanes: lanes, tenants: tenants, feats: offerWindow})
			}
		}
		row(sessionOptions{durable: durable, records: 1, size: 256, publishers: 64, feats: offerWindow})
		row(sessionOptions{durable: durable, records: 1, size: 256, feats: offerWindow, pin: true})
		row(sessionOptions{durable: durable, records: 1, size: 256, publishers: 64, feats: offerWindow, pin: true})
	}
	row(sessionOptions{records: 1, size: 256, feats: offerAll})
}

func benchSessions(b *testing.B, o sessionOptions) {
	if o.pin && len(sched.UsableCPUs()) < 2 {
		b.Skip("an executor is pinned only where there is another CPU")
	}
	const each = 4096
	s := newSessions(b, o)
	defer s.end()
	n := each / len(s.drivers)
	for range 1 + o.lanes*128/o.records/each { // rings and pools are full
		s.run(n)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		s.run(n)
	}
	all := float64(b.N) * float64(n*len(s.drivers))
	runtime.ReadMemStats(&after)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/all, "ns/publish")
	b.ReportMetric(all*float64(o.records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/all, "allocs/publish")
	if pinned := s.w.broker.Status().Executors[0].Sched.Pinned; pinned != o.pin {
		b.Errorf("pinned: %t", pinned)
	}
}

func BenchmarkUnackedPublish(b *testing.B) {
	d := newDriver(b, offerAll)
	defer d.end()
	frame := publish(0, 0, "s", string(make([]byte, 256)))
	b.ReportAllocs()
	for b.Loop() {
		d.frame(frame)
	}
}

var publishedAt7 = core.PublishResult{Offset: 7, HasOffset: true}

// BenchmarkAnswer is the session's own part alone: slot, outcome, encoding.
func BenchmarkAnswer(b *testing.B) {
	for _, window := range []int{0, 256} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			a, _ := newAnswers(window, 256)
			s := &session{flags: wire.Flags(offerFlags), feats: offerWindow}
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				sl := a.take(1, formBinary, 0)
				sl.Published(0, publishedAt7)
				sl.admit(0)
				_, n := a.collect(buf, s)
				a.written(n)
			}
		})
	}
}

// An acked binary publish costs no allocation from its frame to its answer.
func TestAckedPublishAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("released Bufs are not used again in invariants builds")
	}
	d := newDriver(t, offerWindow)
	defer d.end()
	frame := publish(wire.FlagAcked, 1, "s", "some payload")
	for range 5000 {
		d.frame(frame)
	}
	d.settle()
	n := testing.AllocsPerRun(20_000, func() { d.frame(frame) })
	if n >= 1 {
		t.Errorf("%v allocations per publish", n)
	}
}
