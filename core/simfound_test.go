package core

import (
	"strings"
	"testing"

	"github.com/ringcast/ringcast/ring/ringtest"
)

// What the simulation has found, each as a script of its own.

// HZ-45, HZ-47: a shard of a deleted stream that waits for its disk holds frames, and the memory of the
// replay rings is beyond its budget. The executor drops what it can and serves the others; it does not
// look for ever for something to drop. (Found by seed 207 of the first version of TestSimulation.)
func TestRingOfALeavingShardHoldsNobodyUp(t *testing.T) {
	const budget = 64 << 10
	for _, last := range []int{40 << 10, 2 * budget} {
		engine := ringtest.NewEngine(4)
		b := openTest(t, Options{RetainedBytes: budget}.in(t.TempDir()).scripted(engine))
		gone := stream(t, b, StreamDef{Stream: "gone", Durable: true})
		stays := stream(t, b, StreamDef{Stream: "stays"})
		res := newResults()
		send := func(tag uint64, bytes int) {
			r := request(b, gone, strings.Repeat("x", bytes))
			r.Reply, r.Tag = res, tag
			if err := b.Publish(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if _, err := engine.WaitPending(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		send(0, 40<<10)
		engine.RunAll()
		res.wait(t, 0)
		send(1, last)
		removed, err := b.beginRemoval("t", "n", "gone")
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Status().RetainedBytes; n != 0 {
			t.Errorf("%d bytes are kept for readers of a deleted stream", n)
		}
		engine.RunAll()
		if r := res.wait(t, 1); r.Err != nil {
			t.Errorf("claimed before the deletion: %v", r.Err)
		}
		if r := publish(t, b, stays, "y"); r.Err != nil {
			t.Error(r.Err)
		}
		<-removed.removed
		closeTest(t, b)
	}
}
