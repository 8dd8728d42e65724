package serve

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/netio"
)

// half is one direction of a stream in memory, with a window: what the transport of a real
// connection would do with flow control, FIN, reset and stop.
type half struct {
	id     int64
	window int
	writer *fakeConn
	ctx    context.Context // the sender's: ends with the direction
	end    context.CancelFunc

	mu       sync.Mutex
	change   chan struct{} // closed and replaced at every change
	buf      []byte
	fin      bool
	reset    *netio.ResetError // by the sender, or by the reader's stop
	gone     [2]error          // the connection ended: what the reader, the writer is told
	deadline [2]time.Time      // read, write
	writes   int               // calls of Write that carried bytes
}

func newHalf(id int64, window int, writer *fakeConn) *half {
	ctx, end := context.WithCancel(context.Background())
	return &half{id: id, window: window, writer: writer, ctx: ctx, end: end, change: make(chan struct{})}
}

// changed wakes everybody who waits. h.mu is held.
func (h *half) changed() {
	close(h.change)
	h.change = make(chan struct{})
}

// wait releases h.mu until something changes or the deadline passes, which is false.
func (h *half) wait(which int) bool {
	ch, at := h.change, h.deadline[which]
	h.mu.Unlock()
	defer h.mu.Lock()
	if at.IsZero() {
		<-ch
		return true
	}
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-ch:
		return true
	case <-t.C:
		return false
	}
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.gone[0] != nil:
			return 0, h.gone[0]
		case h.reset != nil:
			return 0, h.reset
		case len(h.buf) > 0:
			n := copy(p, h.buf)
			h.buf = h.buf[n:]
			h.changed()
			return n, nil
		case h.fin:
			return 0, io.EOF
		}
		if !h.wait(0) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (h *half) write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(p) > 0 {
		h.writes++
	}
	for {
		switch {
		case h.gone[1] != nil:
			return n, h.gone[1]
		case h.reset != nil:
			return n, h.reset
		case h.fin:
			return n, netio.ErrClosed
		case len(p) == 0:
			return n, nil
		}
		if room := h.window - len(h.buf); room > 0 {
			m := min(room, len(p))
			h.buf = append(h.buf, p[:m]...)
			p, n = p[m:], n+m
			h.changed()
			continue
		}
		if !h.wait(1) {
			return n, os.ErrDeadlineExceeded
		}
	}
}

func (h *half) setDeadline(which int, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline[which] = t
	h.changed()
}

// finish is FIN.
func (h *half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fin = true
	h.end()
	h.changed()
}

// cancel ends the direction from either end.
func (h *half) cancel(code uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reset == nil && !(h.fin && len(h.buf) == 0) {
		h.reset = &netio.ResetError{StreamID: h.id, Code: code}
		h.end()
		h.changed()
	}
}

// lose ends the direction with its connection, which by closed.
func (h *half) lose(by *fakeConn, here, there error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone[0] != nil {
		return
	}
	h.gone = [2]error{there, here}
	if by != h.writer {
		h.gone = [2]error{here, there}
	}
	h.end()
	h.changed()
}

// fakeStream is one end of a stream: the half it reads and the half it writes, either may be nil.
type fakeStream struct{ rx, tx *half }

func (f fakeStream) Read(p []byte) (int, error)         { return f.rx.read(p) }
func (f fakeStream) Write(p []byte) (int, error)        { return f.tx.write(p) }
func (f fakeStream) Close() error                       { f.tx.finish(); return nil }
func (f fakeStream) CancelRead(code uint64)             { f.rx.cancel(code) }
func (f fakeStream) CancelWrite(code uint64)            { f.tx.cancel(code) }
func (f fakeStream) SetReadDeadline(t time.Time) error  { f.rx.setDeadline(0, t); return nil }
func (f fakeStream) SetWriteDeadline(t time.Time) error { f.tx.setDeadline(1, t); return nil }
func (f fakeStream) Context() context.Context           { return f.tx.ctx }
func (f fakeStream) StreamID() int64 {
	if f.rx != nil {
		return f.rx.id
	}
	return f.tx.id
}

// fakeConn is one end of a connection in memory.
type fakeConn struct {
	peer   *fakeConn
	window int
	ids    *atomic.Int64
	bidi   chan fakeStream // opened by the peer
	uni    chan fakeStream
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	halfs []*half
}

// fakePair returns the two ends of a connection whose streams have the given window.
func fakePair(window int) (client, server *fakeConn) {
	ids := new(atomic.Int64)
	end := func() *fakeConn {
		ctx, cancel := context.WithCancelCause(context.Background())
		return &fakeConn{
			window: window, ids: ids, ctx: ctx, cancel: cancel,
			bidi: make(chan fakeStream, 1024), uni: make(chan fakeStream, 1024),
		}
	}
	client, server = end(), end()
	client.peer, server.peer = server, client
	return client, server
}

func (c *fakeConn) half(writer *fakeConn) *half {
	h := newHalf(c.ids.Add(1), c.window, writer)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halfs = append(c.halfs, h)
	return h
}

func (c *fakeConn) AcceptStream(ctx context.Context) (netio.Stream, error) {
	return acceptFake(ctx, c, c.bidi)
}

func (c *fakeConn) AcceptUniStream(ctx context.Context) (netio.ReceiveStream, error) {
	return acceptFake(ctx, c, c.uni)
}

func acceptFake(ctx context.Context, c *fakeConn, from chan fakeStream) (fakeStream, error) {
	select {
	case s := <-from:
		return s, nil
	case <-c.ctx.Done():
		return fakeStream{}, netio.ErrClosed
	case <-ctx.Done():
		return fakeStream{}, ctx.Err()
	}
}

func (c *fakeConn) OpenStream(context.Context) (netio.Stream, error) {
	if c.ctx.Err() != nil {
		return nil, netio.ErrClosed
	}
	up, down := c.half(c), c.half(c.peer)
	c.peer.bidi <- fakeStream{rx: up, tx: down}
	return fakeStream{rx: down, tx: up}, nil
}

func (c *fakeConn) OpenUniStream(context.Context) (netio.SendStream, error) {
	if c.ctx.Err() != nil {
		return nil, netio.ErrClosed
	}
	h := c.half(c)
	c.peer.uni <- fakeStream{rx: h}
	return fakeStream{tx: h}, nil
}

func (c *fakeConn) CloseWithError(code uint64, reason string) error {
	here := &netio.CloseError{Code: code, Reason: reason}
	there := &netio.CloseError{Code: code, Reason: reason, Remote: true}
	c.cancel(here)
	c.peer.cancel(there)
	for _, end := range []*fakeConn{c, c.peer} {
		end.mu.Lock()
		for _, h := range end.halfs {
			h.lose(c, here, there)
		}
		end.mu.Unlock()
	}
	return nil
}

func (c *fakeConn) Context() context.Context { return c.ctx }
func (c *fakeConn) RemoteAddr() net.Addr     { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (c *fakeConn) LocalAddr() net.Addr      { return c.RemoteAddr() }
func (c *fakeConn) TLS() tls.ConnectionState { return tls.ConnectionState{} }
