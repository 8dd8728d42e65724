package netio

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// ServerOptions configures one listener. The zero value of a field is its default.
type ServerOptions struct {
	// Addr is host:port over UDP. Required; port 0 picks a free one.
	Addr string
	// TLS holds the certificates, and the client CA if client certificates are demanded (NewServerTLS
	// builds it). Required. Versions, protocol names and session tickets are set here; its
	// GetConfigForClient must be nil.
	TLS *tls.Config
	// RequireALPN refuses clients that name no protocol. Default: they are accepted.
	RequireALPN bool

	// IdleTimeout ends a connection from which nothing was heard. 6 s.
	IdleTimeout time.Duration
	// KeepAlive is how long a connection may be quiet before a ping is sent. 2 s; a value above a
	// third of IdleTimeout is lowered to that, with a warning (HZ-35).
	KeepAlive time.Duration
	// HandshakeTimeout ends a handshake in which nothing was heard for so long; twice that is the
	// most a handshake may take. 5 s.
	HandshakeTimeout time.Duration

	// MaxBidiStreams and MaxUniStreams are how many streams of each kind a client may have open. 1024.
	MaxBidiStreams, MaxUniStreams int64
	// StreamWindow and ConnWindow bound the bytes received and not yet read, in bytes per stream and
	// per connection. 4 MiB, 16 MiB. The first must be smaller (HZ-31).
	StreamWindow, ConnWindow uint64

	// MaxConns and MaxConnsPerIP bound the connections, unfinished handshakes included. 8192, 512;
	// negative = no bound. Ignored when Limiter is set.
	MaxConns, MaxConnsPerIP int
	// Limiter is shared by the listeners of one broker. Default: one of its own.
	Limiter *ConnLimiter
	// MaxHandshakes bounds unfinished handshakes. 1024. From an eighth of it on, a newcomer must
	// prove its address first (HZ-38).
	MaxHandshakes int

	// SocketBuffer is the size asked for the socket's receive and send buffers, in bytes. 8 MiB.
	SocketBuffer int
	// DisableGSO sends every datagram with a call of its own.
	DisableGSO bool
	// InitialPacketSize is the first and smallest size of a packet, in bytes. Default: quic-go's.
	InitialPacketSize uint16
	// DisableMTUDiscovery keeps packets at the initial size.
	DisableMTUDiscovery bool

	// StatelessResetKey and TokenKey are 32 bytes each, the same for every listener of a broker and
	// after its restart (HZ-36); Secret derives them. Empty: no stateless resets, a random key.
	StatelessResetKey, TokenKey []byte

	// Logger gets warnings about limits that the host imposes. Default: none.
	Logger *slog.Logger

	wrapSend   func(sendFunc) sendFunc         // of tests
	wrapSocket func(*udpSocket) net.PacketConn // of tests
}

func (o ServerOptions) withDefaults() ServerOptions {
	o.IdleTimeout = cmp.Or(o.IdleTimeout, idleTimeoutDefault)
	o.KeepAlive = cmp.Or(o.KeepAlive, min(keepAliveDefault, o.IdleTimeout/3))
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, handshakeTimeoutDefault)
	o.MaxBidiStreams = cmp.Or(o.MaxBidiStreams, streamsBidiDefault)
	o.MaxUniStreams = cmp.Or(o.MaxUniStreams, streamsUniDefault)
	o.StreamWindow = cmp.Or(o.StreamWindow, streamWindowDefault)
	o.ConnWindow = cmp.Or(o.ConnWindow, connWindowDefault)
	o.MaxConns = cmp.Or(o.MaxConns, connsMaxDefault)
	o.MaxConnsPerIP = cmp.Or(o.MaxConnsPerIP, connsPerIPMaxDefault)
	o.MaxHandshakes = cmp.Or(o.MaxHandshakes, handshakesMaxDefault)
	o.SocketBuffer = cmp.Or(o.SocketBuffer, socketBufferDefault)
	o.Logger = orDiscard(o.Logger)
	if o.Limiter == nil {
		o.Limiter = NewConnLimiter(o.MaxConns, o.MaxConnsPerIP)
	}
	return o
}

// Validate returns every problem of o, joined.
func (o ServerOptions) Validate() error {
	var errs []error
	o = o.withDefaults()
	if o.Addr == "" {
		errs = append(errs, errors.New("no address to listen on"))
	}
	switch {
	case o.TLS == nil:
		errs = append(errs, errors.New("no TLS configuration"))
	case o.TLS.GetConfigForClient != nil:
		errs = append(errs, errors.New("TLS.GetConfigForClient is set; the listener needs it for the protocol rule"))
	case len(o.TLS.Certificates) == 0 && o.TLS.GetCertificate == nil:
		errs = append(errs, errors.New("TLS has no certificate"))
	}
	if n := len(o.StatelessResetKey); n != 0 && n != 32 {
		errs = append(errs, fmt.Errorf("stateless reset key of %d bytes, want 32", n))
	}
	if n := len(o.TokenKey); n != 0 && n != 32 {
		errs = append(errs, fmt.Errorf("token key of %d bytes, want 32", n))
	}
	errs = append(errs, validateShared(o.IdleTimeout, o.KeepAlive, o.HandshakeTimeout, o.StreamWindow, o.ConnWindow))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("netio: server options: %w", err)
	}
	return nil
}

