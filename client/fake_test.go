package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// fakeBroker is a Felix broker for tests: it keeps logs in memory, speaks the real protocol over
// any netio.Conn, and does what its script says at each publish, subscribe and event frame.
type fakeBroker struct {
	flags    wire.Flags
	features wire.Features
	window   uint32   // granted publish window
	ports    []uint16 // announced
	shards   uint32
	noLog    bool // streams without offsets
	pool     *wire.Pool

	// Scripts; nil = behave. n counts from 0 over the broker's life.
	onAuth      func(n int, m *wire.Auth) *wire.Error
	onPublish   func(n int, p *wire.BinaryPublish) reaction
	onSubscribe func(n int, m *wire.Subscribe) wire.Message // another answer
	onFrame     func(sub, frame int, f *eventFrame) frameAction

	onCall func(n int, m wire.Message) callReaction // conditional publishes, commits and reads of state

	onTime func(n int) // called after the n-th look-up of a time, before its answer

	holdSubscribed chan struct{} // subscribed is answered when it is closed

	script sync.Mutex // held while a script runs

	mu        sync.Mutex
	logs      map[uint32][]fakeRecord // by shard; offset = index
	base      uint64                  // oldest retained offset, all shards
	producers map[[2]uint64]*fakeProducer
	caches    map[string][]byte
	states    map[uint32]*fakeState // by shard
	calls     int
	grown     chan struct{} // closed and replaced when a log grew
	auths     int
	published int
	subs      int
	times     int // look-ups of times
	lastSub   []wire.Subscribe
	conns     map[netio.Conn]struct{}
	nextID    uint64
	inFlight  int
	flightMax int
	wg        sync.WaitGroup
}

type fakeRecord struct{ payload string }

type fakeProducer struct {
	next    uint64
	batches map[uint64]fakeBatch
}

type fakeBatch struct {
	offset  uint64
	section string
}

// reaction is what the broker does with a publish.
type reaction struct {
	skip   bool          // do not apply it
	err    *wire.Error   // answer a refusal
	mute   bool          // do not answer
	lose   bool          // then lose the connection
	wait   chan struct{} // answer when closed
	asID   uint64        // answer another request id
	before func()        // called before anything
}

// eventFrame is the frame about to be written.
type eventFrame struct {
	base    uint64
	records []string
	skipped uint64
	json    bool
}

type frameAction uint8

const (
	frameSend     frameAction = iota
	frameReset                // reset the event stream instead, once all before it was read
	frameResetNow             // reset it whatever was read
	frameLag                  // last message subscription_lagged
	frameFin                  // orderly end
	frameLose                 // lose the connection
	frameDelete
	frameRevoke
)

func newFakeBroker() *fakeBroker {
	return &fakeBroker{
		flags:    wire.FlagsKnown,
		features: 0x7FFFFFFC | wire.FeatureExtended | wire.FeatureStreamDeleted | wire.FeatureExplicitShard,
		window:   256, shards: 1, pool: wire.NewPool(1 << 20),
		logs: map[uint32][]fakeRecord{}, producers: map[[2]uint64]*fakeProducer{}, caches: map[string][]byte{},
		grown: make(chan struct{}), conns: map[netio.Conn]struct{}{}, nextID: 1,
	}
}

// connect is the client's way to a fake in memory.
func (b *fakeBroker) connect(window int) func(context.Context, string, netio.DialOptions) (netio.Conn, error) {
	return func(context.Context, string, netio.DialOptions) (netio.Conn, error) {
		c, s := newPipe(window)
		b.serve(s)
		return c, nil
	}
}

// serve runs one connection in the background.
func (b *fakeBroker) serve(conn netio.Conn) {
	b.mu.Lock()
	b.conns[conn] = struct{}{}
	b.mu.Unlock()
	b.wg.Go(func() {
		for {
			st, err := conn.AcceptStream(conn.Context())
			if err != nil {
				return
			}
			b.wg.Go(func() { b.stream(conn, st) })
		}
	})
}

// loseAll loses every connection.
func (b *fakeBroker) loseAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		b.loseConn(c)
		delete(b.conns, c)
	}
}

func (b *fakeBroker) loseConn(c netio.Conn) {
	if p, ok := c.(*pipeConn); ok {
		p.lose()
	} else {
		_ = c.CloseWithError(netio.CloseShutdown, "")
	}
}

func (b *fakeBroker) close() {
	b.loseAll()
	b.wg.Wait()
}

type fakeStream struct {
	b       *fakeBroker
	conn    netio.Conn
	io      netio.Stream
	fr      *netio.FrameReader
	flags   wire.Flags
	feats   wire.Features
	answers chan func() error
}

