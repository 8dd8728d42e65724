package log

import (
	"sync"
	"sync/atomic"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// Log is the append-only log of one shard.
//
// One goroutine, the owner, steps it: Append, NextOp, OpDone, Tick, TakeJob, JobDone, Reset, Fail,
// SetRetention, Retain, Producers, Close. Nothing here waits for a disk, except Open and Close. Base, Committed, Read,
// OffsetForTime, Err and Stats are for any goroutine.
//
// Offsets and what is known of them, always in this order:
//
//	base <= durable <= written <= next
//	        synced     on file    assigned: in flight or filling
//
// A failure voids everything from written up: those offsets are given out again.
type Log struct {
	o      Options
	dir    string
	commit bool // Mode is on_commit
	report RecoveryReport

	// Owner.
	owner     ring.Owner
	epoch     uint64
	micros    uint64 // append time of the newest entry; never falls
	next      uint64
	written   uint64
	durable   uint64
	producers *Producers
	unwritten *checkpoint // of the producers where the newest segment begins
	groups    [2]group
	filling   *group
	flight    *group    // nil, or the group that the engine has
	cur       *tail     // where entries are staged; nil: the next append opens a segment
	retired   []*tail   // full segments that are not sealed yet, oldest first
	spare     *spare    // a file that is ready to become the next segment
	free      *freeFile // a file of the past that can become the spare
	nextID    uint64
	reset     bool     // the group in flight is to be given up, whatever becomes of it
	fail      *failure // a failed write, on its way to be cut off
	poison    error    // wraps ErrPoisoned
	closed    bool
	closing   bool
	rest      bool // the owner has time for the mark

	syncOp     ring.Op // periodic
	syncing    bool
	syncTarget uint64 // everything below was written when syncOp began
	syncMark   Mark

	job          Job
	jobOut       bool
	prepareAfter int64 // position at which preparing is tried again after it failed

	retention Retention
	trash     []*segment // out of the view, to be deleted, oldest first
	trimHeld  bool       // deleting failed: not again before the next Retain

	newest   Mark // end of what is written
	mark     Mark // what is known to be durable
	marked   Mark // what durable.mark says
	markFile ring.File

	// Readers. Written by the owner.
	view      atomic.Pointer[view]
	committed atomic.Uint64 // = written, durable once the log is poisoned
	failed    atomic.Pointer[error]
	files     files
	chunks    *sync.Pool // of *indexChunk
	pages     sync.Pool  // of *Page
	stats     counters
}

// failure is a write that failed, or a segment that could not be opened.
type failure struct {
	err error
	// tail is to be cut back to at and sealed; nil when there is nothing to cut.
	tail *tail
	at   int64
}

// Entry is what Append takes.
type Entry struct {
	Kind  Kind
	Count uint32 // records = offsets taken
	// Section is the records section: u32 count, then per record u32 length and bytes. It is
	// referenced, not copied, and must not change until the write ended.
	Section []byte
	// Buf holds Section. Append retains it until the write ended. May be nil when the memory is
	// nobody's to reuse.
	Buf *wire.Buf

	HasProducer                  bool
	ProducerID, Sequence, Digest uint64
	Publisher                    string // at most 255 bytes; "" is not stored
}

// Outcome is what an ended operation or job changed.
type Outcome struct {
	// Committed: everything below may be acknowledged and read. It falls only when a log with
	// periodic or no syncs is poisoned: then readers stop at the durable bound.
	Committed uint64
	// Err, if any: the offsets [FailedFrom, FailedTo) are void. They were never readable and are
	// given out again. Nothing that was staged is left: FailedTo is what Next was.
	Err                  error
	FailedFrom, FailedTo uint64
}

// SetOwner names who is told when operations end. Before the first NextOp.
func (l *Log) SetOwner(o ring.Owner) { l.owner = o }

// Recovery says what Open found and did.
func (l *Log) Recovery() RecoveryReport { return l.report }

// Next is the offset that the next record gets. Owner only.
func (l *Log) Next() uint64 { return l.next }

// Producers is the state of idempotent producers as the log's entries say. Owner only. Whoever
// appends adds to it; the log itself takes back what it voids.
func (l *Log) Producers() *Producers { return l.producers }

// Base is the oldest offset that can be read.
func (l *Log) Base() uint64 { return l.view.Load().base }

// Committed is the first offset that cannot be read yet.
func (l *Log) Committed() uint64 { return l.committed.Load() }

// Err is the reason why the log is poisoned, nil while it is not.
func (l *Log) Err() error {
	if e := l.failed.Load(); e != nil {
		return *e
	}
	return nil
}

func (l *Log) outcome() Outcome { return Outcome{Committed: l.committed.Load()} }

func (l *Log) fsyncOp() ring.OpKind {
	if l.commit {
		return ring.OpWriteSync
	}
	return ring.OpWrite
}
