package log

import "github.com/ringcast/ringcast/ring"

// Sizes of the format (docs/formats/log.md). Changing one is a new version.
const (
	// blockBytes is the segment header: one block, so that entries never share one with it.
	blockBytes = 4096
	// unitBytes is the alignment of entries. An entry header fills one unit, so it never crosses a
	// 512-byte sector: it is on the disk whole or not at all.
	unitBytes        = 64
	entryHeaderBytes = 64
	entrySumBytes    = 4
	producerBytes    = 24
	publisherMax     = 255
	optionMax        = producerBytes + 1 + publisherMax
	// entryBytesMax bounds what a length field can make anybody read.
	entryBytesMax    = 64<<20 + 4<<10
	indexHeaderBytes = 24
	indexEntryBytes  = 16
	markBytes        = 32
)

// Defaults and bounds of Options.
const (
	segmentBytesDefault  = 256 << 20
	segmentBytesMin      = 2 * blockBytes
	segmentBytesMax      = 128 << 30 // group start counts units in 32 bits
	indexSpacingDefault  = 4096
	groupEntriesDefault  = 256
	groupBytesMaxDefault = 4 << 20
	// groupEntriesLimit keeps a group within one gathered write: 2 slices per entry and two more.
	groupEntriesLimit = (ring.MaxVec - 2) / 2
)

// Bounds of reading.
const (
	// pageRecordsMax is the most records that Read gives at once, unless one entry holds more.
	pageRecordsMax = 10_000
	pageBytesMin   = 16 << 10
	pageBytesMax   = 4 << 20
	// sealedOpenMax is the most sealed segments of one log that are kept open for readers.
	sealedOpenMax = 4
)

// Bounds of recovery.
const (
	scanWindowBytes = 1 << 20  // full scan
	walkWindowBytes = 16 << 10 // headers only
)

// Bounds of pre-writing: zeros that a new segment begins with, how much one job adds to them, how
// much of that it writes at once, and the mean size of a write above which it is left alone.
const (
	preWriteFirst    = 1 << 20
	preWriteStepMin  = 1 << 20
	preWriteStepMax  = 32 << 20
	preWritePiece    = 512 << 10
	preWriteGroupMax = 32 << 10
)

// backupBufferBytes is how much of a file is copied at once.
const backupBufferBytes = 256 << 10

// findingsMax is how many damages, and how many notes, Verify keeps of one log.
const findingsMax = 1000

// markLagBytes is how far durable.mark may fall behind a log that is never idle.
const markLagBytes = 4 << 20

// Bounds of producer state (broker.md 1.9).
const (
	producersMax       = 4096
	producerBatchesMax = 64
)