func (b *fakeBroker) stream(conn netio.Conn, st netio.Stream) {
	s := &fakeStream{b: b, conn: conn, io: st, fr: netio.NewFrameReader(st, b.pool), answers: make(chan func() error, 4096)}
	s.fr.SetMax(wire.MaxFrameBytes)
	if !s.auth() {
		_ = st.Close()
		return
	}
	// Answers leave in order, each when its script allows it, while the reader reads on.
	b.wg.Go(func() {
		for answer := range s.answers {
			if answer() != nil {
				st.CancelRead(0)
				for range s.answers { //nolint:revive // drain
				}
				return
			}
		}
		_ = st.Close()
	})
	defer close(s.answers)
	for {
		h, buf, err := s.fr.Next()
		if err != nil {
			if err != io.EOF {
				st.CancelWrite(0)
			}
			return
		}
		ok := s.handle(h, buf.Bytes())
		buf.Release()
		if !ok {
			return
		}
	}
}

func (s *fakeStream) write(m wire.Message) error {
	_, err := s.io.Write(wire.AppendMessage(nil, m))
	return err
}

func (s *fakeStream) auth() bool {
	_, buf, err := s.fr.Next()
	if err != nil {
		return false
	}
	m, err := wire.DecodeMessage(buf.Bytes())
	buf.Release()
	a, ok := m.(*wire.Auth)
	if err != nil || !ok {
		return false
	}
	s.flags, _ = a.Flags()
	s.feats = a.Features()
	s.b.mu.Lock()
	n := s.b.auths
	s.b.auths++
	s.b.mu.Unlock()
	if s.b.onAuth != nil {
		if e := s.b.onAuth(n, a); e != nil {
			_ = s.write(wire.NewErrorMessage(e, s.feats))
			return false
		}
	}
	r := &wire.AuthOK{ServerFlags: uint16(s.b.flags)}
	r.SetFeatures(s.b.features)
	r.ListenerPorts = s.b.ports
	if s.feats.Has(wire.FeaturePublishPipeline) && s.b.window > 0 {
		r.PublishWindow = &s.b.window
	}
	return s.write(r) == nil
}

func (s *fakeStream) handle(h wire.Header, payload []byte) bool {
	if h.Flags&wire.FlagPublish != 0 {
		var p wire.BinaryPublish
		if h.Flags.FromClient() != nil || wire.DecodePublish(h.Flags, payload, &p) != nil {
			return false
		}
		s.publish(&p, true)
		return true
	}
	m, err := wire.DecodeMessage(payload)
	if err != nil {
		return false
	}
	switch m := m.(type) {
	case *wire.PublishBatch:
		p := wire.BinaryPublish{Section: wire.AppendSection(nil, m.Payloads...)}
		s.route(&p, m.Key, m.Shard)
		if m.RequestID != nil {
			p.RequestID, p.Flags = *m.RequestID, wire.FlagAcked
		}
		s.publish(&p, false)
	case *wire.PublishIdempotent:
		p := wire.BinaryPublish{Flags: wire.FlagAcked | wire.FlagIdempotent, RequestID: m.RequestID,
			ProducerID: m.ProducerID, Sequence: m.Sequence, Section: wire.AppendSection(nil, m.Payloads...)}
		s.route(&p, m.Key, m.Shard)
		s.publish(&p, false)
	case *wire.PublishIf, *wire.Commit, *wire.StateGet:
		return s.conditional(m)
	case *wire.ProducerInit:
		s.b.mu.Lock()
		s.b.nextID++
		id := s.b.nextID
		s.b.mu.Unlock()
		s.answer(&wire.ProducerInitOK{RequestID: m.RequestID, ProducerID: math.MaxUint64 - id})
	case *wire.StreamShards:
		s.b.mu.Lock()
		n := s.b.shards
		s.b.mu.Unlock()
		s.answer(&wire.StreamShardsView{Shards: n, RequestID: m.RequestID})
	case *wire.CachePut:
		s.b.mu.Lock()
		s.b.caches[m.Key] = m.Value
		s.b.mu.Unlock()
		s.answer(&wire.CacheOK{RequestID: *m.RequestID})
	case *wire.CacheGet:
		s.b.mu.Lock()
		v := s.b.caches[m.Key]
		s.b.mu.Unlock()
		s.answer(&wire.CacheValue{TenantID: m.TenantID, Namespace: m.Namespace, Cache: m.Cache, Key: m.Key, Value: v, RequestID: m.RequestID})
	case *wire.CacheDelete:
		s.b.mu.Lock()
		v := s.b.caches[m.Key]
		delete(s.b.caches, m.Key)
		s.b.mu.Unlock()
		s.answer(&wire.CacheValue{TenantID: m.TenantID, Namespace: m.Namespace, Cache: m.Cache, Key: m.Key, Value: v, RequestID: m.RequestID})
	case *wire.Subscribe:
		s.subscribe(m)
	case *wire.StreamRead:
		s.read(m)
	case *wire.OffsetForTime:
		s.offsetForTime(m)
	default:
		return false
	}
	return true
}

func (s *fakeStream) answer(m wire.Message) {
	s.answers <- func() error { return s.write(m) }
}

