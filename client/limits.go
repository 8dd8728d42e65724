package client

import (
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Defaults and bounds of the package.
const (
	dialTimeoutDefault = 10 * time.Second       // one attempt, handshake and first auth together
	moveTimeoutMin     = 250 * time.Millisecond // of the attempt at another port of the same broker,
	moveTimeoutMax     = 2 * time.Second        // between these by what the first port took
	answerTimeout      = 30 * time.Second       // of a publish in flight, and of a call without a deadline
	helloTimeout       = 10 * time.Second       // of the first frame on an event stream
	helloGrace         = 200 * time.Millisecond // once some event stream failed before its hello
	closeTimeout       = 5 * time.Second        // of the end of a publish stream (HZ-34)
	backoffBaseDefault = 20 * time.Millisecond
	backoffMaxDefault  = time.Second
	notFoundPatience   = 5 * time.Second // of a resuming subscription; a restarting broker may still open its streams

	callStreamsMax     = 32       // authenticated request streams of one connection
	callStreamsIdleMax = 8        // of those, kept while unused
	poolBytesMax       = 16 << 20 // frame memory kept for reuse

	batchBytesDefault      = 256 << 10 // frames up to here cost the broker one move of 64 KiB
	batchRecordsDefault    = 4096
	recordBytesMax         = wire.MaxFrameBytes - 4096 // names and ids of a frame take less than the rest
	keyBytesMax            = 1<<16 - 1
	jsonBytesMax           = wire.MaxFrameBytes/4*3 - 512<<10 // of records and state in one JSON frame, which holds them in base64
	changeOverhead         = 64                               // what a state change costs beside its bytes, at most
	shardsMax              = 1 << 16                          // of a stream, as far as this client believes a broker
	budgetBytesDefault     = 32 << 20
	inFlightDefault        = 16 // few, so that small records queue up and travel together
	inFlightIdempotentMax  = 64 // what a broker remembers of a producer
	deliveryTimeoutDefault = 60 * time.Second

	receiveFramesDefault = 256
	receiveBytesDefault  = 4 << 20
)
