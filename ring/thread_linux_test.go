package ring

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
)

// The kernel gives up what a thread has submitted and what has not begun when that thread ends, and
// Go ends a thread with a goroutine that was locked to it. No operation fails for that: a linked
// sync that was given up is begun again. HZ-21
func TestThreadThatSubmittedMayEnd(t *testing.T) {
	eachEngine(t, 64, func(t *testing.T, e Engine) {
		dir := t.TempDir()
		d, _ := direct(t, dir)
		const n = 32
		files := make([]File, n)
		for i := range files {
			files[i] = create(t, filepath.Join(dir, fmt.Sprint(i)))
		}
		b := blocks(16, 'x')
		done := make(inbox, n)
		for r := range 20 {
			ops := make([]*Op, n)
			for i := range ops {
				ops[i] = &Op{Kind: OpWriteSync, File: files[i], Off: int64(i*len(b)) + 1, Vec: [][]byte{b}, Owner: done}
				if i%2 == 0 {
					ops[i].Kind, ops[i].File, ops[i].Off = OpWriteDirect, d, int64(i*len(b))
				}
			}
			go func() {
				runtime.LockOSThread() // and never unlocked
				e.Submit(ops)
			}()
			for range ops {
				if op := done.next(t); op.Err != nil || op.Written != int64(len(b)) {
					t.Fatalf("round %d, kind %d: %v, %d bytes", r, op.Kind, op.Err, op.Written)
				}
			}
		}
	})
}
