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

// The parser wants these; it does not validate claims here, check does.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (c *claims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (c *claims) GetIssuer() (string, error)                   { return "", nil }
func (c *claims) GetSubject() (string, error)                  { return "", nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }

var parser = jwt.NewParser(
	jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
	jwt.WithStrictDecoding(),
	jwt.WithoutClaimsValidation(),
)

// verifyToken checks a token against the keys of a tenant and returns who it speaks for. kid is the
// token's, also on error, as far as it could be read.
func verifyToken(tenant, token string, set *KeySet, now time.Time) (id *Identity, kid string, err *cause) {
	if strings.ContainsAny(token, "\r\n") { // which encoding/base64 passes over, so one token had many texts
		return nil, "", refuse(ReasonMalformed, "line break in a token")
	}
	var c claims
	t, perr := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errCritical
		}
		return keysFor(t, set)
	})
	if t != nil {
		kid, _ = t.Header["kid"].(string)
	}
	if perr != nil {
		return nil, kid, &cause{reasonOfParse(perr, t), perr}
	}
	id, err = c.check(tenant, now)
	if err != nil {
		return nil, kid, err
	}
	// The parser does not say which key it was.
	signed := token[:len(token)-b64.EncodedLen(len(t.Signature))-1]
	for _, k := range set.Keys() {
		if ed25519.Verify(k.Public, []byte(signed), t.Signature) {
			id.KeyID = k.ID
			copy(id.key[:], k.Public)
			break
		}
	}
	return id, kid, nil
}

var errCritical = errors.New("critical header member that is not understood")

// keysFor returns all keys of the set, those with the token's kid first.
func keysFor(t *jwt.Token, set *KeySet) (jwt.VerificationKeySet, error) {
	kid, _ := t.Header["kid"].(string)
	keys := make([]jwt.VerificationKey, 0, len(set.Keys()))
	for _, k := range set.Keys() {
		if k.ID == kid {
			keys = append(keys, k.Public)
		}
	}
	for _, k := range set.Keys() {
		if k.ID != kid {
			keys = append(keys, k.Public)
		}
	}
	return jwt.VerificationKeySet{Keys: keys}, nil
}

func reasonOfParse(err error, t *jwt.Token) Reason {
	switch {
	case errors.Is(err, errCritical):
		return ReasonAlgorithm
	case errors.Is(err, jwt.ErrTokenMalformed):
		return ReasonMalformed
	case errors.Is(err, jwt.ErrTokenSignatureInvalid) && t.Method == jwt.SigningMethodEdDSA:
		return ReasonSignature
	default:
		return ReasonAlgorithm
	}
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
