package fanout

import "github.com/ringcast/ringcast/wire"

const (
	// JoinEventsMax and JoinBytesMax bound what is joined into one frame (broker.md 2.3). A
	// publish beyond them goes out as one frame of its own.
	JoinEventsMax = 64
	JoinBytesMax  = 64 << 10

	// writeBytesMax bounds the frames of one write to a sink, unless one envelope is larger.
	writeBytesMax = 64 << 10
	// writeEnvelopesMax bounds the envelopes of one write, and so the slices of it.
	writeEnvelopesMax = 256

	// RingRecordsMax and RingBytesMax are the default bounds of a replay ring.
	RingRecordsMax = 1024
	RingBytesMax   = 64 << 20

	// QueueCapacity and QueueBytesMax are the default bounds of a subscriber's queue, in published
	// batches and in bytes of retained frames.
	QueueCapacity = 512
	QueueBytesMax = 16 << 20

	// queueLenMin is the first size of a subscriber's ring.
	queueLenMin = 4

	// keepMemMax is the encoding memory that a pooled envelope or feeder may hold on to.
	keepMemMax = 64 << 10

	// cacheLine keeps what two cores write apart: adjacent lines are fetched in pairs.
	cacheLine = 128
)

// RecordMax is the largest record that fits an event frame in every shape. A publish that holds a
// larger one must be refused: no reader could be sent it.
const RecordMax = wire.MaxFrameBytes - (8 + 8 + 1 + wire.PublisherMax + 4) - (8 + 4)
