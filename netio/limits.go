package netio

import "time"

// Defaults of ServerOptions and DialOptions. The broker's are those of wire.md 1.1 and broker.md 6.2.
const (
	idleTimeoutDefault      = 6 * time.Second
	keepAliveDefault        = 2 * time.Second
	handshakeTimeoutDefault = 5 * time.Second

	streamsBidiDefault    = 1024
	streamsUniDefault     = 1024
	streamsUniDialDefault = 8192 // a client holds one unidirectional stream per subscription

	streamWindowDefault     = 4 << 20
	connWindowDefault       = 16 << 20
	streamWindowDialDefault = 16 << 20
	connWindowDialDefault   = 64 << 20

	// quic-go's own initial receive windows. They grow towards the maximum while the reader keeps up.
	streamWindowInitial = 512 << 10
	connWindowInitial   = 768 << 10

	socketBufferDefault = 8 << 20

	portMax = 1<<16 - 1
	// portTriesMax bounds the search for free consecutive ports when any will do.
	portTriesMax = 64

	connsMaxDefault      = 8192
	connsPerIPMaxDefault = 512
	handshakesMaxDefault = 1024
	// handshakesRetryShare: from this share of the bound on, a newcomer must first prove its address
	// (a QUIC Retry, one more round trip).
	handshakesRetryShare = 8
)

// Frame reading.
const (
	// frameReserveMax is the most memory reserved for a body of which nothing has arrived yet.
	frameReserveMax = 64 << 10
	// frameGrowthMax bounds what is reserved to this many times what has arrived.
	frameGrowthMax = 4
	// frameAheadLen is what a FrameReader may read beyond the bytes it was asked for, so that a
	// run of small frames costs one read of the stream and not two each. Frames of 300 B over loopback,
	// CPU-s per GB of both ends, medians of 6: 12 B ahead 9.6, 4 KiB 8.6, 16 KiB 7.9; a quiet stream
	// keeps this much memory, so not more.
	frameAheadLen = 4 << 10
)
