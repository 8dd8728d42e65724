package core

import (
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/internal/sim"
)

// The simulation steps a whole broker on one goroutine, as a seed says, and compares it with the
// naive model of internal/sim: simworld_test.go is the broker, its disk and its clock, simactors_test.go
// who publishes, simplaces_test.go who stands in line, simreaders_test.go who reads, simstreams_test.go and simlife_test.go what
// befalls them. Three variables choose the seeds:
//
//	RINGCAST_SIM_SEEDS=5000     how many
//	RINGCAST_SIM_FROM=100000    the first of them
//	RINGCAST_SIM_SEED=17        this one alone, which replays a failure

const (
	simSeeds    = 100  // make sim runs 5,000
	simSeedsAll = 3000 // so many reach everything that can happen
	simHang     = time.Minute
)

func simEnv(t *testing.T, name string, missing uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return missing
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// PUB-6, PUB-12, PUB-13, PUB-15, PUB-16, PUB-19, PUB-23, PUB-24, PUB-27, PUB-30, BUG-3, BUG-11, LOG-2, LOG-3, LOG-10, LOG-11, SUB-6, HZ-40: publishers of
// several tenants and every kind, readers of every kind, a disk whose operations end in any order, late, short
// or not at all, orderly restarts and power cuts at any operation, step by step against a naive model: order, offsets,
// every acknowledged record once in the log and to each reader, shares, and nothing held when all is quiet.
func TestSimulation(t *testing.T) {
	missing := uint64(simSeeds)
	if invariants.Enabled { // they cost a lot, and are a matter of every step
		missing = simSeeds / 5
	}
	from, n := simEnv(t, "RINGCAST_SIM_FROM", 0), simEnv(t, "RINGCAST_SIM_SEEDS", missing)
	if one := simEnv(t, "RINGCAST_SIM_SEED", ^uint64(0)); one != ^uint64(0) {
		from, n = one, 1
	}
	dir := simDir(t)
	var seen simSeen
	seed := from
	hang := time.AfterFunc(simHang, func() { panic(fmt.Sprintf("seed %d hangs", atomic.LoadUint64(&seed))) })
	defer hang.Stop()
	for i := range n {
		atomic.StoreUint64(&seed, from+i)
		hang.Reset(simHang)
		w, failed := simulate(t, dir, seed, &seen)
		if failed != "" {
			t.Fatalf("seed %d, the %d. of them, failed after %d steps:\n%s\nthe newest steps:\n%s\nreplay it with\n"+
				"  RINGCAST_SIM_SEED=%d go test ./core -run 'TestSimulation$' -count 1 -v",
				seed, i+1, w.trace.Steps(), failed, &w.trace, seed)
		}
		seen.Steps += w.trace.Steps()
	}
	t.Logf("%d seeds: %+v", n, seen)
	if n < simSeedsAll {
		return
	}
	// What never happens is not tested: the seeds must reach all of it.
	v := reflect.ValueOf(seen)
	for i := range v.NumField() {
		if v.Field(i).Int() == 0 {
			t.Errorf("%d seeds, and never %s", n, v.Type().Field(i).Name)
		}
	}
}

// A seed is the whole of a simulation: run twice it does the same, step for step.
func TestSimulationIsItsSeed(t *testing.T) {
	dir := simDir(t)
	for seed := range uint64(10) {
		var seen [2]simSeen
		var hash [2]uint64
		for i := range 2 {
			w, failed := simulate(t, dir, seed, &seen[i])
			if failed != "" {
				t.Fatalf("seed %d: %s", seed, failed)
			}
			hash[i] = w.trace.Hash()
		}
		if hash[0] != hash[1] || seen[0] != seen[1] {
			t.Errorf("seed %d was %x with %+v, and then %x with %+v", seed, hash[0], seen[0], hash[1], seen[1])
		}
	}
}

// simSeen counts what happened, over all seeds of a test.
type simSeen struct {
	Steps, Accepted, Acked, OnQueue                        int
	QueueFull, QueueFullDropped, Failed, Unknown, DiskFull int
	NotFound, Draining, FailedShard                        int
	FencedAtOnce, FencedLater                              int
	Parked, Withdrawn, Resets                              int
	Duplicates, Gaps, UnknownProducers, Expired, Reused    int
	PowerCuts, CutsAtStart, Restarts, Drains               int
	ShortWrites, FailedWrites, FailedSyncs, FailedJobs     int
	PoisonedLogs, TakenBack, BlockedLanes, Rolls           int
	Created, Deleted, UnmadeStreams                        int
	Readers, Lagged, DroppedRecords, FailedSinks, History  int
	SharesChecked                                          int
	DirectWrites                                           int
}

// simFailure is what the world panics with when the broker did what it must not.
type simFailure string

// simulate runs a seed. A panic of the broker is a failure of the seed like any other.
func simulate(t *testing.T, dir string, seed uint64, seen *simSeen) (w *simWorld, failed string) {
	w = newSimWorld(t, dir, sim.NewChooser(seed), seen)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case simFailure:
			failed = string(r)
		default:
			failed = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
		}
		if failed != "" && w.b != nil {
			_ = w.b.cat.close() // the file is used again
		}
	}()
	w.life()
	return w, ""
}

// simDir is a directory for the catalogue, in memory where the system has that.
func simDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "ringcast-sim")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
