package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// closeFailed closes a broker whose logs cannot be flushed any more.
func closeFailed(b *Broker) { _ = b.Close(context.Background()) }

// After a restart the state is read from the log by whoever asks first. Until it covers all that was there
// reads and commits are refused not_ready, which no plain publish and no reader notices; then it is there.
func TestStateIsNotReadyUntilItCoversTheLog(t *testing.T) { // COM-1
	fs := ringtest.NewFS(nil)
	o := Options{FS: fs, PublishQueueWait: 20 * time.Millisecond, FileWorkers: 1}.in(t.TempDir())
	b := openTest(t, o)
	def := StreamDef{Durable: true}
	mustCommit(t, b, stream(t, b, def), "event", put("k", "v"))
	closeTest(t, b)

	b = openTest(t, o)
	st := stream(t, b, def)
	entered, wait := make(chan struct{}, 1), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Read, Path: ".seg", Entered: entered, Wait: wait})
	for what, err := range map[string]error{
		"read":   func() error { _, err := b.State(t.Context(), st, 0, "k"); return err }(),
		"commit": commit(t, b, &PublishRequest{Stream: st}, "early", put("k", "early")).Err,
	} {
		e := wire.AsError(err)
		if !errors.Is(err, wire.ErrUnavailable) || e.Reason != "not_ready" || e.RetryAfterMS == 0 || e.Retry != wire.RetryNow {
			t.Errorf("%s: %+v", what, e)
		}
	}
	<-entered
	if res := publish(t, b, st, "plain"); res.Err != nil || res.Offset != 1 {
		t.Errorf("plain publish meanwhile: %+v", res)
	}
	close(wait)
	eventually(t, "the state is built", func() bool { return st.shards[0].hasState.Load() })
	if v := wantState(t, b, st, "k", "v@0"); v.AsOf != 0 {
		t.Errorf("as of %d", v.AsOf)
	}
	if at := mustCommit(t, b, st, "late", put("k", "late")); at != 2 {
		t.Errorf("at %d", at)
	}
	closeTest(t, b)
}

// A log that cannot be read makes no state: the reader is told, the log is not read again for every
// request, and the shard takes no commits that could not be checked.
func TestUnreadableLogMakesNoState(t *testing.T) {
	fs := ringtest.NewFS(nil)
	var mu sync.Mutex // guards now
	now := time.Now()
	o := Options{FS: fs, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}}.in(t.TempDir())
	b := openTest(t, o)
	def := StreamDef{Durable: true}
	mustCommit(t, b, stream(t, b, def), "event", put("k", "v"))
	closeTest(t, b)

	b = openTest(t, o)
	st := stream(t, b, def)
	fs.Add(ringtest.Rule{Kind: ringtest.Read, Path: ".seg", Times: -1, Err: 5})
	for range 3 {
		_, err := b.State(t.Context(), st, 0, "k")
		if e := wire.AsError(err); e == nil || e.Code != wire.CodeStorage || e.Retry != wire.RetryNow {
			t.Fatalf("%v", err)
		}
	}
	fs.Clear()
	if _, err := b.State(t.Context(), st, 0, "k"); err == nil {
		t.Error("the log was read again at once")
	}
	if res := commit(t, b, &PublishRequest{Stream: st}, "e"); res.Err == nil {
		t.Error("a commit without its state was taken")
	}
	mu.Lock()
	now = now.Add(2 * stateRetry)
	mu.Unlock()
	wantState(t, b, st, "k", "v@0")
}

