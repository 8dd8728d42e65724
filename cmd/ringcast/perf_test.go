package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	perf "github.com/ringcast/ringcast/perf/append"
)

// The command measures what its flags name, prints tables or JSON, and leaves the directory empty.
func TestPerfAppend(t *testing.T) {
	dir := t.TempDir()
	args := []string{"perf", "append", "--engines", "portable", "--writers", "2", "--sizes", "64", "--rounds", "1", "--seconds", "0.01",
		"--dir", dir, "--peers", "/nonexistent/ringcast-peers"}
	got := ringcast(t, nil, args...)
	if got.code != 0 || !strings.Contains(got.stdout, "| on_commit | 2 | 1 | 64 B | portable |") || !strings.Contains(got.stderr, "not measured: peers") {
		t.Errorf("exit %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	got = ringcast(t, nil, append([]string{"--json"}, args...)...)
	var r perf.Report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v\n%s\n%s", err, got.stdout, got.stderr)
	}
	if len(r.Rows) != 1 || r.Rows[0].Writers != 2 || r.Rows[0].Rate.Median <= 0 || len(r.Missing) != 1 {
		t.Errorf("%+v", r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A load that cannot be is refused with every reason before anything runs.
func TestPerfAppendRefusesWrongLoads(t *testing.T) {
	got := ringcast(t, nil, "perf", "append", "--writers", "0", "--fsync", "sometimes")
	if got.code != 2 || !strings.Contains(got.stderr, "0 writers") || !strings.Contains(got.stderr, "sometimes") {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
}
