package core

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitMax = 20 * time.Second

// openTest opens a broker that the test's end closes, and checks then that nothing is left taken.
func openTest(t testing.TB, o Options) *Broker {
	t.Helper()
	b, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, b) })
	return b
}

func closeTest(t testing.TB, b *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	nothingHeld(t, b)
}

// nothingHeld checks that a closed broker has nothing taken (HZ-40).
func nothingHeld(t testing.TB, b *Broker) {
	t.Helper()
	if n := b.inflight.Used(); n != 0 {
		t.Errorf("%d bytes of the publish budget are still taken", n)
	}
	if n := b.outstanding.Load(); n != 0 {
		t.Errorf("%d publishes are still outstanding", n)
	}
	for _, e := range b.executors {
		if n := e.admission.Entered(); n != 0 {
			t.Errorf("executor %d: %d jobs never left", e.id, n)
		}
		if n := e.admission.Waiting(); n != 0 {
			t.Errorf("executor %d: %d publishes still stand in line", e.id, n)
		}
	}
	b.tenants.all(func(tenant *tenantState) {
		if n := tenant.bytes.Held(); n != 0 {
			t.Errorf("tenant %s still holds %d bytes", tenant.name, n)
		}
	})
	// Readers that were told to stop let go of what they held a moment later.
	eventually(t, "all frame memory is released", func() bool { return b.opts.Pool.Stats().InUseBytes == 0 })
}

// eventually waits until what holds is true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitMax); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (o Options) in(dir string) Options {
	o.DataDir = dir
	o.Engine = ring.Portable
	o.AutoCreate = true
	return o
}

func stream(t testing.TB, b *Broker, def StreamDef) *Stream {
	t.Helper()
	if def.Tenant == "" {
		def.Tenant = "t"
	}
	if def.Namespace == "" {
		def.Namespace = "n"
	}
	if def.Stream == "" {
		def.Stream = "s"
	}
	st, _, err := b.createStream(def, true)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// results is a Replier that keeps everything it is told.
type results struct {
	mu   sync.Mutex
	got  map[uint64]PublishResult
	tags []uint64
	more chan struct{}
}

func newResults() *results {
	return &results{got: map[uint64]PublishResult{}, more: make(chan struct{}, 1)}
}

func (r *results) Published(tag uint64, res PublishResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.got[tag]; twice {
		panic(fmt.Sprintf("publish %d was answered twice", tag))
	}
	r.got[tag] = res
	r.tags = append(r.tags, tag)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *results) wait(t testing.TB, tag uint64) PublishResult {
	t.Helper()
	timeout := time.After(waitMax)
	for {
		r.mu.Lock()
		res, ok := r.got[tag]
		r.mu.Unlock()
		if ok {
			select { // let other waiters look, too
			case r.more <- struct{}{}:
			default:
			}
			return res
		}
		select {
		case <-r.more:
		case <-timeout:
			t.Fatalf("publish %d was not answered", tag)
		}
	}
}

// request makes a publish of records, as it would lie in a frame: some bytes, then the section.
func request(b *Broker, st *Stream, records ...string) *PublishRequest {
	raw := make([][]byte, len(records))
	n := 0
	for i, r := range records {
		raw[i] = []byte(r)
		n += len(r)
	}
	section := wire.AppendSection(nil, raw...)
	const prefix = 30
	buf := b.opts.Pool.Get(prefix + len(section))
	copy(buf.Bytes()[prefix:], section)
	return &PublishRequest{
		Stream: st, Buf: buf, Pos: prefix, SectionLen: len(section), Count: uint32(len(records)), PayloadBytes: n, Acked: true,
	}
}

// publish publishes and waits for the answer.
func publish(t testing.TB, b *Broker, st *Stream, records ...string) PublishResult {
	t.Helper()
	return publishRequest(t, b, request(b, st, records...))
}

func publishRequest(t testing.TB, b *Broker, r *PublishRequest) PublishResult {
	t.Helper()
	res := newResults()
	r.Reply = res
	if err := b.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return res.wait(t, 0)
}

// event is one delivered record.
type event struct {
	offset  uint64
	payload string
}

// reader is a fanout.Sink that decodes what it is given.
type reader struct {
	t     testing.TB
	shape wire.Flags
	gate  chan struct{} // not nil: each write waits for one receive
	mu    sync.Mutex
	got   []event
	more  chan struct{}
	fail  error
}

func newReader(t testing.TB, shape wire.Flags) *reader {
	return &reader{t: t, shape: shape, more: make(chan struct{}, 1)}
}

func (r *reader) WriteFrames(frames [][]byte) error {
	if r.gate != nil {
		<-r.gate
	}
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	for len(all) > 0 {
		h, err := wire.ParseHeader(all)
		if err != nil {
			r.t.Errorf("event frame: %v", err)
			return err
		}
		payload := all[wire.HeaderSize : wire.HeaderSize+int(h.Length)]
		all = all[wire.HeaderSize+int(h.Length):]
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(h.Flags, payload, &e); err != nil {
			r.t.Errorf("event frame: %v", err)
			return err
		}
		for off := e.Base; ; off++ {
			rec, _, ok := e.Next()
			if !ok {
				break
			}
			r.got = append(r.got, event{off, string(rec)})
		}
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
	return nil
}

// wait returns the first n events once they are there.
func (r *reader) wait(n int) []event {
	r.t.Helper()
	timeout := time.After(waitMax)
	for {
		r.mu.Lock()
		if len(r.got) >= n {
			got := append([]event(nil), r.got[:n]...)
			r.mu.Unlock()
			return got
		}
		have := len(r.got)
		r.mu.Unlock()
		select {
		case <-r.more:
		case <-timeout:
			r.t.Fatalf("got %d of %d events", have, n)
		}
	}
}

// running is a subscription that runs on a goroutine of its own.
type running struct {
	*Subscription
	cancel context.CancelFunc
	done   chan struct{}
	end    End
	err    error
}

func subscribe(t testing.TB, b *Broker, r *SubscribeRequest, sink *reader) *running {
	t.Helper()
	if r.Shape == 0 {
		r.Shape = sink.shape
	}
	sub, err := b.Subscribe(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, sub, sink)
}

func run(t testing.TB, sub *Subscription, sink *reader) *running {
	ctx, cancel := context.WithCancel(context.Background())
	ru := &running{Subscription: sub, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(ru.done)
		ru.end, ru.err = sub.Run(ctx, sink)
	}()
	t.Cleanup(func() { ru.stop() })
	return ru
}

func (r *running) stop() {
	r.cancel()
	<-r.done
}

func (r *running) wait(t testing.TB) End {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(waitMax):
		t.Fatal("the subscription does not end")
	}
	return r.end
}
