package auth

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A minted token is accepted under the key set that belongs to it, and says what was asked.
func TestMintedTokenIsAccepted(t *testing.T) {
	clk := newClock()
	key := newKey(t)
	set, err := ParseKeySet(key.PublicJWKS())
	if err != nil {
		t.Fatal(err)
	}
	src := &StaticSource{}
	src.Set("t1", set.Keys())
	v := NewVerifier(src, Options{Now: clk.now})
	token, err := Mint(key, Claims{Tenant: "t1", Subject: "p:x", Permissions: []string{"stream.publish:stream:t1/n/s"},
		IssuedAt: clk.t, Expires: clk.t.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	id, err := v.Verify(context.Background(), "t1", token)
	if err != nil {
		t.Fatal(err)
	}
	if id.Subject != "p:x" || id.KeyID != key.ID || id.IssuedAt != clk.t.Unix() || id.Expires != clk.t.Unix()+3600 ||
		!id.AllowStream(StreamPublish, "n", "s") || id.AllowStream(StreamPublish, "n", "r") {
		t.Fatalf("%+v", id)
	}
	if none, err := Mint(key, Claims{Tenant: "t1", IssuedAt: clk.t, Expires: clk.t.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	} else if _, err := v.Verify(context.Background(), "t1", none); err != nil {
		t.Fatal(err)
	}
}

// No token is made that no broker would take.
func TestUselessTokenIsNotMinted(t *testing.T) {
	key, now := newKey(t), time.Now()
	good := Claims{Tenant: "t1", IssuedAt: now, Expires: now.Add(time.Hour)}
	for _, change := range []func(*Claims){
		func(c *Claims) { c.Tenant = "" },
		func(c *Claims) { c.Tenant = ".." },
		func(c *Claims) { c.Expires = now },
		func(c *Claims) { c.IssuedAt = time.Time{} },
		func(c *Claims) { c.Permissions = []string{"stream.delete:stream:t1/*"} },
		func(c *Claims) { c.Permissions = []string{"stream.publish"} },
	} {
		c := good
		change(&c)
		if _, err := Mint(key, c); err == nil {
			t.Errorf("minted %+v", c)
		}
	}
}

// A signing key survives its file, which only its owner may read; a damaged file is an error.
func TestSigningKeyFileRoundTrip(t *testing.T) {
	key := newKey(t)
	file := filepath.Join(t.TempDir(), "signing.jwk")
	for range 2 { // new, and replaced
		if err := key.WriteFile(file); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
	back, err := LoadSigningKey(file)
	if err != nil || back.ID != key.ID || !back.private.Equal(key.private) {
		t.Fatalf("%v", err)
	}
	text, _ := os.ReadFile(file)
	other := newKey(t)
	otherFile := filepath.Join(t.TempDir(), "other.jwk")
	if err := other.WriteFile(otherFile); err != nil {
		t.Fatal(err)
	}
	otherText, _ := os.ReadFile(otherFile)
	x := func(b []byte) string { s := string(b); i := strings.Index(s, `"x": "`) + 6; return s[i : i+43] }
	for name, bad := range map[string][]byte{
		"empty":       nil,
		"public only": key.PublicJWKS(),
		"no d":        bytes.Replace(text, []byte(`"d"`), []byte(`"e"`), 1),
		"mixed up":    bytes.Replace(text, []byte(x(text)), []byte(x(otherText)), 1),
		"cut":         text[:len(text)/2],
	} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadSigningKey(file); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
	if err := key.WriteFile(filepath.Join(file, "x", "y")); err == nil {
		t.Error("written below a file")
	}
	if strings.Contains(string(key.PublicJWKS()), `"d"`) {
		t.Error("the public set holds the private part")
	}
}

// Any text as a token: refused, or its claims are those that were signed. Nothing is accepted but the seeds
// that this key signed.
func FuzzToken(f *testing.F) {
	clk := newClock()
	key := newKey(f)
	v, _ := static(clk, key)
	good := sign(f, key, nil, body(clk.t))
	signed := strings.Join(strings.Split(good, ".")[:2], ".")
	f.Add(good)
	f.Add(signed + ".AA")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Add(sign(f, key, map[string]any{"alg": "HS256"}, body(clk.t)))
	f.Fuzz(func(t *testing.T, token string) {
		id, err := verify(v, token)
		if (id == nil) == (err == nil) {
			t.Fatal("neither an identity nor an error")
		}
		if err == nil && token != good {
			t.Fatalf("accepted %q", token)
		}
		if err != nil && ReasonOf(err) == ReasonNone {
			t.Fatalf("no reason: %v", err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	clk := newClock()
	key := newKey(b)
	token := sign(b, key, nil, body(clk.t))
	for name, cacheBytes := range map[string]int{"cache=off": -1, "cache=hit": 0} {
		b.Run(name, func(b *testing.B) {
			src := &StaticSource{}
			src.Set("t1", []Key{key.Public()})
			v := NewVerifier(src, Options{Now: clk.now, CacheBytes: cacheBytes})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := verify(v, token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAllow(b *testing.B) {
	id := identity(b, "stream.subscribe:stream:t1/default/*", "stream.publish:stream:t1/default/orders",
		"stream.publish:stream:t1/default/events-*", "cache.read:cache:t1/default/sessions/user-*")
	ns, name := []byte("default"), []byte("events-eu")
	key := "user-17"
	ok := true
	b.Run("stream", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ok = ok && id.AllowStreamBytes(StreamPublish, ns, name)
		}
	})
	b.Run("cache", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ok = ok && id.AllowCache(CacheRead, "default", "sessions", key)
		}
	})
	if !ok {
		b.Fatal("not allowed")
	}
}
