package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Every row of the refusals of wire.md 3.2, and beside each the nearest token that is accepted.
func TestTokenIsAcceptedOnlyAsSpecified(t *testing.T) {
	clk := newClock()
	key, other := newKey(t), newKey(t)
	now := clk.t.Unix()

	claim := func(name string, v any) func(h, b map[string]any) {
		return func(_, b map[string]any) {
			if v == nil {
				delete(b, name)
			} else {
				b[name] = v
			}
		}
	}
	head := func(name string, v any) func(h, b map[string]any) {
		return func(h, _ map[string]any) { h[name] = v }
	}
	for _, c := range []struct {
		name   string
		change func(h, b map[string]any)
		key    *SigningKey
		want   Reason // ReasonNone = accepted
	}{
		{name: "as it should be"},
		{name: "no typ", change: head("typ", nil)},
		{name: "unknown kid, a key of the tenant", change: head("kid", "nobody")},
		{name: "no kid", change: head("kid", nil)},
		{name: "kid of another type", change: head("kid", 7)},
		{name: "no alg", change: head("alg", nil), want: ReasonAlgorithm},
		{name: "alg none", change: head("alg", "none"), want: ReasonAlgorithm},
		{name: "alg RS256", change: head("alg", "RS256"), want: ReasonAlgorithm},
		{name: "alg ES256", change: head("alg", "ES256"), want: ReasonAlgorithm},
		{name: "alg in other case", change: head("alg", "eddsa"), want: ReasonAlgorithm},
		{name: "critical header", change: head("crit", []string{"b64"}), want: ReasonAlgorithm},
		{name: "foreign key under a known kid", key: &SigningKey{ID: key.ID, private: other.private}, want: ReasonSignature},
		{name: "foreign key", key: other, want: ReasonSignature},

		{name: "no iss", change: claim("iss", nil), want: ReasonClaims},
		{name: "other iss", change: claim("iss", "felix-auth2"), want: ReasonClaims},
		{name: "no aud", change: claim("aud", nil), want: ReasonClaims},
		{name: "aud of the control plane", change: claim("aud", "felix-controlplane"), want: ReasonClaims},
		{name: "aud as a list", change: claim("aud", []string{"felix-broker"}), want: ReasonMalformed},
		{name: "no sub", change: claim("sub", nil), want: ReasonClaims},
		{name: "empty sub", change: claim("sub", "")},
		{name: "sub of another type", change: claim("sub", 5), want: ReasonMalformed},
		{name: "no tid", change: claim("tid", nil), want: ReasonTenant},
		{name: "other tid", change: claim("tid", "t2"), want: ReasonTenant},
		{name: "tid under another case of its name", change: func(_, b map[string]any) { delete(b, "tid"); b["TID"] = "t1" }, want: ReasonTenant},
		{name: "no exp", change: claim("exp", nil), want: ReasonClaims},
		{name: "exp in the leeway", change: claim("exp", now-59)},
		{name: "exp at the end of the leeway", change: claim("exp", now-60), want: ReasonExpired},
		{name: "exp long ago", change: claim("exp", 0), want: ReasonExpired},
		{name: "exp at the end of time", change: claim("exp", int64(1)<<62)},
		{name: "exp not whole", change: claim("exp", float64(now)+10.5), want: ReasonMalformed},
		{name: "exp as text", change: claim("exp", "1900000000"), want: ReasonMalformed},
		{name: "no iat", change: claim("iat", nil), want: ReasonClaims},
		{name: "iat in the future", change: claim("iat", now+10_000)},
		{name: "nbf in the future", change: claim("nbf", now+10_000)},
		{name: "nbf of another type", change: claim("nbf", "soon")},
		{name: "jti", change: claim("jti", "x")},

		{name: "no perms", change: claim("perms", nil), want: ReasonClaims},
		{name: "perms null", change: claim("perms", json.RawMessage("null")), want: ReasonClaims},
		{name: "empty perms", change: claim("perms", []string{})},
		{name: "perms as text", change: claim("perms", "stream.publish:stream:t1/a/b"), want: ReasonMalformed},
		{name: "unknown action", change: claim("perms", []string{"stream.publish:stream:t1/a/b", "stream.delete:stream:t1/a/b"}), want: ReasonPermission},
		{name: "action in other case", change: claim("perms", []string{"Stream.publish:stream:t1/a/b"}), want: ReasonPermission},
		{name: "no colon", change: claim("perms", []string{"stream.publish"}), want: ReasonPermission},
		{name: "no resource", change: claim("perms", []string{"stream.publish:"}), want: ReasonPermission},
		{name: "null among perms", change: claim("perms", json.RawMessage(`[null]`)), want: ReasonPermission},
	} {
		t.Run(c.name, func(t *testing.T) {
			header, claims := map[string]any{}, body(clk.t)
			if c.change != nil {
				c.change(header, claims)
			}
			if c.key == nil {
				c.key = key
			}
			v, _ := static(clk, key)
			id, err := verify(v, sign(t, c.key, header, claims))
			if got := ReasonOf(err); got != c.want {
				t.Fatalf("refused for %v (%v), want %v", got, err, c.want)
			}
			if c.want == ReasonNone {
				if id.Tenant != "t1" || id.KeyID != key.ID {
					t.Fatalf("identity %+v", id)
				}
				return
			}
			if !errors.Is(err, wire.ErrUnauthenticated) || wire.AsError(err).Message != "auth failed" || wire.AsError(err).Retry != wire.RetryFatal {
				t.Fatalf("the peer would be told %+v", wire.AsError(err))
			}
			if v.Stats().Refused[c.want] != 1 {
				t.Fatalf("not counted: %+v", v.Stats())
			}
		})
	}
}

