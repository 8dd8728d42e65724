package ringtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"

	"github.com/ringcast/ringcast/ring"
)

// Engine is a ring.Engine whose operations end when the test says, in the order it says, with
// the outcome it says; or, made with NewSyncEngine, at once inside Submit.
//
// OpDone is called on the goroutine that ends the operation: the test's, or Submit's.
type Engine struct {
	depth  int
	sync   bool
	direct bool

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	pending []*ring.Op // in the order of submission
	batches [][]*ring.Op
	stats   ring.Stats
	closed  bool
}

// NewEngine returns an engine that waits for the test. Submit blocks while depth operations wait.
func NewEngine(depth int) *Engine {
	return &Engine{depth: depth, changed: make(chan struct{})}
}

// NewSyncEngine returns an engine that carries out operations with the files' methods and ends
// them before Submit returns.
func NewSyncEngine() *Engine {
	return &Engine{depth: 1, sync: true, changed: make(chan struct{})}
}

// ForDirect makes the engine one for direct writes, and returns it. Call it before Submit.
func (e *Engine) ForDirect() *Engine {
	e.direct = true
	return e
}

func (e *Engine) Name() string { return "ringtest" }
func (e *Engine) Depth() int   { return e.depth }
func (e *Engine) Direct() bool { return e.direct }

func (e *Engine) Stats() ring.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

func (e *Engine) Submit(ops []*ring.Op) {
	if len(ops) == 0 {
		return
	}
	e.mu.Lock()
	if e.closed {
		panic("ringtest: Submit after Close")
	}
	e.stats.Submits++
	e.batches = append(e.batches, slices.Clone(ops))
	e.mu.Unlock()
	for _, op := range ops {
		op.Err, op.Written = nil, 0
		e.mu.Lock()
		for !e.sync && len(e.pending) >= e.depth {
			e.wait(context.Background())
		}
		e.pending = append(e.pending, op)
		e.broadcast()
		e.mu.Unlock()
		if e.sync {
			e.Run(op)
		}
	}
}

// Pending returns the operations that have not ended, in the order of submission.
func (e *Engine) Pending() []*ring.Op {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.pending)
}

// Batches returns what each call of Submit brought.
func (e *Engine) Batches() [][]*ring.Op {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.batches)
}

// WaitPending waits until at least n operations have not ended.
func (e *Engine) WaitPending(ctx context.Context, n int) ([]*ring.Op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.pending) < n {
		if err := e.wait(ctx); err != nil {
			return slices.Clone(e.pending), fmt.Errorf("ringtest: %d of %d operations pending: %w", len(e.pending), n, err)
		}
	}
	return slices.Clone(e.pending), nil
}

// Run carries out a pending operation with its file's methods and ends it with what they say.
func (e *Engine) Run(op *ring.Op) {
	written, err := perform(op)
	if err != nil && op.Kind == ring.OpWriteDirect && written == size(op) {
		written = 0 // as the real engines say it: nothing is known
	}
	e.End(op, written, err)
}

func size(op *ring.Op) (n int64) {
	for _, b := range op.Vec {
		n += int64(len(b))
	}
	return n
}

// RunAll carries out everything pending, oldest first, and returns how many that were.
func (e *Engine) RunAll() int {
	ops := e.Pending()
	for _, op := range ops {
		e.Run(op)
	}
	return len(ops)
}

// End ends a pending operation without touching its file: written bytes, and an error (an errno
// is classified) or nil. An operation that is not pending is a fault of the test, and so is a direct
// write with an error and every byte written.
func (e *Engine) End(op *ring.Op, written int64, err error) {
	e.mu.Lock()
	i := slices.Index(e.pending, op)
	switch {
	case i < 0:
		e.mu.Unlock()
		panic("ringtest: operation ended that is not pending")
	case err != nil && op.Kind == ring.OpWriteDirect && written == size(op):
		e.mu.Unlock()
		panic("ringtest: a direct write has no sync that could fail by itself")
	}
	e.pending = slices.Delete(e.pending, i, i+1)
	op.Written, op.Err = written, ring.Classify("write", op.File.Name(), err)
	e.stats.Ops++
	e.stats.Bytes += uint64(written)
	if err != nil {
		e.stats.Errors++
	} else if op.Kind != ring.OpWrite {
		e.stats.Syncs++
	}
	e.broadcast()
	e.mu.Unlock()
	op.Owner.OpDone(op)
}

// Close waits until the test has ended what is pending.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for len(e.pending) > 0 {
		e.wait(context.Background())
	}
	return nil
}

// wait releases mu until something changes or ctx ends.
func (e *Engine) wait(ctx context.Context) error {
	changed := e.changed
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// broadcast wakes every wait. mu is held.
func (e *Engine) broadcast() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// perform does what an operation asks with the methods of its file. A direct write is its own sync.
func perform(op *ring.Op) (written int64, err error) {
	if op.Kind != ring.OpSync {
		vec := op.Vec
		if op.Kind == ring.OpWriteDirect && len(vec) > 1 {
			all := ring.AlignedBytes(int(size(op))) // one write, for a power cut to tear
			copy(all, bytes.Join(vec, nil))
			vec = [][]byte{all}
		}
		for _, b := range vec {
			for len(b) > 0 {
				if op.Kind == ring.OpWriteDirect && !ring.IsAligned(b, op.Off+written) {
					if written%ring.DirectAlign != 0 {
						return written, io.ErrShortWrite // it ended where none can go on
					}
					return written, syscall.EINVAL
				}
				n, err := op.File.WriteAt(b, op.Off+written)
				written += int64(n)
				if err != nil {
					return written, err
				}
				if n == 0 {
					return written, io.ErrShortWrite
				}
				b = b[n:]
			}
		}
	}
	if op.Kind == ring.OpSync || op.Kind == ring.OpWriteSync {
		return written, op.File.Sync()
	}
	return written, nil
}
