package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// manager owns the client's connection: one goroutine (run) that dials when somebody needs a
// session, shares the one it has, and starts over with a growing, random wait when it is gone.
// It never dials for nobody: a client at rest has no connection that nobody asked for.
type manager struct {
	addr string
	cfg  *config
	pool *wire.Pool

	asks    chan *sessionAsk
	ports   spread                    // of the attempt under way, one at a time
	failure atomic.Pointer[DialError] // why there is no session; written by run, nil while there is one
}

// sessionAsk is one caller that waits for a session.
type sessionAsk struct {
	answer chan sessionAnswer // capacity 1
	done   <-chan struct{}    // the caller has given up
}

type sessionAnswer struct {
	session *session
	err     error
}

func newManager(addr string, cfg *config, pool *wire.Pool) *manager {
	return &manager{addr: addr, cfg: cfg, pool: pool, asks: make(chan *sessionAsk), ports: newSpread()}
}

// session returns the live session, or waits for one until ctx ends.
func (m *manager) session(ctx context.Context, closed <-chan struct{}) (*session, error) {
	ask := &sessionAsk{answer: make(chan sessionAnswer, 1), done: ctx.Done()}
	select {
	case m.asks <- ask:
	case <-closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-ask.answer:
		return a.session, a.err
	case <-closed:
		return nil, ErrClosed
	case <-ctx.Done():
		why := m.failure.Load()
		if why == nil {
			why = &DialError{Addr: m.addr, Attempts: 1, Err: errNoAnswer}
		}
		return nil, fmt.Errorf("%w: %w", ctx.Err(), why)
	}
}

// dialResult is the outcome of one attempt.
type dialResult struct {
	session *session
	err     error
}

// managerState is run's, and touched by nobody else.
type managerState struct {
	session  *session
	ended    chan struct{} // closed when the session's run has returned
	waiting  []*sessionAsk
	dialing  bool
	holding  bool // between attempts
	attempts int  // failed ones since the last session
	backoff  backoff
}

// run serves asks until ctx ends, and then ends the session and the attempt under way.
func (m *manager) run(ctx context.Context) {
	st := managerState{backoff: newBackoff(m.cfg.backoffBase, m.cfg.backoffMax)}
	results := make(chan dialResult, 1)
	var dials sync.WaitGroup
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		if st.session == nil && !st.dialing && !st.holding && st.wanted() {
			st.dialing = true
			dials.Go(func() { results <- m.dial(ctx) })
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			dials.Wait()
			close(results)
			for r := range results {
				if r.session != nil {
					r.session.close()
				}
			}
			if st.session != nil {
				st.session.close()
				<-st.ended
			}
			return
		case ask := <-m.asks:
			if st.session != nil && st.session.alive() {
				ask.answer <- sessionAnswer{session: st.session}
			} else {
				st.waiting = append(st.waiting, ask)
			}
		case r := <-results:
			st.dialing = false
			m.dialed(ctx, &st, r, timer)
		case <-timer.C:
			st.holding = false
		case <-st.ended:
			m.cfg.log.LogAttrs(ctx, slog.LevelInfo, "connection ended",
				slog.String("peer", m.addr), slog.Any("err", context.Cause(st.session.conn.Context())))
			st.session, st.ended = nil, nil
		}
	}
}

// wanted forgets the callers that gave up and says whether anybody is left.
func (st *managerState) wanted() bool {
	kept := st.waiting[:0]
	for _, ask := range st.waiting {
		select {
		case <-ask.done:
		default:
			kept = append(kept, ask)
		}
	}
	clear(st.waiting[len(kept):])
	st.waiting = kept
	return len(kept) > 0
}

// answer gives every waiting caller the same answer.
func (st *managerState) answer(a sessionAnswer) {
	for _, ask := range st.waiting {
		ask.answer <- a
	}
	st.waiting = nil
}

// dial makes one attempt: at the port that the client has moved to, else at the address that it was
// given, from which it may move on.
func (m *manager) dial(ctx context.Context) dialResult {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.dialTimeout)
	defer cancel()
	if port := m.ports.current(); port != 0 {
		if r := m.move(ctx, port); r.err == nil {
			return r
		}
	}
	began := time.Now()
	r := m.dialTo(ctx, m.addr)
	if r.err != nil {
		m.ports.forgive() // nobody is there at all: that says nothing of the ports
		return r
	}
	port := m.ports.choose(m.addr, r.session.peer.ports)
	if port == 0 || !m.cfg.spread {
		return r
	}
	m.ports.timeout = min(max(moveTimeoutMin, 4*time.Since(began)), moveTimeoutMax)
	moved := m.move(ctx, port)
	if moved.err != nil {
		m.cfg.log.LogAttrs(ctx, slog.LevelInfo, "announced port does not answer",
			slog.String("peer", m.addr), slog.Int("port", int(port)), slog.Any("err", moved.err))
		return r
	}
	r.session.close()
	return moved
}

// move dials another port of the same host, for a short time.
func (m *manager) move(ctx context.Context, port uint16) dialResult {
	host, _, err := net.SplitHostPort(m.addr)
	if err != nil {
		return dialResult{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, m.ports.timeout)
	defer cancel()
	r := m.dialTo(ctx, net.JoinHostPort(host, strconv.Itoa(int(port))))
	if r.err != nil {
		m.ports.mute(port)
	}
	return r
}

func (m *manager) dialTo(ctx context.Context, addr string) dialResult {
	conn, err := m.cfg.connect(ctx, addr, m.cfg.dial)
	if err != nil {
		return dialResult{err: err}
	}
	s, err := newSession(ctx, conn, m.cfg, m.pool)
	return dialResult{session: s, err: err}
}

// dialed handles the outcome of an attempt.
func (m *manager) dialed(ctx context.Context, st *managerState, r dialResult, timer *time.Timer) {
	if r.err == nil {
		m.cfg.log.LogAttrs(ctx, slog.LevelInfo, "connected", slog.String("peer", m.addr), slog.Int("attempts", st.attempts+1))
		st.backoff.reset()
		st.session, st.attempts = r.session, 0
		m.failure.Store(nil)
		s, ended := r.session, make(chan struct{})
		st.ended = ended
		go func() { // run waits for it by <-st.ended
			defer close(ended)
			s.run()
		}()
		st.answer(sessionAnswer{session: s})
		return
	}
	st.attempts++
	err := &DialError{Addr: m.addr, Attempts: st.attempts, Err: r.err}
	m.failure.Store(err)
	if hopeless(r.err) {
		st.answer(sessionAnswer{err: err})
	}
	wait := st.backoff.next(askedWait(r.err))
	m.cfg.log.LogAttrs(ctx, slog.LevelWarn, "connect failed",
		slog.String("peer", m.addr), slog.Any("err", r.err), slog.Duration("wait", wait))
	st.holding = true
	timer.Reset(wait)
}

// hopeless says that the same attempt will fail again: what is wrong is the token, the
// certificate, the protocol or the address, not the network.
func hopeless(err error) bool {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return decide(e.Retry, true) == verdictFail
	}
	if _, ok := errors.AsType[*netio.HandshakeError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*ProtocolError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*UnsupportedError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if e, ok := errors.AsType[*net.AddrError](err); ok {
		return e != nil
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e.IsNotFound
	}
	return false
}
