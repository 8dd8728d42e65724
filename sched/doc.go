// Package sched decides what runs next, and on which thread: executors, the queue that is fair to
// tenants, the budgets that bound what is waiting, and the coarse clock. It knows nothing of what
// it runs.
//
//	session goroutines                               one executor per core shard
//	------------------                               ---------------------------------------
//	Bucket.Take      (units per second)
//	Budget.Acquire   (bytes)                         Executor.Run
//	Admission.TryEnter, Join (jobs of a tenant)         Stepper.Step(now)
//	Inbox.Push ------------- swap list --------------->   Inbox.Pop -> FairQueue.Push
//	       \                                              FairQueue.Next -> lane -> jobs
//	        '-- Executor.Wake: only if it sleeps          ... Done, Admission.Leave, Budget.Release
//	                                                    Parker.Park when there is nothing to do
//
// # Who owns what
//
// A FairQueue, its lanes and the tenants' accounts in it belong to one executor and have no lock.
// Admission and the budgets are shared by everybody; whoever was let in gives the unit back exactly
// once, and so lets the next one in. A Waiter belongs to its line while it stands there. An Inbox has any number of producers and one consumer. A Node belongs to the producer
// until Push and to the consumer from Pop on.
//
// # Goroutines
//
// None is started here. Executor.Run and Clock.Run occupy the goroutine that calls them and return
// when their context has ended.
//
// # Failures
//
// An executor that may not be pinned to its CPU says so once, counts it and runs unpinned. A panic
// in a step is not caught: state that broke an invariant is not served on. Who isolates a job does
// it inside the step.
//
// # What it refuses
//
// Priorities, preemption, work stealing, timers per job, and queues without a bound: an Inbox
// takes what Admission and Budget have let in, and nothing else is pushed to one without a bound
// of its own.
package sched
