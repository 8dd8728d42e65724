package netio

import (
	"context"
	"crypto/x509"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTLS is one development certificate for a test.
type testTLS struct {
	cert *Certificate
	pool *x509.CertPool
}

func newTestTLS(t testing.TB) testTLS {
	t.Helper()
	dir := t.TempDir()
	cert, err := DevCertificate(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := LoadCertPool(dir + "/" + DevCAFile)
	if err != nil {
		t.Fatal(err)
	}
	return testTLS{cert, pool}
}

// listen starts a server on a free loopback port; change alters its options.
func (tt testTLS) listen(t testing.TB, change func(*ServerOptions)) *Server {
	t.Helper()
	o := ServerOptions{Addr: "127.0.0.1:0", TLS: NewServerTLS(tt.cert, nil), Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (tt testTLS) dial(t testing.TB, s *Server, change func(*DialOptions)) (Conn, error) {
	t.Helper()
	o := DialOptions{RootCAs: tt.pool}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return Dial(ctx, s.Addr().String(), o)
}

// pair returns both ends of a connection. They are closed with the test.
func (tt testTLS) pair(t testing.TB, s *Server, change func(*DialOptions)) (client, server Conn) {
	t.Helper()
	client, err := tt.dial(t, s, change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.CloseWithError(CloseShutdown, "") })
	return client, accept(t, s)
}

func accept(t testing.TB, s *Server) Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := s.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// waitFor polls until ok holds.
func waitFor(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
