package append

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// Bounds as in the broker (core).
const (
	stepTasksMax  = 256
	fsyncInterval = 250 * time.Millisecond // of periodic logs
	jobWorkers    = 2
)

// owner steps the logs of one run as an executor of the broker does: same inbox, same parking, the
// operations of all logs in one submission. What the broker does besides (frames, lanes, claims,
// fan-out) is left out.
type owner struct {
	run    *sched.Executor
	inbox  *sched.Inbox[*task]
	engine ring.Engine
	logs   []*shard
	jobs   chan *shard // to the workers
	ended  sync.WaitGroup
	cancel context.CancelFunc

	// The executor's goroutine only.
	dirty    []*shard
	ops      []*ring.Op
	outcomes []outcome // of this step, not settled
	inflight int
	working  int // jobs with the workers
	periodic bool
	gather   bool
	nextTick int64
	micros   uint64
	stopping bool // for good: nothing is begun any more
	stopped  bool
	quiet    chan struct{} // closed when the executor was told to stop and nothing is in flight
}

type taskKind uint8

const (
	taskAppend taskKind = iota
	taskOp
	taskJob
	taskCall
)

// task is what goes through the inbox. Each is owned by who pushes it and pushed again only after
// it was taken.
type task struct {
	node  sched.Node[*task]
	kind  taskKind
	shard *shard
	op    *ring.Op
	job   *log.Job
	call  func()

	// Of an append.
	entry log.Entry
	last  uint64     // offset after it; committed once the log's bound reaches this
	done  chan error // room for one
}

func newTask(kind taskKind, s *shard) *task {
	t := &task{kind: kind, shard: s}
	t.node.Value = t
	return t
}

// shard is one log and what waits for it. The executor's, but for OpDone.
type shard struct {
	owner   *owner
	log     *log.Log
	op      *task // one group is in flight at a time, and one sync beside it
	sync    *task
	job     *task
	pending []*task // staged, in the order of their offsets
	waiting []*task // refused for lack of room in the group
	dirty   bool
}

// OpDone implements ring.Owner. On goroutines of the engine.
func (s *shard) OpDone(op *ring.Op) {
	t := s.op
	if op.Kind == ring.OpSync {
		t = s.sync
	}
	t.op = op
	s.owner.inbox.Push(&t.node)
}

// logOptions are the options of a log on engine, as the broker has them.
func logOptions(engine ring.Engine, dir string, mode log.FsyncMode, grow bool, pool *wire.Pool) log.Options {
	return log.Options{FS: ring.OS(), Dir: dir, Mode: mode, Direct: engine.Direct(), NoPreWrite: grow, Pool: pool}
}

// runAs says how an owner's executor runs.
type runAs struct {
	sched.ExecutorOptions
	// gather has what became runnable with the last answers run, and taken, before a group is sealed.
	gather bool
}

// asUsual is how the broker's executor runs by default.
func asUsual() runAs { return runAs{ExecutorOptions: sched.ExecutorOptions{CPU: -1}} }

// startOwner opens the logs of c below dir and runs them.
func startOwner(engine ring.Engine, dir string, c Cell, mode log.FsyncMode, grow bool, pool *wire.Pool, as runAs) (*owner, error) {
	o := &owner{engine: engine, jobs: make(chan *shard, c.Logs), quiet: make(chan struct{}), periodic: mode == log.FsyncPeriodic, gather: as.gather}
	for i := range c.Logs {
		l, err := log.Open(logOptions(engine, filepath.Join(dir, fmt.Sprint(i)), mode, grow, pool))
		if err != nil {
			return nil, errors.Join(err, o.closeLogs())
		}
		s := &shard{owner: o, log: l, pending: make([]*task, 0, c.Writers), waiting: make([]*task, 0, c.Writers)}
		s.op, s.sync, s.job = newTask(taskOp, s), newTask(taskOp, s), newTask(taskJob, s)
		l.SetOwner(s)
		o.logs = append(o.logs, s)
	}
	o.inbox = sched.NewInbox[*task](func() { o.run.Wake() })
	o.run = sched.NewExecutor(as.ExecutorOptions, o)
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	o.ended.Go(func() { _ = o.run.Run(ctx) }) // returns nil
	for range jobWorkers {
		o.ended.Go(func() {
			for s := range o.jobs {
				s.job.job.Run()
				o.inbox.Push(&s.job.node)
			}
		})
	}
	return o, nil
}

// stop waits for what is in flight and closes the logs. Nothing may be appended meanwhile.
func (o *owner) stop() error {
	t := newTask(taskCall, nil)
	t.call = func() { o.stopping = true }
	o.inbox.Push(&t.node)
	return o.stopNow()
}

// stopNow is the rest of stop, once the executor was told.
func (o *owner) stopNow() error {
	<-o.quiet
	o.cancel()
	close(o.jobs)
	o.ended.Wait()
	return o.closeLogs()
}

func (o *owner) closeLogs() error {
	var err error
	for _, s := range o.logs {
		err = errors.Join(err, s.log.Close())
	}
	return err
}