// publish applies a batch as the script says, and answers it.
func (s *fakeStream) publish(p *wire.BinaryPublish, binary bool) {
	b := s.b
	b.mu.Lock()
	n := b.published
	b.published++
	b.inFlight++
	b.flightMax = max(b.flightMax, b.inFlight)
	b.mu.Unlock()
	var r reaction
	if b.onPublish != nil {
		b.script.Lock()
		r = b.onPublish(n, p)
		b.script.Unlock()
	}
	if r.before != nil {
		r.before()
	}
	id := p.RequestID
	if r.asID != 0 {
		id = r.asID
	}
	offset, refused := uint64(0), (*wire.RefusedReason)(nil)
	if !r.skip {
		offset, refused = b.apply(p)
	}
	s.answers <- func() error {
		if r.wait != nil {
			select {
			case <-r.wait:
			case <-s.conn.Context().Done():
			}
		}
		b.mu.Lock()
		b.inFlight--
		b.mu.Unlock()
		if r.lose {
			b.loseConn(s.conn)
			return io.EOF
		}
		if r.mute || p.Flags&wire.FlagAcked == 0 {
			return nil
		}
		return s.ack(p, id, offset, refused, r.err, binary)
	}
}

func (s *fakeStream) ack(p *wire.BinaryPublish, id, offset uint64, refused *wire.RefusedReason, e *wire.Error, binary bool) error {
	switch {
	case refused != nil:
		return s.write(&wire.PublishRefused{RequestID: id, Message: "refused", Reason: *refused})
	case binary && p.Flags&wire.FlagIdempotent == 0:
		_, err := s.io.Write(wire.AppendAck(nil, &wire.Ack{RequestID: id, Err: e, HasOffset: e == nil && !s.b.noLog, Offset: offset}, s.flags, s.feats))
		return err
	case e != nil:
		return s.write(wire.NewPublishError(id, e, s.feats))
	}
	ok := &wire.PublishOK{RequestID: id}
	if !s.b.noLog {
		ok.Offset = &offset
	}
	return s.write(ok)
}

// apply appends a batch, under the rules of idempotent producers.
func (b *fakeBroker) apply(p *wire.BinaryPublish) (uint64, *wire.RefusedReason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	shard := wire.ShardOf(p.Key, p.HasKey, max(b.shards, 1), wire.RoutingModulo)
	if p.Flags&wire.FlagIdempotent != 0 {
		key := [2]uint64{p.ProducerID, uint64(shard)}
		pr := b.producers[key]
		if pr == nil {
			if p.Sequence != 0 {
				return 0, &wire.RefusedReason{Kind: wire.RefusedUnknownProducer}
			}
			pr = &fakeProducer{batches: map[uint64]fakeBatch{}}
			b.producers[key] = pr
		}
		switch {
		case p.Sequence > pr.next:
			return 0, &wire.RefusedReason{Kind: wire.RefusedSequenceGap, Expected: pr.next}
		case p.Sequence < pr.next:
			old, ok := pr.batches[p.Sequence]
			if !ok {
				return 0, &wire.RefusedReason{Kind: wire.RefusedSequenceExpired}
			}
			if old.section != string(p.Section) {
				return 0, &wire.RefusedReason{Kind: wire.RefusedSequenceReused}
			}
			return old.offset, nil
		}
		pr.batches[p.Sequence] = fakeBatch{uint64(len(b.logs[shard])), string(p.Section)}
		delete(pr.batches, p.Sequence-64)
		pr.next++
	}
	first := uint64(len(b.logs[shard]))
	for rec, rest, ok := wire.NextRecord(p.Section[4:]); ok; rec, rest, ok = wire.NextRecord(rest) {
		b.logs[shard] = append(b.logs[shard], fakeRecord{string(rec)})
	}
	close(b.grown)
	b.grown = make(chan struct{})
	return first, nil
}

// add appends records to shard 0.
func (b *fakeBroker) add(payloads ...string) {
	var raw [][]byte
	for _, p := range payloads {
		raw = append(raw, []byte(p))
	}
	b.apply(&wire.BinaryPublish{Section: wire.AppendSection(nil, raw...)})
}

func (b *fakeBroker) log(shard uint32) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, r := range b.logs[shard] {
		out = append(out, r.payload)
	}
	return out
}

// withConnect makes the client reach a fake.
func withConnect(f func(context.Context, string, netio.DialOptions) (netio.Conn, error)) Option {
	return clientOption(func(c *config) { c.connect = f })
}

// newFakeClient returns a client of b over memory, and closes both at the end of the test.
func newFakeClient(t testing.TB, b *fakeBroker, opts ...Option) *Client {
	t.Helper()
	opts = append([]Option{WithToken("token"), withConnect(b.connect(1 << 20))}, opts...)
	c, err := New("fake:1", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bounded is a context that no passing test outlives.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func numbered(prefix string, from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

var errStop = errors.New("stop")