// The state of all shards is bounded: a commit that would pass the bound is refused with nothing
// written, changes that need no more memory go on, what a key gives up others may take, and a state
// that does not fit after a restart with a smaller bound is refused and not half read.
func TestStateIsBounded(t *testing.T) {
	o := Options{StateBytes: 64 << 10}.in(t.TempDir())
	b := openTest(t, o)
	def := StreamDef{Durable: true, Fsync: "none", Shards: 2}
	st := stream(t, b, def)
	value := strings.Repeat("v", 1000)
	written := map[string]uint64{}
	var full *wire.Error
	for n := 0; n < 1000; n++ {
		key := fmt.Sprint("key ", n)
		res := commit(t, b, &PublishRequest{Stream: st, Shard: uint32(n % 2)}, "e", put(key, value))
		if res.Err != nil {
			full = res.Err
			break
		}
		written[key] = res.Offset
	}
	if full == nil || full.Code != wire.CodeLimitExceeded || full.Retry != wire.RetryFatal || !strings.Contains(full.Message, "state_bytes") {
		t.Fatalf("%+v", full)
	}
	if n := len(written); n < 50 || n > 64 {
		t.Errorf("%d keys of %d bytes fit in %d", n, len(value), 64<<10)
	}
	if used := b.Status().StateBytes; used > 64<<10 || used < 50<<10 {
		t.Errorf("%d bytes are used", used)
	}
	tails := func() (n uint64) {
		for _, s := range st.Info().ShardInfo {
			n += s.Tail
		}
		return n
	}
	if tails() != uint64(len(written)) {
		t.Errorf("%d records, %d commits were taken", tails(), len(written))
	}
	mustCommit(t, b, st, "e", put("key 0", strings.Repeat("w", 1000)))
	if res := commit(t, b, &PublishRequest{Stream: st}, "e", put("key 0", strings.Repeat("w", 3000))); res.Err == nil {
		t.Error("a key grew beyond the bound")
	}
	mustCommit(t, b, st, "e", del("key 0"), del("key 2"))
	if res := commit(t, b, &PublishRequest{Stream: st, Shard: 1}, "e", put("new", value)); res.Err != nil {
		t.Errorf("in the place of a deleted key: %v", res.Err)
	}
	used := b.Status().StateBytes
	closeTest(t, b)

	b = openTest(t, o)
	st = stream(t, b, def)
	wantState(t, b, st, "key 4", fmt.Sprint(value, "@", written["key 4"]))
	if _, err := b.State(t.Context(), st, 1, "x"); err != nil || b.Status().StateBytes != used {
		t.Errorf("after a restart %d bytes, %d before; %v", b.Status().StateBytes, used, err)
	}
	closeTest(t, b)

	o.StateBytes = 20 << 10
	b = openTest(t, o)
	st = stream(t, b, def)
	_, err := b.State(t.Context(), st, 0, "key 4")
	if e := wire.AsError(err); e == nil || e.Code != wire.CodeLimitExceeded {
		t.Errorf("a state above the bound: %v", err)
	}
	if used := b.Status().StateBytes; used != 0 {
		t.Errorf("%d bytes are still taken", used)
	}
	if res := publish(t, b, st, "plain"); res.Err != nil {
		t.Errorf("plain publish: %v", res.Err)
	}
}

