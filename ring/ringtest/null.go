package ringtest

import (
	"sync/atomic"

	"github.com/ringcast/ringcast/ring"
)

// NullEngine is a ring.Engine that takes every operation for done inside Submit and writes nothing: the
// disk of a benchmark of what lies above it. Nothing can be read back.
type NullEngine struct {
	submits, ops, bytes, syncs atomic.Uint64
}

func (e *NullEngine) Name() string { return "null" }
func (e *NullEngine) Depth() int   { return 256 }
func (e *NullEngine) Direct() bool { return false }
func (e *NullEngine) Close() error { return nil }

func (e *NullEngine) Submit(ops []*ring.Op) {
	e.submits.Add(1)
	for _, op := range ops {
		op.Err, op.Written = nil, size(op)
		e.ops.Add(1)
		e.bytes.Add(uint64(op.Written))
		if op.Kind != ring.OpWrite {
			e.syncs.Add(1)
		}
		op.Owner.OpDone(op)
	}
}

func (e *NullEngine) Stats() ring.Stats {
	return ring.Stats{Submits: e.submits.Load(), Ops: e.ops.Load(), Bytes: e.bytes.Load(), Syncs: e.syncs.Load()}
}
