package core

import (
	"sync"

	"github.com/ringcast/ringcast/log"
)

// fileWorkers runs the slow file work of the logs: preparing and sealing segments, marks, cuts. No
// executor ever does (HZ-9). They also finish the removal of streams. Each log has one job
// outstanding and each stream is removed once, so the queue is bounded by their number.
type fileWorkers struct {
	mu     sync.Mutex // guards queue and closed
	more   sync.Cond
	queue  []fileJob
	closed bool
	wg     sync.WaitGroup
}

// fileJob is a job of a shard's log, the removal of a stream, or the next page for a state.
type fileJob struct {
	shard  *shard
	job    *log.Job
	remove *Stream
	build  *stateBuild
}

// newFileWorkers returns the queue alone; what is in it waits for start.
func newFileWorkers() *fileWorkers {
	w := &fileWorkers{}
	w.more.L = &w.mu
	return w
}

func (w *fileWorkers) start(n int) {
	for range n {
		w.wg.Go(w.loop)
	}
}

// run queues a job of s's log; its end comes back to s's executor as a task.
func (w *fileWorkers) run(s *shard, j *log.Job) { w.push(fileJob{shard: s, job: j}) }

// remove queues the removal of st.
func (w *fileWorkers) remove(st *Stream) { w.push(fileJob{remove: st}) }

func (w *fileWorkers) push(f fileJob) {
	w.mu.Lock()
	w.queue = append(w.queue, f)
	w.mu.Unlock()
	w.more.Signal()
}

func (w *fileWorkers) loop() {
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.closed {
			w.more.Wait()
		}
		if len(w.queue) == 0 {
			w.mu.Unlock()
			return
		}
		f := w.queue[0]
		w.queue[0] = fileJob{}
		w.queue = w.queue[1:]
		w.mu.Unlock()
		f.run()
	}
}

// run does the work, on the caller's goroutine, and hands a job's end to the executor of its shard.
func (f *fileJob) run() {
	if f.remove != nil {
		f.remove.broker.finishRemoval(f.remove)
		return
	}
	if f.build != nil {
		f.buildState()
		return
	}
	f.job.Run()
	t := newTask(taskJob, f.shard)
	t.job = f.job
	f.shard.exec.inbox.Push(&t.node)
}

// buildState reads one page for a state and queues the rest behind the others: what the logs need is never
// held up for longer. A build whose executor has ended is for nobody.
func (f *fileJob) buildState() {
	e := f.build.shard.exec
	if !f.build.step() {
		select {
		case <-e.stopped:
		default:
			e.b.files.push(*f)
		}
		return
	}
	t := newTask(taskCall, nil)
	t.call = func() { f.build.shard.stateBuilt(f.build) }
	e.inbox.Push(&t.node)
}

// close runs what is queued and joins the workers.
func (w *fileWorkers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.more.Broadcast()
	w.wg.Wait()
}
