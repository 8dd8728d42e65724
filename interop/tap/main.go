package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

const timeout = 30 * time.Second

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: tap CERTIFICATE-DIRECTORY ADDRESS-FILE")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	line, err := run(ctx, os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tap:", err)
		os.Exit(1)
	}
	fmt.Println(line)
}

// run listens on a free port, which it writes to addrFile, and returns what it saw.
func run(ctx context.Context, certDir, addrFile string) (string, error) {
	cert, err := netio.DevCertificate(certDir, nil)
	if err != nil {
		return "", err
	}
	l, err := netio.Listen(netio.ServerOptions{Addr: "127.0.0.1:0", TLS: netio.NewServerTLS(cert, nil)})
	if err != nil {
		return "", err
	}
	defer l.Close()
	if err := os.WriteFile(addrFile+".new", []byte(l.Addr().String()), 0o600); err != nil {
		return "", err
	}
	if err := os.Rename(addrFile+".new", addrFile); err != nil {
		return "", err
	}
	c, err := l.Accept(ctx)
	if err != nil {
		return "", err
	}
	st, err := c.AcceptStream(ctx)
	if err != nil {
		return "", err
	}
	_, buf, err := netio.NewFrameReader(st, wire.NewPool(0)).Next()
	if err != nil {
		return "", err
	}
	defer buf.Release()
	var auth map[string]any
	if err := json.Unmarshal(buf.Bytes(), &auth); err != nil {
		return "", fmt.Errorf("first frame is no JSON: %w", err)
	}
	delete(auth, "token")
	text, err := json.Marshal(auth)
	if err != nil {
		return "", err
	}
	tls := c.TLS()
	return fmt.Sprintf("alpn=%q curve=%s auth=%s", tls.NegotiatedProtocol, tls.CurveID, text), nil
}
