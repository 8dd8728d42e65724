package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringcast/ringcast/client"
)

const (
	addrDefault = "127.0.0.1:5000"
	httpDefault = "127.0.0.1:8080"
)

// Settings are the flags that every command knows: how to reach the broker and how to print.
type Settings struct {
	JSON bool `help:"Print JSON: one object a line, errors included."`

	Addr       string        `group:"Connection" env:"RINGCAST_ADDR" placeholder:"HOST:PORT" help:"Broker address. Default: that of a local ringcastd --dev, else 127.0.0.1:5000."`
	HTTP       string        `group:"Connection" name:"http" env:"RINGCAST_HTTP" placeholder:"URL" help:"Admin address, HOST:PORT or URL. Default: that of a local ringcastd --dev, else 127.0.0.1:8080."`
	Tenant     string        `group:"Connection" env:"RINGCAST_TENANT" help:"Tenant. Default: the one the token is for."`
	Namespace  string        `group:"Connection" env:"RINGCAST_NAMESPACE" default:"default" help:"Namespace."`
	Token      string        `group:"Connection" env:"RINGCAST_TOKEN" help:"Token. Better: --token-file, which other users of this machine do not see."`
	TokenFile  string        `group:"Connection" env:"RINGCAST_TOKEN_FILE" placeholder:"FILE" help:"File that holds the token. Default: that of a local ringcastd --dev."`
	CA         string        `group:"Connection" name:"ca" env:"RINGCAST_CA" placeholder:"FILE" help:"PEM file of the CA that the broker's certificate must come from. Default: that of a local ringcastd --dev, else the system's."`
	ServerName string        `group:"Connection" env:"RINGCAST_SERVER_NAME" help:"Name that the broker's certificate must have. Default: localhost for a loopback address, else the host of --addr."`
	DevDir     string        `group:"Connection" env:"RINGCAST_DEV_DIR" default:"ringcast-data" placeholder:"DIR" help:"Data directory of a local ringcastd --dev."`
	Timeout    time.Duration `group:"Connection" env:"RINGCAST_TIMEOUT" default:"10s" help:"Longest wait for the broker to answer."`
	Config     string        `group:"Connection" env:"RINGCAST_CLI_CONFIG" placeholder:"FILE" help:"TOML file of these settings. Default: ringcast/config.toml in the user's configuration directory, if it exists."`
}

// devAddr is DATA/dev/addr.json, which a running ringcastd --dev keeps.
type devAddr struct {
	QUIC string `json:"quic"`
	HTTP string `json:"http"`
}

// resolved is what the settings come to.
type resolved struct {
	addr, http, tenant, namespace, token, ca, serverName string
	dev                                                  bool // the dev directory filled something in
}

// devFile is a file that ringcastd --dev keeps in its data directory.
func (s *Settings) devFile(name string) string { return filepath.Join(s.DevDir, "dev", name) }

// resolve fills what was not given from the dev directory. Its token and CA are used for the local
// broker only: they would not fit another one, and a token is not for sending around.
func (s *Settings) resolve() (*resolved, error) {
	r := &resolved{addr: s.Addr, http: s.HTTP, tenant: s.Tenant, namespace: s.Namespace,
		token: strings.TrimSpace(s.Token), ca: s.CA, serverName: s.ServerName}
	var dev devAddr
	text, err := os.ReadFile(s.devFile("addr.json"))
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &dev); err != nil {
			return nil, fmt.Errorf("%s: %w", s.devFile("addr.json"), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	fill := func(to *string, from string) {
		if *to == "" && from != "" {
			*to, r.dev = from, true
		}
	}
	fill(&r.addr, dev.QUIC)
	fill(&r.http, dev.HTTP)
	if r.addr == "" {
		r.addr = addrDefault
	}
	if r.http == "" {
		r.http = httpDefault
	}
	local := isLoopback(r.addr)
	if r.token == "" && s.TokenFile != "" {
		text, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("token file: %w", err)
		}
		if r.token = strings.TrimSpace(string(text)); r.token == "" {
			return nil, fmt.Errorf("token file %s is empty", s.TokenFile)
		}
	}
	if local {
		if text, err := os.ReadFile(s.devFile("token")); err == nil {
			fill(&r.token, strings.TrimSpace(string(text)))
		}
		if ca := s.devFile("ca.pem"); exists(ca) {
			fill(&r.ca, ca)
		}
	}
	if r.token == "" {
		return nil, errNoToken
	}
	if r.tenant == "" {
		if r.tenant = tenantOf(r.token); r.tenant == "" {
			return nil, errors.New("the token names no tenant: is it a token? (ringcast token inspect shows what it says)")
		}
	}
	if r.serverName == "" && !local {
		if host, _, err := net.SplitHostPort(r.addr); err == nil {
			r.serverName = host
		}
	}
	return r, nil
}

// connect resolves the settings and connects.
func (s *Settings) connect(ctx context.Context) (*client.Client, *resolved, error) {
	r, err := s.resolve()
	if err != nil {
		return nil, nil, err
	}
	opts := []client.Option{
		client.WithTenant(r.tenant), client.WithNamespace(r.namespace), client.WithToken(r.token),
		client.WithDialTimeout(s.Timeout),
	}
	if r.ca != "" {
		opts = append(opts, client.WithCAFile(r.ca))
	}
	if r.serverName != "" {
		opts = append(opts, client.WithServerName(r.serverName))
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	c, err := client.Dial(ctx, r.addr, opts...)
	if err != nil {
		return nil, nil, err
	}
	return c, r, nil
}

// isLoopback says whether host:port is on this machine for sure.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// tenantOf reads the tenant of a token without judging it; "" if it cannot.
func tenantOf(token string) string {
	var claims struct {
		Tenant string `json:"tid"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.Tenant
}
