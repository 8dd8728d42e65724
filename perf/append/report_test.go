package append

import (
	"testing"
	"time"
)

// Ratios are taken within a round, against the best bare loop of that round at the engine's own group
// size, and the median of them is reported: here the disk is four times slower in the second round.
func TestRatiosAreTakenWithinARound(t *testing.T) {
	c := Cell{Writers: 64, Logs: 1, Bytes: 256, Fsync: "on_commit"}
	at := func(speed float64) *round {
		measure := func(records, writes uint64) Measure {
			return Measure{Records: records, Writes: writes, Time: time.Duration(float64(time.Second) / speed), P50: time.Duration(1000 / speed), DiskBytes: -1}
		}
		return &round{
			engines: map[string]Measure{"e": measure(900, 100)}, // 9 records a write
			bare: map[string]map[string]Measure{"e": {
				bareKinds[0].name: measure(50, 50), bareKinds[1].name: measure(125, 125), bareKinds[2].name: measure(100, 100)}},
			peers: map[string]Measure{"bbolt": measure(150, 0)},
		}
	}
	var r Report
	r.add(c, []*round{at(4), at(1), at(2)})
	r.judgeAllocs()
	row := r.Rows[0]
	if row.OfBare != (Spread{0.8, 0.8, 0.8}) || row.OfPeer["bbolt"] != (Spread{6, 6, 6}) || row.P50OfBare.Median != 1 {
		t.Errorf("of bare %v, p50 %v, of peers %v", row.OfBare, row.P50OfBare, row.OfPeer)
	}
	if row.Rate != (Spread{1800, 900, 3600}) {
		t.Errorf("rate %v", row.Rate)
	}
	met := map[string]bool{}
	for _, target := range r.Targets {
		met[target.What] = target.Met()
	}
	want := map[string]bool{
		"records/s / best bare loop at the same group size": false,
		"records/s / bbolt":                  true,
		"allocations per append, worst load": true,
	}
	for what, ok := range want {
		if got, judged := met[what]; got != ok || !judged {
			t.Errorf("%s: met %v, judged %v", what, got, judged)
		}
	}
	if len(met) != len(want) {
		t.Errorf("targets: %+v", r.Targets)
	}
}

// One allocation per append misses the target also at a lone writer's rate; what a turn has once does not.
func TestAllocationsOfATurnAreNotThoseOfAppends(t *testing.T) {
	c := Cell{Writers: 1, Logs: 1, Bytes: 4096, Fsync: "on_commit"}
	for allocs, met := range map[uint64]bool{0: true, 80: true, 1000: false, 1100: false} {
		m := Measure{Records: 1000, Writes: 1000, Time: time.Second, P50: 1, Allocs: allocs}
		var r Report
		r.add(c, []*round{{engines: map[string]Measure{"e": m}, bare: map[string]map[string]Measure{"e": {bareKinds[0].name: m}}}})
		r.judgeAllocs()
		if got := r.Targets[len(r.Targets)-1]; got.Met() != met {
			t.Errorf("%d allocations in 1000 appends: %+v", allocs, got)
		}
	}
}
