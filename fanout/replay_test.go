package fanout

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/wire"
)

// TestRingReachesTheTailOrIsEmpty compares random pushes, some after a gap, with a list: bounds, the
// range that From serves, and every reference given back.
func TestRingReachesTheTailOrIsEmpty(t *testing.T) { // HZ-15
	pool := wire.NewPool(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		recordsMax := rapid.IntRange(1, 30).Draw(t, "records max")
		bytesMax := rapid.Int64Range(500, 6000).Draw(t, "bytes max")
		next := rapid.Uint64Range(0, 10).Draw(t, "tail")
		r := NewRing(recordsMax, bytesMax, next)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "do") {
			case 0:
				next += uint64(rapid.IntRange(1, 3).Draw(t, "gap")) // something that the ring did not see
			case 1:
				before := r.Bytes()
				if n, ok := r.DropOldest(); ok != (before > 0) || n != before-r.Bytes() {
					t.Fatalf("DropOldest: %d, %v", n, ok)
				}
			case 2:
				next = rapid.Uint64Range(0, 100).Draw(t, "reset")
				r.Reset(next)
			default:
				skipped := uint64(rapid.IntRange(0, 4).Draw(t, "skipped") / 4)
				p := publish{base: next + skipped, skipped: skipped, prefix: rapid.IntRange(0, 2000).Draw(t, "prefix")}
				p.records = numbers(p.base, rapid.IntRange(1, 40).Draw(t, "records"))
				e := envelope(pool, true, p)
				gap := r.Next() != next
				r.Push(e)
				next = e.Next()
				if gap && r.Base() < e.Base() {
					t.Fatalf("the ring spans a gap: %d to %d", r.Base(), next)
				}
				if e.size <= bytesMax && r.Base() > e.Base() {
					t.Fatal("the newest envelope was not kept")
				}
				if r.Next() != next {
					t.Fatalf("tail %d, want %d", r.Next(), next)
				}
				e.Release()
			}
			if r.Bytes() > bytesMax || r.Records() > recordsMax && len(r.envs)-r.first > 1 {
				t.Fatalf("%d records, %d bytes", r.Records(), r.Bytes())
			}
			from := rapid.Uint64Range(0, r.Next()+2).Draw(t, "from")
			envs, start := r.From(from)
			if start != max(from, r.Base()) {
				t.Fatalf("from %d of [%d, %d) serves from %d", from, r.Base(), r.Next(), start)
			}
			at, records := start, 0
			for i, e := range envs {
				if i == 0 && e.base-e.parts[0].Skipped > start || i > 0 && e.base-e.parts[0].Skipped != at {
					t.Fatalf("envelope %d begins at %d, want %d", i, e.base, at)
				}
				at = e.next
				records += e.records
				e.Release()
			}
			if len(envs) > 0 && at != r.Next() || len(envs) == 0 && start < r.Next() {
				t.Fatalf("from %d serves [%d, %d) of [%d, %d)", from, start, at, r.Base(), r.Next())
			}
			if from == 0 && records != r.Records() {
				t.Fatalf("%d records in all, the ring counts %d", records, r.Records())
			}
		}
		r.Reset(0)
		if r.Bytes() != 0 || r.Records() != 0 || pool.Stats().InUse != 0 {
			t.Fatalf("after Reset: %d records, %d bytes, %d Bufs", r.Records(), r.Bytes(), pool.Stats().InUse)
		}
	})
}