// Step implements sched.Stepper.
func (o *owner) Step(now int64) (again bool, wakeAt int64) {
	o.micros = uint64(time.Now().UnixMicro())
	o.takeAll()
	if o.gather && len(o.outcomes) > 0 {
		o.settle()
		runtime.Gosched()
		o.takeAll()
	}
	wakeAt = o.tick(now)
	o.submit() // the disk first, as in the broker
	if len(o.outcomes) > 0 {
		o.settle()
		o.submit()
	}
	if o.stopping && !o.stopped && o.inflight == 0 && o.working == 0 && len(o.dirty) == 0 {
		o.stopped = true
		close(o.quiet)
	}
	return !o.inbox.Empty(), wakeAt
}

func (o *owner) takeAll() {
	for range stepTasksMax {
		n, ok := o.inbox.Pop()
		if !ok {
			return
		}
		o.take(n.Value)
	}
}

func (o *owner) take(t *task) {
	s := t.shard
	switch t.kind {
	case taskAppend:
		s.append(t)
	case taskOp:
		o.inflight--
		s.ended(s.log.OpDone(t.op))
	case taskJob:
		o.working--
		s.ended(s.log.JobDone(t.job))
	case taskCall:
		t.call()
	}
}

func (s *shard) append(t *task) {
	if len(s.waiting) > 0 {
		s.waiting = append(s.waiting, t)
		return
	}
	s.stage(t)
}

// stage gives t its offset, or has it wait for the next group. It says whether t was staged.
func (s *shard) stage(t *task) bool {
	first, err := s.log.Append(&t.entry, s.owner.micros)
	switch {
	case errors.Is(err, log.ErrGroupFull):
		s.waiting = append(s.waiting, t)
		s.mark()
		return false
	case err != nil:
		t.done <- err
		return true
	}
	t.last = first + uint64(t.entry.Count)
	s.pending = append(s.pending, t)
	s.mark()
	return true
}

// retry stages what was refused, while it fits.
func (s *shard) retry() {
	again := s.waiting
	s.waiting = s.waiting[:0] // what is refused again goes to the front, behind what was read
	for i, t := range again {
		if !s.stage(t) {
			s.waiting = append(s.waiting, again[i+1:]...)
			return
		}
	}
}

func (s *shard) mark() {
	if !s.dirty {
		s.dirty = true
		s.owner.dirty = append(s.owner.dirty, s)
	}
}

// ended keeps an outcome until the next group is on its way to the disk, but for a failure.
func (s *shard) ended(out log.Outcome) {
	s.owner.outcomes = append(s.owner.outcomes, outcome{s, out})
	s.mark()
	if out.Err != nil {
		s.owner.settle()
	}
}

// outcome is an outcome of a shard's log.
type outcome struct {
	shard *shard
	out   log.Outcome
}

func (o *owner) settle() {
	for _, e := range o.outcomes {
		e.shard.settle(e.out)
	}
	clear(o.outcomes)
	o.outcomes = o.outcomes[:0]
}

// settle answers what out decides.
func (s *shard) settle(out log.Outcome) {
	n := 0
	for n < len(s.pending) && s.pending[n].last <= out.Committed {
		s.pending[n].done <- nil
		n++
	}
	if out.Err != nil {
		for ; n < len(s.pending); n++ {
			s.pending[n].done <- out.Err
		}
	}
	s.pending = s.pending[:copy(s.pending, s.pending[n:])]
	s.retry()
	s.mark()
}

// tick syncs the periodic logs when it is time, and says when that is next.
func (o *owner) tick(now int64) (wakeAt int64) {
	if !o.periodic || o.stopping {
		return 0
	}
	if now >= o.nextTick {
		o.nextTick = now + int64(fsyncInterval)
		for _, s := range o.logs {
			if o.inflight >= o.engine.Depth() {
				o.nextTick = now
				return 0
			}
			if op := s.log.Tick(); op != nil {
				o.inflight++
				o.ops = append(o.ops, op)
			}
		}
	}
	return o.nextTick
}

// submit hands over what the logs have ready.
func (o *owner) submit() {
	kept := o.dirty[:0]
	for _, s := range o.dirty {
		for job := s.log.TakeJob(); job != nil; job = s.log.TakeJob() {
			s.job.job = job
			o.working++
			o.jobs <- s // has room: a log has one job out
		}
		if o.inflight >= o.engine.Depth() {
			kept = append(kept, s)
			continue
		}
		s.dirty = false
		if op := s.log.NextOp(); op != nil {
			o.inflight++
			o.ops = append(o.ops, op)
			if len(s.waiting) > 0 {
				s.dirty = true // what retry stages marks nothing: the operation's end looks again
				s.retry()
				s.dirty = false
			}
		}
	}
	clear(o.dirty[len(kept):])
	o.dirty = kept
	if len(o.ops) > 0 {
		o.engine.Submit(o.ops)
		clear(o.ops)
		o.ops = o.ops[:0]
	}
}
