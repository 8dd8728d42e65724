package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// catalogued makes a directory with n durable streams of two shards each, and one in memory.
func catalogued(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	b := openTest(t, Options{}.in(dir))
	for i := range n {
		if _, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: fmt.Sprintf("s%02d", i), Shards: 2, Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: "memory", Shards: 5}); err != nil {
		t.Fatal(err)
	}
	closeTest(t, b)
	return dir
}

// An opening broker tells how many logs are open: 0 first, each once, all of them before it is open.
func TestOpenTellsItsProgress(t *testing.T) { // HZ-18
	var told []int
	o := Options{}.in(catalogued(t, 6))
	o.OnOpenProgress = func(done, total int, _ int64) {
		if total != 12 {
			t.Errorf("%d logs in all", total)
		}
		told = append(told, done)
	}
	openTest(t, o)
	for i, done := range told {
		if done != i {
			t.Fatalf("told %v", told)
		}
	}
	if len(told) != 13 {
		t.Fatalf("told %v", told)
	}
}

// An opening that is cut short reads no log any more, says so and not that something is damaged, and
// leaves a directory that opens.
func TestOpenIsCutShort(t *testing.T) { // HZ-18
	dir := catalogued(t, 20)
	ctx, cancel := context.WithCancel(context.Background())
	most := 0
	o := Options{}.in(dir)
	o.OnOpenProgress = func(done, _ int, _ int64) {
		if most = done; done == 1 {
			cancel()
		}
	}
	if _, err := Open(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("open: %v", err)
	}
	if most > openParallel {
		t.Errorf("%d logs were opened", most)
	}
	openTest(t, Options{}.in(dir))
}

// It is cut short within a log, too: between two segments, with nothing changed.
func TestOpenIsCutShortWithinALog(t *testing.T) { // HZ-18
	dir := catalogued(t, 1)
	b := openTest(t, Options{SegmentBytes: 64 << 10}.in(dir))
	st, err := b.Stream("t", "n", "s00")
	if err != nil {
		t.Fatal(err)
	}
	shardDir := b.shardDir(st.id, 0)
	closeTest(t, b)

	fs := ringtest.NewFS(ring.OS())
	entered, wait := make(chan struct{}, 1), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: "producers", Entered: entered, Wait: wait})
	ctx, cancel := context.WithCancel(context.Background())
	o := Options{FS: fs}.in(dir)
	done := make(chan error, 1)
	go func() {
		_, err := Open(ctx, o)
		done <- err
	}()
	<-entered
	cancel()
	close(wait)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("open: %v", err)
	}
	if _, err := os.Stat(shardDir); err != nil {
		t.Fatal(err)
	}
	openTest(t, Options{}.in(dir))
}

// With VerifyAllOnOpen a body that is damaged in a sealed segment refuses the start; without it the
// start is short, and whoever reads the record is told.
func TestVerifyAllOnOpenReadsEveryBody(t *testing.T) { // LOG-5
	dir := t.TempDir()
	b := openTest(t, Options{SegmentBytes: 64 << 10}.in(dir))
	if _, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: "s", Shards: 1, Durable: true}); err != nil {
		t.Fatal(err)
	}
	st, err := b.Stream("t", "n", "s")
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		publish(t, b, st, string(make([]byte, 8<<10)))
	}
	name := fmt.Sprintf("%s/%020d.seg", b.shardDir(st.id, 0), 1)
	closeTest(t, b)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 4096+1000); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var c *log.CorruptError
	if _, err := Open(context.Background(), Options{VerifyAllOnOpen: true}.in(dir)); !errors.As(err, &c) || c.Segment != 1 || c.Pos != 4096 {
		t.Fatalf("open: %v", err)
	}
	openTest(t, Options{}.in(dir))
}

// What is read is told, too, between two logs as well: one that is large must not look like one that
// hangs. The telling never falls.
func TestProgressTellsWhatIsRead(t *testing.T) { // HZ-18
	type telling struct {
		done int
		read int64
	}
	var told []telling
	p := openProgress{total: 2, tell: func(done, _ int, read int64) { told = append(told, telling{done, read}) }}
	for range 300 {
		p.reading(1 << 20)
	}
	p.opened()
	p.reading(1)
	p.opened()
	want := []telling{{0, 64 << 20}, {0, 128 << 20}, {0, 192 << 20}, {0, 256 << 20}, {1, 300 << 20}, {2, 300<<20 + 1}}
	if !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
