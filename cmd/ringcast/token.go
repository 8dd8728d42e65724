package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ringcast/ringcast/core/auth"
)

type tokenCmd struct {
	Keygen  tokenKeygen  `cmd:"" help:"Make a signing key and the key set that a broker needs to accept its tokens."`
	Mint    tokenMint    `cmd:"" help:"Make a token with a signing key."`
	Inspect tokenInspect `cmd:"" help:"Show what a token says. It is not verified."`
}

type tokenKeygen struct {
	Out   string `default:"signing.jwk" placeholder:"FILE" help:"Where the private key goes. Keep it to yourself."`
	JWKS  string `name:"jwks" default:"jwks.json" placeholder:"FILE" help:"Where the public key set goes; RINGCAST_JWKS of the broker."`
	Force bool   `help:"Replace files that exist. Tokens made with the old key are refused from then on."`
}

func (c *tokenKeygen) Run(env *environment) error {
	if !c.Force {
		for _, name := range []string{c.Out, c.JWKS} {
			if exists(name) {
				return fmt.Errorf("%s exists: choose another name, or --force to replace it", name)
			}
		}
	}
	key, err := auth.GenerateKey()
	if err != nil {
		return err
	}
	if err := key.WriteFile(c.Out); err != nil {
		return err
	}
	if err := os.WriteFile(c.JWKS, append(key.PublicJWKS(), '\n'), 0o644); err != nil {
		return err
	}
	if env.json {
		return env.emit(map[string]string{"key_id": key.ID, "private": c.Out, "jwks": c.JWKS})
	}
	_, err = fmt.Fprintf(env.stdout, "private key  %s\nkey set      %s\nkey id       %s\n", c.Out, c.JWKS, key.ID)
	return err
}

type tokenMint struct {
	Key     string        `placeholder:"FILE" help:"Signing key. Default: that of --dev-dir, else signing.jwk."`
	Subject string        `default:"cli" help:"Who the token is for; shown as publisher of records."`
	Perm    []string      `sep:"none" placeholder:"ACTION:RESOURCE" help:"A permission, such as stream.publish:stream:TENANT/default/*; may be given several times."`
	All     bool          `help:"Every permission of the tenant, and on the broker."`
	TTL     time.Duration `name:"ttl" default:"24h" help:"How long the token is good for."`
}

func (c *tokenMint) Run(env *environment, s *Settings) error {
	if c.All == (len(c.Perm) > 0) {
		return usageError(errors.New("give --perm ACTION:RESOURCE, once or more, or --all"))
	}
	if c.TTL <= 0 {
		return usageError(errors.New("--ttl must be positive"))
	}
	name, tenant := c.Key, s.Tenant
	if name == "" {
		if dev := s.devFile("signing.jwk"); exists(dev) {
			name = dev
			if tenant == "" {
				tenant = "dev"
			}
		} else {
			name = "signing.jwk"
		}
	}
	if tenant == "" {
		return usageError(errors.New("--tenant is missing: a token is for one tenant"))
	}
	key, err := auth.LoadSigningKey(name)
	if err != nil {
		return err
	}
	now := time.Now()
	claims := auth.Claims{Tenant: tenant, Subject: c.Subject, Permissions: c.Perm, IssuedAt: now, Expires: now.Add(c.TTL)}
	if c.All {
		claims.Permissions = auth.EveryPermission(tenant)
	}
	token, err := auth.Mint(key, claims)
	if err != nil {
		return err
	}
	if env.json {
		return env.emit(map[string]any{"token": token, "tenant": tenant, "subject": c.Subject, "expires": claims.Expires.UTC().Format(time.RFC3339)})
	}
	_, err = fmt.Fprintln(env.stdout, token)
	return err
}

type tokenInspect struct {
	Text string `arg:"" optional:"" name:"token" help:"Token. Default: the one that the other commands would use."`
}

// tokenView is what a token says, as --json prints it.
type tokenView struct {
	Header json.RawMessage `json:"header"`
	Claims json.RawMessage `json:"claims"`
}

func (c *tokenInspect) Run(env *environment, s *Settings) error {
	text := strings.TrimSpace(c.Text)
	if text == "" {
		r, err := s.resolve()
		if err != nil {
			return err
		}
		text = r.token
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return fmt.Errorf("a token has three parts with dots between them, this has %d", len(parts))
	}
	var v tokenView
	for i, to := range []*json.RawMessage{&v.Header, &v.Claims} {
		part, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || !json.Valid(part) {
			return fmt.Errorf("part %d of the token is not JSON in base64url", i+1)
		}
		*to = part
	}
	if env.json {
		return env.emit(v)
	}
	var h struct{ Alg, Kid string }
	var cl struct {
		Iss, Aud, Sub, Tid string
		Iat, Exp           int64
		Perms              []string
	}
	if err := errors.Join(json.Unmarshal(v.Header, &h), json.Unmarshal(v.Claims, &cl)); err != nil {
		return fmt.Errorf("the token has claims of another form: %w", err)
	}
	left := "expired"
	if d := time.Until(time.Unix(cl.Exp, 0)); d > 0 {
		left = "in " + d.Round(time.Second).String()
	}
	fmt.Fprintf(env.stdout, "tenant   %s\nsubject  %s\nissuer   %s, for %s\nissued   %s\nexpires  %s (%s)\nkey      %s (%s)\n",
		cl.Tid, cl.Sub, cl.Iss, cl.Aud, stamp(cl.Iat), stamp(cl.Exp), left, h.Kid, h.Alg)
	for _, p := range cl.Perms {
		fmt.Fprintln(env.stdout, "allows  ", p)
	}
	return nil
}

func stamp(seconds int64) string {
	return time.Unix(seconds, 0).UTC().Format("2006-01-02 15:04:05 MST")
}
