// Package sim is what a seeded simulation of the broker needs and the broker does not: chance that can
// be replayed, a trace of what was done, and a model so naive that it can be seen to be right, with the
// checkers that compare a broker with it.
//
//	seed -> Chooser -> the simulation decides what happens next, on one goroutine
//	        Trace      what it decided and what came of it: a hash, and the last steps for a failure
//	        Shard      what a shard must hold, from what was accepted, answered and became readable
//	        Reader     what one reader must be given
//	        CheckShares the order in which tenants were served
//
// Nothing here knows the broker. core/sim_test.go steps a real one - executors, lanes, fair queue,
// admission, logs, producers, fan-out - and tells the model everything that it sees: Accept when a publish
// was taken, Readable for each record as it appears, Answer for each answer, EndStep after each
// step of an executor, Quiet when nothing is left to be done, Recovered after a restart. Each returns an error where the
// broker did what it must not. A Shard keeps every record that was ever readable as an element of a slice; it
// has no windows, groups or files.
//
// Everything belongs to one goroutine.
package sim
