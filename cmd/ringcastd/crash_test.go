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
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/internal/daemon"
)

// bin is the ringcastd that the tests of this package run as a process, built once by TestMain.
var bin string

// killsDefault is how often the broker is killed under plain `go test`; `make crash` sets
// RINGCAST_KILLS to 50.
const killsDefault = 5

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

// LOG-2, PUB-19, PUB-23, HZ-1, HZ-7: what was acknowledged by an on_commit stream survives SIGKILL at
// any moment. Attack: publishers keep the broker busy, it is killed at random moments and started
// again on its data. After each restart every acknowledged record is in the log once, at the offset
// it was acknowledged with and in order; none is torn; records of unknown outcome are there whole or
// not at all, and once; and what a live reader was shown is what the log still holds.
func TestAckedRecordsSurviveSIGKILL(t *testing.T) {
	for _, engine := range []string{"auto", "portable"} {
		t.Run("engine="+engine, func(t *testing.T) {
			t.Parallel() // a round mostly waits
			crash(t, engine, nil)
		})
	}
	// HZ-19: the same where io_uring is forbidden, as container runtimes do. The broker must come
	// up on the portable engine by itself.
	t.Run("io_uring forbidden", func(t *testing.T) {
		t.Parallel()
		crash(t, "auto", forbidIOURing(t))
	})
}

func crash(t *testing.T, engine string, wrap []string) {
	ctx := t.Context()
	d, err := daemon.Start(ctx, daemon.Options{
		Bin: bin, Wrap: wrap, Data: filepath.Join(t.TempDir(), "data"),
		// Small segments, so that kills also hit the making of a new one.
		Args: []string{"--storage-engine=" + engine, "--durable-segment-bytes=1MiB"},
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
	w := newWorkload(t, d)
	defer w.close()

	seed := uint64(time.Now().UnixNano())
	runs := engineOf(t, d)
	t.Logf("seed %d, engine %s", seed, runs)
	if wrap != nil && (!strings.HasPrefix(runs, "portable (") || strings.HasSuffix(runs, "()")) {
		t.Errorf("io_uring is forbidden and the engine is %s: want portable and a reason", runs)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	live := newOracle(w.series)
	sub, err := w.client.Subscribe(ctx, streamName, client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()

	total := kills(t)
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
		if n%10 == 0 || n == total {
			reread(ctx, t, w, live)
		}
		if sent, _, _ := counts(w.series); sent == began {
			t.Fatalf("restart %d: nothing was sent in this round", n)
		}
	}
	for n := 1; n <= total; n++ {
		round(n)
	}
	sent, acked, refused := counts(w.series)
	t.Logf("%d kills: %d records sent, %d acked, %d refused, %d without an answer; %d in the log",
		total, sent, acked, refused, sent-acked-refused, live.next)
	if acked < total {
		t.Errorf("only %d records were acked over %d rounds: the test tested nothing", acked, total)
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
	sub, err := c.Subscribe(ctx, streamName, client.FromEarliest())
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
	client     *client.Client
	plain      *client.Publisher
	idempotent *client.Publisher
	series     []*series
}

const plainWriters = 8

func newWorkload(t *testing.T, d *daemon.Daemon) *workload {
	t.Helper()
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{d: d, client: c}
	if w.plain, err = c.Publisher(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	if w.idempotent, err = c.Publisher(t.Context(), streamName, client.WithIdempotence()); err != nil {
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
