package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/ringcast/ringcast/wire"
)

// Errors that callers branch on. A refusal by the broker is a *wire.Error and is compared with
// wire's sentinels: errors.Is(err, wire.ErrUnauthenticated).
var (
	// ErrClosed: the client, publisher or subscription was closed here.
	ErrClosed = errors.New("client: closed")
	// ErrBudgetFull: WithFailWhenFull was given and the publisher holds its budget of unanswered bytes.
	ErrBudgetFull = errors.New("client: publish budget is full")
	// ErrRecordTooLarge: the record can never fit in a frame.
	ErrRecordTooLarge = errors.New("client: record larger than a frame")
	// ErrDeliveryTimeout: the delivery timeout of the publisher ran out. If the record may have
	// been applied it is wrapped in a wire.ErrUnacknowledged, else it was not applied.
	ErrDeliveryTimeout = errors.New("client: delivery timeout")
	// ErrShardsChanged: the stream was created anew with another number of shards while records
	// routed by the old number were waiting. They were not sent.
	ErrShardsChanged = errors.New("client: shard count of the stream changed")
	// ErrStreamDeleted: the stream behind a subscription is gone. It will not resume.
	ErrStreamDeleted = errors.New("client: stream was deleted")
	// ErrInterrupted: a subscription to a stream without a log lost its connection. What was
	// published meanwhile cannot be had any more; see GapError.
	ErrInterrupted = errors.New("client: subscription interrupted, stream has no offsets to resume at")
)

// GapError: records between what was read last and what can be read next are not available. It is
// never skipped silently: the subscription ends with it, or, under WithContinueAfterGap, hands it
// to the reader in place of the records and goes on at Next.
type GapError struct {
	Stream string
	Shard  uint32
	// From is the first record that is missing, Next the first one that can be had. Both are 0
	// when the stream has no offsets (Err is ErrInterrupted).
	From, Next uint64
	// Reason is "too_old" (the broker removed the records), "in_future" (the log ends before
	// From: the broker lost its end), "dropped" (the broker left them out) or "interrupted".
	Reason string
	Err    error
}

func (e *GapError) Error() string {
	if e.Reason == "interrupted" {
		return fmt.Sprintf("client: %s/%d: events may be missing: %v", e.Stream, e.Shard, e.Err)
	}
	return fmt.Sprintf("client: %s/%d: records from %d are not available (%s), next available is %d",
		e.Stream, e.Shard, e.From, e.Reason, e.Next)
}

func (e *GapError) Unwrap() error { return e.Err }

// ProtocolError: the broker sent something that the protocol does not allow here.
type ProtocolError struct {
	What string
	Err  error
}

func (e *ProtocolError) Error() string {
	if e.Err == nil {
		return "client: broker broke the protocol: " + e.What
	}
	return "client: broker broke the protocol: " + e.What + ": " + e.Err.Error()
}

func (e *ProtocolError) Unwrap() error { return e.Err }

// UnsupportedError: the broker does not serve what the call needs. Nothing was sent.
type UnsupportedError struct{ What string }

func (e *UnsupportedError) Error() string { return "client: broker does not support " + e.What }

// DialError: no connection to the broker could be made. Err is the newest cause.
type DialError struct {
	Addr     string
	Attempts int
	Err      error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("client: connect to %s: %v", e.Addr, e.Err)
}

func (e *DialError) Unwrap() error { return e.Err }

// errNoAnswer: the caller's patience ended before the first attempt did.
var errNoAnswer = errors.New("no answer so far")

// unknown is the error of a request that may or may not have been applied.
func unknown(cause error) *wire.Error {
	return wire.ErrUnacknowledged.WithCause(cause)
}

func protocolError(what string, err error) error { return &ProtocolError{What: what, Err: err} }

// lost says whether err means that a stream or its connection ended under the request, so that
// another connection may work. Timeouts and cancellations of the caller are not.
func lost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	if _, refused := errors.AsType[*wire.Error](err); refused {
		return false
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	_, broken := errors.AsType[*ProtocolError](err)
	return broken || isReset(err)
}

func isNotFound(err error) bool { return errors.Is(err, wire.ErrNotFound) }

// errSilent ends a publish stream whose broker owes an answer for too long.
var errSilent = errors.New("client: broker left a publish unanswered")

func (o *outbox) timeoutError() error {
	if o.lastErr == nil {
		return ErrDeliveryTimeout
	}
	return fmt.Errorf("%w, last: %w", ErrDeliveryTimeout, o.lastErr)
}

func errNotInFlight(number uint64) error {
	return protocolError(fmt.Sprintf("answer to request %d, which is not in flight", number), nil)
}
