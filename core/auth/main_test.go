package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that a test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func newClock() *clock { return &clock{time.Unix(1_800_000_000, 0)} }

func newKey(t testing.TB) *SigningKey {
	t.Helper()
	k, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// body is a valid token's claims; a test changes them.
func body(now time.Time) map[string]any {
	return map[string]any{
		"iss": "felix-auth", "aud": "felix-broker", "sub": "p:alice", "tid": "t1",
		"iat": now.Unix(), "exp": now.Unix() + 300, "perms": []string{"stream.publish:stream:t1/default/*"},
	}
}

// sign makes a token of any header and body, also of ones that Mint refuses.
func sign(t testing.TB, k *SigningKey, header, claims map[string]any) string {
	t.Helper()
	h := map[string]any{"typ": "JWT", "alg": "EdDSA", "kid": k.ID}
	for name, v := range header {
		if v == nil {
			delete(h, name)
		} else {
			h[name] = v
		}
	}
	return signJSON(t, k, h, claims)
}

func signJSON(t testing.TB, k *SigningKey, header, claims any) string {
	t.Helper()
	seg := func(v any) string {
		if raw, ok := v.(string); ok {
			return b64.EncodeToString([]byte(raw))
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b64.EncodeToString(b)
	}
	text := seg(header) + "." + seg(claims)
	return text + "." + b64.EncodeToString(ed25519.Sign(k.private, []byte(text)))
}

// static is a verifier whose tenant t1 has these keys.
func static(c *clock, keys ...*SigningKey) (*Verifier, *StaticSource) {
	src := &StaticSource{}
	public := make([]Key, 0, len(keys))
	for _, k := range keys {
		public = append(public, k.Public())
	}
	src.Set("t1", public)
	return NewVerifier(src, Options{Now: c.now}), src
}

// identity is what a token of tenant t1 with these permissions may do.
func identity(t testing.TB, perms ...string) *Identity {
	t.Helper()
	return identityOf(t, "t1", perms...)
}

func identityOf(t testing.TB, tenant string, perms ...string) *Identity {
	t.Helper()
	now := time.Now().Unix()
	c := claims{Issuer: new(issuer), Audience: new(audience), Subject: new("s"), Tenant: &tenant,
		IssuedAt: &now, Expires: new(now + 60), Perms: &perms}
	id, err := c.check(tenant, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func verify(v *Verifier, token string) (*Identity, error) {
	return v.Verify(context.Background(), "t1", token)
}

func join(parts ...string) string { return strings.Join(parts, "") }