func (o ServerOptions) quicConfig() *quic.Config {
	return &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		HandshakeIdleTimeout:           o.HandshakeTimeout,
		MaxIdleTimeout:                 o.IdleTimeout,
		KeepAlivePeriod:                o.KeepAlive,
		MaxIncomingStreams:             o.MaxBidiStreams,
		MaxIncomingUniStreams:          o.MaxUniStreams,
		InitialStreamReceiveWindow:     min(streamWindowInitial, o.StreamWindow),
		MaxStreamReceiveWindow:         o.StreamWindow,
		InitialConnectionReceiveWindow: min(connWindowInitial, o.ConnWindow),
		MaxConnectionReceiveWindow:     o.ConnWindow,
		InitialPacketSize:              o.InitialPacketSize,
		DisablePathMTUDiscovery:        o.DisableMTUDiscovery,
		Allow0RTT:                      false, // early data can be replayed into a second publish (HZ-37)
	}
}

// DialOptions configures one outgoing connection. The zero value of a field is its default.
type DialOptions struct {
	// ServerName is the name sent and verified, whatever address is dialled. "localhost".
	ServerName string
	// RootCAs are the trust anchors (LoadCertPool). Default: the platform's.
	RootCAs *x509.CertPool
	// Certificates are offered to a server that demands one.
	Certificates []tls.Certificate
	// OfferALPN names the protocol in the handshake. Default: none is named, as older clients do.
	OfferALPN bool

	// IdleTimeout, KeepAlive and HandshakeTimeout are those of ServerOptions. 6 s, 2 s, 5 s.
	IdleTimeout, KeepAlive, HandshakeTimeout time.Duration
	// MaxUniStreams is how many event streams the broker may have open. 8192. The broker opens no
	// stream for both directions.
	MaxUniStreams int64
	// StreamWindow and ConnWindow bound the bytes received and not yet read. 16 MiB, 64 MiB.
	StreamWindow, ConnWindow uint64

	// SocketBuffer is the size asked for the socket's buffers, in bytes. 8 MiB.
	SocketBuffer int
	// DisableGSO, InitialPacketSize and DisableMTUDiscovery are those of ServerOptions.
	DisableGSO          bool
	InitialPacketSize   uint16
	DisableMTUDiscovery bool

	// Logger gets warnings about limits that the host imposes. Default: none.
	Logger *slog.Logger
}

func (o DialOptions) withDefaults() DialOptions {
	o.ServerName = cmp.Or(o.ServerName, "localhost")
	o.IdleTimeout = cmp.Or(o.IdleTimeout, idleTimeoutDefault)
	o.KeepAlive = cmp.Or(o.KeepAlive, min(keepAliveDefault, o.IdleTimeout/3))
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, handshakeTimeoutDefault)
	o.MaxUniStreams = cmp.Or(o.MaxUniStreams, streamsUniDialDefault)
	o.StreamWindow = cmp.Or(o.StreamWindow, streamWindowDialDefault)
	o.ConnWindow = cmp.Or(o.ConnWindow, connWindowDialDefault)
	o.SocketBuffer = cmp.Or(o.SocketBuffer, socketBufferDefault)
	o.Logger = orDiscard(o.Logger)
	return o
}

// Validate returns every problem of o, joined.
func (o DialOptions) Validate() error {
	o = o.withDefaults()
	if err := validateShared(o.IdleTimeout, o.KeepAlive, o.HandshakeTimeout, o.StreamWindow, o.ConnWindow); err != nil {
		return fmt.Errorf("netio: dial options: %w", err)
	}
	return nil
}

func (o DialOptions) tlsConfig() *tls.Config {
	c := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ServerName:   o.ServerName,
		RootCAs:      o.RootCAs,
		Certificates: o.Certificates,
	}
	if o.OfferALPN {
		c.NextProtos = []string{ALPN}
	}
	return c
}

func (o DialOptions) quicConfig() *quic.Config {
	return &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		HandshakeIdleTimeout:           o.HandshakeTimeout,
		MaxIdleTimeout:                 o.IdleTimeout,
		KeepAlivePeriod:                o.KeepAlive,
		MaxIncomingStreams:             -1,
		MaxIncomingUniStreams:          o.MaxUniStreams,
		InitialStreamReceiveWindow:     min(streamWindowInitial, o.StreamWindow),
		MaxStreamReceiveWindow:         o.StreamWindow,
		InitialConnectionReceiveWindow: min(connWindowInitial, o.ConnWindow),
		MaxConnectionReceiveWindow:     o.ConnWindow,
		InitialPacketSize:              o.InitialPacketSize,
		DisablePathMTUDiscovery:        o.DisableMTUDiscovery,
	}
}

func validateShared(idle, keepAlive, handshake time.Duration, stream, conn uint64) error {
	var errs []error
	if idle < 0 || keepAlive < 0 || handshake < 0 {
		errs = append(errs, errors.New("negative timeout"))
	}
	if stream >= conn {
		errs = append(errs, fmt.Errorf("stream window of %d bytes is not below the connection's %d: one stream could stop all others", stream, conn))
	}
	return errors.Join(errs...)
}

// clampKeepAlive returns the keep-alive to use: above a third of the idle timeout two lost packets in
// a row would end a healthy connection.
func clampKeepAlive(keepAlive, idle time.Duration, lg *slog.Logger) time.Duration {
	if most := idle / 3; keepAlive > most {
		lg.Warn("keep-alive lowered to a third of the idle timeout",
			"keepalive", keepAlive, "idle_timeout", idle, "used", most)
		return most
	}
	return keepAlive
}

func orDiscard(lg *slog.Logger) *slog.Logger {
	if lg == nil {
		return slog.New(slog.DiscardHandler)
	}
	return lg
}
