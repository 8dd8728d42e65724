// Package core is the broker engine: tenants, streams, shards, publishes, subscriptions.
//
//	session goroutines                     executor (one per core shard)            disk
//	------------------                     ---------------------------              ----
//	Publish: admission (quota, bytes, jobs)
//	         push to inbox  ------------>  lane of the shard (DRR over tenants)
//	                                       claim: offsets, stage into the log
//	                                       one Submit for all logs     ---------->  ring
//	                                       complete: turns in order    <----------  OpDone
//	                                         replay ring, envelope, subscribers
//	         Replier.Published  <--------    answers
//	Subscription.Run: pages from the log, joins the live feed on the executor, then fanout.Feed
//
// Who owns what. A shard's state (pending claims, replay ring, producer windows, the owner side of
// its log) belongs to the executor id mod N; there is no mutex on it. Everything that must happen
// at one point of a shard's log (a subscriber joining, a stream ending) is a task on that
// executor. Other goroutines see immutable or atomic views only: the stream table, log.Committed,
// a subscriber's queue.
//
// Goroutines: the executors, the file workers that run the logs' slow jobs, and, with quotas, the coarse
// clock; Open starts them, Close joins them. Subscriptions run on the caller's goroutine.
//
// Waiting. A publish that finds its queue full stands in line in a Place, which its session owns: no
// goroutine and no timer waits with it, and its stream is read on. Whoever leaves the queue, an executor
// mostly, sends the next one on. For bytes the session's goroutine itself waits.
//
// Failures. A refused publish had no effect and says so by its retry class; one that failed after
// its claim is outcome_unknown unless the log proved that nothing was written. A log whose sync
// failed refuses everything until restart and disturbs no other log. Nothing waits without a bound
// and nothing queues without one.
//
// State. Atomic commits are entries of the log like any other; the keyed state that they make is a
// projection of what the log retains. It belongs to the executor, is built by the file workers when it
// is first asked for, and is changed where events become visible.
//
// Crashes. A stream's row in the catalogue is written before its first file and removed before its
// last. So after a crash a row without files is a stream that nobody was promised or that is still
// empty, and is opened; files without a row belong to nobody, and the start removes them. Files with
// an id that the catalogue has not given out mean that the catalogue is the wrong one: no start.
//
// What it refuses to do: it never writes to a network stream, never waits for a disk on an
// executor, and never serves a durable stream from memory because storage is missing.
package core
