package ring

import (
	"fmt"
	"path/filepath"
	"testing"
)

// counted is an owner that hands operations back to the benchmark's goroutine.
type counted chan *Op

func (c counted) OpDone(op *Op) { c <- op }

// BenchmarkEngine writes into extents that were written before, each operation in flight on a
// file of its own, all submitted by one goroutine as an executor does.
func BenchmarkEngine(b *testing.B) {
	const size, span = 4 << 10, 1 << 20
	for _, kind := range engines {
		for _, op := range []struct {
			name string
			kind OpKind
		}{{"write", OpWrite}, {"writesync", OpWriteSync}} {
			for _, inFlight := range []int{1, 8, 64} {
				name := fmt.Sprintf("engine=%s/op=%s/size=4KiB/inflight=%d", kind, op.name, inFlight)
				b.Run(name, func(b *testing.B) { benchEngine(b, kind, op.kind, size, span, inFlight, 1) })
			}
		}
		b.Run(fmt.Sprintf("engine=%s/op=writesync/size=4KiB/inflight=1/vec=128", kind), func(b *testing.B) {
			benchEngine(b, kind, OpWriteSync, size, span, 1, 128)
		})
	}
}

func benchEngine(b *testing.B, kind string, op OpKind, size, span, inFlight, parts int) {
	e := openEngine(b, kind, 64)
	done := make(counted, inFlight)
	dir := b.TempDir()
	ops := make([]*Op, inFlight)
	for i := range ops {
		f := create(b, filepath.Join(dir, fmt.Sprint(i)))
		if _, err := f.WriteAt(make([]byte, span), 0); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		ops[i] = &Op{Kind: op, File: f, Owner: done}
		for range parts {
			ops[i].Vec = append(ops[i].Vec, make([]byte, size/parts))
		}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	batch := make([]*Op, 0, inFlight)
	e.Submit(ops)
	const warm = 500                           // operations until threads, workers and slots have grown
	for n := -warm; n < b.N; n += len(batch) { // not Loop: one turn carries as many as have ended
		if n < 0 {
			b.ResetTimer()
		}
		batch = append(batch[:0], <-done)
		for range len(done) {
			batch = append(batch, <-done)
		}
		for _, op := range batch {
			if op.Err != nil {
				b.Fatal(op.Err)
			}
			op.Off = (op.Off + int64(size)) % int64(span)
		}
		e.Submit(batch)
	}
	b.StopTimer()
	for range inFlight {
		<-done
	}
}
