package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/internal/daemon"
	"github.com/ringcast/ringcast/internal/loopfs"
)

// cutsDefault is how often the power is cut per engine and sync mode under plain `go test`; `make
// night` sets RINGCAST_CUTS to 50.
const cutsDefault = 3

func cuts(t *testing.T) int {
	v := os.Getenv("RINGCAST_CUTS")
	if v == "" {
		return cutsDefault
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("RINGCAST_CUTS=%q is not a number from 1 on", v)
	}
	return n
}

// LOG-3, LOG-21, HZ-1, HZ-3 (T4 under T14): power fails under a real file system while publishers
// keep the broker busy. Under on_commit nothing acknowledged is lost; under periodic nothing that was
// acknowledged before a flush that has ended; under none anything may be. In every mode the broker
// starts again, nothing is torn, and the log is a prefix without a gap. Every round has a brand-new
// stream, each third a brand-new data directory, and segments are so small that they roll all the time;
// half of the rounds are cut right behind the first acknowledgement.
func TestPowerCutLosesNothingThatWasPromised(t *testing.T) {
	for _, engine := range engines {
		if engine == forbidden {
			continue // it is the portable one
		}
		for _, mode := range []string{"on_commit", "periodic", "none"} {
			t.Run(engine+" "+mode, func(t *testing.T) {
				if why := refusal(t, engine); why != "" {
					t.Logf("REFUSED, not tested: %s", why)
					return
				}
				t.Parallel()
				(&powerCuts{t: t, engine: engine, mode: mode, fs: loopfs.New(t, loopfs.Options{MiB: 128})}).run()
			})
		}
	}
}

type powerCuts struct {
	t            *testing.T
	engine, mode string
	fs           *loopfs.FS
	d            *daemon.Daemon
	data         string
	kept         []*workload // on_commit: every round's stream, which the later cuts must leave alone
	lost, acked  int
}

func (p *powerCuts) run() {
	seed := uint64(time.Now().UnixNano())
	p.t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if p.d != nil {
			p.d.Kill()
			if p.t.Failed() {
				p.t.Logf("the broker's last words:\n%s", p.d.Log(30))
			}
		}
	}()
	total := cuts(p.t)
	for n := range total {
		if n%3 == 0 {
			p.newRoot(n)
		}
		p.round(n, r)
	}
	for _, w := range p.kept {
		p.judge(w, tail(w.series))
	}
	p.t.Logf("%d power cuts: %d records acked, %d of them lost", total, p.acked, p.lost)
	if p.mode == "on_commit" && p.lost > 0 {
		p.t.Errorf("%d acknowledged records are lost", p.lost)
	}
}

// newRoot starts a broker on a directory that is not there yet.
func (p *powerCuts) newRoot(n int) {
	if p.d != nil {
		for _, w := range p.kept {
			p.judge(w, tail(w.series))
		}
		p.kept = nil
		p.d.Kill()
	}
	p.data = filepath.Join(p.fs.Dir, fmt.Sprintf("root%d", n))
	d, err := daemon.Start(p.t.Context(), daemon.Options{
		Bin: bin, Data: p.data, Log: filepath.Join(p.t.TempDir(), "log"),
		Args: []string{"--storage-engine=" + p.engine, "--durable-segment-bytes=64KiB", "--durable-fsync-mode=" + p.mode, "--durable-fsync-interval-ms=20"},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.d = d
}

func (p *powerCuts) round(n int, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(p.t.Context(), roundTimeout)
	defer cancel()
	// Keys of --dev are not synced, and nobody promises that; what they unlock is to be looked at.
	keys := filepath.Join(p.t.TempDir(), "dev")
	if err := os.CopyFS(keys, os.DirFS(filepath.Join(p.data, "dev"))); err != nil {
		p.t.Fatal(err)
	}
	w := newWorkload(p.t, p.d, fmt.Sprintf("round-%d", n))
	defer w.close()
	if p.mode == "on_commit" && n%2 == 1 {
		// Only the first record of a new stream is acknowledged, at once before the cut.
		p.cut(w, func() {})
		p.restart(keys)
		p.finish(w, tail(w.series))
		return
	}
	stop := w.run(ctx)
	<-time.After(time.Duration(10+r.IntN(200)) * time.Millisecond)
	promised := uint64(0)
	if p.mode == "periodic" {
		// What is acknowledged now is covered by a flush that begins later. Of the next two that end
		// one is the flush in flight at most, and the log is flushed only while there is something new.
		promised = tail(w.series)
		for since := p.syncs(); p.syncs() < since+2; {
			if ctx.Err() != nil {
				p.t.Fatal("a periodic stream under load is not flushed")
			}
		}
	}
	p.cut(w, stop)
	if p.mode == "on_commit" {
		promised = tail(w.series)
	}
	p.restart(keys)
	p.finish(w, promised)
}

// cut cuts the power and ends the workload: what has no answer by then is of unknown outcome, since
// nobody repeats it.
func (p *powerCuts) cut(w *workload, stop func()) {
	p.t.Helper()
	p.fs.Cut()
	p.d.Kill()
	w.close()
	stop()
}

// restart brings the machine back.
func (p *powerCuts) restart(keys string) {
	p.t.Helper()
	p.fs.Remount()
	dev := filepath.Join(p.data, "dev")
	if err := os.RemoveAll(dev); err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(p.data, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.CopyFS(dev, os.DirFS(keys)); err != nil {
		p.t.Fatal(err)
	}
	for _, secret := range []string{"key.pem", "signing.jwk", "token"} {
		if err := os.Chmod(filepath.Join(dev, secret), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.d.Restart(p.t.Context()); err != nil {
		p.t.Fatalf("after the power cut: %v", err)
	}
}

// finish judges the round's stream and closes its books.
func (p *powerCuts) finish(w *workload, promised uint64) {
	p.t.Helper()
	o := p.judge(w, promised)
	_, acked, _ := counts(w.series)
	p.acked += acked
	p.lost += acked - o.present()
	if p.mode == "on_commit" {
		p.kept = append(p.kept, w)
	}
}

// judge reads a stream up to its end: at least `promised` records, a prefix of what was acknowledged.
func (p *powerCuts) judge(w *workload, promised uint64) *oracle {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), roundTimeout)
	defer cancel()
	o := newOracle(w.series)
	end := tailOf(p.t, p.d, w.stream) // definitions are always synced
	if end < promised {
		p.t.Fatalf("stream %s ends at %d, promised were %d", w.stream, end, promised)
	}
	if end == 0 {
		return o
	}
	c, err := p.d.Client()
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	sub, err := c.Subscribe(ctx, w.stream, client.FromEarliest())
	if err != nil {
		p.t.Fatal(err)
	}
	defer sub.Close()
	if err := o.readTo(ctx, sub, end); err != nil {
		p.t.Fatal(err)
	}
	return o
}

// syncs is how many syncs the engine has ended.
func (p *powerCuts) syncs() float64 {
	p.t.Helper()
	status, a := call(p.t, "GET", "http://"+p.d.HTTP+"/v1/status", p.d.Token, "")
	if status != http.StatusOK {
		p.t.Fatalf("/v1/status: %d", status)
	}
	var n float64
	for _, c := range a["core_shards"].([]any) {
		n += c.(map[string]any)["syncs"].(float64)
	}
	return n
}
