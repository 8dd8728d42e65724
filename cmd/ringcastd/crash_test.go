package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/internal/daemon"
)

// bin is the ringcastd that the tests of this package run as a process, built once by TestMain.
var bin string

// killsDefault is how often brokers are killed under plain `go test`, in all cells of the matrix
// together; `make crash` sets RINGCAST_KILLS.
const killsDefault = 18

// roundTimeout is how long one round may take: publishing, the kill, recovery, reconnecting, reading.
const roundTimeout = 40 * time.Second

func kills(t *testing.T) int {
	v := os.Getenv("RINGCAST_KILLS")
	if v == "" {
		return killsDefault
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("RINGCAST_KILLS=%q is not a number from 1 on", v)
	}
	return n
}

// engines are the storage engines that the tests run with, by the name of the setting; forbidden is
// `auto` in a process to which io_uring is forbidden.
var engines = []string{"portable", "uring", "uring-direct", forbidden}

const forbidden = "forbidden"

// onEngine returns how to start a broker with an engine.
func onEngine(t *testing.T, engine string) (wrap, args []string) {
	if engine == forbidden {
		return forbidIOURing(t), []string{"--storage-engine=auto"}
	}
	return nil, []string{"--storage-engine=" + engine}
}

// refusal is why this build or machine has no such engine, "" when it has. The portable engine, and
// that of a process without io_uring, must be there.
func refusal(t *testing.T, engine string) string {
	t.Helper()
	wrap, args := onEngine(t, engine)
	d, err := daemon.Start(t.Context(), daemon.Options{Bin: bin, Wrap: wrap, Data: filepath.Join(t.TempDir(), "data"), Args: args})
	if err == nil {
		d.Kill()
		return ""
	}
	if engine == "portable" || engine == forbidden {
		t.Fatalf("engine %s: %v", engine, err)
	}
	lines := strings.Split(strings.TrimSpace(d.Log(20)), "\n")
	return lines[len(lines)-1]
}

// cell is one combination of the matrix, and what became of it.
type cell struct {
	engine, mode string
	segment      string
	refused      string
	kills        int

	runs                                   string
	sent, acked, present, duplicates, torn int
}

// LOG-2, PUB-19, PUB-23, HZ-1, HZ-7: what was acknowledged survives SIGKILL at any moment, with every
// engine and in every sync mode, since the page cache outlives the process. Attack: publishers keep
// the broker busy, it is killed at random moments and started again on its data. After each restart
// every acknowledged record is in the log once, at the offset it was acknowledged with and in order;
// none is torn; records of unknown outcome are there whole or not at all, and once; and what a live
// reader was shown is what the log still holds. An engine that the machine refuses is in the table.
// HZ-19: one row is a process to which io_uring is forbidden, as container runtimes do; it must come up
// on the portable engine by itself.
func TestAckedRecordsSurviveSIGKILL(t *testing.T) {
	var cells, running []*cell
	for i, engine := range engines {
		why := refusal(t, engine)
		for j, mode := range []string{"on_commit", "periodic", "none"} {
			// Half of the cells have the smallest segments, so that kills also hit the making, sealing
			// and indexing of them, and half have larger ones.
			c := &cell{engine: engine, mode: mode, refused: why, segment: []string{"64KiB", "1MiB"}[(i+j)%2]}
			if cells = append(cells, c); why == "" {
				running = append(running, c)
			}
		}
	}
	for n := range max(kills(t), len(running)) {
		running[n%len(running)].kills++
	}
	t.Run("cells", func(t *testing.T) {
		for _, c := range running {
			t.Run(c.engine+" "+c.mode, func(t *testing.T) {
				t.Parallel() // a round mostly waits
				c.run(t)
			})
		}
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "engine\tmode\tsegment\tkills\tsent\tacked\tpresent\tduplicates\ttorn\truns on")
	total := 0
	for _, c := range cells {
		if c.refused != "" {
			fmt.Fprintf(w, "%s\t%s\tREFUSED: %s\n", c.engine, c.mode, c.refused)
			continue
		}
		total += c.kills
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
			c.engine, c.mode, c.segment, c.kills, c.sent, c.acked, c.present, c.duplicates, c.torn, c.runs)
	}
	w.Flush()
	t.Logf("%d kills\n%s", total, b.String())
}

