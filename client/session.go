package client

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// session is one connection to the broker: request streams kept for reuse, and the event streams
// that the broker opened and that nobody has claimed yet. It is made and ended by the manager.
type session struct {
	conn netio.Conn
	cfg  *config
	pool *wire.Pool
	peer peer // as announced on the first stream

	calls chan struct{} // one token per request stream in use

	mu     sync.Mutex // guards what follows
	idle   []*stream
	events map[uint64]*eventSlot // by subscription id
	failed chan struct{}         // closed and replaced when an event stream ended before its hello
	wg     sync.WaitGroup        // readers of hellos
}

// eventSlot is where an event stream and its subscription meet, whoever comes first.
type eventSlot struct {
	stream  *eventStream
	found   chan struct{} // closed once stream is set
	claimed chan struct{} // closed once the subscription has taken it
}

// eventStream is a stream opened by the broker, its hello read.
type eventStream struct {
	io     netio.ReceiveStream
	frames *netio.FrameReader
	id     uint64
}

// newSession takes over conn: it authenticates a first stream, which tells what the broker can do.
func newSession(ctx context.Context, conn netio.Conn, cfg *config, pool *wire.Pool) (*session, error) {
	s := &session{
		conn: conn, cfg: cfg, pool: pool,
		calls: make(chan struct{}, callStreamsMax), events: make(map[uint64]*eventSlot),
		failed: make(chan struct{}),
	}
	st, err := openStream(ctx, conn, cfg, pool, offerBasic)
	if err != nil {
		_ = conn.CloseWithError(netio.CloseShutdown, "")
		return nil, err
	}
	s.peer = st.peer
	s.idle = append(s.idle, st)
	return s, nil
}

// run accepts event streams until the connection ends.
func (s *session) run() {
	ctx := s.conn.Context()
	for {
		in, err := s.conn.AcceptUniStream(ctx)
		if err != nil {
			break
		}
		s.wg.Go(func() { s.greet(in) })
	}
	s.wg.Wait()
}

// alive says whether the connection has not ended yet.
func (s *session) alive() bool { return s.conn.Context().Err() == nil }

// close ends the connection; what was not sent is dropped.
func (s *session) close() { _ = s.conn.CloseWithError(netio.CloseShutdown, "") }

// greet reads the hello of an event stream and hands the stream to its subscription.
func (s *session) greet(in netio.ReceiveStream) {
	es := &eventStream{io: in, frames: netio.NewFrameReader(in, s.pool)}
	if err := in.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil || es.hello() != nil {
		in.CancelRead(netio.ResetNone)
		s.mu.Lock()
		close(s.failed)
		s.failed = make(chan struct{})
		s.mu.Unlock()
		return
	}
	_ = in.SetReadDeadline(time.Time{}) // an ended stream shows at its first read

	slot := s.slot(es.id)
	s.mu.Lock()
	twice := slot.stream != nil
	if !twice {
		slot.stream = es
		close(slot.found)
	}
	s.mu.Unlock()
	if twice {
		in.CancelRead(netio.ResetNone)
		return
	}
	// A stream that nobody claims, since its subscribe was given up, must not stay: the broker
	// would go on sending until the connection's window is full.
	t := time.NewTimer(helloTimeout)
	defer t.Stop()
	select {
	case <-slot.claimed:
		return
	case <-t.C:
	case <-s.conn.Context().Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-slot.claimed: // at the last moment
		return
	default:
	}
	if s.events[es.id] == slot {
		delete(s.events, es.id)
	}
	in.CancelRead(netio.ResetNone)
}

// greetFailed is closed when the next event stream ends before its hello.
func (s *session) greetFailed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (es *eventStream) hello() error {
	h, buf, err := es.frames.Next()
	if err != nil {
		return err
	}
	defer buf.Release()
	m, err := wire.DecodeMessage(buf.Bytes())
	if err != nil {
		return err
	}
	hello, ok := m.(*wire.EventStreamHello)
	if !ok || h.Flags != 0 {
		return protocolError("event stream begins with something else than its hello", nil)
	}
	es.id = hello.SubscriptionID
	return nil
}

// slot returns the meeting place of that subscription.
func (s *session) slot(id uint64) *eventSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.events[id]
	if slot == nil {
		slot = &eventSlot{found: make(chan struct{}), claimed: make(chan struct{})}
		s.events[id] = slot
	}
	return slot
}

// claim waits for the event stream of a subscription that the broker has granted. A stream that
// was reset before its hello arrived cannot be told apart: whoever waits then waits only a little
// longer and subscribes again.
//
// failed is what greetFailed returned before the subscribe was sent.
func (s *session) claim(ctx context.Context, id uint64, failed <-chan struct{}) (*eventStream, error) {
	slot := s.slot(id)
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	var err error
	missing := protocolError("subscribed without an event stream", nil)
	for waiting := true; waiting; {
		waiting = false
		select {
		case <-slot.found:
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.conn.Context().Done():
			err = context.Cause(s.conn.Context())
		case <-timeout.C:
			err = missing
		case <-failed:
			waiting, failed = true, s.greetFailed()
			missing = fmt.Errorf("client: event stream before its hello: %w", io.ErrUnexpectedEOF)
			timeout.Reset(helloGrace)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events[id] == slot {
		delete(s.events, id) // what comes later finds a slot of its own, and no claim
	}
	if slot.stream == nil {
		return nil, err
	}
	close(slot.claimed)
	return slot.stream, nil // also when it came at the last moment
}

// open opens an authenticated stream that offers o.
func (s *session) open(ctx context.Context, o offer) (*stream, error) {
	return openStream(ctx, s.conn, s.cfg, s.pool, o)
}

// call sends one request on a stream of its own for that time and returns its answer. sent says
// whether the broker may have seen the request.
func (s *session) call(ctx context.Context, req wire.Message) (m wire.Message, sent bool, err error) {
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-s.conn.Context().Done():
		return nil, false, context.Cause(s.conn.Context())
	}
	st := s.takeIdle()
	if st == nil {
		if st, err = s.open(ctx, offerBasic); err != nil {
			return nil, false, err
		}
	}
	stop := st.guard(ctx)
	err = st.send(req)
	if err == nil {
		m, err = st.receive()
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		// After a refusal the broker may have ended the stream; it costs little to open another.
		st.abort()
		return nil, true, ctxFirst(ctx, err)
	}
	s.putIdle(st)
	return m, true, nil
}

func (s *session) takeIdle() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	st := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return st
}

func (s *session) putIdle(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) >= callStreamsIdleMax {
		st.abort()
		return
	}
	s.idle = append(s.idle, st)
}
