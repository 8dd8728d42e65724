// Hot path.

package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// Bounds of one step: enough to pay for the step, few enough that nobody waits long for a turn.
const (
	stepTasksMax = 256 // inbox tasks taken
	stepJobsMax  = 256 // publishes claimed
)

// executor owns the shards whose dense number is id mod N: it alone touches their state. It is a
// sched.Stepper.
type executor struct {
	b  *Broker
	id int

	run       *sched.Executor
	inbox     *sched.Inbox[*task]
	admission *sched.Admission
	engine    ring.Engine
	// tenants are the accounts of this executor's queue. Guarded by tenantsMu.
	tenants   map[string]*sched.Tenant
	tenantsMu sync.Mutex

	// Below: the executor's goroutine only.

	queue *sched.FairQueue[*task]
	// dirty are shards whose log may have an operation to submit or a file job to run.
	dirty []*shard
	ops   []*ring.Op
	// outcomes are what the logs have answered in this step, in order, and is not settled.
	outcomes []outcome
	// due are the shards that may have something to complete, each once.
	due []*shard
	// uncompleted is how many bytes were claimed in memory since completeMemory.
	uncompleted int64
	// late is what runs when the outcomes of this step are settled.
	late []func()
	// inflight is how many operations the engine holds, never above its depth (HZ-23); jobs is
	// how many file jobs are with the workers.
	inflight int
	jobs     int
	// unblocked: a lane may run again for which this step had no turn.
	unblocked bool
	// periodic are the open logs that sync by time; nextTick is when, on the scale of sched.Mono.
	periodic []*shard
	nextTick int64
	// unmarked are logs whose durable.mark is behind; nextMark is when that is mended.
	unmarked []*shard
	nextMark int64
	// limited are the shards with a retention bound; nextRetain is when they are looked at next.
	limited    []*shard
	nextRetain int64
	// shards are those that the executor owns, held is what their replay rings keep alive, hand is
	// where the next shrinking of the rings begins.
	shards []*shard
	held   int64
	hand   int
	// leaving are shards of deleted streams that have something in flight or queued.
	leaving []*shard
	// holding are the replicated shards that hold something back, nextHeld is when they are looked at next
	// and nextRecheck when that is for their marks.
	holding               []*shard
	nextHeld, nextRecheck int64
	micros                uint64 // the present in this step, us since the epoch
	now                   int64  // the same on the scale of sched.Mono

	// quiet is closed when the executor was told to stop and nothing is in flight any more.
	quiet    chan struct{}
	stopping bool
	// stopped is closed when the goroutine has ended: what is pushed then is never run.
	stopped chan struct{}

	stats executorStats
	disk  diskTimes
}

