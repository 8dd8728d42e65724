package append

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringcast/ringcast/ring"
)

// TestMain is the peers' program when it is started as that.
func TestMain(m *testing.M) {
	if os.Getenv("RINGCAST_TEST_PEER") != "" {
		fakePeers()
		return
	}
	goleak.VerifyTestMain(m)
}

// fakePeers answers as perf/peers does: one peer that appends nothing, one that fails.
func fakePeers() {
	enc := json.NewEncoder(os.Stdout)
	_ = enc.Encode(peerHello{Protocol: peerProtocol, Peers: []Peer{{"bbolt", "v0", "fake"}, {"broken", "v0", "fails"}}})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r peerRequest
		err := json.Unmarshal(in.Bytes(), &r)
		if info, statErr := os.Stat(r.Dir); err == nil && (statErr != nil || !info.IsDir()) {
			err = errors.New("no directory")
		}
		if r.Peer == "broken" {
			err = errors.New("it is broken")
		}
		if err != nil {
			_ = enc.Encode(peerAnswer{Error: err.Error()})
			continue
		}
		// What a file system leaves must be cleared away by who made the directory.
		_ = os.WriteFile(filepath.Join(r.Dir, "data"), make([]byte, r.Cell.Bytes), 0o600)
		_ = enc.Encode(peerAnswer{Measure: &Measure{Records: 10, Time: time.Second, P50: time.Millisecond, DiskBytes: -1}})
	}
}

// skipWithoutDirect skips where the file system cannot write past the page cache.
func skipWithoutDirect(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "probe")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := ring.OS().OpenDirect(name, true)
	if errors.Is(err, ring.ErrUnsupported) {
		t.Skip("the file system of the temporary directory has no O_DIRECT")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
		t.Fatal(err)
	}
}

func testRun(t *testing.T, change func(*Options)) (Options, *Report, error) {
	t.Helper()
	dir := t.TempDir()
	o := Options{
		Cells:   Cells([]int{1, 5}, []int{3}, []int{100}, []string{"on_commit", "periodic", "none"}),
		Engines: []string{ring.Portable}, Rounds: 2, Length: 20 * time.Millisecond, Dir: dir,
	}
	change(&o)
	r, err := Run(t.Context(), o)
	empty(t, dir)
	return o, r, err
}

// Every load has a row per engine, beside the bare loops at the engine's group size and the peers;
// the numbers fit each other; what is missing is named; no file is left behind.
func TestRunComparesEveryLoad(t *testing.T) {
	t.Setenv("RINGCAST_TEST_PEER", "1")
	skipWithoutDirect(t, t.TempDir())
	var done, total int
	o, r, err := testRun(t, func(o *Options) {
		o.Engines = []string{ring.Portable, ring.Portable + growingSuffix, "nosuch"}
		o.Peers, o.PeerNames = testProgram(t), []string{"bbolt"}
		o.Progress = func(d, n int) { done, total = d, n }
	})
	if err != nil {
		t.Fatal(err)
	}
	if engines := 2; len(r.Rows) != engines*len(o.Cells) || len(r.Limits) != engines*len(o.Cells)*len(bareKinds) || done != total {
		t.Fatalf("%d rows, %d limits, %d of %d turns for %d loads", len(r.Rows), len(r.Limits), done, total, len(o.Cells))
	}
	if len(r.Missing) != 1 || r.Missing[0].What != "engine nosuch" {
		t.Errorf("missing: %+v", r.Missing)
	}
	for _, row := range r.Rows {
		if row.Rate.Median <= 0 || row.P50 <= 0 || row.P99 < row.P50 || row.PerWrite < 1 || row.OfBare.Median <= 0 || row.P50OfBare.Median <= 0 {
			t.Errorf("%s: %+v, of bare %v, p50 %v", row.Cell, row.Numbers, row.OfBare, row.P50OfBare)
		}
		if row.WriteBytes < row.PerWrite*100 {
			t.Errorf("%s: %.1f records of 100 B in writes of %.0f B", row.Cell, row.PerWrite, row.WriteBytes)
		}
		if row.Writers == 1 && row.PerWrite != 1 {
			t.Errorf("%s: a lone writer had %.2f records in a write", row.Cell, row.PerWrite)
		}
		_, compared := row.OfPeer["bbolt"]
		if durable := row.Fsync == "on_commit"; compared != durable || durable && row.Syncs <= 0 {
			t.Errorf("%s: compared %v, %.1f syncs a second", row.Cell, compared, row.Syncs)
		}
	}
	var text strings.Builder
	if err := r.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"### Targets", "### Engines", "### Bare loops", "### Peers", "rate / bbolt", "Not measured: engine nosuch", "| 5 | 3 | 100 B | portable |", "| 5 | 3 | 100 B | portable/growing |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// A peer that fails ends the run with its name and its words.
func TestFailedPeerIsNamed(t *testing.T) {
	t.Setenv("RINGCAST_TEST_PEER", "1")
	_, _, err := testRun(t, func(o *Options) {
		o.Cells = o.Cells[:1]
		o.Peers, o.PeerNames = testProgram(t), []string{"broken"}
	})
	if err == nil || !strings.Contains(err.Error(), "peer broken: it is broken") {
		t.Fatal(err)
	}
}

// Without the peers' program, or with another one, the run goes on and says what is missing.
func TestRunWithoutPeers(t *testing.T) {
	for name, program := range map[string]string{"none": "", "not there": "/nonexistent/ringcast-peers", "another program": "/bin/true"} {
		t.Run(name, func(t *testing.T) {
			_, r, err := testRun(t, func(o *Options) {
				o.Cells, o.Rounds, o.Peers = o.Cells[:1], 1, program
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Missing) != 1 || r.Missing[0].What != "peers" {
				t.Errorf("missing: %+v", r.Missing)
			}
		})
	}
}

// An interrupt ends the run, with nothing left behind.
func TestInterruptedRunCleansUp(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Cells: Cells([]int{1, 64}, []int{1}, []int{256}, []string{"on_commit"}), Engines: []string{ring.Portable}, Rounds: 1000, Length: 5 * time.Millisecond, Dir: dir,
		Progress: func(int, int) { cancel() }}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	empty(t, dir)
}

func testProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// indirect is a file system without direct writes.
type indirect struct{ ring.FS }

func (indirect) OpenDirect(name string, _ bool) (ring.File, error) {
	return nil, &ring.Error{Op: "open direct", Path: name, Class: ring.ErrUnsupported, Err: ring.ErrUnsupported}
}

// Where the file system cannot write past the page cache, the other loops are the limit, and the
// report says so.
func TestRunWithoutDirectWrites(t *testing.T) {
	_, r, err := testRun(t, func(o *Options) {
		o.Cells, o.Rounds, o.fs = o.Cells[:1], 1, indirect{ring.OS()}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Limits) != 2 || r.Rows[0].OfBare.Median <= 0 || r.Missing[0].What != "the bare loop of direct writes" {
		t.Errorf("limits %+v, missing %+v, row %+v", r.Limits, r.Missing, r.Rows[0].Numbers)
	}
}
