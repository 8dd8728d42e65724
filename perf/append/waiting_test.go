package append

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/sched"
)

// Every way to run an executor is run and measured, the broker's own included and compared with itself; GOMAXPROCS
// is as before, and no file is left behind.
func TestWaitingMeasuresEveryMode(t *testing.T) {
	dir := t.TempDir()
	procs := runtime.GOMAXPROCS(0)
	var done, total int
	r, err := Waiting(t.Context(), WaitingOptions{
		Dir: dir, Engine: "portable", Writers: []int{2}, Rounds: 1, Turn: 5 * time.Millisecond,
		Progress: func(d, n int) { done, total = d, n },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	seen := map[WaitMode]bool{}
	for _, m := range waitModes() {
		if m.Thread != Pinned || len(sched.UsableCPUs()) > 1 {
			want++
		}
	}
	for _, row := range r.Rows {
		if row.Rate.Median <= 0 || row.P50 <= 0 || row.P99 < row.P50 || row.OfUsual.Median <= 0 || row.PerWrite < 1 {
			t.Errorf("%v: %+v", row.WaitMode, row)
		}
		if row.WaitMode == row.usual() && row.OfUsual.Median != 1 {
			t.Errorf("%v against itself: %v", row.WaitMode, row.OfUsual)
		}
		seen[row.WaitMode] = true
	}
	if len(seen) != want || len(r.Rows) != want || done != total || done != want {
		t.Errorf("%d modes in %d rows, %d of %d turns, want %d", len(seen), len(r.Rows), done, total, want)
	}
	if n := runtime.GOMAXPROCS(0); n != procs {
		t.Errorf("GOMAXPROCS is %d, was %d", n, procs)
	}
	var text strings.Builder
	if err := r.Markdown(&text); err != nil || !strings.Contains(text.String(), "2 writers, 1 log, 256 B, on_commit, every CPU busy") {
		t.Errorf("%v\n%s", err, text.String())
	}
	empty(t, dir)
}

// What cannot be measured is refused before anything runs.
func TestWaitingRefusesNothingToDo(t *testing.T) {
	for _, o := range []WaitingOptions{
		{Engine: "portable", Writers: []int{1}, Turn: time.Second},
		{Engine: "portable", Writers: []int{1}, Rounds: 1},
		{Engine: "portable", Rounds: 1, Turn: time.Second},
		{Engine: "nonsense", Writers: []int{1}, Rounds: 1, Turn: time.Second},
	} {
		o.Dir = t.TempDir()
		if _, err := Waiting(t.Context(), o); err == nil {
			t.Errorf("%+v was measured", o)
		}
		empty(t, o.Dir)
	}
}
