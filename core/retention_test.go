package core

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// bulk publishes n records of 8 KB, of which 7 fill a segment of 64 KiB.
func bulk(t testing.TB, b *Broker, st *Stream, n int) {
	t.Helper()
	record := strings.Repeat("x", 8<<10)
	for range n {
		if res := publish(t, b, st, record); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
}

func smallSegments(o Options) Options {
	o.SegmentBytes = 64 << 10
	o.RetentionInterval = time.Hour // no look but those that the test asks for
	return o
}

func base(st *Stream) uint64 { return st.shards[0].log.Base() }

// files is the names of the segments of a stream's shard 0.
func segments(t testing.TB, b *Broker, st *Stream) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.shardDir(st.id, 0), "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// change puts a stream's definition with other bounds.
func change(t testing.TB, b *Broker, st *Stream, bytes, seconds *int64) StreamInfo {
	t.Helper()
	def := *st.def.Load()
	def.RetentionBytes, def.RetentionSeconds = bytes, seconds
	info, created, err := b.CreateStream(def)
	if err != nil || created {
		t.Fatalf("created %v, %v", created, err)
	}
	return info
}

// A changed bound applies to the open log, at once and not at the next look; what it deletes is
// counted, and a restart finds the same log and the same bound.
func TestRetentionOfAnOpenStreamChanges(t *testing.T) {
	o := smallSegments(Options{}.in(t.TempDir()))
	b := openTest(t, o)
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none"})
	bulk(t, b, st, 60)
	if info := st.Info(); info.Retention != nil || base(st) != 0 {
		t.Errorf("without a bound: base %d, retention %+v", base(st), info.Retention)
	}
	info := change(t, b, st, new(int64(200<<10)), new(int64(3600)))
	if r := info.Retention; r == nil || r.Bytes != 200<<10 || r.Seconds != 3600 || info.ShardInfo[0].Base == 0 {
		t.Errorf("retention %+v, shards %+v", r, info.ShardInfo)
	}
	first := base(st)
	if held := b.Status().LogBytes; held > 200<<10 || first == 0 {
		t.Errorf("%d bytes are held, base %d", held, first)
	}
	eventually(t, "the files are gone", func() bool {
		s := b.Status().Executors[0]
		return s.Trimmed > 0 && s.TrimmedBytes > 8<<10*first && len(segments(t, b, st)) <= 4
	})
	change(t, b, st, new(int64(100<<10)), nil)
	if base(st) <= first {
		t.Error("a tighter bound deletes nothing")
	}
	first = base(st)
	change(t, b, st, nil, nil)
	bulk(t, b, st, 30)
	if base(st) != first {
		t.Error("without a bound it goes on deleting")
	}
	change(t, b, st, new(int64(64<<20)), nil)
	closeTest(t, b)

	// Bounds of the broker hold where the stream has none of its own, from the opening on.
	o.RetentionBytes, o.RetentionAge = 100<<10, time.Hour
	b = openTest(t, o)
	st = stream(t, b, StreamDef{})
	if base(st) != first {
		t.Errorf("base %d after a restart, was %d", base(st), first)
	}
	if r := st.Info().Retention; r == nil || r.Bytes != 64<<20 || r.Seconds != 3600 {
		t.Errorf("the stream's bytes and the broker's age: %+v", r)
	}
	change(t, b, st, nil, new(int64(math.MaxInt64)))
	if base(st) == first {
		t.Error("the broker's bytes do not hold")
	}
	made, err := b.Stream("t", "n", "made on first use")
	if err != nil {
		t.Fatal(err)
	}
	if r := made.Info().Retention; r == nil || r.Bytes != 100<<10 || r.Seconds != 3600 {
		t.Errorf("a stream made on first use: %+v", r)
	}
	if r := stream(t, b, StreamDef{Stream: "memory"}).Info().Retention; r != nil {
		t.Errorf("a stream in memory: %+v", r)
	}
	// It is enforced at the opening, too: no interval has to pass.
	bulk(t, b, st, 30)
	first = base(st)
	closeTest(t, b)
	b = openTest(t, o)
	st = stream(t, b, StreamDef{})
	eventually(t, "the log is within its bound again", func() bool { return base(st) > first })
}

// The executors look by themselves, once in an interval; a stream that is deleted meanwhile does not
// stop them.
func TestRetentionRunsByItself(t *testing.T) {
	o := smallSegments(Options{CoreShards: 2}.in(t.TempDir()))
	o.RetentionInterval = time.Millisecond
	b := openTest(t, o)
	bound := StreamDef{Durable: true, Fsync: "none", Shards: 4, RetentionBytes: new(int64(100 << 10))}
	st := stream(t, b, bound)
	bound.Stream = "leaves"
	bulk(t, b, stream(t, b, bound), 20)
	bulk(t, b, st, 20)
	if err := b.DeleteStream(t.Context(), "t", "n", "leaves"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "segments go", func() bool { return base(st) > 0 })
	first := base(st)
	bulk(t, b, st, 20)
	eventually(t, "more go", func() bool { return base(st) > first })
}

// T13: the clock decides by steps. Standing still nothing ages; one that was ahead and came back
// does not keep its records for ever.
func TestRetentionFollowsTheClock(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	o := smallSegments(Options{Now: func() time.Time { return time.Unix(0, now.Load()) }}.in(t.TempDir()))
	b := openTest(t, o)
	hour := new(int64(3600))
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none", RetentionSeconds: hour})
	look := func() uint64 {
		change(t, b, st, nil, hour)
		return base(st)
	}
	bulk(t, b, st, 20)
	if at := look(); at != 0 {
		t.Errorf("base %d with a frozen clock", at)
	}
	now.Add(int64(time.Hour))
	if look() == 0 {
		t.Error("nothing went after an hour")
	}
	now.Add(int64(1000 * time.Hour))
	bulk(t, b, st, 1)
	now.Add(-int64(1000 * time.Hour))
	bulk(t, b, st, 40) // all with the time of the one from the future
	at := look()
	now.Add(int64(time.Hour) - 1000)
	if got := look(); got != at {
		t.Errorf("base %d, was %d: too early", got, at)
	}
	now.Add(1000)
	if look() == at {
		t.Error("records from the future block retention")
	}
}

// A reader of history that retention overtakes ends with a cause of its own and the offset to resume
// at; there it is told the oldest offset that can be had. What it got is right up to the end.
func TestReaderOvertakenByRetentionIsTold(t *testing.T) { // HZ-15, SUB-11
	o := smallSegments(Options{RingBytes: 32 << 10}.in(t.TempDir()))
	b := openTest(t, o)
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none"})
	bulk(t, b, st, 100)
	r := newReader(t, wire.FlagEvOffsets)
	r.gate = make(chan struct{})
	sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: at(3), Lagged: true}, r)
	r.gate <- struct{}{} // the first page is being written
	r.wait(1)
	change(t, b, st, new(int64(100<<10)), nil)
	oldest := base(st)
	close(r.gate)
	end := sub.wait(t)
	if end.Cause != EndTrimmed || end.ResumeFrom != 3+uint64(len(r.got)) || end.ResumeFrom >= oldest {
		t.Fatalf("ended with %+v after %d records, the oldest is %d", end, len(r.got), oldest)
	}
	for i, e := range r.got {
		if e.offset != 3+uint64(i) {
			t.Errorf("record %d has offset %d", i, e.offset)
		}
	}
	var cursor *CursorError
	_, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: at(end.ResumeFrom)})
	if !errors.As(err, &cursor) || !cursor.TooOld || cursor.Requested != end.ResumeFrom || cursor.Available != oldest {
		t.Errorf("resuming: %v", err)
	}
	// Who asked for the oldest and has got nothing is not sent to where nothing is (SUB-12).
	late, err := b.Subscribe(t.Context(), &SubscribeRequest{Stream: st, Start: wire.Start{Kind: wire.StartEarliest}})
	if err != nil {
		t.Fatal(err)
	}
	bulk(t, b, st, 20)
	change(t, b, st, new(int64(100<<10)), new(int64(3600)))
	end, err = late.Run(t.Context(), newReader(t, wire.FlagEvOffsets))
	if end.Cause != EndTrimmed || end.ResumeFrom != base(st) || end.ResumeFrom == oldest {
		t.Errorf("ended with %+v, %v; the oldest is %d", end, err, base(st))
	}
	// A live reader does not need the log.
	live := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
	bulk(t, b, st, 20)
	change(t, b, st, new(int64(100<<10)), nil)
	if got := live.wait(20); got[0].offset != 120 || got[19].offset != 139 {
		t.Errorf("live reader got %d to %d", got[0].offset, got[19].offset)
	}
}

