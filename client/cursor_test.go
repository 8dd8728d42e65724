package client

import (
	"testing"

	"github.com/ringcast/ringcast/wire"
)

// What each frame means where the cursor stands.
func TestCursorJudgesEveryFrame(t *testing.T) {
	cases := []struct {
		name          string
		base, skipped uint64
		count         uint32
		verdict       frameVerdict
		skip          uint32
		next          uint64
	}{
		{"the next one", 10, 0, 3, frameTake, 0, 13},
		{"seen", 5, 0, 5, frameSeen, 5, 10},
		{"half new", 8, 0, 5, frameTake, 2, 13},
		{"a hole", 12, 0, 3, frameHole, 0, 10},
		{"skipped on purpose", 12, 2, 3, frameTake, 0, 15},
		{"skipped less than the hole", 13, 2, 3, frameHole, 0, 10},
		{"skipped more than the hole", 11, 5, 1, frameTake, 0, 12},
		{"empty", 10, 0, 0, frameSeen, 0, 10},
		{"beyond the numbers", 1<<64 - 2, 0, 3, frameBroken, 0, 10},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := cursor{next: 10, known: true}
			v, skip := c.frame(true, tc.base, tc.skipped, tc.count)
			if v != tc.verdict || skip != tc.skip || c.next != tc.next {
				t.Errorf("verdict %d skip %d next %d", v, skip, c.next)
			}
		})
	}
	c := cursor{next: 10, known: true}
	if v, _ := c.frame(false, 0, 0, 1); v != frameBroken {
		t.Error("offsets vanished and nobody noticed")
	}
	c = cursor{start: wire.Start{Kind: wire.StartEarliest}}
	if c.request().Kind != wire.StartEarliest {
		t.Error("the first request is not what was asked")
	}
	start := uint64(7)
	c.subscribed(&start)
	if r := c.request(); r.Kind != wire.StartOffset || r.Offset != 7 {
		t.Errorf("resume without events: %+v", r)
	}
	c.resumeAt(5)
	if c.next != 7 {
		t.Error("moved back")
	}
}

// Frames from a peer never move the cursor back, and what is taken is exactly what follows.
func FuzzCursor(f *testing.F) {
	f.Add(uint64(10), uint64(8), uint64(0), uint32(5))
	f.Add(uint64(0), uint64(1<<64-1), uint64(1), uint32(1))
	f.Fuzz(func(t *testing.T, next, base, skipped uint64, count uint32) {
		c := cursor{next: next, known: true}
		v, skip := c.frame(true, base, skipped, count)
		switch v {
		case frameTake:
			if skip > count || c.next != base+uint64(count) || c.next <= next && count > 0 {
				t.Fatalf("next %d -> %d, skip %d of %d", next, c.next, skip, count)
			}
			if first := base + uint64(skip); first != next && (first < next || first-next > skipped) {
				t.Fatalf("delivers %d after %d with %d skipped", first, next, skipped)
			}
		default:
			if c.next != next {
				t.Fatalf("moved from %d to %d without delivering", next, c.next)
			}
		}
	})
}