func (c *cell) run(t *testing.T) {
	ctx := t.Context()
	wrap, args := onEngine(t, c.engine)
	d, err := daemon.Start(ctx, daemon.Options{
		Bin: bin, Wrap: wrap, Data: filepath.Join(t.TempDir(), "data"),
		Args: append(args, "--durable-segment-bytes="+c.segment, "--durable-fsync-mode="+c.mode, "--durable-fsync-interval-ms=20"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		d.Kill()
		if t.Failed() {
			t.Logf("the broker's last words:\n%s", d.Log(30))
		}
	}()
	w := newWorkload(t, d, streamName)
	defer w.close()

	seed := uint64(time.Now().UnixNano())
	c.runs = engineOf(t, d)
	t.Logf("seed %d, engine %s", seed, c.runs)
	if c.engine == forbidden && (!strings.HasPrefix(c.runs, "portable (") || strings.HasSuffix(c.runs, "()")) {
		t.Errorf("io_uring is forbidden and the engine is %s: want portable and a reason", c.runs)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	live := newOracle(w.series)
	defer func() {
		c.sent, c.acked, _ = counts(w.series)
		c.present, c.duplicates, c.torn = live.present(), live.duplicates, live.torn
	}()
	sub, err := w.client.Subscribe(ctx, streamName, client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()

	round := func(n int) {
		ctx, cancel := context.WithTimeout(ctx, roundTimeout)
		defer cancel()
		began, _, _ := counts(w.series)
		stop := w.run(ctx)
		<-time.After(time.Duration(20+r.IntN(300)) * time.Millisecond) // the random moment
		d.Kill()
		if err := d.Restart(ctx); err != nil {
			t.Fatalf("restart %d: %v", n, err)
		}
		stop()
		// The reader has lived through the kill. All that was acknowledged must reach it.
		if err := live.readTo(ctx, sub, tail(w.series)); err != nil {
			t.Fatalf("restart %d, live reader: %v", n, err)
		}
		if err := live.missing(); err != nil {
			t.Fatalf("restart %d: %v", n, err)
		}
		if n%10 == 0 || n == c.kills {
			reread(ctx, t, w, live)
		}
		if sent, _, _ := counts(w.series); sent == began {
			t.Fatalf("restart %d: nothing was sent in this round", n)
		}
	}
	for n := 1; n <= c.kills; n++ {
		round(n)
	}
	if _, acked, _ := counts(w.series); acked < c.kills {
		t.Errorf("only %d records were acked over %d rounds: the test tested nothing", acked, c.kills)
	}
}

// reread reads the whole log through a new client: it must be what the live reader was shown.
func reread(ctx context.Context, t *testing.T, w *workload, live *oracle) {
	t.Helper()
	c, err := w.d.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sub, err := c.Subscribe(ctx, w.stream, client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	again := newOracle(w.series)
	if err := again.readTo(ctx, sub, live.next); err != nil {
		t.Fatalf("read from the start: %v", err)
	}
	if err := again.missing(); err != nil {
		t.Fatalf("read from the start: %v", err)
	}
	if again.sum != live.sum {
		t.Fatal("the log does not hold what the live reader was shown")
	}
}

const streamName = "crash"

// workload is the publishers: plain ones that publish one record at a time, and an idempotent one
// that keeps many under way and repeats what was lost.
type workload struct {
	d          *daemon.Daemon
	stream     string
	client     *client.Client
	plain      *client.Publisher
	idempotent *client.Publisher
	series     []*series
}

const plainWriters = 8

func newWorkload(t *testing.T, d *daemon.Daemon, stream string) *workload {
	t.Helper()
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{d: d, stream: stream, client: c}
	if w.plain, err = c.Publisher(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if w.idempotent, err = c.Publisher(t.Context(), stream, client.WithIdempotence()); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(plainWriters + 1) {
		w.series = append(w.series, &series{id: i})
	}
	// The first record makes the stream: AUTO_CREATE is on in --dev.
	s := w.series[0]
	n := s.next()
	ack, err := w.plain.Publish(t.Context(), client.Record{Value: record(s.id, n)})
	if err != nil {
		t.Fatal(err)
	}
	s.told(n, ack, nil)
	return w
}

// run publishes until stop is called, which returns when every record has its outcome.
func (w *workload) run(ctx context.Context) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	over := func() bool {
		select {
		case <-quit:
			return true
		case <-ctx.Done():
			return true
		default:
			return false
		}
	}
	for _, s := range w.series[:plainWriters] {
		wg.Go(func() {
			for !over() {
				n := s.next()
				ack, err := w.plain.Publish(ctx, client.Record{Value: record(s.id, n)})
				s.told(n, ack, err)
			}
		})
	}
	wg.Go(func() {
		s := w.series[plainWriters]
		room := make(chan struct{}, 64)
		var answers sync.WaitGroup
		defer answers.Wait()
		for !over() {
			room <- struct{}{}
			n := s.next()
			answers.Add(1)
			err := w.idempotent.PublishAsync(ctx, client.Record{Value: record(s.id, n)}, func(ack client.Ack, err error) {
				s.told(n, ack, err)
				<-room
				answers.Done()
			})
			if err != nil {
				s.told(n, client.Ack{}, fmt.Errorf("not accepted: %w", err))
				answers.Done()
				return
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

func (w *workload) close() { _ = w.client.Close() }
