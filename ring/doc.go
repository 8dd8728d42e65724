// Package ring is the only door to the disk: asynchronous writes and syncs through an Engine, and
// the file layer FS through which every other access of package log goes. What it promises is
// small and strict: an operation that ends without an error is where it says it is.
//
//	executor (one goroutine)                       background workers of core
//	   | Submit([]*Op)   one call for all logs        | open, read, truncate, rename, sync dir ...
//	   v                                              v
//	Engine --- portable: pwritev + fdatasync on      FS --- OS(): files of the system
//	   |       capped worker goroutines               |     internal/crashfs: forgets
//	   |  \--- uring: write linked to fsync; or       |     ringtest: scripted
//	   |       uring-direct: one direct write;        |
//	   |       one reaper                             |
//	   v                                              v
//	Owner.OpDone(op)   to the executor's inbox       errors with one class each (errors.go)
//
// # Who owns what
//
// The submitter owns an Op until Submit and again from OpDone; in between the Op, its File and
// the memory behind Vec are the engine's. Submit is called by one goroutine at a time. OpDone may
// come on any goroutine, also inside Submit, in any order; it must not block.
//
// In the io_uring engine each operation sits in a slot that holds every address given to the
// kernel. A slot belongs to Submit while it is filled, then to the reaper, which is the only
// reader of completions and the only one that credits them (slot.settle). The submission queue
// has a lock, since the reaper continues short writes.
//
// # Rules that were paid for elsewhere
//
//   - A linked sync counts only behind a write that was full. After a short one the rest is
//     written, and a new sync follows (HZ-4).
//   - A direct write is one entry without a sync: it counts when every byte is there, goes on only
//     where the next one may begin, and fails as a write, never as a sync (HZ-4, HZ-21).
//   - A link does not reach over two calls: a sync whose write was taken without it is made void
//     before the kernel sees it (uring.mendLink).
//   - A failed sync is never tried again (HZ-2). One that was canceled before it began is.
//   - Every attempt has an id of its own: late, doubled and unknown completions are counted
//     (Stats.Strays) and credited to nobody (HZ-21).
//   - What is in flight fits the queues, so they cannot overflow. Should the kernel lose a
//     completion all the same, everything in flight ends with an error, once it has let go of the
//     memory (HZ-23).
//   - Nothing waits in Go's network poller, which is asked every 10 ms only when CPUs are busy.
//   - Features are asked of the ring, never of the kernel's version, and the ring proves itself on
//     a scratch file before it is trusted (HZ-20).
//   - uring-direct also shows that the file system of the data directory takes direct writes, with
//     one behind the end and one over it, read back through the page cache (HZ-20).
//   - Room for a ring is also what RLIMIT_MEMLOCK leaves: where it leaves none the reason names it,
//     after the memory of closed rings has had time to come back (HZ-24).
//   - A thread that ends makes the kernel give up what it has submitted: the reaper leaves its own
//     to Go, and a linked sync that was given up is begun again.
//   - No submission polling, no polled I/O; the kernel's workers are capped (HZ-26).
//
// # Goroutines
//
// Each engine has Options.Workers worker goroutines (the io_uring engine runs files without a
// descriptor on them), and the io_uring engine one reaper, labelled role=ring-reaper. All start when the engine is opened; Close waits for what is in flight and
// then for them. FS starts none.
//
// # What may fail
//
// Every error has one class (ErrNoSpace, ErrIO ...) and keeps its errno; nobody above looks at
// the errno. Open falls back from io_uring to the portable engine only when the kernel refuses it
// (HZ-19), and says why; running out of memory or descriptors is an error, which a
// limit on locked memory is not. A ring that breaks
// later ends operations with errors for good: there is no silent change of engine under a log.
//
// # What it refuses to do
//
// It does not order operations on one file against each other, retry what failed for a reason,
// cache, allocate offsets, or know what a log is.
package ring