// Deleting segments is not what a shutdown waits for: the next process does it.
func TestShutdownDoesNotWaitForRetention(t *testing.T) {
	o := smallSegments(Options{FileWorkers: 1}.in(t.TempDir()))
	b := openTest(t, o)
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none"})
	bulk(t, b, st, 100)
	before := len(segments(t, b, st))
	// The only worker is busy, so that the first deletion waits in its queue.
	busy := make(chan struct{})
	var held sync.WaitGroup
	held.Add(1)
	blocker := &Stream{broker: b, removed: make(chan struct{})}
	blocker.def.Store(&StreamDef{})
	b.subs.mu.Lock() // finishRemoval lists the subscriptions first
	b.files.remove(blocker)
	change(t, b, st, new(int64(100<<10)), nil)
	go func() {
		defer held.Done()
		<-busy
		b.subs.mu.Unlock()
	}()
	stopped := make(chan error, 1)
	go func() { stopped <- b.executors[0].call(b.executors[0].stop) }()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	close(busy)
	held.Wait()
	closeTest(t, b)
	if after := len(segments(t, b, st)); after < before-2 {
		t.Errorf("%d of %d segments are left: the shutdown deleted them", after, before)
	}
	b = openTest(t, o)
	st = stream(t, b, StreamDef{})
	eventually(t, "the next process deletes", func() bool { return len(segments(t, b, st)) <= 4 })
}

