package client

import (
	"errors"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// verdict is what to do with a request that was refused or lost.
type verdict uint8

const (
	verdictFail   verdict = iota // tell the caller
	verdictResend                // certainly not applied: send again after a wait
	verdictRepeat                // maybe applied, and applying it twice is harmless or allowed
)

// decide is the retry table of the SDK: class by class, with the one thing that differs between
// callers, whether a request of unknown outcome may be sent again. A broker that names no class
// is taken at its worst.
func decide(class wire.Retry, repeatable bool) verdict {
	switch class {
	case wire.RetryNow, wire.RetryAfter, wire.RetryRedirect:
		// The SDK has one address and no owner to follow; the refused request goes to the same
		// broker again, which by then has found the owner or become it.
		return verdictResend
	case wire.RetryUnknown:
		if repeatable {
			return verdictRepeat
		}
	}
	return verdictFail
}

// decideError is decide for any error: a lost connection counts as an unknown outcome.
func decideError(err error, repeatable bool) verdict {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return decide(e.Retry, repeatable)
	}
	if lost(err) {
		return decide(wire.RetryUnknown, repeatable)
	}
	return verdictFail
}

// askedWait is the wait that the broker suggested, 0 if none.
func askedWait(err error) time.Duration {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return time.Duration(min(e.RetryAfterMS, 60_000)) * time.Millisecond
	}
	return 0
}
