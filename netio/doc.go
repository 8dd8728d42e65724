// Package netio carries streams of bytes between a client and a broker: QUIC listeners and dialers with
// TLS 1.3, and the reader that cuts a stream into frames.
//
//	 Dial                                Listen
//	   |                                   |  Accept
//	   v                                   v
//	 Conn --- OpenStream / AcceptStream -- Conn        interfaces, whatever carries them
//	   |                                   |
//	quic-go (one socket per connection)  quic-go (one socket per listener)
//	   |                                   |
//	udpSocket                            udpSocket     buffers, send errors, offload
//
// Several listeners of a broker are several Servers that share a ConnLimiter.
//
// Who owns what: the caller owns each Conn, and each direction of each stream, and ends them; a stream
// that is left unread holds its connection's window. FrameReader.Next hands over one reference of its Buf.
// A Server owns its socket and closes what nobody closed.
//
// Goroutines: quic-go's, a few per socket and per connection. None of this package's own but short ones
// at the end of a connection. Server.Close and Conn.CloseWithError return when theirs have ended.
//
// What may fail: the peer (CloseError, ResetError, HandshakeError), the path (ErrIdleTimeout,
// ErrHandshakeTimeout, ErrPeerRestarted), a limit (ErrRefused, ErrStreamLimit, FrameTooLargeError), the
// bytes (wire.ErrMagic, wire.ErrVersion). A datagram that cannot be sent is a lost packet and a counter. Buffers
// that the host clamps and offload that a device refuses are one warning and a field of Stats.
//
// It refuses: protocols older than TLS 1.3, early data, session resumption, streams for both directions
// opened by the broker, a protocol name that is not ours, more connections than the limits, a frame larger
// than the reader's bound. It knows nothing of tenants, messages or tokens.
package netio
