package auth

import (
	"errors"
	"fmt"

	"github.com/ringcast/ringcast/wire"
)

// Reason says, for counters and logs, why a token was refused. The peer is told "auth failed" only.
type Reason uint8

const (
	ReasonNone       Reason = iota
	ReasonMalformed         // not a token: segments, base64, JSON, a claim of the wrong type
	ReasonAlgorithm         // not EdDSA, or a critical header that nobody here knows
	ReasonSignature         // no key of the tenant made it
	ReasonClaims            // issuer, audience, a missing claim
	ReasonTenant            // another tenant's token
	ReasonExpired           //
	ReasonPermission        // an entry of perms cannot be read
	ReasonRevoked           //
	ReasonNoKeys            // the tenant is unknown here or has no keys
	ReasonKeySource         // the keys could not be read or fetched

	reasonCount
)

var reasonNames = [reasonCount]string{"none", "malformed", "algorithm", "signature", "claims", "tenant", "expired",
	"permission", "revoked", "no_keys", "key_source"}

// String is a label of a metric: a closed set.
func (r Reason) String() string {
	if r >= reasonCount {
		return "unknown"
	}
	return reasonNames[r]
}

// ReasonOf returns why Verify refused.
func ReasonOf(err error) Reason {
	if c, ok := errors.AsType[*cause](err); ok {
		return c.reason
	}
	return ReasonNone
}

// cause is what lies behind "auth failed".
type cause struct {
	reason Reason
	err    error
}

func (c *cause) Error() string { return c.err.Error() }
func (c *cause) Unwrap() error { return c.err }

func refuse(r Reason, format string, args ...any) *cause {
	return &cause{r, fmt.Errorf(format, args...)}
}

var errAuthFailed = wire.NewError(wire.CodeUnauthenticated, "auth failed")
