// Hot path.

package ring

import (
	"io"
	"sync"
	"sync/atomic"
	"syscall"
)

// PortableOptions configure OpenPortable. The zero value is the default.
type PortableOptions struct {
	// Depth is the most operations in flight. Default 256.
	Depth int
	// Workers is the most operations that are in a system call at the same time; each takes a
	// thread while it is there. Default 16, at most Depth.
	Workers int
}

const (
	depthDefault   = 256
	depthMax       = 8192
	workersDefault = 16
)

func limits(depth, workers int) (int, int) {
	if depth <= 0 {
		depth = depthDefault
	}
	depth = min(depth, depthMax)
	if workers <= 0 {
		workers = workersDefault
	}
	return depth, min(workers, depth)
}

// OpenPortable returns the engine that runs on every platform: a fixed number of workers that
// write and sync with blocking calls. Operations are taken in the order of Submit by whichever
// worker is free, so that a slow file holds back others only when every worker waits for one.
func OpenPortable(o PortableOptions) (Engine, error) {
	return newPortable(o.Depth, o.Workers, &counters{}), nil
}

type portable struct {
	depth, workers int
	room           chan struct{} // one token per operation in flight
	queue          chan *Op      // as long as room: a send never blocks
	running        sync.WaitGroup
	closed         atomic.Bool
	stats          *counters
}

func newPortable(depth, workers int, stats *counters) *portable {
	depth, workers = limits(depth, workers)
	e := &portable{
		depth:   depth,
		workers: workers,
		room:    make(chan struct{}, depth),
		queue:   make(chan *Op, depth),
		stats:   stats,
	}
	for range workers {
		e.running.Go(e.work)
	}
	return e
}

func (e *portable) Name() string { return Portable }
func (e *portable) Depth() int   { return e.depth }
func (e *portable) Direct() bool { return false }

func (e *portable) Stats() Stats {
	s := e.stats.read()
	s.Workers = uint64(e.workers)
	return s
}

func (e *portable) Submit(ops []*Op) {
	if len(ops) == 0 {
		return
	}
	e.stats.submits.Add(1)
	for _, op := range ops {
		if e.closed.Load() {
			op.Written = 0
			e.stats.end(op, &Error{Op: "submit", Class: ErrClosed, Err: ErrClosed})
			op.Owner.OpDone(op)
			continue
		}
		op.Err, op.Written = nil, 0
		e.start(op)
	}
}

// start waits for room and queues one operation.
func (e *portable) start(op *Op) {
	e.room <- struct{}{}
	e.queue <- op
}

// Close may be called twice.
func (e *portable) Close() error {
	if !e.closed.Swap(true) {
		close(e.queue)
	}
	e.running.Wait()
	return nil
}

func (e *portable) work() {
	var w vecWriter
	for op := range e.queue {
		err := e.run(op, &w)
		e.stats.end(op, err)
		<-e.room // before OpDone: its owner may submit at once
		op.Owner.OpDone(op)
	}
}

// run carries out one operation and returns its outcome.
func (e *portable) run(op *Op, w *vecWriter) error {
	if err := op.refusal(); err != nil {
		return err
	}
	if op.Kind != OpSync {
		if err := e.write(op, w); err != nil {
			return err
		}
	}
	if op.Kind == OpWriteDirect {
		e.stats.syncs.Add(1) // it was its own
	}
	if op.Kind.syncs() {
		// A failed sync is never tried again: the next one would succeed for nothing (HZ-2).
		if err := op.File.Sync(); err != nil {
			return Classify("sync", op.File.Name(), err)
		}
		e.stats.syncs.Add(1)
	}
	return nil
}

// write continues until every byte is written or a call fails.
func (e *portable) write(op *Op, w *vecWriter) error {
	total := vecLen(op.Vec)
	for op.Written < total {
		n, errno, ok := w.writeVec(op.File, op.Vec, op.Written, op.Off+op.Written)
		if !ok {
			return e.writeByMethod(op)
		}
		if errno == syscall.EINTR {
			e.stats.retries.Add(1)
			continue
		}
		if errno != 0 {
			return Classify("write", op.File.Name(), errno)
		}
		if n == 0 {
			return errNoProgress("write", op.File)
		}
		op.Written += n
		if op.Written < total {
			e.stats.shortWrites.Add(1)
			if !op.mayGoOn() {
				return errNoProgress("write", op.File)
			}
		}
	}
	return nil
}

// writeByMethod is write for files without a descriptor, which are those of tests. A direct write
// is one call there, too: what a power cut leaves of one write is not what it leaves of several.
func (e *portable) writeByMethod(op *Op) error {
	vec := op.Vec
	if op.Kind == OpWriteDirect && len(vec) > 1 {
		vec = [][]byte{joinAligned(vec)}
	}
	for _, b := range vec {
		for len(b) > 0 {
			n, err := op.File.WriteAt(b, op.Off+op.Written)
			op.Written += int64(n)
			if err != nil {
				return Classify("write", op.File.Name(), err)
			}
			if n == 0 {
				return errNoProgress("write", op.File)
			}
			b = b[n:]
			if len(b) > 0 {
				e.stats.shortWrites.Add(1)
				if !op.mayGoOn() {
					return errNoProgress("write", op.File)
				}
			}
		}
	}
	return nil
}

// errNoProgress is the error of a write that was asked for bytes and took none, or of a direct one
// that ended where none can go on.
func errNoProgress(op string, f File) error {
	return &Error{Op: op, Path: f.Name(), Class: ErrIO, Err: io.ErrShortWrite}
}

func vecLen(vec [][]byte) int64 {
	var n int64
	for _, b := range vec {
		n += int64(len(b))
	}
	return n
}
