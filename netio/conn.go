package netio

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"time"
)

// Codes of wire.md 1.4, and the one code used where no table names one.
const (
	// CloseShutdown closes a connection: the broker (or the client) is going away.
	CloseShutdown uint64 = 0
	// CloseAuthTimeout closes a connection on which nobody authenticated in time.
	CloseAuthTimeout uint64 = 1

	// ResetNone ends a stream direction for which no meaning is defined.
	ResetNone uint64 = 0
	// ResetInterrupted resets an event stream that did not come to its end: the reader resumes.
	ResetInterrupted uint64 = 1
)

// ALPN is the protocol name that clients may offer.
const ALPN = "felix/1"

// Conn is one connection to a peer, whatever carries it. All methods may be called from any goroutine.
type Conn interface {
	// AcceptStream returns the next stream that the peer opened for both directions.
	AcceptStream(ctx context.Context) (Stream, error)
	// AcceptUniStream returns the next stream that the peer opened to send on.
	AcceptUniStream(ctx context.Context) (ReceiveStream, error)
	// OpenStream opens a stream. It waits while the peer's stream credit is used up, at most until
	// ctx ends; the error then is ErrStreamLimit and the context's.
	OpenStream(ctx context.Context) (Stream, error)
	// OpenUniStream opens a stream to send on, under the rule of OpenStream.
	OpenUniStream(ctx context.Context) (SendStream, error)
	// CloseWithError tells the peer code and reason and drops what was not sent yet. Every call on
	// the connection and its streams fails from then on. Later calls do nothing.
	CloseWithError(code uint64, reason string) error
	// Context ends when the connection has ended. CloseCode, IsIdleTimeout and IsClosed read its cause.
	Context() context.Context
	RemoteAddr() net.Addr
	LocalAddr() net.Addr
	TLS() tls.ConnectionState
}

// ReceiveStream is the receiving direction of a stream. One reader at a time.
type ReceiveStream interface {
	// Read returns io.EOF at the peer's FIN, *ResetError when the peer gave the stream up.
	io.Reader
	// CancelRead tells the peer to stop sending; what has arrived is dropped. Whoever stops reading
	// before io.EOF must call it, else the unread bytes hold the connection's window (HZ-31).
	CancelRead(code uint64)
	SetReadDeadline(t time.Time) error
	StreamID() int64
}

// SendStream is the sending direction of a stream. One writer at a time.
type SendStream interface {
	// Write returns when all of p is in packets or copied; p may be reused then. It fails with
	// *ResetError when the peer stopped reading. It blocks under flow control until then, until the
	// write deadline, or until the connection ends.
	io.Writer
	// Close sends FIN behind what was written. Not at the same time as Write.
	Close() error
	// CancelWrite resets the direction: what the peer has not received yet may be lost. It frees a
	// blocked Write. After Close it also gives up what is still under way.
	CancelWrite(code uint64)
	SetWriteDeadline(t time.Time) error
	// Context ends when the direction ends: Close, CancelWrite, the peer's stop, or the end of the
	// connection.
	Context() context.Context
	StreamID() int64
}

// Stream is both directions. Each must be ended on its own: Close ends sending only.
type Stream interface {
	ReceiveStream
	SendStream
}
