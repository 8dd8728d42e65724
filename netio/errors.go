package netio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/quic-go/quic-go"
)

// Errors callers branch on, compared with errors.Is. All but ErrStreamLimit say that the connection
// is gone or never came to be, and are net.ErrClosed too.
var (
	// ErrIdleTimeout: nothing was heard from the peer for the idle timeout.
	ErrIdleTimeout = connError("netio: connection idle for too long")
	// ErrHandshakeTimeout: the peer did not finish the handshake, or nobody answered at all.
	ErrHandshakeTimeout = connError("netio: no answer to the handshake in time")
	// ErrRefused: the peer turned the connection down before the handshake (a limit, or it is
	// shutting down).
	ErrRefused = connError("netio: connection refused by peer")
	// ErrPeerRestarted: the peer does not know the connection any more (stateless reset).
	ErrPeerRestarted = connError("netio: peer lost the connection's state")
	// ErrClosed: this end closed the listener, the connection or the stream.
	ErrClosed = connError("netio: closed")

	// ErrStreamLimit: the peer's stream credit stayed used up until the context ended.
	ErrStreamLimit = errors.New("netio: peer grants no more streams")
)

// connError is a fixed error that is net.ErrClosed too.
type connError string

func (e connError) Error() string        { return string(e) }
func (e connError) Is(target error) bool { return target == net.ErrClosed }

// CloseError: one end closed the connection with an application code.
type CloseError struct {
	Code   uint64
	Reason string
	Remote bool // the peer did
}

func (e *CloseError) Error() string {
	who := "here"
	if e.Remote {
		who = "by peer"
	}
	if e.Reason == "" {
		return fmt.Sprintf("netio: connection closed %s with code %d", who, e.Code)
	}
	return fmt.Sprintf("netio: connection closed %s with code %d: %s", who, e.Code, e.Reason)
}

func (e *CloseError) Is(target error) bool { return target == net.ErrClosed }

// ResetError: one end gave up one direction of one stream. The connection lives on.
type ResetError struct {
	StreamID int64
	Code     uint64
	Remote   bool // the peer did
}

func (e *ResetError) Error() string {
	who := "here"
	if e.Remote {
		who = "by peer"
	}
	return fmt.Sprintf("netio: stream %d ended %s with code %d", e.StreamID, who, e.Code)
}

// HandshakeError: TLS did not agree. Alert is the TLS alert (120: no common protocol name, 42-49: a
// certificate that one side does not accept).
type HandshakeError struct {
	Alert  uint8
	Remote bool // the peer refused
	Err    error
}

func (e *HandshakeError) Error() string {
	who := "here"
	if e.Remote {
		who = "by peer"
	}
	return fmt.Sprintf("netio: handshake refused %s, alert %d: %v", who, e.Alert, e.Err)
}

func (e *HandshakeError) Is(target error) bool { return target == net.ErrClosed }
func (e *HandshakeError) Unwrap() error        { return e.Err }

// IsClosed reports whether err says that the connection, listener or stream is gone for any reason:
// closed by either end, reset, timed out, refused.
func IsClosed(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return true
	}
	_, isReset := errors.AsType[*ResetError](convert(err))
	return isReset
}

// IsIdleTimeout reports whether the connection ended because nothing was heard from the peer.
func IsIdleTimeout(err error) bool { return errors.Is(convert(err), ErrIdleTimeout) }

// CloseCode returns the application code with which the connection was closed.
func CloseCode(err error) (code uint64, remote, ok bool) {
	if e, is := errors.AsType[*CloseError](convert(err)); is {
		return e.Code, e.Remote, true
	}
	return 0, false, false
}

// ResetCode returns the code with which a stream direction was given up.
func ResetCode(err error) (code uint64, remote, ok bool) {
	if e, is := errors.AsType[*ResetError](convert(err)); is {
		return e.Code, e.Remote, true
	}
	return 0, false, false
}

// alertBase is added to a TLS alert to make a QUIC transport error code (RFC 9001, 4.8).
const alertBase = 0x100

// convert turns quic-go's errors into this package's, once, at the boundary. Others pass unchanged.
func convert(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	switch e := err.(type) {
	case *CloseError, *ResetError, *HandshakeError, connError:
		return err
	case *quic.StreamError:
		return &ResetError{StreamID: int64(e.StreamID), Code: uint64(e.ErrorCode), Remote: e.Remote}
	case *quic.ApplicationError:
		return &CloseError{Code: uint64(e.ErrorCode), Reason: e.ErrorMessage, Remote: e.Remote}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, quic.ErrStreamClosed) || errors.Is(err, quic.ErrServerClosed) {
		return ErrClosed
	}
	if _, ok := errors.AsType[*quic.IdleTimeoutError](err); ok {
		return ErrIdleTimeout
	}
	if _, ok := errors.AsType[*quic.HandshakeTimeoutError](err); ok {
		return ErrHandshakeTimeout
	}
	if _, ok := errors.AsType[*quic.StatelessResetError](err); ok {
		return ErrPeerRestarted
	}
	if e, ok := errors.AsType[*quic.TransportError](err); ok {
		switch {
		case e.ErrorCode == quic.ConnectionRefused && e.Remote:
			return ErrRefused
		case e.ErrorCode.IsCryptoError():
			return &HandshakeError{Alert: uint8(e.ErrorCode - alertBase), Remote: e.Remote, Err: err}
		}
	}
	if errors.Is(err, quic.ErrTransportClosed) {
		return ErrClosed
	}
	return err
}
