// Package log stores the records of one shard: segments of checksummed entries, group commit,
// recovery after a crash, reading from any offset, and the state of idempotent producers. What is
// on the disk is described in docs/formats/log.md.
//
//	owner (one goroutine)                         anybody
//	Append -> filling group                       Read, OffsetForTime, Base, Committed
//	NextOp -> flight: one ring.Op                     |
//	   engine writes (and syncs)                      v
//	OpDone -> view, index, committed  --atomic-->  view -> segment -> handle (counted) -> pread, verify
//	TakeJob -> Job.Run on a worker -> JobDone
//
// The owner steps a Log and never waits in it. Each of its calls does a bounded amount of work in
// memory; what touches a file is an operation that the owner submits to its engine, or a Job that
// it has run elsewhere: making and opening segments, zeros ahead of the tail, sealing, cutting after a
// failed write, durable.mark. The duties of the owner, after every Append, OpDone and JobDone, in this order:
//
//  1. act on the Outcome: acknowledge below Committed, then fail what is void;
//  2. take jobs until there is none, and have them run;
//  3. take the next operation, and submit it;
//  4. try again what was refused with ErrGroupFull.
//
// Every staged offset ends in exactly one Outcome: Committed passes it, or it is void. Close is the
// last one: what is not below Committed afterwards is void.
//
// Files:
//
//	log.go       Log, its state and invariants         plan.go       Plan and its steps
//	append.go    Append, NextOp, OpDone, Tick          planner.go    what is there, headers, blanks
//	group.go     group: one gathered write             planwalk.go   which segments stay, where they end
//	work.go      TakeJob, JobDone, roll                planapply.go  carrying a plan out
//	jobs.go      Job: what runs on workers             scan.go       scanner: the walk over entries
//	prewrite.go  zeros ahead of the tail               slab.go       aligned memory of a group
//	tail.go      segments that are written             stats.go      counters
//	retain.go    retention                             recycle.go    deleted segments become new ones
//	fail.go      failed writes, poison, void           open.go       Open, Close
//	segment.go   segment and view                      entry.go header.go index.go mark.go  formats
//	files.go     open files, counted                   memindex.go   index of the segment in writing
//	read.go      Read, Page                            producers.go  idempotent producers
//	seektime.go  OffsetForTime                         checkpoint.go  their state, in a file
//	plansealed.go  sealed segments by their ends       limits.go     every bound
//	commitrecord.go  events with state changes
//	repairtail.go  a damaged end, cut at start         watchfs.go    a file layer for looking only
//	verify.go inspect.go around.go  looking offline    repair.go backup.go  repairing offline
//
// Nothing here starts a goroutine. What may fail: the disk (failed writes void what is staged and
// heal, failed syncs poison the log until restart) and the past (damage that no crash explains is a
// *CorruptError, and nothing is changed). It refuses to guess: bytes below a proof of durability
// are never taken for a torn end, entries of an unknown version never for no entries.
package log