// Retention and the end of a broker in the middle of it leave logs that open again (LOG-13).
func TestRetentionUnderLoadAndRestarts(t *testing.T) {
	o := smallSegments(Options{CoreShards: 2}.in(t.TempDir()))
	o.RetentionInterval = time.Millisecond
	var last uint64
	for round := range 4 {
		b := openTest(t, o)
		st := stream(t, b, StreamDef{Durable: true, Fsync: "none", RetentionBytes: new(int64(150 << 10))})
		if base(st) < last {
			t.Logf("round %d: the log begins at %d, was %d", round, base(st), last)
		}
		bulk(t, b, st, 40)
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		r := newReader(t, wire.FlagEvOffsets)
		sub, err := b.Subscribe(ctx, &SubscribeRequest{Stream: st, Shape: wire.FlagEvOffsets, Start: wire.Start{Kind: wire.StartEarliest}})
		if err != nil {
			t.Fatal(err)
		}
		start, _ := sub.StartOffset()
		tail := st.shards[0].log.Committed()
		done := make(chan End, 1)
		go func() {
			end, _ := sub.Run(ctx, r)
			done <- end
		}()
		eventually(t, "the reader is at the tail or was overtaken", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			for i, e := range r.got {
				if e.offset != start+uint64(i) {
					t.Fatalf("record %d from %d has offset %d", i, start, e.offset)
				}
			}
			return start+uint64(len(r.got)) == tail || sub.ended.Load() != 0 || sub.closed.Load()
		})
		last = base(st)
		cancel()
		<-done
		closeTest(t, b)
	}
	if last == 0 {
		t.Error("nothing was deleted")
	}
}
