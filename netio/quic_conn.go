package netio

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// quicConn is Conn over one quic-go connection.
type quicConn struct {
	c *quic.Conn
	// released is closed when the socket dialled for this connection is closed; nil on a server.
	released <-chan struct{}
}

func (q *quicConn) AcceptStream(ctx context.Context) (Stream, error) {
	s, err := q.c.AcceptStream(ctx)
	if err != nil {
		return nil, convert(err)
	}
	return quicStream{s}, nil
}

func (q *quicConn) AcceptUniStream(ctx context.Context) (ReceiveStream, error) {
	s, err := q.c.AcceptUniStream(ctx)
	if err != nil {
		return nil, convert(err)
	}
	return quicReceive{s}, nil
}

func (q *quicConn) OpenStream(ctx context.Context) (Stream, error) {
	s, err := q.c.OpenStreamSync(ctx)
	if err != nil {
		return nil, q.openError(ctx, err)
	}
	return quicStream{s}, nil
}

func (q *quicConn) OpenUniStream(ctx context.Context) (SendStream, error) {
	s, err := q.c.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, q.openError(ctx, err)
	}
	return quicSend{s}, nil
}

// openError names the only reason for which opening waits: the peer's credit.
func (q *quicConn) openError(ctx context.Context, err error) error {
	if ctx.Err() != nil && q.c.Context().Err() == nil {
		return errors.Join(ErrStreamLimit, ctx.Err())
	}
	return convert(err)
}

func (q *quicConn) CloseWithError(code uint64, reason string) error {
	err := q.c.CloseWithError(quic.ApplicationErrorCode(code), reason)
	if q.released != nil {
		<-q.released
	}
	return convert(err)
}

func (q *quicConn) Context() context.Context { return q.c.Context() }
func (q *quicConn) RemoteAddr() net.Addr     { return q.c.RemoteAddr() }
func (q *quicConn) LocalAddr() net.Addr      { return q.c.LocalAddr() }
func (q *quicConn) TLS() tls.ConnectionState { return q.c.ConnectionState().TLS }

// quicStream is Stream. One word, so that it travels in an interface without an allocation.
type quicStream struct{ s *quic.Stream }

func (q quicStream) Read(p []byte) (int, error) {
	n, err := q.s.Read(p)
	return n, convert(err)
}

func (q quicStream) Write(p []byte) (int, error) {
	n, err := q.s.Write(p)
	return n, convert(err)
}

func (q quicStream) Close() error                       { return closeSend(q.s.Context(), q.s.Close()) }
func (q quicStream) CancelRead(code uint64)             { q.s.CancelRead(quic.StreamErrorCode(code)) }
func (q quicStream) CancelWrite(code uint64)            { q.s.CancelWrite(quic.StreamErrorCode(code)) }
func (q quicStream) SetReadDeadline(t time.Time) error  { return q.s.SetReadDeadline(t) }
func (q quicStream) SetWriteDeadline(t time.Time) error { return q.s.SetWriteDeadline(t) }
func (q quicStream) Context() context.Context           { return q.s.Context() }
func (q quicStream) StreamID() int64                    { return int64(q.s.StreamID()) }

// quicReceive is ReceiveStream.
type quicReceive struct{ s *quic.ReceiveStream }

func (q quicReceive) Read(p []byte) (int, error) {
	n, err := q.s.Read(p)
	return n, convert(err)
}

func (q quicReceive) CancelRead(code uint64)            { q.s.CancelRead(quic.StreamErrorCode(code)) }
func (q quicReceive) SetReadDeadline(t time.Time) error { return q.s.SetReadDeadline(t) }
func (q quicReceive) StreamID() int64                   { return int64(q.s.StreamID()) }

// quicSend is SendStream.
type quicSend struct{ s *quic.SendStream }

func (q quicSend) Write(p []byte) (int, error) {
	n, err := q.s.Write(p)
	return n, convert(err)
}

func (q quicSend) Close() error                       { return closeSend(q.s.Context(), q.s.Close()) }
func (q quicSend) CancelWrite(code uint64)            { q.s.CancelWrite(quic.StreamErrorCode(code)) }
func (q quicSend) SetWriteDeadline(t time.Time) error { return q.s.SetWriteDeadline(t) }
func (q quicSend) Context() context.Context           { return q.s.Context() }
func (q quicSend) StreamID() int64                    { return int64(q.s.StreamID()) }

// closeSend says why a FIN could not be sent: quic-go has a text only, the stream knows the cause.
func closeSend(stream context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(stream); cause != nil {
		return convert(cause)
	}
	return convert(err)
}
