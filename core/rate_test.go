package core

import (
	"testing"
	"time"
)

// PUB-28: sixty-four publishers on one durable stream without syncs keep the rate of one that has as many
// publishes under way as each of them: who finishes wakes whom it answers, and nobody else. Requires 0.6
// of it. Both are measured in turns, and one turn out of forty is enough, so that a busy machine decides nothing: a
// release that wakes everybody costs ten times as much in each of them.
func TestSixtyFourPublishersKeepTheRateOfOne(t *testing.T) { // PUB-28
	m := newBed(t, bedOptions{durable: true, fsync: "none", records: 1, size: 256})
	const window, publishes = 64, 64 * 64
	turn := func(publishers int) time.Duration {
		began := time.Now()
		(&loops{m, publishers, window}).run(publishes / publishers)
		return time.Since(began)
	}
	turn(1)
	best := 0.0
	for n := 1; n <= 40; n++ {
		one, many := turn(1), turn(64)
		best = max(best, float64(one)/float64(many))
		if best >= 0.6 {
			t.Logf("64 publishers have %.2f of the rate of one after %d turns", best, n)
			return
		}
	}
	t.Errorf("64 publishers have %.2f of the rate of one at best", best)
}
