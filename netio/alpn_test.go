package netio

import (
	"errors"
	"io"
	"testing"

	"github.com/quic-go/quic-go"
)

// The protocol rule of wire.md 1.1: what the hello lists, and whether the broker demands it.
func TestProtocolNameRule(t *testing.T) {
	tt := newTestTLS(t)
	for _, c := range []struct {
		name    string
		offer   []string
		require bool
		want    string // selected; "refused"
	}{
		{"ours", []string{"felix/1"}, false, "felix/1"},
		{"ours among others", []string{"h3", "felix/1"}, false, "felix/1"},
		{"others only", []string{"h3", "felix-internal/1"}, false, "refused"},
		{"none", nil, false, ""},
		{"ours, demanded", []string{"felix/1"}, true, "felix/1"},
		{"others only, demanded", []string{"h3"}, true, "refused"},
		{"none, demanded", nil, true, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tt.listen(t, func(o *ServerOptions) { o.RequireALPN = c.require })
			o := DialOptions{RootCAs: tt.pool}.withDefaults()
			tls := o.tlsConfig()
			tls.NextProtos = c.offer
			conn, err := quic.DialAddr(t.Context(), s.Addr().String(), tls, o.quicConfig())
			if c.want == "refused" {
				he, ok := errors.AsType[*HandshakeError](convert(err))
				if !ok || !he.Remote || !IsClosed(he) {
					t.Fatalf("err = %v, want a handshake refusal by the peer", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseWithError(0, "")
			if got := conn.ConnectionState().TLS.NegotiatedProtocol; got != c.want {
				t.Fatalf("selected %q, want %q", got, c.want)
			}
			if got := accept(t, s).TLS().NegotiatedProtocol; got != c.want {
				t.Fatalf("the server selected %q, want %q", got, c.want)
			}
		})
	}
}

// Both ways in which our client connects carry data.
func TestConnectWithAndWithoutProtocolName(t *testing.T) {
	tt := newTestTLS(t)
	for _, offer := range []bool{false, true} {
		s := tt.listen(t, nil)
		client, server := tt.pair(t, s, func(o *DialOptions) { o.OfferALPN = offer })
		cs, err := client.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(cs, "hello")
		cs.Close()
		ss, err := server.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(ss); string(b) != "hello" || err != nil {
			t.Fatalf("read %q, %v", b, err)
		}
		io.WriteString(ss, "world")
		ss.Close()
		if b, err := io.ReadAll(cs); string(b) != "world" || err != nil {
			t.Fatalf("read %q, %v", b, err)
		}
	}
}
