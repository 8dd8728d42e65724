// Hot path.

package sched

// FairQueue picks the next lane to run: deficit round robin over tenants, weighted by bytes; within
// a tenant its ready lanes are first in, first out. All methods belong to the executor.
//
//	Push(lane, job, bytes)           the job waits in its lane
//	lane, ok := Next()               this lane runs now ...
//	for job, ok := Peek(lane); ...   ... its first job, and those behind it that join it
//	    Pop(lane)                    the tenant is charged for each
//	Done(lane)                       the next job of the lane may have its turn
//	Block(lane) ... Unblock(lane)    no turn for this lane until something ends
//
// A tenant's turn begins with a quantum of 64 KiB on top of what it is owed or owes, and lasts while
// it has credit and a ready lane. A job is served whole, so a turn may end in debt; debt is paid out
// of later turns. What a tenant owes is kept when it has nothing ready and shrinks with each round
// that it sits out: if it were forgotten, a tenant with one lane, which is never ready while its job
// runs, would never pay. What it is owed is forgotten when its turn ends: idle tenants save nothing
// up. When nobody has anything ready all debts are forgiven, since nobody was kept waiting for them.
//
// Cost: Next is O(1) when the tenant whose turn it is has credit, else it looks at each active
// tenant twice at most, however deep they are in debt.
type FairQueue[T any] struct {
	flows map[*Tenant]*flow[T]
	jobs  int // queued in all lanes

	// Ring of turns: the tenants that have, or had when we last looked, a ready lane.
	head, tail *flow[T]
	active     int
	// turn: the head's turn has begun.
	turn bool

	// round counts how often everybody active has had a turn; roundLeft is who has not in this one.
	round     uint64
	roundLeft int
}

// idleRounds is what a queue with nothing ready is worth, in rounds: enough to forgive any debt.
const idleRounds = 1 << 20

// NewFairQueue returns an empty queue.
func NewFairQueue[T any]() *FairQueue[T] {
	return &FairQueue[T]{flows: map[*Tenant]*flow[T]{}}
}

// Len is how many jobs are queued in all lanes.
func (q *FairQueue[T]) Len() int { return q.jobs }

// NewLane adds a lane of tenant t.
func (q *FairQueue[T]) NewLane(t *Tenant) *Lane[T] {
	f := q.flows[t]
	if f == nil {
		f = &flow[T]{}
		q.flows[t] = f
	}
	f.lanes++
	return &Lane[T]{flow: f, tenant: t}
}

// RemoveLane takes out a lane that has no jobs and does not run.
func (q *FairQueue[T]) RemoveLane(l *Lane[T]) {
	if l.count != 0 || l.running {
		panic("sched: lane removed with jobs in it")
	}
	if l.flow.lanes--; l.flow.lanes == 0 {
		delete(q.flows, l.tenant)
	}
	l.flow = nil
}

// Push appends a job to its lane; bytes is its weight.
func (q *FairQueue[T]) Push(l *Lane[T], job T, bytes int) {
	l.push(job, bytes)
	q.jobs++
	q.update(l)
}

// Next returns the lane whose turn it is and has it running until Done. ok is false when no lane
// is ready.
func (q *FairQueue[T]) Next() (l *Lane[T], ok bool) {
	refused := 0 // tenants in a row that were in debt
	for q.head != nil {
		f := q.head
		if f.head == nil {
			q.leave(f)
			continue
		}
		if !q.turn {
			q.turn = true
			f.deficit += Quantum
		}
		if f.deficit > 0 {
			l = f.head
			f.remove(l)
			l.running = true
			return l, true
		}
		q.rotate(f)
		if refused++; refused >= q.active {
			q.advance()
			refused = 0
		}
	}
	q.round += idleRounds
	return nil, false
}

// Peek returns the first job of a lane.
func (q *FairQueue[T]) Peek(l *Lane[T]) (job T, ok bool) {
	if l.count == 0 {
		return job, false
	}
	return l.jobs[l.first].job, true
}

// Pop takes the first job out of a running lane and charges its bytes to the tenant.
func (q *FairQueue[T]) Pop(l *Lane[T]) (job T, ok bool) {
	if l.count == 0 {
		return job, false
	}
	if !l.running {
		panic("sched: job taken from a lane that does not run")
	}
	head := l.pop()
	q.jobs--
	l.flow.deficit -= int64(head.bytes)
	return head.job, true
}

// Done ends the run of a lane that Next returned.
func (q *FairQueue[T]) Done(l *Lane[T]) {
	if !l.running {
		panic("sched: lane is done without having run")
	}
	l.running = false
	q.update(l)
}

// Block keeps a lane from being picked, whatever is queued in it. Blocking twice is blocking once.
func (q *FairQueue[T]) Block(l *Lane[T]) {
	l.blocked = true
	q.update(l)
}

// Unblock lets a lane be picked again.
func (q *FairQueue[T]) Unblock(l *Lane[T]) {
	l.blocked = false
	q.update(l)
}

// update puts a lane among the ready ones of its tenant, or takes it out.
func (q *FairQueue[T]) update(l *Lane[T]) {
	ready := l.count > 0 && !l.running && !l.blocked
	if ready == l.ready {
		return
	}
	f := l.flow
	if !ready {
		f.remove(l)
		return
	}
	f.push(l)
	if !f.active {
		q.join(f)
	}
}

// join puts a tenant at the end of the ring. It has sat out some rounds.
func (q *FairQueue[T]) join(f *flow[T]) {
	paid := int64(min(q.round-f.left, idleRounds)) * Quantum
	f.deficit = min(0, f.deficit+paid)
	f.active = true
	if q.tail == nil {
		q.head, q.turn = f, false
	} else {
		q.tail.next = f
	}
	q.tail = f
	q.active++
}

// leave takes the tenant at the head out of the ring: nothing of it is ready.
func (q *FairQueue[T]) leave(f *flow[T]) {
	q.pass()
	q.head = f.next
	if q.head == nil {
		q.tail = nil
	}
	q.active--
	f.next, f.active = nil, false
	f.deficit = min(0, f.deficit)
	f.left = q.round
}

// rotate ends the turn of the tenant at the head.
func (q *FairQueue[T]) rotate(f *flow[T]) {
	q.pass()
	if q.tail == f {
		return
	}
	q.head = f.next
	f.next = nil
	q.tail.next = f
	q.tail = f
}

// pass counts the end of a turn.
func (q *FairQueue[T]) pass() {
	q.turn = false
	if q.roundLeft--; q.roundLeft <= 0 {
		q.round++
		q.roundLeft = q.active
	}
}

// advance skips the rounds in which everybody would only pay debts: all but the last of them.
func (q *FairQueue[T]) advance() {
	rounds := int64(idleRounds)
	for f := q.head; f != nil; f = f.next {
		if f.head != nil {
			rounds = min(rounds, -f.deficit/Quantum)
		}
	}
	for f := q.head; f != nil; f = f.next {
		f.deficit += rounds * Quantum
	}
	q.round += uint64(rounds)
}
