package ring

import (
	"bytes"
	"path/filepath"
	"runtime"
	"testing"
)

// HZ-25: between Submit and OpDone nobody but the engine holds the buffers, while the collector
// runs and the heap is filled with something else.
func TestMemoryStaysAliveUntilTheOperationEnds(t *testing.T) {
	eachEngine(t, 16, func(t *testing.T, e Engine) {
		f := create(t, filepath.Join(t.TempDir(), "f"))
		const size, parts, rounds = 2048, 20, 30
		done := make(inbox, 4)
		for r := range rounds {
			for i := range 4 {
				submitAndForget(e, f, done, int64(r*4+i)*size*parts, byte(r*4+i), size, parts)
			}
			runtime.GC()
			var garbage [][]byte
			for range 4 * parts {
				garbage = append(garbage, bytes.Repeat([]byte{0xEE}, size))
			}
			runtime.KeepAlive(garbage)
			for range 4 {
				if op := done.next(t); op.Err != nil {
					t.Fatal(op.Err)
				}
			}
		}
		got := content(t, f)
		for n := range rounds * 4 {
			part := got[n*size*parts : (n+1)*size*parts]
			if bytes.Count(part, []byte{byte(n)}) != len(part) {
				t.Fatalf("write %d carried other bytes", n)
			}
		}
	})
}

//go:noinline
func submitAndForget(e Engine, f File, done Owner, off int64, fill byte, size, parts int) {
	op := &Op{Kind: OpWriteSync, File: f, Off: off, Owner: done}
	for range parts {
		op.Vec = append(op.Vec, bytes.Repeat([]byte{fill}, size))
	}
	e.Submit([]*Op{op})
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	eachEngine(t, 16, func(t *testing.T, e Engine) {
		done := make(inbox, 8)
		dir := t.TempDir()
		ops := make([]*Op, 8)
		for i := range ops {
			ops[i] = &Op{Kind: OpWriteSync, File: create(t, filepath.Join(dir, string(rune('a'+i)))), Owner: done}
			for range 1 + i*40 {
				ops[i].Vec = append(ops[i].Vec, make([]byte, 64))
			}
		}
		round := func() {
			e.Submit(ops)
			for range ops {
				if op := <-done; op.Err != nil {
					t.Error(op.Err)
				}
			}
		}
		for range 20 {
			round() // every worker and slot has met the longest vector
		}
		const rounds = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			round()
		}
		runtime.ReadMemStats(&after)
		// The runtime itself may allocate for a thread or a timer; an engine would for each operation.
		mallocs, n := after.Mallocs-before.Mallocs, uint64(rounds*len(ops))
		if mallocs > n/20 && !raceEnabled {
			t.Errorf("%d allocations, %d bytes in %d operations", mallocs, after.TotalAlloc-before.TotalAlloc, n)
		}
	})
}
