package sched

import "time"

const (
	// Quantum is what a tenant may be served in one turn, in bytes of payload (PUB-13).
	Quantum = 64 << 10

	// turnMax is how long an executor runs before it lets waiting goroutines have the processor
	// (PUB-9, HZ-45).
	turnMax = 200 * time.Microsecond

	// stopStepsMax is how long an executor goes on stepping after its context has ended, for as
	// long as its stepper says that there is more to do.
	stopStepsMax = time.Second

	// clockTick is how stale a Clock may be.
	clockTick = time.Millisecond

	// laneLenMin is the first size of a lane's ring of jobs.
	laneLenMin = 4

	// cacheLine keeps what two cores write apart: adjacent lines are fetched in pairs.
	cacheLine = 128
)
