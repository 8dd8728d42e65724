package core

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
)

// unlockable answers Lock with an errno.
type unlockable struct {
	ring.FS
	errno syscall.Errno
}

func (u unlockable) Lock(name string) (io.Closer, error) {
	return nil, ring.Classify("lock", name, u.errno)
}

// A data directory is locked for a command where that can be done without writing; where it cannot,
// only a command that does not write goes on.
func TestLockDataDirWritesNothingForReaders(t *testing.T) { // HZ-17
	dir := t.TempDir()
	lock, why, err := LockDataDir(ring.OS(), dir, false)
	if lock != nil || why == "" || err != nil {
		t.Fatalf("without a LOCK file: %v %q %v", lock, why, err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Fatalf("made %v", names)
	}
	first, _, err := LockDataDir(ring.OS(), dir, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []bool{true, false} {
		if _, _, err := LockDataDir(ring.OS(), dir, write); !errors.Is(err, ring.ErrLocked) {
			t.Errorf("a second one (write %v): %v", write, err)
		}
	}
	first.Close()
	for _, errno := range []syscall.Errno{syscall.EROFS, syscall.EACCES} {
		fs := unlockable{ring.OS(), errno}
		if lock, why, err := LockDataDir(fs, dir, false); lock != nil || why == "" || err != nil {
			t.Errorf("%v, to read: %v %q %v", errno, lock, why, err)
		}
		if _, _, err := LockDataDir(fs, dir, true); err == nil {
			t.Errorf("%v, to write: no error", errno)
		}
	}
}

// The logs of a directory are listed with their names; what the catalogue does not know by its id, what
// is not there as missing; and nothing is written.
func TestStoredLogsAreNamed(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(context.Background(), Options{DataDir: dir, Engine: "portable"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, name := range []string{"a", "b"} {
		info, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: name, Shards: 2, Durable: true})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	missing, orphan := b.shardDir(ids[1], 1), b.shardDir(99, 4)
	closeTest(t, b)
	if err := os.RemoveAll(missing); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(orphan, 0o750); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "meta.db"))
	if err != nil {
		t.Fatal(err)
	}
	logs, catalogue, err := StoredLogs(ring.OS(), dir)
	if catalogue != nil || err != nil || len(logs) != 5 {
		t.Fatalf("%+v, %v, %v", logs, catalogue, err)
	}
	if l := logs[0]; l.Name() != "" || l.ID != 99 || l.Shard != 4 || l.Dir != orphan {
		t.Errorf("%+v", l)
	}
	for i, l := range logs[1:] {
		if l.Name() != "t/n/"+string(rune('a'+i/2)) || l.Shard != uint32(i%2) || l.Fsync != "on_commit" || l.Missing != (l.Dir == missing) {
			t.Errorf("%+v", l)
		}
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "meta.db")); !bytes.Equal(after, before) {
		t.Error("meta.db was written to")
	}
}

// With RepairChecksumTail a broker starts over damage at the very end of a log, and says loudly what it
// has dropped; without it, it refuses and changes nothing.
func TestRepairChecksumTailIsLoud(t *testing.T) { // LOG-5
	dir := t.TempDir()
	o := Options{DataDir: dir, Engine: "portable"}
	b, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	info, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: "s", Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	shard := b.shardDir(info.ID, 0)
	pool := b.opts.Pool
	closeTest(t, b)
	for range 3 {
		l, err := log.Open(log.Options{FS: ring.OS(), Dir: shard, CatalogueID: info.ID, Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		section := []byte{0, 0, 0, 1, 0, 0, 0, 2, 'h', 'i'}
		if _, err := l.Append(&log.Entry{Kind: log.KindRecords, Count: 1, Section: section}, 5); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(shard, "00000000000000000000.seg")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)-1] ^= 1
	if err := os.WriteFile(name, whole, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), o)
	if c, ok := errors.AsType[*log.CorruptError](err); !ok || c.Segment != 0 {
		t.Fatalf("without it: %v", err)
	}
	var text bytes.Buffer
	o.RepairChecksumTail, o.Logger = true, slog.New(slog.NewTextHandler(&text, nil))
	b = openTest(t, o)
	if got, ok := b.GetStream("t", "n", "s"); !ok || got.ShardInfo[0].Tail != 2 {
		t.Errorf("%+v", got)
	}
	if s := text.String(); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, "DATA LOST") || !strings.Contains(s, "t/n/s") {
		t.Errorf("the log says: %s", s)
	}
}
