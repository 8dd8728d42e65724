package serve

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/internal/invariants"
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
	w := newWorld(tb, worldOptions{})
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
	d.frame(wire.AppendMessage(nil, authMessage("t1", w.token(), offerFlags, feats)))
	if s.id == nil {
		tb.Fatal("not authenticated")
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

func BenchmarkAckedPublish(b *testing.B) {
	for _, row := range []struct {
		name  string
		feats wire.Features
		size  int
		batch int
	}{
		{"window/size=256/batch=1", offerWindow, 256, 1},
		{"window/size=256/batch=64", offerWindow, 256, 64},
		{"nowindow/size=256/batch=1", offerAll, 256, 1},
	} {
		b.Run(row.name, func(b *testing.B) {
			d := newDriver(b, row.feats)
			defer d.end()
			frame := publish(wire.FlagAcked, 1, "s", repeat(string(make([]byte, row.size)), row.batch)...)
			for range 5000 {
				d.frame(frame)
			}
			b.SetBytes(int64(row.size * row.batch))
			b.ReportAllocs()
			for b.Loop() {
				d.frame(frame)
			}
			d.settle()
		})
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
