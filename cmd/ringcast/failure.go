package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

var (
	errInterrupted = errors.New("interrupted")
	errNoToken     = errors.New("no token")
)

// usage marks an error of the command line.
type usage struct{ err error }

func (u *usage) Error() string { return u.err.Error() }
func (u *usage) Unwrap() error { return u.err }

func usageError(err error) error { return &usage{err} }

// report is an error as --json prints it.
type report struct {
	Error reportBody `json:"error"`
}

type reportBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Retry   string `json:"retry,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// fail prints err and what to do about it, and returns the exit code.
func (e *environment) fail(err error) int {
	body, code := explain(err)
	if e.json {
		text, _ := json.Marshal(report{body})
		fmt.Fprintf(e.stderr, "%s\n", text)
		return code
	}
	fmt.Fprintln(e.stderr, "ringcast:", body.Message)
	if body.Hint != "" {
		fmt.Fprintln(e.stderr, "  "+body.Hint)
	}
	return code
}

// explain names an error, and says what a person can do about it.
func explain(err error) (reportBody, int) {
	b := reportBody{Code: "failed", Message: err.Error()}
	if _, ok := errors.AsType[*usage](err); ok {
		b.Code, b.Hint = "usage", "ringcast --help lists the commands, ringcast COMMAND --help their flags."
		return b, 2
	}
	if errors.Is(err, errInterrupted) {
		b.Code = "interrupted"
		return b, 130
	}
	refused, _ := errors.AsType[*wire.Error](err)
	if refused != nil {
		b.Code = refused.Code.String()
		if refused.CodeText != "" {
			b.Code = refused.CodeText
		}
		if refused.Retry != 0 {
			b.Retry = refused.Retry.String()
		}
	}
	if explainLog(err, &b) {
		return b, 1
	}
	dial, _ := errors.AsType[*client.DialError](err)
	gap, _ := errors.AsType[*client.GapError](err)
	mismatch, _ := errors.AsType[*client.OffsetMismatchError](err)
	handshake, _ := errors.AsType[*netio.HandshakeError](err)
	_, unsupported := errors.AsType[*client.UnsupportedError](err)
	if dial != nil {
		b.Message = dial.Error() // without the expired context around it
	}
	b.Message = strings.TrimPrefix(b.Message, "client: ")
	switch {
	case errors.Is(err, errNoToken):
		b.Code = "no_token"
		b.Hint = "Give --token-file FILE (or RINGCAST_TOKEN_FILE), or --dev-dir DIR of a ringcastd --dev on this machine; ringcast token mint makes tokens."
	case errors.Is(err, client.ErrDeliveryTimeout):
		b.Code = "delivery_timeout"
		b.Hint = "The broker did not take the records in time. Is it running, and is its disk all right? Its log and /readyz tell."
	case handshake != nil && !handshake.Remote:
		b.Code = "tls"
		b.Hint = "Give --ca FILE of the CA that signed the broker's certificate, and --server-name if the certificate is for another name."
	case errors.Is(err, wire.ErrUnauthenticated):
		b.Hint = "The broker does not accept the token: it may have expired, be for another tenant, or be signed with a key that the broker does not know. ringcast token inspect shows what it says."
	case errors.Is(err, wire.ErrForbidden):
		b.Hint = "The token lacks the permission. ringcast token inspect shows what it allows; ringcast token mint --perm adds one."
	case errors.Is(err, wire.ErrNotFound):
		b.Hint = "Check the name and --namespace. ringcast stream list shows what there is, ringcast stream create makes a stream."
	case errors.Is(err, wire.ErrOverloaded), errors.Is(err, wire.ErrDraining), errors.Is(err, wire.ErrUnavailable):
		b.Hint = "Nothing was applied; try again in a moment."
	case gap != nil:
		b.Code = "gap"
		b.Hint = fmt.Sprintf("ringcast sub --from %d reads on behind what is missing, --from earliest reads all there is.", gap.Next)
		if gap.Reason == "in_future" {
			b.Hint = fmt.Sprintf("The stream ends before that; its next record will be %d.", gap.Next)
		}
	case mismatch != nil:
		b.Code = "offset_mismatch"
		b.Hint = fmt.Sprintf("Nothing was written. Look at what has come up to there, then try --if-offset %d.", mismatch.Tail)
	case errors.Is(err, wire.ErrUnacknowledged), refused != nil && refused.Retry == wire.RetryUnknown:
		b.Hint = "It may or may not have been applied. Records published with --idempotent are sent again safely."
	case dial != nil || errors.Is(err, netio.ErrHandshakeTimeout):
		b.Code = "unreachable"
		b.Hint = "Is the broker running, and is --addr right? ringcastd --dev starts one on this machine."
	case isAdminUnreachable(err):
		b.Code = "unreachable"
		b.Hint = "Is the broker running, and is --http right? An address with a certificate wants https://."
	case unsupported:
		b.Code = "unsupported"
	case errors.Is(err, context.DeadlineExceeded):
		b.Code, b.Hint = "timeout", "The broker did not answer in time; --timeout waits longer."
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		b.Code = "file"
	}
	return b, 1
}

func isAdminUnreachable(err error) bool {
	_, ok := errors.AsType[*adminUnreachable](err)
	return ok
}