func newExecutor(b *Broker, id int, engine ring.Engine) *executor {
	e := &executor{
		b: b, id: id,
		admission: sched.NewAdmission(b.opts.PublishQueueDepth, b.opts.PublishQueueFactor),
		engine:    engine,
		tenants:   map[string]*sched.Tenant{},
		queue:     sched.NewFairQueue[*task](),
		quiet:     make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	e.inbox = sched.NewInbox[*task](func() { e.run.Wake() })
	return e
}

// Step takes what came in, claims what is queued, and submits what the logs have ready: one system
// call for the groups of all of them (design.md 3).
func (e *executor) Step(now int64) (again bool, wakeAt int64) {
	e.micros, e.now = uint64(e.b.opts.Now().UnixMicro()), now
	more := e.takeTasks(now)
	if e.claimJobs() {
		more = true
	}
	e.completeMemory()
	wakeAt = earlier(e.tick(now), e.retention(now))
	e.markLogs(now)
	// The disk first: while it writes the next groups, the publishes of the last ones are answered.
	if e.submit() {
		more = true
	}
	e.settle()
	wakeAt = earlier(wakeAt, e.recheck(now))
	if e.unblocked {
		e.unblocked, more = false, true
	}
	e.runLate()
	if len(e.unmarked) > 0 && !e.stopping {
		wakeAt = earlier(wakeAt, e.nextMark)
	}
	e.release()
	if e.b.retained.Load() > e.b.opts.RetainedBytes {
		e.shrinkRings()
	}
	e.stats.flush(e)
	if e.stopping {
		e.finish()
	}
	return more, wakeAt
}

// takeTasks moves tasks from the inbox to where they belong and says whether there are more.
func (e *executor) takeTasks(now int64) bool {
	for range stepTasksMax {
		n, ok := e.inbox.Pop()
		if !ok {
			return false
		}
		t := n.Value
		switch s := t.shard; t.kind {
		case taskPublish:
			switch {
			case e.stopping:
				s.reject(t, errDraining)
				continue
			case s.gone:
				s.reject(t, errNoStream)
				continue
			}
			// Not the payload alone: records without a byte would be served for nothing (PUB-13).
			e.queue.Push(s.lane, t, int(t.cost))
		case taskOp:
			e.inflight--
			s.inflight--
			op := t.op
			t.free()
			e.disk.add(now - int64(op.Tag))
			s.opDone(op)
		case taskJob:
			e.jobs--
			s.jobs--
			job := t.job
			t.free()
			s.jobDone(job)
		case taskMark:
			t.free()
			s.replica.Load().moved.Store(false)
			e.completeLater(s)
		case taskForwarded:
			result := t.result
			t.free()
			s.forwarded(result)
		case taskCall:
			call := t.call
			t.free()
			call()
		}
	}
	return !e.inbox.Empty()
}

// claimJobs runs the lanes whose turn it is and says whether some are ready still.
func (e *executor) claimJobs() bool {
	for n := 0; n < stepJobsMax; {
		lane, ok := e.queue.Next()
		if !ok {
			return false
		}
		n += e.runLane(lane)
	}
	return e.queue.Len() > 0
}

// outcome is an outcome of a shard's log.
type outcome struct {
	shard *shard
	out   log.Outcome
}

func (e *executor) settleLater(s *shard, out log.Outcome) {
	e.outcomes = append(e.outcomes, outcome{s, out})
}

// completeLater has the shard complete what it can before the step ends.
func (e *executor) completeLater(s *shard) {
	if !s.due {
		s.due = true
		e.due = append(e.due, s)
	}
}

// completeMemory completes what was claimed in memory: it waits for no disk.
func (e *executor) completeMemory() {
	e.uncompleted = 0
	kept := e.due[:0]
	for _, s := range e.due {
		if s.log != nil {
			kept = append(kept, s)
			continue
		}
		s.due = false
		e.settleOne(s, nil)
	}
	clear(e.due[len(kept):])
	e.due = kept
}

// settle settles the outcomes of this step, and completes what else can be.
func (e *executor) settle() {
	for i := range e.outcomes {
		e.settleOne(e.outcomes[i].shard, &e.outcomes[i].out)
	}
	clear(e.outcomes)
	e.outcomes = e.outcomes[:0]
	for _, s := range e.due {
		s.due = false
		e.settleOne(s, nil)
	}
	clear(e.due)
	e.due = e.due[:0]
}

// markDirty has the shard's log looked at before the step ends.
func (e *executor) markDirty(s *shard) {
	if !s.dirty {
		s.dirty = true
		e.dirty = append(e.dirty, s)
	}
}

// submit hands the logs' operations to the engine and their file jobs to the workers. A log that
// finds no place in the engine stays dirty until an operation ends. A lane that waited for its log's
// filling group fills the next one from now on: submit then asks for another step.
func (e *executor) submit() (again bool) {
	kept := e.dirty[:0]
	for _, s := range e.dirty {
		for {
			job := s.log.TakeJob()
			if job == nil {
				break
			}
			e.jobs++
			s.jobs++
			e.b.files.run(s, job)
		}
		if s.log.Unmarked() && !s.unmarked {
			s.unmarked = true
			e.unmarked = append(e.unmarked, s)
		}
		if e.inflight >= e.engine.Depth() {
			kept = append(kept, s)
			continue
		}
		s.dirty = false
		if op := s.log.NextOp(); op != nil {
			e.inflight++
			s.inflight++
			e.ops = append(e.ops, op)
			if s.lane.Blocked() {
				s.unblock()
				again = true
			}
		}
	}
	clear(e.dirty[len(kept):])
	e.dirty = kept
	if len(e.ops) > 0 {
		began := uint64(sched.Mono())
		for _, op := range e.ops {
			op.Tag = began
		}
		e.engine.Submit(e.ops)
		e.stats.submits++
		e.stats.ops += uint64(len(e.ops))
		clear(e.ops)
		e.ops = e.ops[:0]
	}
	return again
}

// tick syncs the periodic logs that have something to sync and returns when to do so next. When the
// executor stops, closing the logs does it.
func (e *executor) tick(now int64) (wakeAt int64) {
	if len(e.periodic) == 0 || e.stopping {
		return 0
	}
	if now >= e.nextTick {
		e.nextTick = now + int64(e.b.opts.FsyncInterval)
		for _, s := range e.periodic {
			if e.inflight >= e.engine.Depth() {
				// The rest when an operation has ended, which wakes us.
				e.nextTick = now
				return 0
			}
			if op := s.log.Tick(); op != nil {
				e.inflight++
				s.inflight++
				e.ops = append(e.ops, op)
			}
		}
	}
	return e.nextTick
}

// markInterval is how long durable.mark of a log may be behind.
const markInterval = int64(250 * time.Millisecond)

// markLogs has the marks written that are behind, once in a while and not with each commit. When the
// executor stops, closing the logs does it.
func (e *executor) markLogs(now int64) {
	if len(e.unmarked) == 0 {
		e.nextMark = now + markInterval
	}
	if now < e.nextMark || e.stopping {
		return
	}
	for _, s := range e.unmarked {
		s.unmarked = false
		s.log.Rest()
		e.markDirty(s)
	}
	clear(e.unmarked)
	e.unmarked = e.unmarked[:0]
	e.nextMark = now + markInterval
}

// earlier is the earlier of two times to wake at, of which 0 is never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// leave has the shard refuse everything from now on and let go of it when nothing is in flight.
func (e *executor) leave(s *shard) {
	s.gone = true
	s.unblock()
	s.forgetState()
	is := func(other *shard) bool { return other == s }
	e.periodic = slices.DeleteFunc(e.periodic, is)
	e.limited = slices.DeleteFunc(e.limited, is)
	s.holdRetention()
	e.shards = slices.DeleteFunc(e.shards, is)
	e.unmarked = slices.DeleteFunc(e.unmarked, is)
	e.retain(-s.replay.Bytes()) // nobody joins it any more
	s.replay.Reset(s.visible.Load())
	e.leaving = append(e.leaving, s)
}

// release lets go of the leaving shards that are done.
func (e *executor) release() {
	if len(e.leaving) == 0 {
		return
	}
	e.leaving = slices.DeleteFunc(e.leaving, func(s *shard) bool {
		if s.inflight == 0 && s.jobs == 0 && !s.dirty {
			s.unheld(errGone)
		}
		if s.inflight != 0 || s.jobs != 0 || s.dirty || s.pending.count != 0 || s.lane.Len() != 0 || s.forwarding != nil {
			return false
		}
		e.queue.RemoveLane(s.lane)
		if s.log != nil {
			e.b.storageCounts.letGo(s.log.Stats())
		}
		e.retain(-s.replay.Bytes())
		s.replay.Reset(0)
		if s.stream.leaving.Add(-1) == 0 {
			e.b.files.remove(s.stream)
		}
		return true
	})
}

// stop makes the executor refuse what is queued and close quiet when nothing is in flight. It is a
// taskCall.
func (e *executor) stop() {
	e.stopping = true
	for _, s := range e.shards {
		s.holdRetention()
	}
	for {
		lane, ok := e.queue.Next()
		if !ok {
			break
		}
		for {
			t, ok := e.queue.Pop(lane)
			if !ok {
				break
			}
			t.shard.reject(t, errDraining)
		}
		e.queue.Done(lane)
	}
}

func (e *executor) finish() {
	if e.inflight == 0 && e.jobs == 0 && len(e.dirty) == 0 && e.queue.Len() == 0 && len(e.leaving) == 0 && !e.awaitsMajority() {
		for _, s := range e.holding {
			s.unheld(errDraining)
		}
		select {
		case <-e.quiet:
		default:
			close(e.quiet)
		}
	}
}

// retain accounts for what the replay rings keep alive, and returns the sum of all executors.
func (e *executor) retain(n int64) int64 {
	e.held += n
	return e.b.retained.Add(n)
}

// shrinkRings drops the oldest batches of this executor's replay rings, one ring after another, for
// as long as all rings of the broker together are over their budget and these hold more than their
// share of it. If that was not enough another executor holds more than its share: it is woken, and
// looks. A reader that joins later than a shrunk ring reaches reads the log a little longer.
func (e *executor) shrinkRings() {
	budget := e.b.opts.RetainedBytes
	share := budget / int64(len(e.b.executors))
	// A shard that leaves may hold something, too, and is none of them: it lets go of it soon.
	for empty := 0; empty < len(e.shards) && e.held > share && e.b.retained.Load() > budget; {
		e.hand = (e.hand + 1) % len(e.shards)
		n, ok := e.shards[e.hand].replay.DropOldest()
		if !ok {
			empty++
			continue
		}
		empty = 0
		e.retain(-n)
	}
	if e.b.retained.Load() > budget {
		for _, other := range e.b.executors {
			if other != e {
				other.run.Wake()
			}
		}
	}
}

// runLate runs what callSettled has left for the end of the step.
func (e *executor) runLate() {
	for _, fn := range e.late {
		fn()
	}
	clear(e.late)
	e.late = e.late[:0]
}

// call runs fn on the executor and waits for it. fn must not block. It does not take a context:
// an executor's turn is short, and a call that was given up half way would still happen.
func (e *executor) call(fn func()) error {
	done := make(chan struct{})
	return e.post(done, func() {
		fn()
		close(done)
	})
}

// callSettled is call at the end of a step, where everything that the logs say is committed has been
// made visible: nobody has read more of a log than fn finds.
func (e *executor) callSettled(fn func()) error {
	done := make(chan struct{})
	return e.post(done, func() {
		e.late = append(e.late, func() {
			fn()
			close(done)
		})
	})
}

// post has the executor run call, and waits until done is closed.
func (e *executor) post(done <-chan struct{}, call func()) error {
	t := newTask(taskCall, nil)
	t.call = call
	e.inbox.Push(&t.node)
	return e.b.opts.await(e, done)
}

// awaitCall waits for a call of an executor that runs on its own goroutine, or has ended.
func awaitCall(e *executor, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-e.stopped:
		select {
		case <-done: // it ran in the last step
			return nil
		default:
			return errDraining
		}
	}
}

// loop runs the executor until ctx ends.
func (e *executor) loop(ctx context.Context) {
	defer close(e.stopped)
	_ = e.run.Run(ctx) // returns nil
}

// storageError is the answer after a log has failed for good.
func storageError(err error) *wire.Error {
	e := wire.NewError(wire.CodeStorage, "the shard's log failed and takes no writes until the broker restarts").WithRetry(wire.RetryFatal)
	e.Err = err
	return e
}