// The classic: a token signed with HMAC, the public key as secret, its algorithm as the header says.
func TestPublicKeyIsNoSharedSecret(t *testing.T) {
	clk := newClock()
	key := newKey(t)
	v, _ := static(clk, key)
	for _, secret := range [][]byte{key.Public().Public, key.PublicJWKS(), {}} {
		parts := strings.Split(sign(t, key, map[string]any{"alg": "HS256"}, body(clk.t)), ".")
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(parts[0] + "." + parts[1]))
		_, err := verify(v, join(parts[0], ".", parts[1], ".", b64.EncodeToString(mac.Sum(nil))))
		if ReasonOf(err) != ReasonAlgorithm {
			t.Fatal(err)
		}
	}
}

// Texts that are no token, and tokens with one byte changed anywhere.
func TestDamagedTokenIsRefused(t *testing.T) {
	clk := newClock()
	key := newKey(t)
	v, _ := static(clk, key)
	good := sign(t, key, nil, body(clk.t))
	if _, err := verify(v, good); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	for _, bad := range []string{
		"", ".", "..", "...", "a.b.c", good + ".", good + "=", " " + good, good + "\n", parts[0] + "." + parts[1],
		parts[0] + "." + parts[1] + ".", "." + parts[1] + "." + parts[2], parts[1] + "." + parts[0] + "." + parts[2],
		signJSON(t, key, "null", body(clk.t)), signJSON(t, key, "[]", body(clk.t)),
		sign(t, key, nil, nil), signJSON(t, key, map[string]any{"alg": "EdDSA"}, "null"),
		signJSON(t, key, map[string]any{"alg": "EdDSA"}, "[1]"), signJSON(t, key, map[string]any{"alg": "EdDSA"}, "{"),
	} {
		if _, err := verify(v, bad); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Fatalf("%q: %v", bad, err)
		}
	}
	for i := range good {
		flipped := []byte(good)
		flipped[i] = 'A' + (flipped[i]-'A'+1)%26
		if string(flipped) == good {
			continue
		}
		if _, err := verify(v, string(flipped)); err == nil {
			t.Fatalf("byte %d changed, and accepted", i)
		}
	}
}

// A token is good for its own tenant only, even where both tenants trust the same key (OPS-3).
func TestForeignTenantTokenIsRefused(t *testing.T) {
	clk := newClock()
	key := newKey(t)
	v, src := static(clk, key)
	src.Set("t2", []Key{key.Public()})
	token := sign(t, key, nil, body(clk.t))
	if _, err := v.Verify(context.Background(), "t2", token); ReasonOf(err) != ReasonTenant {
		t.Fatal(err)
	}
	if _, err := verify(v, token); err != nil {
		t.Fatal(err)
	}
	// Remembered for t1, it is still refused for t2.
	if _, err := v.Verify(context.Background(), "t2", token); ReasonOf(err) != ReasonTenant {
		t.Fatal(err)
	}
}

func TestImplausibleTenantIsRefusedUnasked(t *testing.T) {
	v := NewVerifier(sourceFunc(func(tenant string) (*KeySet, error) {
		t.Errorf("the source was asked for %q", tenant)
		return nil, nil
	}), Options{})
	for _, tenant := range []string{"", ".", "..", "a\x00", "a\nb", "\x7f", "\u0085", "\xff", strings.Repeat("x", 257)} {
		if _, err := v.Verify(context.Background(), tenant, "a.b.c"); ReasonOf(err) != ReasonTenant {
			t.Fatalf("%q: %v", tenant, err)
		}
	}
}

