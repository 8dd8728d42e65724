package log

import (
	"errors"
	"fmt"
)

// What callers branch on, with errors.Is.
var (
	// ErrGroupFull: the entry was not taken; try again after the next OpDone or JobDone.
	ErrGroupFull = errors.New("log: group is full")
	// ErrReset: Reset gave the entries up. They may have been on the disk for a while.
	ErrReset = errors.New("log: reset")
	// ErrPoisoned: a sync failed once, or the log could not be cut back after a failed write.
	// Nothing is accepted until the process restarts (HZ-2). The cause is wrapped beside it.
	ErrPoisoned = errors.New("log: poisoned by an earlier disk failure")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("log: closed")
	// ErrTooLarge: the entry is larger than the format can hold.
	ErrTooLarge = errors.New("log: entry is too large")
	// ErrEntry: the entry is not well formed (unknown kind, no records, a count that is not its
	// section's).
	ErrEntry = errors.New("log: entry is not well formed")
	// ErrBusy: Close was called while an operation or a job was still out.
	ErrBusy = errors.New("log: an operation or a job has not ended")
)

// CorruptError is damage that no crash explains. Nothing was changed on the disk.
type CorruptError struct {
	Dir     string
	Shard   uint32
	Segment uint64 // the number in the file's name
	Pos     int64  // byte position in the segment
	What    string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("log: %s: shard %d, segment %d damaged at byte %d: %s", e.Dir, e.Shard, e.Segment, e.Pos, e.What)
}

// TrimmedError answers a read below the oldest record that is kept (LOG-15).
type TrimmedError struct {
	Requested uint64
	Oldest    uint64
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("log: offset %d was trimmed, the oldest is %d", e.Requested, e.Oldest)
}
