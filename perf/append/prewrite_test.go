package append

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Every way to prepare blocks is appended to and measured, and no file is left behind.
func TestPrewriteMeasuresEveryPreparation(t *testing.T) {
	dir := t.TempDir()
	skipWithoutDirect(t, dir)
	var done, total int
	o := PrewriteOptions{Dir: dir, Rounds: 1, Turn: 10 * time.Millisecond, FileSize: 4 << 20, Progress: func(d, n int) { done, total = d, n }}
	rows, err := Prewrite(t.Context(), o, []PrewriteLoad{{2, 4096}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(preparations()) || done != total || done != len(rows) {
		t.Fatalf("%d rows, %d of %d turns, want %d of each", len(rows), done, total, len(preparations()))
	}
	for _, r := range rows {
		if r.Rate.Median <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.OfWritten.Median <= 0 {
			t.Errorf("%s: %+v", r.Preparation, r)
		}
		if zeroes := strings.Contains(r.Preparation, "zeroed"); zeroes != (r.Zeroed > 0) {
			t.Errorf("%s: %.2f bytes zeroed per byte", r.Preparation, r.Zeroed)
		}
	}
	empty(t, dir)
}

// empty fails if anything is left in dir.
func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
