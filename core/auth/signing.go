package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// SigningKey makes tokens.
type SigningKey struct {
	ID      string
	private ed25519.PrivateKey
}

// GenerateKey returns a new key. Its id is its RFC 7638 thumbprint.
func GenerateKey() (*SigningKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + b64.EncodeToString(public) + `"}`))
	return &SigningKey{ID: b64.EncodeToString(sum[:]), private: private}, nil
}

// Public is the key that verifies what k signs.
func (k *SigningKey) Public() Key {
	return Key{ID: k.ID, Public: k.private.Public().(ed25519.PublicKey)}
}

// PublicJWKS is the key set that a broker needs to accept k's tokens.
func (k *SigningKey) PublicJWKS() []byte { return MarshalKeySet(k.Public()) }

// WriteFile writes the private key as a JWK that only its owner may read, whole or not at all.
func (k *SigningKey) WriteFile(name string) error {
	j := publicJWK(k.Public())
	j.D = new(b64.EncodeToString(k.private.Seed()))
	if err := replaceFile(name, mustJSON(j), 0o600); err != nil {
		return fmt.Errorf("auth: signing key: %w", err)
	}
	return nil
}

// LoadSigningKey reads what WriteFile wrote.
func LoadSigningKey(name string) (*SigningKey, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("auth: signing key: %w", err)
	}
	var j jwk
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, fmt.Errorf("auth: signing key %s: %w", name, err)
	}
	public, _, err := j.public()
	if err != nil {
		return nil, fmt.Errorf("auth: signing key %s: %w", name, err)
	}
	if j.D == nil {
		return nil, fmt.Errorf("auth: signing key %s holds no private part", name)
	}
	seed, ok := decode32(*j.D)
	if !ok {
		return nil, fmt.Errorf("auth: signing key %s: d is not 32 bytes of base64url", name)
	}
	k := &SigningKey{ID: public.ID, private: ed25519.NewKeyFromSeed(seed)}
	if !k.Public().Public.Equal(public.Public) {
		return nil, fmt.Errorf("auth: signing key %s: d and x do not belong together", name)
	}
	return k, nil
}

// Claims is what a token says.
type Claims struct {
	Tenant, Subject string
	// Permissions are action:resource entries.
	Permissions []string
	IssuedAt    time.Time
	Expires     time.Time
}

// Mint signs a token. It refuses claims that no broker would accept.
func Mint(k *SigningKey, c Claims) (string, error) {
	if err := checkTenant(c.Tenant); err != nil {
		return "", fmt.Errorf("auth: mint: %w", err)
	}
	if c.IssuedAt.IsZero() || !c.Expires.After(c.IssuedAt) {
		return "", errors.New("auth: mint: a token must expire after it is issued")
	}
	for _, p := range c.Permissions {
		if _, _, err := parsePermission(c.Tenant, p); err != nil {
			return "", fmt.Errorf("auth: mint: %w", err)
		}
	}
	if c.Permissions == nil {
		c.Permissions = []string{}
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": issuer, "aud": audience, "sub": c.Subject, "tid": c.Tenant,
		"iat": c.IssuedAt.Unix(), "exp": c.Expires.Unix(), "perms": c.Permissions,
	})
	t.Header["kid"] = k.ID
	text, err := t.SignedString(k.private)
	if err != nil {
		return "", fmt.Errorf("auth: mint: %w", err)
	}
	return text, nil
}

// EveryPermission lists all actions on everything that a tenant holds, and on the cluster.
func EveryPermission(tenant string) []string {
	perms := make([]string, 0, actionCount)
	for a := range actionCount {
		var on string
		switch a {
		case RBACView, RBACPolicyManage, RBACAssignmentManage, TenantManage:
			on = "tenant:" + tenant
		case NamespaceManage:
			on = "namespace:" + tenant + "/*"
		case StreamManage, StreamPublish, StreamSubscribe:
			on = "stream:" + tenant + "/*"
		case CacheManage, CacheRead, CacheWrite:
			on = "cache:" + tenant + "/*"
		case GroupConsume, GroupManage:
			on = "group:" + tenant + "/*"
		case NodeView, NodeManage:
			on = "cluster:*"
		}
		perms = append(perms, a.String()+":"+on)
	}
	return perms
}

// replaceFile writes name as a whole or not at all, and returns when it is on disk.
func replaceFile(name string, data []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
