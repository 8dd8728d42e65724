package ringtest

import (
	"io/fs"
	"sync/atomic"
	"syscall"

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

// nullKept is how much of a file a NullFS keeps: what opens a log's segment.
const nullKept = 4096

// NullFS wraps another file layer, keeps the first block of each file and drops what is written behind:
// a disk of which a benchmark may write any amount. Direct files are not offered.
type NullFS struct{ ring.FS }

// Open wraps a file of the inner layer.
func (f NullFS) Open(name string, flag int, perm fs.FileMode) (ring.File, error) {
	file, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return nullFile{file}, nil
}

// OpenDirect answers that the file system cannot.
func (f NullFS) OpenDirect(name string, _ bool) (ring.File, error) {
	return nil, &ring.Error{Op: "open direct", Path: name, Class: ring.ErrUnsupported, Err: syscall.EINVAL}
}

type nullFile struct{ ring.File }

func (f nullFile) WriteAt(p []byte, off int64) (int, error) {
	if off >= nullKept {
		return len(p), nil
	}
	return f.File.WriteAt(p, off)
}

func (f nullFile) Truncate(size int64) error   { return f.File.Truncate(min(size, nullKept)) }
func (f nullFile) Allocate(int64, int64) error { return nil }
