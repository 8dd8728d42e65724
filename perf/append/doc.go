// Package append measures the append path of the log: package log on an engine of package ring,
// stepped by an executor of package sched as the broker steps it, under closed-loop writers. Each
// outcome stands beside two others that were taken in the same minute on the same disk:
//
//	writers (goroutines)                          limit: bare loops of write and sync,
//	   | task, inbox, wake      ^ done            one per file, at the engine's group size
//	   v                        |
//	owner: sched.Executor -> log.Append ..        rivals: bbolt and Pebble in a process of
//	   | one Submit for all logs                  their own (perf/peers), started and asked
//	   v                                          by JSON lines
//	ring.Engine -> files, removed after each turn
//
// # Method
//
// A cell is one load: writers, logs, record size, fsync mode. In each of several rounds every subject
// has a turn, and the order rotates; every ratio is one between turns of the same round, and what is
// reported is the median of the rounds' ratios with their extremes. So a disk that gets slower, or
// another process, disturbs both sides of a ratio. Nothing here is asserted by time.
//
// The bare loop gets the mean write of the engine (its records, headers and padding) as its size, as
// many files as the load can have writes in flight, and lays writes on end of each other as a log
// does; the best of three counts: a file that grows, one whose blocks were written before, and the
// latter with O_DIRECT|O_DSYNC. Its records per second are its writes times the engine's records per
// write. Processor time is the process's, so that the writers are in it, for every subject alike.
//
// Prewrite is a measurement of its own: what state of the blocks costs, and what zeroing ahead of the
// appends costs them (docs/decisions/pre-writing-measured.md). So is Waiting: the same load with the
// executor on an ordinary goroutine, on a thread of its own, and pinned, parked in different places,
// with CPUs that are idle and that are all busy.
//
// # Goroutines
//
// Run and Waiting start the writers, one executor and two workers per turn and waits for them all before the
// next turn, and the peers' program, which is told to end and waited for.
//
// What may fail: an engine or a peer that is not there is named in Report.Missing; an error of a disk
// ends the run. It refuses to leave files behind.
package append
