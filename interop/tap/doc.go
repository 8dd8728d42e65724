// Command tap shows what a client says of itself on the wire: it listens like a broker, prints the TLS
// parameters of the first connection and the first frame of its first stream, and ends.
//
//	client --QUIC--> tap: "alpn=... curve=... auth={...}" on standard output
//
// The interop run starts it, so that what docs/interop.md says of a client is seen anew for each release.
// The token in the frame is left out.
//
// Goroutines: none of its own. Failures: no connection or no frame in time ends it with 1.
package main
