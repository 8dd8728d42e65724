package core

import (
	"sync/atomic"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// shard is one append-ordered log of a stream. Fields without a note belong to its executor.
type shard struct {
	stream *Stream
	num    uint32
	exec   *executor
	// account is the tenant's in the executor's queue. Set before the shard is published.
	account *sched.Tenant

	lane *sched.Lane[*task]
	log  *log.Log // nil in memory; its reading side is for anyone
	// producers are the idempotent producers' windows: those of the log, or our own in memory.
	producers *log.Producers

	// memNext is the next offset of a shard without a log.
	memNext uint64
	// pending are the claimed publishes that are not committed, in the order of their claims.
	pending deque
	parts   []fanout.Part // scratch of complete

	// replica is set when the shard has a majority to wait for. Written by the executor; what it points to
	// is the executor's.
	replica atomic.Pointer[replica]

	// view is the keyed state that atomic commits have made; hasState says that it is there, for anyone.
	view     stateView
	hasState atomic.Bool

	// visible is one past the last record that was given to the replay ring and the subscribers: no reader
	// gets more, wherever it reads. Written by the executor, read by anyone.
	visible atomic.Uint64
	replay  *fanout.Ring
	readers *fanout.Registry // snapshot for anyone

	dirty    bool // in exec.dirty
	unmarked bool // in exec.unmarked
	due      bool // in exec.due
	inflight int  // operations of the log that the engine holds
	jobs     int  // file jobs of the log that the workers hold
	gone     bool // the stream was deleted: claims are refused

	// forwarding is the publish that is with the Forwarder; the lane is blocked until it comes back.
	forwarding *task

	// What the guard needs to know after a panic (guard.go): the publish that is being claimed and whether
	// the shard's state may have changed for it; that claims are being completed; the publish that is
	// being answered.
	claiming *task
	changing bool
	settling bool
	telling  *task

	// failure is set once, when the log failed for good or a panic broke the shard. Written by the executor, read by anyone.
	failure atomic.Pointer[wire.Error]
	// fence is why this broker does not serve the shard, nil while it does. Written by the executor, read
	// by anyone.
	fence atomic.Pointer[wire.Error]
}

func newShard(st *Stream, num uint32, e *executor, l *log.Log) *shard {
	o := &st.broker.opts
	s := &shard{
		stream: st, num: num, exec: e, log: l,
		replay:  fanout.NewRing(o.RingRecords, o.RingBytes, 0),
		readers: fanout.NewRegistry(),
	}
	if l == nil {
		s.producers = log.NewProducers()
		return s
	}
	s.producers = l.Producers()
	s.setState(newStateView(st.broker.state, l))
	s.visible.Store(l.Committed())
	s.replay.Reset(l.Committed())
	l.SetOwner(s)
	return s
}

// attach gives the shard its lane. It runs on the executor, or before the executor does.
func (s *shard) attach() {
	s.lane = s.exec.queue.NewLane(s.account)
	s.exec.shards = append(s.exec.shards, s)
	if s.log == nil {
		return
	}
	s.limit()
	if s.stream.mode == log.FsyncPeriodic {
		s.exec.periodic = append(s.exec.periodic, s)
	}
	s.exec.markDirty(s) // a log may have file work to do from the start
}

// OpDone takes an ended operation of the log from the engine's goroutine to the executor.
func (s *shard) OpDone(op *ring.Op) {
	t := newTask(taskOp, s)
	t.op = op
	s.exec.inbox.Push(&t.node)
}

// info describes the shard. Any goroutine.
func (s *shard) info() ShardInfo {
	i := ShardInfo{Shard: s.num, Tail: s.visible.Load()}
	if s.log != nil {
		i.Base = s.log.Base()
	}
	for _, sub := range s.readers.Snapshot() {
		i.Subscribers++
		i.Dropped += sub.Dropped()
	}
	if f := s.failure.Load(); f != nil {
		i.Failed = f.Error()
	}
	return i
}
