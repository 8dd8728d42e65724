package core

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// HZ-45, CORE-2: the number of executors is the one that was asked for. As many as are fewer than the usable
// CPUs are pinned, none to the first; a larger number runs unpinned, which is said once, with the numbers.
func TestMoreCoreShardsThanCPUsRunUnpinned(t *testing.T) { // HZ-45
	for _, row := range []struct {
		shards int
		pin    bool
		usable []int
		want   string
		warned bool
	}{
		{0, true, []int{0, 1, 2, 3}, "[-1]", false},
		{1, true, []int{0, 1}, "[1]", false},
		{3, true, []int{2, 4, 6, 8}, "[4 6 8]", false},
		{1, true, []int{5}, "[-1]", true},
		{4, true, []int{0, 1}, "[-1 -1 -1 -1]", true},
		{4, true, []int{0, 1, 2, 3}, "[-1 -1 -1 -1]", true},
		{2, false, []int{0, 1, 2, 3}, "[-1 -1]", false},
	} {
		var out bytes.Buffer
		b := &Broker{opts: Options{CoreShards: row.shards, CorePin: row.pin, Logger: slog.New(slog.NewTextHandler(&out, nil))}}
		if got := fmt.Sprint(b.placeExecutors(row.usable)); got != row.want {
			t.Errorf("%+v: %s", row, got)
		}
		if warned := strings.Contains(out.String(), fmt.Sprintf("core_shards=%d usable_cpus=%d", row.shards, len(row.usable))); warned != row.warned || warned != (out.Len() > 0) {
			t.Errorf("%+v: logged %q", row, out.String())
		}
	}
}
