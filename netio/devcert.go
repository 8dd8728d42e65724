package netio

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Validity of a development certificate, and how long before its end a new one is made.
const (
	devCertValid = 2 * 365 * 24 * time.Hour
	devCertRenew = 30 * 24 * time.Hour
)

// Files of DevCertificate, in its directory.
const (
	DevCAFile   = "ca.pem"
	DevCertFile = "cert.pem"
	DevKeyFile  = "key.pem"
)

// DevCertificate returns the certificate for localhost, 127.0.0.1 and ::1 that is kept in dir, and
// makes one when there is none, when it nears its end, or when the three files do not belong together.
// Clients trust dir/ca.pem.
//
// It is a real CA and a leaf, since clients that verify as web browsers do refuse a leaf that is its own
// CA. The CA's key is thrown away once the leaf is signed: whoever trusts ca.pem trusts one leaf.
func DevCertificate(dir string, lg *slog.Logger) (*Certificate, error) {
	return devCertificate(dir, orDiscard(lg), time.Now())
}

func devCertificate(dir string, lg *slog.Logger, now time.Time) (*Certificate, error) {
	certFile, keyFile := filepath.Join(dir, DevCertFile), filepath.Join(dir, DevKeyFile)
	why := checkDevCertificate(dir, now)
	if why != nil {
		if errors.Is(why, fs.ErrPermission) {
			return nil, fmt.Errorf("netio: development certificate: %w", why)
		}
		if err := writeDevCertificate(dir, now); err != nil {
			return nil, fmt.Errorf("netio: development certificate: %w", err)
		}
		lg.Info("development certificate made", "dir", dir, "why", why)
	}
	return LoadCertificate(certFile, keyFile, lg)
}

// checkDevCertificate returns why the files of dir cannot be used, or nil.
func checkDevCertificate(dir string, now time.Time) error {
	pool, err := LoadCertPool(filepath.Join(dir, DevCAFile))
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, DevCertFile), filepath.Join(dir, DevKeyFile))
	if err != nil {
		return err
	}
	if left := pair.Leaf.NotAfter.Sub(now); left < devCertRenew {
		return fmt.Errorf("it ends in %s", left.Round(time.Hour))
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{
		Roots: pool, CurrentTime: now, DNSName: "localhost",
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func writeDevCertificate(dir string, now time.Time) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	caSerial, err := serial()
	if err != nil {
		return err
	}
	leafSerial, err := serial()
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber:          caSerial,
		Subject:               pkix.Name{CommonName: "ringcast development CA"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(devCertValid),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	leaf := &x509.Certificate{
		SerialNumber:          leafSerial,
		Subject:               pkix.Name{CommonName: "localhost"},
		NotBefore:             ca.NotBefore,
		NotAfter:              ca.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &leafKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// A crash between two of these leaves files that do not match; the next start makes new ones.
	for _, f := range []struct {
		name, kind string
		der        []byte
		mode       fs.FileMode
	}{
		{DevKeyFile, "PRIVATE KEY", keyDER, 0o600},
		{DevCertFile, "CERTIFICATE", leafDER, 0o644},
		{DevCAFile, "CERTIFICATE", caDER, 0o644},
	} {
		data := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := replaceFile(filepath.Join(dir, f.name), data, f.mode); err != nil {
			return err
		}
	}
	return nil
}

func serial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
