package log

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// FsyncMode says when written records are made durable, and so what an ack promises.
type FsyncMode uint8

const (
	// FsyncOnCommit syncs each group with its write: committed means on the device.
	FsyncOnCommit FsyncMode = iota
	// FsyncPeriodic syncs on Tick: committed means in the page cache, a power cut loses what came
	// after the last tick.
	FsyncPeriodic
	// FsyncNone leaves it to the kernel, except when a segment is sealed and at Close.
	FsyncNone
)

var fsyncModeNames = [...]string{FsyncOnCommit: "on_commit", FsyncPeriodic: "periodic", FsyncNone: "none"}

// String returns the name that configuration and catalogue use.
func (m FsyncMode) String() string {
	if int(m) < len(fsyncModeNames) {
		return fsyncModeNames[m]
	}
	return fmt.Sprintf("fsync_mode_%d", uint8(m))
}

// ParseFsyncMode reads what String writes.
func ParseFsyncMode(s string) (FsyncMode, error) {
	for i, name := range fsyncModeNames {
		if s == name {
			return FsyncMode(i), nil
		}
	}
	return 0, fmt.Errorf("log: fsync mode %q: want on_commit, periodic or none", s)
}

// Options configure Open. FS, Dir and Pool are required; zero is the default elsewhere.
type Options struct {
	FS  ring.FS
	Dir string // the shard's own directory; made when missing
	// CatalogueID and Shard are stamped into every segment and checked against it, so that a file
	// moved between directories is refused.
	CatalogueID uint64
	Shard       uint32
	// Epoch is stamped into entries. 0 = that of the newest entry, 1 in an empty log. One below
	// the newest entry's is refused: an epoch never falls.
	Epoch uint64
	Mode  FsyncMode
	// SegmentBytes is the size at which a segment is full. Default 256 MiB.
	SegmentBytes int64
	// IndexSpacing is the distance of index entries in bytes. Default 4096. A log whose spacing
	// was changed gets its index files rebuilt at open.
	IndexSpacing int64
	// GroupEntriesMax and GroupBytesMax bound one write. Defaults 256 and 4 MiB. A larger entry
	// is a group of its own.
	GroupEntriesMax int
	GroupBytesMax   int64
	// Direct: the engine is for ring.OpWriteDirect. Groups under on_commit are then copied, once, into
	// aligned memory, and each is one data-synced write past the page cache. Where the file system
	// refuses that, the same bytes are written and synced.
	Direct bool
	// VerifyAll has Open verify every body of every segment. By default it does so for what may have been
	// in flight, and the bodies of sealed segments are verified when they are read.
	VerifyAll bool
	// Interrupt is asked before each segment that is read while the log is opened, and after each read of
	// one, with the bytes that it gave. Its error ends the open,
	// before anything was changed. Default: never.
	Interrupt func(read int64) error
	// NoPreWrite turns pre-writing off: files grow as they are appended to.
	NoPreWrite bool
	// RepairChecksumTail lets Open cut damage off the newest segment although durable.mark says that
	// it was on the disk, when nothing of this segment follows it (see repairTail). Default false:
	// such a log is refused.
	RepairChecksumTail bool
	// Pool gives Read its pages.
	Pool *wire.Pool
	// NowMicros is the wall clock for segment headers. Default time.Now.
	NowMicros func() uint64

	// walkAll: no segment is known by its ends only; for looking at a log.
	walkAll bool
	// nonce makes the nonce of a new segment; tests make it predictable.
	nonce func() uint64
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segmentBytesDefault
	}
	if o.IndexSpacing == 0 {
		o.IndexSpacing = indexSpacingDefault
	}
	if o.GroupEntriesMax == 0 {
		o.GroupEntriesMax = groupEntriesDefault
	}
	if o.GroupBytesMax == 0 {
		o.GroupBytesMax = groupBytesMaxDefault
	}
	if o.NowMicros == nil {
		o.NowMicros = func() uint64 { return uint64(time.Now().UnixMicro()) }
	}
	if o.Interrupt == nil {
		o.Interrupt = func(int64) error { return nil }
	}
	if o.nonce == nil {
		o.nonce = randomNonce
	}
	return o
}

// Validate returns every problem of o, joined.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("log: "+format, args...))
		}
	}
	check(o.FS != nil, "no file layer")
	check(o.Dir != "", "no directory")
	check(o.Pool != nil, "no buffer pool")
	check(int(o.Mode) < len(fsyncModeNames), "unknown fsync mode %d", uint8(o.Mode))
	check(o.SegmentBytes >= segmentBytesMin && o.SegmentBytes <= segmentBytesMax,
		"segment size %d: want %d to %d bytes", o.SegmentBytes, segmentBytesMin, int64(segmentBytesMax))
	check(o.IndexSpacing >= unitBytes, "index spacing %d: want at least %d bytes", o.IndexSpacing, unitBytes)
	check(o.GroupEntriesMax >= 1 && o.GroupEntriesMax <= groupEntriesLimit,
		"%d entries per group: want 1 to %d", o.GroupEntriesMax, groupEntriesLimit)
	check(o.GroupBytesMax >= 1, "group size %d: want at least 1 byte", o.GroupBytesMax)
	return errors.Join(errs...)
}
