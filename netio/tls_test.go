package netio

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The development certificate is what strict clients take: a CA, and a leaf that is none (wire.md 1.1).
func TestDevelopmentCertificateIsACAAndALeaf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	cert, err := DevCertificate(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf := cert.Leaf()
	pub, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok || pub.Curve != elliptic.P256() || leaf.Version != 3 || leaf.IsCA || !leaf.BasicConstraintsValid ||
		len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Fatalf("%+v", leaf)
	}
	pool, err := LoadCertPool(filepath.Join(dir, DevCAFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, "example.com": false, "127.0.0.2": false} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name})
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, DevKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key file: %v %v", info.Mode(), err)
	}
	files, _ := os.ReadDir(dir)
	if len(files) != 3 {
		t.Fatalf("%d files", len(files)) // and no CA key among them
	}
}

// It is kept across restarts, made anew when it nears its end or its files do not fit each other, and not when
// it may not be read.
func TestDevelopmentCertificateIsKeptUntilItNearsItsEnd(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	lg := slog.New(slog.DiscardHandler)
	serial := func(at time.Time) string {
		t.Helper()
		c, err := devCertificate(dir, lg, at)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf().SerialNumber.String()
	}
	first := serial(now)
	if serial(now) != first || serial(now.Add(devCertValid-devCertRenew-time.Hour)) != first {
		t.Fatal("not kept")
	}
	second := serial(now.Add(devCertValid - devCertRenew + time.Hour))
	if second == first {
		t.Fatal("not renewed near its end")
	}
	last := second
	for name, damage := range map[string]func() error{
		"no ca":      func() error { return os.Remove(filepath.Join(dir, DevCAFile)) },
		"no key":     func() error { return os.Remove(filepath.Join(dir, DevKeyFile)) },
		"broken":     func() error { return os.WriteFile(filepath.Join(dir, DevCertFile), []byte("x"), 0o600) },
		"foreign ca": func() error { return otherCA(t, filepath.Join(dir, DevCAFile)) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		next := serial(now.Add(devCertValid - devCertRenew + time.Hour))
		if next == last {
			t.Fatalf("%s: kept", name)
		}
		last = next
	}
	if os.Geteuid() != 0 {
		os.Chmod(filepath.Join(dir, DevKeyFile), 0)
		if _, err := DevCertificate(dir, nil); !errors.Is(err, fs.ErrPermission) {
			t.Fatal(err)
		}
	}
	if _, err := DevCertificate(filepath.Join(dir, DevKeyFile, "x"), nil); err == nil {
		t.Fatal("made below a file")
	}
}

func otherCA(t *testing.T, file string) error {
	dir := t.TempDir()
	if _, err := DevCertificate(dir, nil); err != nil {
		return err
	}
	return copyFile(filepath.Join(dir, DevCAFile), file)
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// Changed certificate files are used without a restart, at most 30 s later; broken ones leave the old pair in
// use and are reported.
func TestChangedCertificateIsReloaded(t *testing.T) {
	one, two, use := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if _, err := DevCertificate(dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	install := func(dir string, names ...string) {
		for _, name := range names {
			if err := copyFile(filepath.Join(dir, name), filepath.Join(use, name)); err != nil {
				t.Fatal(err)
			}
			os.Chtimes(filepath.Join(use, name), now, now)
		}
	}
	install(one, DevCertFile, DevKeyFile)
	var log bytes.Buffer
	c, err := LoadCertificate(filepath.Join(use, DevCertFile), filepath.Join(use, DevKeyFile), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.now = func() time.Time { return now }
	inUse := func() string {
		t.Helper()
		p, err := c.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return p.Leaf.SerialNumber.String()
	}
	first := inUse()
	now = now.Add(time.Second)
	install(two, DevCertFile) // without its key
	if inUse() != first {
		t.Fatal("looked at once")
	}
	now = now.Add(certReloadEvery)
	if inUse() != first || strings.Count(log.String(), "not reloaded") != 1 {
		t.Fatalf("half a pair: %s", log.String())
	}
	install(two, DevKeyFile)
	now = now.Add(certReloadEvery)
	second := inUse()
	if second == first || strings.Count(log.String(), "certificate reloaded") != 1 {
		t.Fatalf("not reloaded: %s", log.String())
	}
	now = now.Add(certReloadEvery)
	if inUse() != second || strings.Count(log.String(), "certificate reloaded") != 1 {
		t.Fatalf("reloaded without a change: %s", log.String())
	}
	os.Remove(filepath.Join(use, DevKeyFile))
	now = now.Add(certReloadEvery)
	if inUse() != second {
		t.Fatal("the pair was lost with its file")
	}
}

func TestCertificateNeedsBothFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := DevCertificate(dir, nil); err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, DevCertFile), filepath.Join(dir, DevKeyFile)
	for _, c := range [][2]string{{"", ""}, {cert, ""}, {"", key}, {cert, dir + "/none"}, {dir + "/none", key}, {key, cert}} {
		if _, err := LoadCertificate(c[0], c[1], nil); err == nil {
			t.Errorf("%q loaded", c)
		}
	}
}

// A CA file that gives no trust anchor is an error before anything is dialled (wire.md 1.1).
func TestCAFileWithoutCertificateIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := DevCertificate(dir, nil); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, DevCAFile))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "test.pem")
	for name, c := range map[string]struct {
		text []byte
		ok   bool
	}{
		"one":               {ca, true},
		"two, with a note":  {append(append([]byte("our CAs\n"), ca...), ca...), true},
		"empty":             {nil, false},
		"no PEM":            {[]byte("hello"), false},
		"a key only":        {must(os.ReadFile(filepath.Join(dir, DevKeyFile))), false},
		"one of two broken": {append(bytes.Clone(ca), []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")...), false},
	} {
		if err := os.WriteFile(file, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadCertPool(file); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadCertPool(dir + "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The client verifies chain and name; a peer that is not who it should be is a typed refusal.
func TestClientVerifiesTheServer(t *testing.T) {
	tt, stranger := newTestTLS(t), newTestTLS(t)
	s := tt.listen(t, nil)
	for name, change := range map[string]func(*DialOptions){
		"foreign CA":    func(o *DialOptions) { o.RootCAs = stranger.pool },
		"platform's CA": func(o *DialOptions) { o.RootCAs = nil },
		"other name":    func(o *DialOptions) { o.ServerName = "broker.example" },
	} {
		_, err := tt.dial(t, s, change)
		if he, ok := errors.AsType[*HandshakeError](err); !ok || he.Remote || !IsClosed(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "localhost", "127.0.0.1"} {
		c, err := tt.dial(t, s, func(o *DialOptions) { o.ServerName = name })
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if v := c.TLS().Version; v != tls.VersionTLS13 {
			t.Fatalf("version %x", v)
		}
		c.CloseWithError(0, "")
	}
}

// With a client CA, only clients with a certificate of it are served, and the session sees which.
func TestClientCertificateIsDemandedAndSeen(t *testing.T) {
	tt := newTestTLS(t)
	client := clientCert(t)
	pool := x509.NewCertPool()
	pool.AddCert(client.Leaf)
	s := tt.listen(t, func(o *ServerOptions) { o.TLS = NewServerTLS(tt.cert, pool) })

	c, err := tt.dial(t, s, func(o *DialOptions) { o.Certificates = []tls.Certificate{client} })
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithError(0, "")
	if certs := accept(t, s).TLS().PeerCertificates; len(certs) != 1 || certs[0].DNSNames[0] != "alice" {
		t.Fatalf("the server saw %v", certs)
	}
	for name, certs := range map[string][]tls.Certificate{"none": nil, "another": {clientCert(t)}} {
		c, err := tt.dial(t, s, func(o *DialOptions) { o.Certificates = certs })
		if err == nil { // in TLS 1.3 a client is done before the server has judged it
			waitEnd(t, c)
			err = convert(context.Cause(c.Context()))
			c.CloseWithError(0, "")
		}
		if he, ok := errors.AsType[*HandshakeError](err); !ok || !he.Remote {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every problem of a secret file is an error, and a good one gives the same keys every time (HZ-36).
func TestListenerSecretIsStable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x", "secret")
	reset, token, err := Secret(file)
	if err != nil {
		t.Fatal(err)
	}
	reset2, token2, err := Secret(file)
	if err != nil || !bytes.Equal(reset, reset2) || !bytes.Equal(token, token2) {
		t.Fatal("not the same after a restart", err)
	}
	if len(reset) != 32 || len(token) != 32 || bytes.Equal(reset, token) {
		t.Fatal("keys are not two of 32 bytes")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	for _, bad := range []string{"", "xyz", "00", strings.Repeat("0", 66)} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Secret(file); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
