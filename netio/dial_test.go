package netio

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// clientCert is a self-signed client certificate for the name alice.
func clientCert(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"alice"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Nobody there: a typed timeout, or the caller's own end, whichever is first.
func TestDialEndsWhenNobodyAnswers(t *testing.T) {
	sink, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	o := DialOptions{HandshakeTimeout: 100 * time.Millisecond}
	if _, err := Dial(t.Context(), sink.LocalAddr().String(), o); !errors.Is(err, ErrHandshakeTimeout) || !IsClosed(err) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, sink.LocalAddr().String(), DialOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	for _, addr := range []string{"", "localhost", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1:http", "[::1"} {
		if _, err := Dial(t.Context(), addr, DialOptions{}); err == nil {
			t.Errorf("%q was dialled", addr)
		}
	}
}

// "localhost" reaches a broker on 127.0.0.1, whatever else the name stands for.
func TestDialByNameFindsTheAddressThatAnswers(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	_, port, _ := net.SplitHostPort(s.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	c, err := Dial(ctx, net.JoinHostPort("localhost", port), DialOptions{RootCAs: tt.pool})
	if err != nil {
		t.Fatal(err)
	}
	c.CloseWithError(0, "")
}

func TestDialWorksOverIPv6(t *testing.T) {
	tt := newTestTLS(t)
	o := ServerOptions{Addr: "[::1]:0", TLS: NewServerTLS(tt.cert, nil)}
	s, err := Listen(o)
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	defer s.Close()
	client, server := tt.pair(t, s, nil)
	echo(t, client, server)
}

// fakeConn counts how it is closed.
type fakeConn struct {
	Conn
	closed atomic.Int32
}

func (f *fakeConn) CloseWithError(uint64, string) error { f.closed.Add(1); return nil }

// Several addresses: the next one starts when the one before failed or is silent for a while; the first that
// gets through wins; one that gets through too late is closed; all failures are told.
func TestFirstAddressThatAnswersWins(t *testing.T) {
	addr := func(i byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 1) }
	addrs := []netip.AddrPort{addr(1), addr(2), addr(3)}
	refused := errors.New("refused")

	t.Run("a failure starts the next at once", func(t *testing.T) {
		win := &fakeConn{}
		c, err := dialFirst(t.Context(), addrs, time.Hour, func(_ context.Context, a netip.AddrPort) (Conn, error) {
			if a == addr(3) {
				return win, nil
			}
			return nil, refused
		})
		if c != win || err != nil || win.closed.Load() != 0 {
			t.Fatal(c, err)
		}
	})
	t.Run("silence starts the next", func(t *testing.T) {
		win, late := &fakeConn{}, &fakeConn{}
		c, err := dialFirst(t.Context(), addrs, time.Millisecond, func(ctx context.Context, a netip.AddrPort) (Conn, error) {
			switch a {
			case addr(2):
				return win, nil
			case addr(1):
				<-ctx.Done()
				return late, nil // through after all
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if c != win || err != nil || win.closed.Load() != 0 || late.closed.Load() != 1 {
			t.Fatal(c, err, late.closed.Load())
		}
	})
	t.Run("all fail", func(t *testing.T) {
		calls := 0
		_, err := dialFirst(t.Context(), addrs, time.Hour, func(context.Context, netip.AddrPort) (Conn, error) {
			calls++
			return nil, refused
		})
		if !errors.Is(err, refused) || calls != 3 {
			t.Fatal(err, calls)
		}
	})
	t.Run("the caller gives up", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		_, err := dialFirst(ctx, addrs, time.Millisecond, func(ctx context.Context, _ netip.AddrPort) (Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

// Both families, IPv4 first, nothing twice.
func TestAddressesAreTriedIPv4First(t *testing.T) {
	for in, want := range map[string]string{"127.0.0.1:7": "127.0.0.1:7", "[::1]:7": "[::1]:7", "[::ffff:10.0.0.1]:7": "10.0.0.1:7"} {
		got, err := resolve(t.Context(), in)
		if err != nil || len(got) != 1 || got[0].String() != want {
			t.Errorf("%s: %v %v", in, got, err)
		}
	}
	got, err := resolve(t.Context(), "localhost:7")
	if err != nil || len(got) == 0 || !got[0].Addr().Is4() {
		t.Errorf("localhost: %v %v", got, err)
	}
}
