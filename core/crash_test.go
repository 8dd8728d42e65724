package core

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// moved is a file layer whose tree at from is seen at to: an image of a power cut opens beside the
// catalogue that it is given, which bbolt keeps on the real disk.
type moved struct {
	fs       ring.FS
	from, to string
}

func (m moved) at(name string) string { return m.from + strings.TrimPrefix(name, m.to) }

func (m moved) Open(name string, flag int, perm iofs.FileMode) (ring.File, error) {
	return m.fs.Open(m.at(name), flag, perm)
}
func (m moved) OpenDirect(name string, sync bool) (ring.File, error) {
	return m.fs.OpenDirect(m.at(name), sync)
}
func (m moved) MkdirAll(name string, perm iofs.FileMode) error {
	return m.fs.MkdirAll(m.at(name), perm)
}
func (m moved) Rename(a, b string) error                { return m.fs.Rename(m.at(a), m.at(b)) }
func (m moved) Remove(name string) error                { return m.fs.Remove(m.at(name)) }
func (m moved) RemoveAll(name string) error             { return m.fs.RemoveAll(m.at(name)) }
func (m moved) ReadDir(name string) ([]string, error)   { return m.fs.ReadDir(m.at(name)) }
func (m moved) Stat(name string) (iofs.FileInfo, error) { return m.fs.Stat(m.at(name)) }
func (m moved) SyncDir(name string) error               { return m.fs.SyncDir(m.at(name)) }
func (m moved) Lock(name string) (io.Closer, error)     { return m.fs.Lock(m.at(name)) }

const crashRoot = "/data"

// machine is a disk in memory that forgets, with a catalogue on the real one.
type machine struct {
	t    *testing.T
	disk *crashfs.FS
	dir  string // of meta.db
}

func newMachine(t *testing.T) *machine { return &machine{t, crashfs.New(), t.TempDir()} }

func (m *machine) fs() ring.FS { return moved{m.disk, crashRoot, m.dir} }

// powerCut returns what a power cut at this moment leaves, the catalogue as its last transaction
// left it.
func (m *machine) powerCut(b *Broker, seed uint64) *machine {
	after := &machine{m.t, m.disk.Crash(seed), m.t.TempDir()}
	err := b.cat.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(filepath.Join(after.dir, "meta.db"), 0o600) })
	if err != nil {
		m.t.Fatal(err)
	}
	return after
}

// orphans are the directories of streams that the catalogue does not know.
func (m *machine) orphans(b *Broker) (names []string) {
	known := map[string]bool{}
	for _, s := range b.ListStreams("", "") {
		known[filepath.Base(b.streamDir(s.ID))] = true
	}
	all, err := m.fs().ReadDir(filepath.Join(m.dir, "logs", "streams"))
	if err != nil && !errors.Is(err, ring.ErrNotExist) {
		m.t.Fatal(err)
	}
	for _, name := range all {
		if !known[name] {
			names = append(names, name)
		}
	}
	return names
}

// LOG-2, LOG-12, LOG-21: the power fails at every operation while streams are made, written to and
// deleted. The broker always starts again; what was acknowledged is there (a stream, a record, a
// deletion), no file belongs to nobody, and a new stream begins empty.
func TestPowerCutWhileStreamsComeAndGo(t *testing.T) {
	m := newMachine(t)
	var mu sync.Mutex // guards what was promised
	var b *Broker
	must := map[string]int{}   // streams that must exist, with so many records
	never := map[string]bool{} // streams that must not
	images := 0
	m.disk.OnOp(func(n int, op, path string) {
		mu.Lock()
		defer mu.Unlock()
		if b == nil {
			return
		}
		for _, seed := range []uint64{crashfs.SeedLoseAll, crashfs.SeedKeepAll, uint64(n) + 2} {
			images++
			checkImage(t, fmt.Sprintf("cut at %d (%s %s), seed %d", n, op, path, seed), m.powerCut(b, seed), must, never)
		}
	})
	opened := openTest(t, Options{FS: m.fs(), SegmentBytes: 64 << 10}.in(m.dir))
	mu.Lock()
	b = opened
	mu.Unlock()
	promise := func(fn func()) {
		mu.Lock()
		defer mu.Unlock()
		fn()
	}
	for _, name := range []string{"a", "b", "a"} {
		promise(func() { delete(never, name) })
		st := stream(t, b, StreamDef{Stream: name, Durable: true, Shards: 2})
		promise(func() { must[name] = 0 })
		for i := range 2 {
			if res := publish(t, b, st, fmt.Sprint(name, i)); res.Err != nil || res.Offset != uint64(i) {
				t.Fatalf("%+v", res)
			}
			promise(func() { must[name]++ })
		}
		if name == "a" {
			promise(func() { delete(must, name) })
			if err := b.DeleteStream(t.Context(), "t", "n", name); err != nil {
				t.Fatal(err)
			}
			promise(func() { never[name] = true })
		}
	}
	closeTest(t, b)
	t.Logf("%d images", images)
}

