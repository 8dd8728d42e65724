// Hot path.

package core

import (
	"sync"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
)

type taskKind uint8

const (
	taskPublish   taskKind = iota + 1 // a job for the shard's lane
	taskOp                            // an operation of the shard's log ended
	taskJob                           // a file job of the shard's log ended
	taskMark                          // the shard's mark moved
	taskForwarded                     // the shard's forwarded publish was answered
	taskCall                          // something that must happen at one point of a shard's log
)

// task is what travels into an executor's inbox. It belongs to the sender until it is pushed and to
// the executor from then on, which gives publish tasks back to their pool when they are finished.
type task struct {
	node sched.Node[*task]
	kind taskKind

	shard *shard
	req   PublishRequest // taskPublish
	cost  int64          // bytes taken from the budgets, given back when the task is finished
	paid  paid           // taken from the tenant's quota, given back if it never gets a place in the queue

	// A claimed publish: its records are [base, base+req.Count). duplicate: the records are those
	// of an earlier batch at base; this one only waits until they are committed.
	base      uint64
	digest    uint64
	time      uint64 // append time, us
	duplicate bool
	// deadline is when it has waited for its majority too long, on the scale of sched.Mono; 0 = it does not
	// wait. stays: it was answered and is kept until its records are visible.
	deadline int64
	stays    bool
	// mismatch: a conditional publish that is refused once everything below base is committed.
	mismatch bool
	// reserved is what a claimed commit holds of the budget of keyed states until it is answered.
	reserved int64

	op     *ring.Op      // taskOp
	job    *log.Job      // taskJob
	result PublishResult // taskForwarded
	call   func()        // taskCall
}

var taskPool = sync.Pool{New: func() any {
	t := &task{}
	t.node.Value = t
	return t
}}

func newTask(kind taskKind, s *shard) *task {
	t := taskPool.Get().(*task)
	t.kind, t.shard = kind, s
	return t
}

// free returns t to the pool. Nothing may refer to it any more.
func (t *task) free() {
	t.shard, t.req, t.cost, t.paid = nil, PublishRequest{}, 0, paid{}
	t.base, t.digest, t.time, t.duplicate = 0, 0, 0, false
	t.deadline, t.stays = 0, false
	t.mismatch, t.reserved = false, 0
	t.op, t.job, t.call = nil, nil, nil
	t.result = PublishResult{}
	taskPool.Put(t)
}

// joins says whether t may be claimed together with its neighbours in the lane. Every other publish is
// claimed alone, and nothing overtakes it (PUB-8); it may still share the log's write with others.
func (t *task) joins() bool {
	r := &t.req
	return r.Count != 0 && !r.Idempotent && !r.Conditional && r.commit == nil && r.owner == nil
}

// section is the records section of a publish task.
func (t *task) section() []byte {
	return t.req.Buf.Bytes()[t.req.Pos : t.req.Pos+t.req.SectionLen]
}

// deque is a FIFO of tasks that keeps its memory.
type deque struct {
	ring  []*task // length a power of two, or 0
	first int
	count int
}

func (d *deque) push(t *task) {
	if d.count == len(d.ring) {
		next := make([]*task, max(64, 2*len(d.ring)))
		n := copy(next, d.ring[d.first:])
		copy(next[n:], d.ring[:d.first])
		d.ring, d.first = next, 0
	}
	d.ring[(d.first+d.count)&(len(d.ring)-1)] = t
	d.count++
}

// at is the i-th task from the front.
func (d *deque) at(i int) *task { return d.ring[(d.first+i)&(len(d.ring)-1)] }

func (d *deque) pop() *task {
	t := d.ring[d.first]
	d.ring[d.first] = nil
	d.first = (d.first + 1) & (len(d.ring) - 1)
	d.count--
	return t
}
