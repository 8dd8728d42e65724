package netio

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// certReloadEvery is how often the files of a Certificate are looked at.
const certReloadEvery = 30 * time.Second

// Certificate is a key pair in two files, read again when they change. No goroutine: a handshake that
// comes 30 s after the last look looks again. New files that do not load are reported and the old
// pair stays in use.
type Certificate struct {
	certFile, keyFile string
	lg                *slog.Logger
	now               func() time.Time

	pair atomic.Pointer[tls.Certificate] // written under mu

	mu      sync.Mutex // held by the one handshake that looks at the files
	looked  atomic.Int64
	certMod fileMark
	keyMod  fileMark
}

// fileMark says whether a file is still the one that was read.
type fileMark struct {
	mod  time.Time
	size int64
}

func markOf(info fs.FileInfo) fileMark { return fileMark{info.ModTime(), info.Size()} }

// LoadCertificate reads a PEM certificate (chain) and its key. lg may be nil.
func LoadCertificate(certFile, keyFile string, lg *slog.Logger) (*Certificate, error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("netio: a certificate needs both files, certificate and key")
	}
	c := &Certificate{certFile: certFile, keyFile: keyFile, lg: orDiscard(lg), now: time.Now}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.looked.Store(c.now().UnixNano())
	return c, nil
}

// GetCertificate is for tls.Config.
func (c *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := c.now().UnixNano()
	if now-c.looked.Load() >= int64(certReloadEvery) && c.mu.TryLock() {
		c.looked.Store(now)
		c.reload()
		c.mu.Unlock()
	}
	return c.pair.Load(), nil
}

// Leaf is the certificate now in use.
func (c *Certificate) Leaf() *x509.Certificate { return c.pair.Load().Leaf }

func (c *Certificate) reload() {
	cert, err := os.Stat(c.certFile)
	if err == nil {
		var key fs.FileInfo
		if key, err = os.Stat(c.keyFile); err == nil && markOf(cert) == c.certMod && markOf(key) == c.keyMod {
			return
		}
	}
	if err == nil {
		err = c.load()
	}
	if err != nil {
		c.lg.Error("certificate not reloaded, the old one stays in use", "cert", c.certFile, "key", c.keyFile, "err", err)
		return
	}
	c.lg.Info("certificate reloaded", "cert", c.certFile, "not_after", c.Leaf().NotAfter)
}

// load reads both files. The marks are taken first: a write in between is seen at the next look.
func (c *Certificate) load() error {
	cert, err := os.Stat(c.certFile)
	if err != nil {
		return fmt.Errorf("netio: certificate: %w", err)
	}
	key, err := os.Stat(c.keyFile)
	if err != nil {
		return fmt.Errorf("netio: certificate key: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("netio: certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.pair.Store(&pair)
	c.certMod, c.keyMod = markOf(cert), markOf(key)
	return nil
}

// NewServerTLS builds a listener's TLS configuration. With clientCAs, every client must present a
// certificate that one of them issued; the session layer may then compare it with the token.
func NewServerTLS(c *Certificate, clientCAs *x509.CertPool) *tls.Config {
	conf := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: c.GetCertificate}
	if clientCAs != nil {
		conf.ClientCAs = clientCAs
		conf.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return conf
}

// LoadCertPool reads a PEM file; every certificate in it becomes a trust anchor. An unreadable file,
// one without a certificate, and one with a broken certificate are errors.
func LoadCertPool(file string) (*x509.CertPool, error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("netio: CA file: %w", err)
	}
	pool, count := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("netio: CA file %s: certificate %d: %w", file, count+1, err)
		}
		pool.AddCert(cert)
		count++
	}
	if count == 0 {
		return nil, fmt.Errorf("netio: CA file %s holds no PEM certificate", file)
	}
	return pool, nil
}
