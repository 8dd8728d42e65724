package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Code names what went wrong. Values below codeNamed are the numbers of the wire and never
// change; those from there on exist as names only. Zero means that the peer did not say.
type Code uint32

const (
	CodeUnauthenticated Code = iota + 1
	CodeForbidden
	CodeNotFound
	CodeInvalidRequest
	CodeShardUnavailable
	CodeNotLeader
	CodeQuorumTimeout
	CodeLeadershipLost
	CodeUnacknowledged
	CodeOverloaded
	CodeLimitExceeded
	CodeDraining
	CodeInternal
	CodeStorage
	CodeStaleClaim

	// codeNamed is above every number that a binary acknowledgement can carry.
	codeNamed Code = 1 << 16
)

// Codes without a number: they travel in JSON only.
const (
	CodeRevoked Code = codeNamed + iota
	CodeStaleWidth
)

// codeTable has one row per code: its name on the wire and the class it has unless the sender
// says otherwise.
var codeTable = []struct {
	code  Code
	name  string
	retry Retry
}{
	{CodeUnauthenticated, "unauthenticated", RetryFatal},
	{CodeForbidden, "forbidden", RetryFatal},
	{CodeNotFound, "not_found", RetryAfter},
	{CodeInvalidRequest, "invalid_request", RetryFatal},
	{CodeShardUnavailable, "shard_unavailable", RetryNow},
	{CodeNotLeader, "not_leader", RetryRedirect},
	{CodeQuorumTimeout, "quorum_timeout", RetryUnknown},
	{CodeLeadershipLost, "leadership_lost", RetryUnknown},
	{CodeUnacknowledged, "unacknowledged", RetryUnknown},
	{CodeOverloaded, "overloaded", RetryAfter},
	{CodeLimitExceeded, "limit_exceeded", RetryFatal},
	{CodeDraining, "draining", RetryNow},
	{CodeInternal, "internal", RetryUnknown},
	{CodeStorage, "storage", RetryUnknown},
	{CodeStaleClaim, "stale_claim", RetryNow},
	{CodeRevoked, "revoked", RetryFatal},
	{CodeStaleWidth, "stale_width", RetryNow},
}

// String returns the name on the wire, code_<n> for a number without one.
func (c Code) String() string {
	for i := range codeTable {
		if codeTable[i].code == c {
			return codeTable[i].name
		}
	}
	return "code_" + strconv.FormatUint(uint64(c), 10)
}

// ParseCode reads what String returns. It is false for a name that this version does not know.
func ParseCode(name string) (Code, bool) {
	for i := range codeTable {
		if codeTable[i].name == name {
			return codeTable[i].code, true
		}
	}
	if digits, ok := strings.CutPrefix(name, "code_"); ok {
		if n, err := strconv.ParseUint(digits, 10, 16); err == nil && n != 0 {
			return Code(n), true
		}
	}
	return 0, false
}

// Retry returns the default class of the code, fatal for an unknown one.
func (c Code) Retry() Retry {
	for i := range codeTable {
		if codeTable[i].code == c {
			return codeTable[i].retry
		}
	}
	return RetryFatal
}

// Retry says what the sender of a refused request may do. Zero means that the peer did not say.
type Retry uint8

const (
	RetryNow      Retry = iota + 1 // nothing applied, send again
	RetryAfter                     // nothing applied, wait, then send again
	RetryRedirect                  // nothing applied, go to the owner
	RetryUnknown                   // maybe applied
	RetryFatal                     // the same request fails again
)

var retryNames = []string{
	RetryNow: "retry", RetryAfter: "retry_after", RetryRedirect: "redirect",
	RetryUnknown: "outcome_unknown", RetryFatal: "fatal",
}

// String returns the name on the wire.
func (r Retry) String() string { return enumName(retryNames, uint8(r)) }

// ParseRetry reads the name on the wire. A name that this version does not know is fatal.
func ParseRetry(name string) Retry {
	if n, ok := enumValue(retryNames, name); ok {
		return Retry(n)
	}
	return RetryFatal
}

// Error is a refusal as it travels. Values that were handed out are shared and read-only; the
// With methods copy.
type Error struct {
	Code         Code
	Retry        Retry
	Message      string // prose, never parsed by anyone
	Reason       string // detail for machines, "" = none
	RetryAfterMS uint64 // suggested wait, 0 = none
	// CodeText is the code as the peer sent it where Code is 0 because this version does not
	// know the name.
	CodeText string
	// Err is the local cause. It is never sent.
	Err error
}

// NewError returns an error of the code's default class.
func NewError(code Code, format string, args ...any) *Error {
	msg := format
	if len(args) > 0 {
		msg = fmt.Sprintf(format, args...)
	}
	return &Error{Code: code, Retry: code.Retry(), Message: msg}
}

func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.CodeText != "":
		b.WriteString(e.CodeText)
	case e.Code != 0:
		b.WriteString(e.Code.String())
	default:
		b.WriteString("refused")
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	if e.Reason != "" {
		b.WriteString(" (")
		b.WriteString(e.Reason)
		b.WriteByte(')')
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Is compares codes, so that errors.Is(err, ErrOverloaded) holds for every overloaded error.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.CodeText == e.CodeText
}

// WithRetry returns a copy of another class.
func (e *Error) WithRetry(r Retry) *Error {
	c := *e
	c.Retry = r
	return &c
}

// WithReason returns a copy with detail.
func (e *Error) WithReason(reason string, retryAfterMS uint64) *Error {
	c := *e
	c.Reason, c.RetryAfterMS = reason, retryAfterMS
	return &c
}

// WithCause returns a copy that wraps the local cause err.
func (e *Error) WithCause(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// AsError finds the *Error in err; one that holds none becomes an internal error around it, whose
// text does not travel. nil stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return ErrInternal.WithCause(err)
}

// One sentinel per code, for errors.Is and for refusals that need no text of their own.
var (
	ErrUnauthenticated  = NewError(CodeUnauthenticated, "auth required")
	ErrForbidden        = NewError(CodeForbidden, "forbidden")
	ErrNotFound         = NewError(CodeNotFound, "not found")
	ErrInvalidRequest   = NewError(CodeInvalidRequest, "invalid request")
	ErrUnavailable      = NewError(CodeShardUnavailable, "shard unavailable")
	ErrNotLeader        = NewError(CodeNotLeader, "not leader")
	ErrQuorumTimeout    = NewError(CodeQuorumTimeout, "quorum timeout")
	ErrLeadershipLost   = NewError(CodeLeadershipLost, "leadership lost")
	ErrUnacknowledged   = NewError(CodeUnacknowledged, "outcome unknown")
	ErrOverloaded       = NewError(CodeOverloaded, "overloaded")
	ErrLimitExceeded    = NewError(CodeLimitExceeded, "limit exceeded")
	ErrDraining         = NewError(CodeDraining, "draining")
	ErrInternal         = NewError(CodeInternal, "internal error")
	ErrStorage          = NewError(CodeStorage, "storage error")
	ErrStaleClaim       = NewError(CodeStaleClaim, "stale claim")
	ErrRevoked          = NewError(CodeRevoked, "credential revoked")
	errUnsupportedFlags = NewError(CodeInvalidRequest, "unsupported frame flags").WithCause(ErrFlags)
)
