package serve

import (
	"time"

	"github.com/ringcast/ringcast/wire"
)

const (
	// windowMax bounds what may be configured as a publish window.
	windowMax = 1 << 16
	// ackedParkedMax and unackedParkedMax bound the publishes of a stream that stand in line for room in
	// a queue while the stream is read on (broker.md 1.3).
	ackedParkedMax   = 1024
	unackedParkedMax = 16
	// slotChunk is how many slots a stream allocates at a time.
	slotChunk = 32
	// repliesMax is how many bytes of answers other than publish answers a stream may have queued
	// before its reader stops reading. One answer may pass it.
	repliesMax = 256 << 10
	// keepWriteBytes is the largest write buffer a stream keeps between writes.
	keepWriteBytes = 64 << 10
	// gatherBytes is how much of an event stream's small frames is joined in one write.
	gatherBytes = 64 << 10
	// directBytes is the size from which on a frame is written from where it lies.
	directBytes = 16 << 10
	// publisherMax is the longest principal that is kept with a record (wire.md 3.2).
	publisherMax = 255
	// readsPerConn is how many pages of stream_read a connection may have unsent.
	readsPerConn = 4
	// readPayloadMax is the most base64 that a page may carry, so that its frame can be read: a
	// record of about 12 MiB.
	readPayloadMax = wire.MaxFrameBytes - 64<<10
	// stateValueSmall is the largest state value that is answered without waiting until the client takes it.
	stateValueSmall = 64 << 10
	// ticksPerWait divides the shorter of the ack wait and the queue wait into sweeps.
	ticksPerWait = 8
	// drainPoll is how often a drain looks whether everything owed is written.
	drainPoll = 5 * time.Millisecond
)
