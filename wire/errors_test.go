package wire

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table of the protocol, typed in again: numbers and names can never change.
func TestErrorCodesKeepNumberNameAndClass(t *testing.T) {
	for _, c := range []struct {
		code   Code
		number uint32
		name   string
		retry  string
	}{
		{CodeUnauthenticated, 1, "unauthenticated", "fatal"},
		{CodeForbidden, 2, "forbidden", "fatal"},
		{CodeNotFound, 3, "not_found", "retry_after"},
		{CodeInvalidRequest, 4, "invalid_request", "fatal"},
		{CodeShardUnavailable, 5, "shard_unavailable", "retry"},
		{CodeNotLeader, 6, "not_leader", "redirect"},
		{CodeQuorumTimeout, 7, "quorum_timeout", "outcome_unknown"},
		{CodeLeadershipLost, 8, "leadership_lost", "outcome_unknown"},
		{CodeUnacknowledged, 9, "unacknowledged", "outcome_unknown"},
		{CodeOverloaded, 10, "overloaded", "retry_after"},
		{CodeLimitExceeded, 11, "limit_exceeded", "fatal"},
		{CodeDraining, 12, "draining", "retry"},
		{CodeInternal, 13, "internal", "outcome_unknown"},
		{CodeStorage, 14, "storage", "outcome_unknown"},
		{CodeStaleClaim, 15, "stale_claim", "retry"},
		{CodeRevoked, 1 << 16, "revoked", "fatal"},
		{CodeStaleWidth, 1<<16 + 1, "stale_width", "retry"},
		{17, 17, "code_17", "fatal"},
	} {
		parsed, ok := ParseCode(c.name)
		if uint32(c.code) != c.number || c.code.String() != c.name || !ok || parsed != c.code || c.code.Retry().String() != c.retry {
			t.Errorf("%s: number %d, name %s, parsed %d %v, class %s", c.name, c.code, c.code, parsed, ok, c.code.Retry())
		}
	}
	for n, name := range []string{1: "retry", 2: "retry_after", 3: "redirect", 4: "outcome_unknown", 5: "fatal"} {
		if n > 0 && (Retry(n).String() != name || ParseRetry(name) != Retry(n)) {
			t.Errorf("class %d is %s", n, Retry(n))
		}
	}
	for _, name := range []string{"", "nonsense", "code_", "code_0", "code_65536", "code_-1"} {
		if c, ok := ParseCode(name); ok {
			t.Errorf("%q is code %d", name, c)
		}
	}
	if ParseRetry("later") != RetryFatal {
		t.Error("an unknown class must be fatal")
	}
}

func TestErrorsCompareByCode(t *testing.T) {
	full := NewError(CodeOverloaded, "queue %d full", 3).WithReason("publish_queue_full", 10).WithCause(io.ErrShortWrite)
	wrapped := fmt.Errorf("core: publish: %w", full)
	if !errors.Is(wrapped, ErrOverloaded) || !errors.Is(wrapped, io.ErrShortWrite) || errors.Is(wrapped, ErrInternal) {
		t.Error("by code or by cause")
	}
	if got := AsError(wrapped); got != full {
		t.Errorf("AsError finds %v", got)
	}
	if got, want := full.Error(), "overloaded: queue 3 full (publish_queue_full): short write"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if AsError(nil) != nil {
		t.Error("nil became an error")
	}
	foreign := AsError(io.ErrClosedPipe)
	if foreign.Code != CodeInternal || foreign.Message != ErrInternal.Message || !errors.Is(foreign, io.ErrClosedPipe) {
		t.Errorf("foreign error: %+v", foreign)
	}
	changed := ErrStorage.WithRetry(RetryNow)
	if ErrStorage.Retry != RetryUnknown || changed.Retry != RetryNow || changed.Code != CodeStorage {
		t.Error("WithRetry changed the shared value")
	}
	if errors.Is(&Error{CodeText: "a"}, &Error{CodeText: "b"}) {
		t.Error("two unknown codes are equal")
	}
	for e, want := range map[*Error]string{
		{Message: "m"}:                     "refused: m",
		{CodeText: "future", Message: "m"}: "future: m",
		NewError(CodeDraining, ""):         "draining",
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}

// A refusal says to each stream as much as the stream asked to be told, and comes back whole.
func TestRefusalTravelsByNegotiation(t *testing.T) {
	e := ErrOverloaded.WithReason("tenant_quota", 250).WithCause(io.EOF)
	plain := NewPublishError(9, e, FeatureUnsupported)
	if diff := cmp.Diff(&PublishError{RequestID: 9, Message: "overloaded"}, plain); diff != "" {
		t.Errorf("without error codes\n%s", diff)
	}
	if got := plain.Err(); got.Code != 0 || got.Retry != 0 || got.Message != "overloaded" {
		t.Errorf("read back %+v", got)
	}
	full := NewErrorMessage(e, FeatureErrorCodes)
	want := &Error{Code: CodeOverloaded, Retry: RetryAfter, Message: "overloaded", Reason: "tenant_quota", RetryAfterMS: 250}
	if diff := cmp.Diff(want, full.Err()); diff != "" {
		t.Errorf("with error codes\n%s", diff)
	}
	if m := NewErrorMessage(ErrForbidden, FeatureErrorCodes); m.Detail != nil {
		t.Errorf("empty detail is sent: %+v", m.Detail)
	}
	unknown := (&ErrorMessage{Message: "m", Code: "quantum_flux", Retry: "retry"}).Err()
	if unknown.Code != 0 || unknown.CodeText != "quantum_flux" || unknown.Retry != RetryNow {
		t.Errorf("unknown code: %+v", unknown)
	}
	if e := (&ErrorMessage{Code: "not_found"}).Err(); e.Retry != RetryAfter {
		t.Errorf("code without class: %+v", e)
	}
}