type sourceFunc func(tenant string) (*KeySet, error)

func (f sourceFunc) Keys(_ context.Context, tenant string) (*KeySet, error) { return f(tenant) }

// The keys of a tenant decide at the moment of the check: an added key works at once, a removed one fails
// at once, also for a token that was accepted a moment ago.
func TestRotatedKeysTakeEffectAtOnce(t *testing.T) {
	clk := newClock()
	a, b := newKey(t), newKey(t)
	v, src := static(clk, a)
	byA, byB := sign(t, a, nil, body(clk.t)), sign(t, b, nil, body(clk.t))
	accepted := func(token string) bool { _, err := verify(v, token); return err == nil }
	if !accepted(byA) || accepted(byB) {
		t.Fatal("one key")
	}
	src.Set("t1", []Key{a.Public(), b.Public()})
	if !accepted(byA) || !accepted(byB) {
		t.Fatal("both keys")
	}
	id, _ := verify(v, byA)
	src.Set("t1", []Key{b.Public()})
	if accepted(byA) || !accepted(byB) || v.Current(context.Background(), id) {
		t.Fatal("the old key was removed")
	}
	src.Set("t1", nil)
	if _, err := verify(v, byB); ReasonOf(err) != ReasonNoKeys {
		t.Fatal(err)
	}
}

// A revoked subject's tokens are refused when they were issued up to that moment; newer ones, and those of
// others, are not.
func TestRevokedSubjectIsRefused(t *testing.T) {
	clk := newClock()
	key := newKey(t)
	v, _ := static(clk, key)
	at := func(subject string, iat int64) string {
		b := body(clk.t)
		b["sub"], b["iat"] = subject, iat
		return sign(t, key, nil, b)
	}
	now := clk.t.Unix()
	old, same, newer, other := at("p:alice", now-5), at("p:alice", now), at("p:alice", now+1), at("p:bob", now-5)
	id, err := verify(v, old)
	if err != nil || v.Revoked(id) {
		t.Fatal(err)
	}
	v.Revoke("t1", "p:alice", clk.t)
	v.Revoke("t1", "p:alice", clk.t.Add(-time.Hour)) // an older revocation takes nothing back
	if !v.Revoked(id) {
		t.Fatal("the open identity is not named as revoked")
	}
	for token, want := range map[string]Reason{old: ReasonRevoked, same: ReasonRevoked, newer: ReasonNone, other: ReasonNone} {
		if _, err := verify(v, token); ReasonOf(err) != want {
			t.Fatalf("%v, want %v", err, want)
		}
	}
}

// A remembered token ends when it says so.
func TestRememberedTokenExpires(t *testing.T) {
	clk := newClock()
	key := newKey(t)
	v, _ := static(clk, key)
	token := sign(t, key, nil, body(clk.t))
	first, err := verify(v, token)
	if err != nil {
		t.Fatal(err)
	}
	clk.advance(359 * time.Second)
	again, err := verify(v, token)
	if err != nil || again != first || v.Stats().CacheHits != 1 {
		t.Fatalf("%v, hits %d", err, v.Stats().CacheHits)
	}
	clk.advance(time.Second)
	if _, err := verify(v, token); ReasonOf(err) != ReasonExpired {
		t.Fatal(err)
	}
}

// The memory for remembered tokens is bounded, and the tokens in use stay in it.
func TestTokenCacheIsBounded(t *testing.T) {
	clk := newClock()
	key := newKey(t)
	src := &StaticSource{}
	src.Set("t1", []Key{key.Public()})
	v := NewVerifier(src, Options{Now: clk.now, CacheBytes: 64 << 10})
	kept := sign(t, key, nil, body(clk.t))
	for i := range 200 {
		b := body(clk.t)
		b["jti"] = i
		for _, token := range []string{kept, sign(t, key, nil, b)} {
			if _, err := verify(v, token); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := v.Stats(); s.CachedBytes > 64<<10 || s.CacheHits != 199 {
		t.Fatalf("%+v", s)
	}
	if n := len(v.cache.entries); n > 64 || n < 10 {
		t.Fatalf("%d entries", n)
	}
	none := NewVerifier(src, Options{Now: clk.now, CacheBytes: -1})
	for range 2 {
		if _, err := verify(none, kept); err != nil || none.Stats().CacheHits != 0 {
			t.Fatal(err)
		}
	}
}
