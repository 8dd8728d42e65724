package serve

import (
	"testing"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/wire"
)

// Small frames leave in one write, a large one from where it lies, in order.
func TestSinkGathersSmallFrames(t *testing.T) {
	h := newHalf(1, 1<<30, nil)
	pool := wire.NewPool(1 << 20)
	k := &sink{st: fakeStream{tx: h}, pool: pool}
	var frames [][]byte
	var want []byte
	add := func(n, size int) {
		for range n {
			f := make([]byte, size)
			for i := range f {
				f[i] = byte(len(frames))
			}
			frames = append(frames, f)
			want = append(want, f...)
		}
	}
	add(100, 200)
	add(1, 30_000)
	add(1, 100)
	add(1, 70_000)
	add(200, 1000)
	if err := k.WriteFrames(frames); err != nil {
		t.Fatal(err)
	}
	if string(h.buf) != string(want) {
		t.Error("bytes differ")
	}
	// 100 small, the large, one small, the large, 200 small in 65, 65, 65, 5.
	if h.writes != 8 {
		t.Errorf("%d writes, want 8", h.writes)
	}
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d Bufs in use", n)
	}
	if invariants.Enabled {
		return // released Bufs are not used again in such builds
	}
	small := frames[:50]
	h.buf = make([]byte, 0, 1<<20)
	if n := testing.AllocsPerRun(50, func() {
		h.buf = h.buf[:0]
		_ = k.WriteFrames(small)
	}); n > 1 { // the fake's own channel
		t.Errorf("%v allocations per write", n)
	}
}
