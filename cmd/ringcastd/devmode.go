package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/netio"
)

const (
	devTenant = "dev"
	// devDataDir is the data directory of --dev, in which the ringcast command looks by itself.
	devDataDir = "ringcast-data"
	// devTokenLife is how long the token of --dev is good for; with less than devTokenRenew left,
	// a start makes a new one.
	devTokenLife  = 30 * 24 * time.Hour
	devTokenRenew = 7 * 24 * time.Hour
)

// devFiles are what a developer's client needs, in DATA/dev. They are kept across restarts, so that
// a client configured once goes on working.
type devFiles struct {
	dir       string
	ca        string // PEM, made with the certificate
	signing   string // private key that tokens are minted with
	jwks      string // its public half
	tokenFile string
	addr      string // where the running broker listens
	token     string
	expires   time.Time
}

// openDevFiles reads the keys and the token of dir, and makes what is missing. Only the process that
// holds the data directory's lock comes here.
func openDevFiles(dir string, lg *slog.Logger) (*devFiles, error) {
	d := &devFiles{
		dir: dir, ca: filepath.Join(dir, netio.DevCAFile), signing: filepath.Join(dir, "signing.jwk"),
		jwks: filepath.Join(dir, "jwks"), tokenFile: filepath.Join(dir, "token"), addr: filepath.Join(dir, "addr.json"),
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("development files: %w", err)
	}
	if err := os.Remove(d.addr); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("development files: %w", err)
	}
	key, err := auth.LoadSigningKey(d.signing)
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = auth.GenerateKey(); err == nil {
			err = key.WriteFile(d.signing)
			lg.Info("development signing key made", "file", d.signing)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := writeFile(d.jwks, key.PublicJWKS(), 0o644); err != nil {
		return nil, err
	}
	return d, d.openToken(key, time.Now())
}

// openToken takes the token of the file while it is good for a while, and mints one otherwise.
func (d *devFiles) openToken(key *auth.SigningKey, now time.Time) error {
	if text, err := os.ReadFile(d.tokenFile); err == nil {
		token := strings.TrimSpace(string(text))
		var keys auth.StaticSource
		keys.Set(devTenant, []auth.Key{key.Public()})
		id, err := auth.NewVerifier(&keys, auth.Options{}).Verify(context.Background(), devTenant, token)
		if err == nil && time.Unix(id.Expires, 0).Sub(now) > devTokenRenew {
			d.token, d.expires = token, time.Unix(id.Expires, 0)
			return nil
		}
	}
	d.expires = now.Add(devTokenLife)
	token, err := auth.Mint(key, auth.Claims{
		Tenant: devTenant, Subject: "developer", Permissions: auth.EveryPermission(devTenant), IssuedAt: now, Expires: d.expires,
	})
	if err != nil {
		return err
	}
	d.token = token
	return writeFile(d.tokenFile, []byte(token+"\n"), 0o600)
}

// announce writes DATA/dev/addr.json, which tells programs that the broker is ready, and a text
// that tells a person what to type next.
func (d *devFiles) announce(out io.Writer, quic, http string) error {
	body, err := json.Marshal(map[string]any{"quic": quic, "http": http, "pid": os.Getpid()})
	if err != nil {
		return err
	}
	if err := writeFile(d.addr, append(body, '\n'), 0o644); err != nil {
		return err
	}
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		dir = d.dir
	}
	where := "" // what ringcast must be told to find this broker
	if d.dir != filepath.Join(devDataDir, "dev") {
		where = " --dev-dir " + filepath.Dir(dir)
	}
	_, err = fmt.Fprintf(out, `ringcast %s, for development: it serves this machine only.

  QUIC   %s
  HTTP   http://%s/
  data   %s
  CA     %s
  token  %s
         tenant %s, every permission, until %s

Read a stream here, write to it from another terminal:

  ringcast sub%s events
  echo hello | ringcast pub%s events

`, version(), quic, http, filepath.Dir(dir), filepath.Join(dir, netio.DevCAFile), d.token, devTenant,
		d.expires.UTC().Format("2006-01-02 15:04 MST"), where, where)
	return err
}

// gone removes the address: nobody listens there any more. d may be nil.
func (d *devFiles) gone() {
	if d != nil {
		_ = os.Remove(d.addr)
	}
}

// writeFile replaces name as a whole or not at all. A file that holds the same already is left alone.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == string(data) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