// The state of a deleted stream is given back.
func TestStateLeavesWithItsStream(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	mustCommit(t, b, st, "e", put("k", "v"))
	if b.Status().StateBytes == 0 {
		t.Fatal("nothing is counted")
	}
	if err := b.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	if n := b.Status().StateBytes; n != 0 {
		t.Errorf("%d bytes of a deleted stream", n)
	}
	if _, err := b.State(t.Context(), st, 0, "k"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// Keys go with the log: when retention has deleted the commit that wrote a key, the key is gone, in the
// process that saw it written just as in one that was started later.
func TestStateIsThatOfTheRetainedLog(t *testing.T) {
	o := smallSegments(Options{}.in(t.TempDir()))
	b := openTest(t, o)
	def := StreamDef{Durable: true, Fsync: "none"}
	st := stream(t, b, def)
	filler := strings.Repeat("x", 8<<10)
	const n = 60
	const crowd = 40 // so that one look does not forget all that is to go
	for i := range n {
		changes := []Change{put(fmt.Sprint("key ", i), "v"), put("newest", fmt.Sprint(i))}
		for k := range crowd {
			changes = append(changes, put(fmt.Sprint("crowd ", i, k), ""))
		}
		mustCommit(t, b, st, filler, changes...)
	}
	change(t, b, st, new(int64(200<<10)), nil)
	first := base(st)
	if first == 0 || first >= n-1 {
		t.Fatalf("base %d", first)
	}
	wantState(t, b, st, fmt.Sprint("crowd ", first-1, 0), "-")
	check := func(when string) {
		for i := range uint64(n) {
			want := "-"
			if i >= first {
				want = fmt.Sprint("v@", i)
			}
			wantState(t, b, st, fmt.Sprint("key ", i), want)
		}
		if v := wantState(t, b, st, "newest", fmt.Sprintf("%d@%d", n-1, n-1)); v.AsOf != n-1 {
			t.Errorf("%s: as of %d", when, v.AsOf)
		}
	}
	check("live")
	want := int64(0)
	for i := first; i < n; i++ {
		want += stateCost(fmt.Sprint("key ", i), []byte("v"))
		for k := range crowd {
			want += stateCost(fmt.Sprint("crowd ", i, k), nil)
		}
	}
	want += stateCost("newest", []byte(fmt.Sprint(n-1)))
	if got := b.Status().StateBytes; got != want {
		t.Errorf("%d bytes, want %d: deleted keys are still held", got, want)
	}
	closeTest(t, b)
	b = openTest(t, o)
	st = stream(t, b, def)
	check("restarted")
	if got := b.Status().StateBytes; got != want {
		t.Errorf("restarted: %d bytes, want %d", got, want)
	}
	// A log whose last commit is gone reflects none.
	bulk(t, b, st, 60)
	eventually(t, "the commits are deleted", func() bool {
		change(t, b, st, new(int64(100<<10)), nil)
		return base(st) >= n
	})
	if v := wantState(t, b, st, "newest", "-"); v.HasAsOf {
		t.Errorf("as of %d, base %d", v.AsOf, base(st))
	}
}

// stateModel is the naive state: the changes of all commits, in order.
type stateModel struct {
	at      []uint64
	changes [][]Change
}

func (m *stateModel) add(at uint64, changes []Change) {
	m.at, m.changes = append(m.at, at), append(m.changes, changes)
}

// fold is what the commits in [from, until) make.
func (m *stateModel) fold(from, until uint64) map[string]string {
	state := map[string]string{}
	for i, at := range m.at {
		if at < from || at >= until {
			continue
		}
		for _, c := range m.changes[i] {
			if c.Op == 1 {
				state[c.Key] = fmt.Sprintf("%s@%d", c.Value, at)
			} else {
				delete(state, c.Key)
			}
		}
	}
	return state
}

// Random commits, publishes, retention and restarts, against a map: the state is always what the
// commits that the log holds add up to.
func TestStateModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	o := smallSegments(Options{}.in(t.TempDir()))
	def := StreamDef{Durable: true, Fsync: "none"}
	var m stateModel
	for range 6 {
		b := openTest(t, o)
		st := stream(t, b, def)
		for range 60 {
			var changes []Change
			for range rng.IntN(4) {
				key := fmt.Sprint(rng.IntN(12))
				if rng.IntN(3) == 0 {
					changes = append(changes, del(key))
				} else {
					changes = append(changes, put(key, strings.Repeat("v", rng.IntN(900))))
				}
			}
			if rng.IntN(3) == 0 {
				publish(t, b, st, "plain")
			}
			m.add(mustCommit(t, b, st, strings.Repeat("e", rng.IntN(3000)), slices.Clone(changes)...), changes)
			if rng.IntN(10) == 0 {
				change(t, b, st, new(int64(64<<10+rng.IntN(200<<10))), nil)
			}
			from, until := base(st), st.Info().ShardInfo[0].Tail
			want := m.fold(from, until)
			got := map[string]string{}
			for key := range 12 {
				v, err := b.State(t.Context(), st, 0, fmt.Sprint(key))
				if err != nil {
					t.Fatal(err)
				}
				if v.Value != nil {
					got[fmt.Sprint(key)] = v.text()
				}
			}
			if base(st) == from && !maps.Equal(got, want) {
				t.Fatalf("state %v\nwant %v\nof [%d, %d)", got, want, from, until)
			}
		}
		closeTest(t, b)
	}
}

// COM-1: the power fails at every operation while commits are written. What comes back is whole: every
// commit that was answered, each event with its state, and no state without its event.
func TestPowerCutLeavesNoHalfCommit(t *testing.T) {
	m := newMachine(t)
	var mu sync.Mutex // guards b, acked and model
	var b *Broker
	acked := uint64(0) // all commits below it were answered
	var model stateModel
	images := 0
	m.disk.OnOp(func(n int, op, path string) {
		mu.Lock()
		defer mu.Unlock()
		if b == nil {
			return
		}
		for _, seed := range []uint64{crashfs.SeedLoseAll, crashfs.SeedKeepAll, uint64(n) + 2} {
			images++
			checkCommits(t, fmt.Sprintf("cut at %d (%s %s), seed %d", n, op, path, seed), m.powerCut(b, seed), acked, &model)
		}
	})
	opened := openTest(t, Options{FS: m.fs(), SegmentBytes: 64 << 10}.in(m.dir))
	st := stream(t, opened, StreamDef{Durable: true})
	mu.Lock()
	b = opened
	mu.Unlock()
	res := newResults()
	for n := range uint64(12) {
		changes := []Change{put("newest", fmt.Sprint(n)), put(fmt.Sprint("key ", n), strings.Repeat("v", 9000)), del(fmt.Sprint("key ", n-3))}
		mu.Lock()
		model.add(n, changes)
		mu.Unlock()
		if err := b.Commit(t.Context(), &PublishRequest{Stream: st, Reply: res, Tag: n}, fmt.Appendf(nil, "event %d", n), slices.Clone(changes)); err != nil {
			t.Fatal(err)
		}
		if n%3 == 2 { // three share a write
			for i := n - 2; i <= n; i++ {
				if got := res.wait(t, i); got.Err != nil || got.Offset != i {
					t.Fatalf("%d: %+v", i, got)
				}
			}
			mu.Lock()
			acked = n + 1
			mu.Unlock()
		}
	}
	closeTest(t, b)
	t.Logf("%d images", images)
}

func checkCommits(t *testing.T, what string, m *machine, acked uint64, model *stateModel) {
	b, err := Open(t.Context(), Options{FS: m.fs(), SegmentBytes: 64 << 10}.in(m.dir))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer closeTest(t, b)
	st := stream(t, b, StreamDef{Durable: true})
	events := list(t, b, st)
	n := uint64(len(events))
	if n < acked {
		t.Errorf("%s: %d events, %d commits were answered", what, n, acked)
	}
	for i, e := range events {
		if e.offset != uint64(i) || e.payload != fmt.Sprintf("event %d", i) {
			t.Errorf("%s: event %d is %v", what, i, e)
		}
	}
	want := model.fold(0, n)
	for i := range 13 {
		key := fmt.Sprint("key ", i)
		if i == 12 {
			key = "newest"
		}
		v, err := b.State(t.Context(), st, 0, key)
		if text := v.text(); err != nil || text != want[key] && !(text == "-" && want[key] == "") {
			t.Errorf("%s: %d events, state of %q is %.40s, want %.40s; %v", what, n, key, text, want[key], err)
		}
		if v.HasAsOf != (n > 0) || n > 0 && v.AsOf != n-1 {
			t.Errorf("%s: %d events, state as of %d", what, n, v.AsOf)
		}
	}
	if at := mustCommit(t, b, st, "next", put("newest", "next")); at != n {
		t.Errorf("%s: the next commit is at %d of %d", what, at, n)
	}
}

// Closing does not wait until a state is built, however long its log.
func TestCloseEndsABuild(t *testing.T) {
	fs := ringtest.NewFS(nil)
	o := Options{FS: fs, FileWorkers: 1, PublishQueueWait: time.Hour}.in(t.TempDir())
	b := openTest(t, o)
	def := StreamDef{Durable: true, Fsync: "none"}
	for range 40 {
		mustCommit(t, b, stream(t, b, def), strings.Repeat("e", 64<<10), put("k", "v"))
	}
	closeTest(t, b)
	b = openTest(t, o)
	st := stream(t, b, def)
	entered, wait := make(chan struct{}, 8), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Read, Path: filepath.Base(b.streamDir(st.id)), Times: -1, Entered: entered, Wait: wait})
	answer := make(chan error, 1)
	go func() {
		_, err := b.State(context.Background(), st, 0, "k")
		answer <- err
	}()
	<-entered
	closing := make(chan struct{})
	go func() {
		defer close(closing)
		closeTest(t, b)
	}()
	if err := <-answer; !errors.Is(err, wire.ErrDraining) { // before the read comes back
		t.Errorf("%v", err)
	}
	close(wait)
	go func() {
		for range entered {
		}
	}()
	<-closing
	close(entered)
}
