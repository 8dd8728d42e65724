package client

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ringcast/ringcast/netio"
)

// pipeConn is one end of a connection in memory: a netio.Conn without sockets and without real
// time, so that whole conversations run inside a synctest bubble. Every wait is on a channel.
type pipeConn struct {
	peer    *pipeConn
	window  int // bytes a stream holds unread
	ctx     context.Context
	cancel  context.CancelCauseFunc
	streams chan *pipeStream
	unis    chan *pipeStream

	mu     sync.Mutex
	nextID int64
	halves []*half
}

// newPipe returns both ends.
func newPipe(window int) (clientEnd, brokerEnd *pipeConn) {
	mk := func() *pipeConn {
		ctx, cancel := context.WithCancelCause(context.Background())
		return &pipeConn{window: window, ctx: ctx, cancel: cancel,
			streams: make(chan *pipeStream, 4096), unis: make(chan *pipeStream, 4096)}
	}
	a, b := mk(), mk()
	a.peer, b.peer = b, a
	return a, b
}

func (c *pipeConn) half() *half {
	h := &half{max: c.window, changed: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	c.halves = append(c.halves, h)
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		h.fail(context.Cause(c.ctx))
	}
	return h
}

func (c *pipeConn) id() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	return c.nextID
}

func (c *pipeConn) accept(ctx context.Context, ch chan *pipeStream) (*pipeStream, error) {
	select {
	case s := <-ch:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

func (c *pipeConn) AcceptStream(ctx context.Context) (netio.Stream, error) {
	s, err := c.accept(ctx, c.streams)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *pipeConn) AcceptUniStream(ctx context.Context) (netio.ReceiveStream, error) {
	s, err := c.accept(ctx, c.unis)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *pipeConn) OpenStream(ctx context.Context) (netio.Stream, error) {
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	out, in, id := c.half(), c.half(), c.id()
	c.peer.streams <- &pipeStream{in: out, out: in, id: id}
	return &pipeStream{in: in, out: out, id: id}, nil
}

func (c *pipeConn) OpenUniStream(ctx context.Context) (netio.SendStream, error) {
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	out, id := c.half(), c.id()
	c.peer.unis <- &pipeStream{in: out, id: id}
	return &pipeStream{out: out, id: id}, nil
}

func (c *pipeConn) CloseWithError(code uint64, reason string) error {
	c.end(&netio.CloseError{Code: code, Reason: reason})
	c.peer.end(&netio.CloseError{Code: code, Reason: reason, Remote: true})
	return nil
}

// lose ends both ends as a lost connection does.
func (c *pipeConn) lose() {
	c.end(netio.ErrIdleTimeout)
	c.peer.end(netio.ErrPeerRestarted)
}

func (c *pipeConn) end(err error) {
	c.cancel(err)
	for _, x := range []*pipeConn{c, c.peer} {
		x.mu.Lock()
		halves := x.halves
		x.mu.Unlock()
		for _, h := range halves {
			h.fail(err)
		}
	}
}

func (c *pipeConn) Context() context.Context { return c.ctx }
func (c *pipeConn) RemoteAddr() net.Addr     { return &net.UDPAddr{} }
func (c *pipeConn) LocalAddr() net.Addr      { return &net.UDPAddr{} }
func (c *pipeConn) TLS() tls.ConnectionState { return tls.ConnectionState{} }

// half is one direction of a stream.
type half struct {
	max    int
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	buf      []byte
	fin      bool
	err      error
	changed  chan struct{} // closed and replaced at every change
	readEnd  time.Time
	writeEnd time.Time
}

func (h *half) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) fail(err error) {
	h.update(func() {
		if h.err == nil {
			h.err, h.buf = err, nil
		}
	})
	h.cancel()
}

// wait blocks until something changed or the deadline passed.
func wait(changed chan struct{}, deadline time.Time) error {
	if deadline.IsZero() {
		<-changed
		return nil
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-changed:
		return nil
	case <-t.C:
		return os.ErrDeadlineExceeded
	}
}

func (h *half) read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		switch {
		case h.err != nil:
			h.mu.Unlock()
			return 0, h.err
		case len(h.buf) > 0:
			n := copy(p, h.buf)
			h.buf = h.buf[n:]
			close(h.changed)
			h.changed = make(chan struct{})
			h.mu.Unlock()
			return n, nil
		case h.fin:
			h.mu.Unlock()
			return 0, io.EOF
		}
		changed, deadline := h.changed, h.readEnd
		h.mu.Unlock()
		if err := wait(changed, deadline); err != nil {
			return 0, err
		}
	}
}

func (h *half) write(p []byte) (int, error) {
	done := 0
	for {
		h.mu.Lock()
		if h.err != nil {
			h.mu.Unlock()
			return done, h.err
		}
		if h.fin {
			h.mu.Unlock()
			return done, netio.ErrClosed
		}
		if n := min(len(p), h.max-len(h.buf)); n > 0 {
			h.buf = append(h.buf, p[:n]...)
			p, done = p[n:], done+n
			close(h.changed)
			h.changed = make(chan struct{})
		}
		if len(p) == 0 {
			h.mu.Unlock()
			return done, nil
		}
		changed, deadline := h.changed, h.writeEnd
		h.mu.Unlock()
		if err := wait(changed, deadline); err != nil {
			return done, err
		}
	}
}

// pipeStream is a stream as one end sees it; in or out is nil on a stream for one direction.
type pipeStream struct {
	in, out *half
	id      int64
}

func (s *pipeStream) Read(p []byte) (int, error)  { return s.in.read(p) }
func (s *pipeStream) Write(p []byte) (int, error) { return s.out.write(p) }
func (s *pipeStream) CancelRead(code uint64) {
	s.in.fail(&netio.ResetError{StreamID: s.id, Code: code})
}
func (s *pipeStream) CancelWrite(code uint64) {
	s.out.fail(&netio.ResetError{StreamID: s.id, Code: code, Remote: true})
}
func (s *pipeStream) Close() error {
	s.out.update(func() { s.out.fin = true })
	return nil
}
func (s *pipeStream) SetReadDeadline(t time.Time) error {
	s.in.update(func() { s.in.readEnd = t })
	return nil
}
func (s *pipeStream) SetWriteDeadline(t time.Time) error {
	s.out.update(func() { s.out.writeEnd = t })
	return nil
}
func (s *pipeStream) Context() context.Context { return s.out.ctx }
func (s *pipeStream) StreamID() int64          { return s.id }
