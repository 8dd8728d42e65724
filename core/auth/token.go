package auth

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

// What a Felix token for a broker says (wire.md 3.2).
const (
	issuer   = "felix-auth"
	audience = "felix-broker"

	// expiryLeewaySeconds is how long after its end a token is still taken.
	expiryLeewaySeconds = 60
	// tenantLenMax is the longest plausible tenant id, in bytes.
	tenantLenMax = 256
)

// checkTenant refuses ids for which no keys are even looked up.
func checkTenant(tenant string) error {
	switch {
	case tenant == "" || tenant == "." || tenant == "..":
		return fmt.Errorf("tenant id %q is not plausible", tenant)
	case len(tenant) > tenantLenMax:
		return fmt.Errorf("tenant id of %d bytes, at most %d", len(tenant), tenantLenMax)
	case !utf8.ValidString(tenant):
		return errors.New("tenant id is not UTF-8")
	}
	for _, r := range tenant {
		if unicode.IsControl(r) {
			return errors.New("tenant id holds a control character")
		}
	}
	return nil
}

// claims is a token's body. Pointers tell a missing member from an empty one.
type claims struct {
	Issuer, Audience, Subject, Tenant *string
	IssuedAt, Expires                 *int64
	Perms                             *[]string
}

// UnmarshalJSON takes names as they are written; encoding/json alone would also take "TID" for "tid".
// An audience that is a list, and a time that is not an integer, are errors.
func (c *claims) UnmarshalJSON(b []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	for name, to := range map[string]any{
		"iss": &c.Issuer, "aud": &c.Audience, "sub": &c.Subject, "tid": &c.Tenant,
		"iat": &c.IssuedAt, "exp": &c.Expires, "perms": &c.Perms,
	} {
		if raw, ok := members[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("claim %s: %w", name, err)
			}
		}
	}
	return nil
}

// The parser wants these; nobody asks them, check judges the claims.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (c *claims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (c *claims) GetIssuer() (string, error)                   { return "", nil }
func (c *claims) GetSubject() (string, error)                  { return "", nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }

var parser = jwt.NewParser(jwt.WithStrictDecoding())

// verifyToken checks a token against the keys of a tenant and returns who it speaks for. kid is the
// token's, also on error, as far as it could be read.
//
// The parser only takes the token apart: its own verification does not say which key it was, and checks
// claims by other rules than wire.md's.
func verifyToken(tenant, token string, set *KeySet, now time.Time) (id *Identity, kid string, err *cause) {
	if strings.ContainsAny(token, "\r\n") { // which encoding/base64 passes over, so one token had many texts
		return nil, "", refuse(ReasonMalformed, "line break in a token")
	}
	var c claims
	t, parts, perr := parser.ParseUnverified(token, &c)
	if perr != nil {
		if errors.Is(perr, jwt.ErrTokenUnverifiable) {
			return nil, "", &cause{ReasonAlgorithm, perr}
		}
		return nil, "", &cause{ReasonMalformed, perr}
	}
	kid, _ = t.Header["kid"].(string)
	if t.Method != jwt.SigningMethodEdDSA {
		return nil, kid, refuse(ReasonAlgorithm, "algorithm %s is not EdDSA", t.Method.Alg())
	}
	if _, ok := t.Header["crit"]; ok {
		return nil, kid, refuse(ReasonAlgorithm, "critical header member that is not understood")
	}
	key := set.signer(kid, []byte(token[:len(parts[0])+1+len(parts[1])]), t.Signature)
	if key == nil {
		return nil, kid, refuse(ReasonSignature, "made by no key of the tenant")
	}
	if id, err = c.check(tenant, now); err != nil {
		return nil, kid, err
	}
	id.KeyID = key.ID
	copy(id.key[:], key.Public)
	return id, kid, nil
}

// signer returns the key that made sig, or nil. Those named kid are tried first, then all others.
func (s *KeySet) signer(kid string, signed, sig []byte) *Key {
	if len(sig) != ed25519.SignatureSize {
		return nil
	}
	keys := s.Keys()
	for _, named := range []bool{true, false} {
		for i := range keys {
			if (keys[i].ID == kid) == named && len(keys[i].Public) == ed25519.PublicKeySize && ed25519.Verify(keys[i].Public, signed, sig) {
				return &keys[i]
			}
		}
	}
	return nil
}

// check judges the claims of a token whose signature holds.
func (c *claims) check(tenant string, now time.Time) (*Identity, *cause) {
	switch {
	case c.Issuer == nil || *c.Issuer != issuer:
		return nil, refuse(ReasonClaims, "iss is not %s", issuer)
	case c.Audience == nil || *c.Audience != audience:
		return nil, refuse(ReasonClaims, "aud is not %s", audience)
	case c.Subject == nil:
		return nil, refuse(ReasonClaims, "no sub")
	case c.IssuedAt == nil:
		return nil, refuse(ReasonClaims, "no iat")
	case c.Expires == nil:
		return nil, refuse(ReasonClaims, "no exp")
	case c.Perms == nil:
		return nil, refuse(ReasonClaims, "no perms")
	case c.Tenant == nil || *c.Tenant != tenant:
		return nil, refuse(ReasonTenant, "tid is not the tenant of the request")
	case expired(*c.Expires, now):
		return nil, refuse(ReasonExpired, "expired at %d", *c.Expires)
	}
	id := &Identity{Tenant: tenant, Subject: *c.Subject, IssuedAt: *c.IssuedAt, Expires: *c.Expires}
	for _, text := range *c.Perms {
		action, p, err := parsePermission(tenant, text)
		if err != nil {
			return nil, &cause{ReasonPermission, err}
		}
		id.grants[action] = append(id.grants[action], p)
	}
	return id, nil
}

func expired(exp int64, now time.Time) bool { return exp <= now.Unix()-expiryLeewaySeconds }
