package ring

import "syscall"

// OpKind says what an Op asks of the disk.
type OpKind uint8

const (
	// OpWrite writes Vec at Off; done when every byte is in the page cache.
	OpWrite OpKind = iota + 1
	// OpWriteSync writes Vec at Off and then syncs the file's data. It succeeds only when every
	// byte was written and a sync that began after that has succeeded (HZ-4).
	OpWriteSync
	// OpSync syncs the file's data.
	OpSync
	// OpWriteDirect writes Vec at Off to a file of FS.OpenDirect with sync: such a write is its own
	// sync, and it succeeds only when every byte is on the device. Off, and address and length of
	// every slice, are multiples of DirectAlign; anything else ends with EINVAL, on every engine. Its
	// only failure is one of writing: with an error Written is less than the size of Vec.
	OpWriteDirect
)

// syncs says whether an operation of this kind ends with a sync of the file.
func (k OpKind) syncs() bool { return k == OpWriteSync || k == OpSync }

// Op is one operation on one file. The submitter owns it again when Owner.OpDone is called with
// it, and may reuse it then; until then it must not touch the Op or the memory behind Vec.
type Op struct {
	Kind OpKind
	File File
	Off  int64
	// Vec is gathered in order. Best at most MaxVec entries: more take more than one call.
	Vec [][]byte

	// Err is the outcome: nil, or an error classified by this package (errors.go).
	Err error
	// Written is how many bytes of Vec are known to have been written, also on failure.
	Written int64
	// Owner is told when the operation has ended. Called on an engine goroutine, or inside
	// Submit when the operation could not be started: it must hand the Op over (a push to an
	// inbox) and not block or submit.
	Owner Owner
	// Tag is the submitter's; engines do not look at it.
	Tag uint64
}

// mayGoOn says whether a write that is not complete may be continued at Written: a direct one only
// where the next may begin.
func (op *Op) mayGoOn() bool { return op.Kind != OpWriteDirect || op.Written%DirectAlign == 0 }

// refusal is why an operation must not be started, or nil: a direct write that is not aligned, or
// whose file would take it without syncing it. Disks differ in what they let pass; engines do not.
func (op *Op) refusal() error {
	if op.Kind != OpWriteDirect {
		return nil
	}
	if f, ok := op.File.(*osFile); ok && !f.writesSync {
		return errNotDirect(op)
	}
	off := op.Off
	for _, b := range op.Vec {
		if len(b) > 0 && !IsAligned(b, off) {
			return errNotDirect(op)
		}
		off += int64(len(b))
	}
	return nil
}

func errNotDirect(op *Op) error {
	return &Error{Op: "write direct", Path: op.File.Name(), Class: ErrIO, Err: syscall.EINVAL}
}

// Owner receives ended operations.
type Owner interface {
	OpDone(op *Op)
}

// MaxVec is the most buffers that one system call gathers (IOV_MAX).
const MaxVec = 1024

// Engine runs Ops. Submit is called by one goroutine at a time (the executor that owns the
// engine); completions come on goroutines of the engine in any order.
//
// The submitter caps what is in flight at Depth; a Submit beyond it blocks until room appears.
type Engine interface {
	// Name is Portable, URing or URingDirect.
	Name() string
	// Depth is the most operations in flight.
	Depth() int
	// Direct says whether the engine is for OpWriteDirect. Every engine carries it out; with the
	// others it does not pay.
	Direct() bool
	// Submit starts ops, in one system call where the engine can. It does not wait for them.
	// It never fails: an operation that cannot be started ends with Err set.
	Submit(ops []*Op)
	// Stats returns counters since Open. Safe from any goroutine.
	Stats() Stats
	// Close waits for what is in flight, then frees the engine. Submit must not be called after.
	Close() error
}

// Stats counts what an engine did.
type Stats struct {
	Submits     uint64 // calls that started at least one operation
	Ops         uint64 // operations ended
	Bytes       uint64 // bytes written
	Syncs       uint64 // syncs that succeeded
	Errors      uint64 // operations ended with an error
	ShortWrites uint64 // writes that had to be continued
	Retries     uint64 // EINTR and EAGAIN answered by trying again
	Overflows   uint64 // completion queue overflows seen
	Strays      uint64 // completions that belong to no operation in flight: ignored, never credited
	Workers     uint64 // the cap on threads that do the work; a setting, not a count
}
