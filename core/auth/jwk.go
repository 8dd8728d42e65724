package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// Key is one Ed25519 verification key.
type Key struct {
	ID     string
	Public ed25519.PublicKey
}

// KeySet is the keys of a tenant at one moment. It never changes. nil is the empty set.
type KeySet struct {
	keys []Key
}

// NewKeySet returns a set of these keys.
func NewKeySet(keys ...Key) *KeySet { return &KeySet{keys: keys} }

// Keys returns the keys; they must not be changed.
func (s *KeySet) Keys() []Key {
	if s == nil {
		return nil
	}
	return s.keys
}

// holds reports whether a public key is in the set.
func (s *KeySet) holds(public *[ed25519.PublicKeySize]byte) bool {
	for _, k := range s.Keys() {
		if string(k.Public) == string(public[:]) {
			return true
		}
	}
	return false
}

func (s *KeySet) hasID(id string) bool {
	for _, k := range s.Keys() {
		if k.ID == id {
			return true
		}
	}
	return false
}

// jwk is a JSON Web Key (RFC 7517, 8037). D is present in a private key only.
type jwk struct {
	Kty *string `json:"kty"`
	Kid *string `json:"kid"`
	Alg *string `json:"alg"`
	Use *string `json:"use"`
	Crv *string `json:"crv,omitempty"`
	X   *string `json:"x,omitempty"`
	D   *string `json:"d,omitempty"`
}

type jwkSet struct {
	Keys []jwk `json:"keys"`
}

// keySetBytesMax bounds a key set's text, from a file or a server.
const keySetBytesMax = 1 << 20

var b64 = base64.RawURLEncoding.Strict()

// decode32 reads 32 bytes of base64url; any other text, also with line breaks in it, is false.
func decode32(text string) ([]byte, bool) {
	if len(text) != 43 {
		return nil, false
	}
	b, err := b64.DecodeString(text)
	return b, err == nil && len(b) == 32
}

// ParseKeySet reads {"keys":[...]}. One key that is not an Ed25519 key of 32 bytes makes the whole set
// unusable: a set that is half understood would refuse good tokens for no visible reason. Keys for
// another use than signatures are left out.
func ParseKeySet(text []byte) (*KeySet, error) {
	var raw struct {
		Keys *[]jwk `json:"keys"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	if raw.Keys == nil {
		return nil, errors.New(`key set: no member "keys"`)
	}
	set := &KeySet{}
	for i, k := range *raw.Keys {
		key, use, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("key set: key %d: %w", i+1, err)
		}
		if use == "sig" {
			set.keys = append(set.keys, key)
		}
	}
	return set, nil
}

func (k *jwk) public() (key Key, use string, err error) {
	for _, m := range []struct {
		name  string
		value *string
	}{{"kty", k.Kty}, {"kid", k.Kid}, {"alg", k.Alg}, {"use", k.Use}} {
		if m.value == nil {
			return Key{}, "", fmt.Errorf("no member %q", m.name)
		}
	}
	if *k.Kty != "OKP" || *k.Alg != "EdDSA" || k.Crv != nil && *k.Crv != "Ed25519" {
		return Key{}, "", fmt.Errorf("key %q is not an Ed25519 key", *k.Kid)
	}
	if k.X == nil {
		return Key{}, "", fmt.Errorf("key %q has no x", *k.Kid)
	}
	x, ok := decode32(*k.X)
	if !ok {
		return Key{}, "", fmt.Errorf("key %q: x is not 32 bytes of base64url", *k.Kid)
	}
	return Key{ID: *k.Kid, Public: x}, *k.Use, nil
}

// MarshalKeySet writes what ParseKeySet reads.
func MarshalKeySet(keys ...Key) []byte {
	set := jwkSet{Keys: make([]jwk, 0, len(keys))}
	for _, k := range keys {
		set.Keys = append(set.Keys, publicJWK(k))
	}
	return mustJSON(set)
}

func publicJWK(k Key) jwk {
	return jwk{
		Kty: new("OKP"), Kid: new(k.ID), Alg: new("EdDSA"), Use: new("sig"), Crv: new("Ed25519"),
		X: new(b64.EncodeToString(k.Public)),
	}
}

// mustJSON writes values that cannot fail to be written.
func mustJSON(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("auth: " + err.Error())
	}
	return append(b, '\n')
}