func checkImage(t *testing.T, what string, m *machine, must map[string]int, never map[string]bool) {
	b, err := Open(t.Context(), Options{FS: m.fs(), SegmentBytes: 64 << 10}.in(m.dir))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer closeTest(t, b)
	if names := m.orphans(b); len(names) > 0 {
		t.Errorf("%s: files of nobody: %v", what, names)
	}
	for name, n := range must {
		info, ok := b.GetStream("t", "n", name)
		if !ok || info.ShardInfo[0].Tail < uint64(n) {
			t.Errorf("%s: stream %s exists %t with %+v, acknowledged %d", what, name, ok, info.ShardInfo, n)
		}
	}
	for name := range never {
		if _, ok := b.GetStream("t", "n", name); ok {
			t.Errorf("%s: stream %s was deleted", what, name)
		}
	}
	if res := publish(t, b, stream(t, b, StreamDef{Stream: "new", Durable: true}), "first"); res.Err != nil || res.Offset != 0 {
		t.Errorf("%s: a new stream begins with %+v", what, res)
	}
}

// LOG-12, HZ-10: making a stream fails at each of its steps because the disk is full. The caller is told
// to try again, nothing is left behind, and the same call succeeds when there is room.
func TestFullDiskWhileAStreamIsMade(t *testing.T) {
	for _, kind := range []ringtest.Kind{ringtest.MkdirAll, ringtest.Open, ringtest.Sync, ringtest.SyncDir, ringtest.ReadDir} {
		t.Run(string(kind), func(t *testing.T) {
			for nth := 1; nth < 10; nth++ {
				dir := t.TempDir()
				fs := ringtest.NewFS(nil)
				b := openTest(t, Options{FS: fs}.in(dir))
				fs.Add(ringtest.Rule{Kind: kind, Path: "streams", Nth: nth, Err: syscall.ENOSPC})
				_, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: "s", Shards: 3, Durable: true})
				if err == nil {
					closeTest(t, b)
					return // that many steps there are not
				}
				if we := wire.AsError(err); !errors.Is(err, wire.ErrOverloaded) || we.Retry != wire.RetryAfter {
					t.Fatalf("step %d: %v", nth, err)
				}
				if _, ok := b.GetStream("t", "n", "s"); ok {
					t.Fatalf("step %d: the stream exists", nth)
				}
				fs.Clear()
				if names, _ := os.ReadDir(filepath.Join(dir, "logs", "streams")); len(names) != 0 {
					t.Fatalf("step %d: left behind %v", nth, names)
				}
				if res := publish(t, b, stream(t, b, StreamDef{Durable: true, Shards: 3}), "x"); res.Err != nil || res.Offset != 0 {
					t.Fatalf("step %d: afterwards %+v", nth, res)
				}
				closeTest(t, b)
			}
		})
	}
}

// A catalogue that is lost, or older than the files, would give the ids of existing files to new streams,
// and their records to other people. It is refused, and nothing is touched.
func TestCatalogueOlderThanTheFilesIsRefused(t *testing.T) {
	dir := t.TempDir()
	meta := filepath.Join(dir, "meta.db")
	b := openTest(t, Options{}.in(dir))
	stream(t, b, StreamDef{Stream: "first", Durable: true})
	closeTest(t, b)
	old, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	b = openTest(t, Options{}.in(dir))
	st := stream(t, b, StreamDef{Stream: "second", Durable: true})
	publish(t, b, st, "secret")
	closeTest(t, b)
	now, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	for what, content := range map[string][]byte{"lost": nil, "old": old} {
		if err := os.Remove(meta); err != nil {
			t.Fatal(err)
		}
		if content != nil {
			if err := os.WriteFile(meta, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(t.Context(), Options{}.in(dir)); err == nil || !strings.Contains(err.Error(), "meta.db") {
			t.Fatalf("%s catalogue: %v", what, err)
		}
	}
	if err := os.WriteFile(meta, now, 0o600); err != nil {
		t.Fatal(err)
	}
	b = openTest(t, Options{}.in(dir))
	r := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: stream(t, b, StreamDef{Stream: "second", Durable: true}), Start: earliest}, r)
	if e := r.wait(1)[0]; e.payload != "secret" {
		t.Fatalf("got %+v", e)
	}
}

// HZ-10: a start writes nothing to a catalogue that is complete, so that it works on a full disk.
func TestStartDoesNotWriteTheCatalogue(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, Options{}.in(dir))
	stream(t, b, StreamDef{Durable: true})
	closeTest(t, b)
	before, err := os.ReadFile(filepath.Join(dir, "meta.db"))
	if err != nil {
		t.Fatal(err)
	}
	b = openTest(t, Options{}.in(dir))
	closeTest(t, b)
	after, err := os.ReadFile(filepath.Join(dir, "meta.db"))
	if err != nil || string(before) != string(after) {
		t.Fatalf("the catalogue was changed (%v)", err)
	}
}
