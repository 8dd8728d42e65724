package core

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// Definitions are restored at start; the same definition again is no change, another shape is a
// conflict, and retention may change.
func TestDefinitionsAreKept(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, Options{}.in(dir))
	def := StreamDef{Tenant: "t", Namespace: "n", Stream: "s", Shards: 3, Durable: true, Routing: "jump_hash", Fsync: "periodic"}
	info, created, err := b.CreateStream(def)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if _, created, err := b.CreateStream(def); err != nil || created {
		t.Fatalf("same definition: created %t, %v", created, err)
	}
	wider := def
	wider.Shards = 4
	if _, _, err := b.CreateStream(wider); !errors.Is(err, ErrConflict) {
		t.Fatalf("other shards: %v", err)
	}
	def.RetentionBytes = new(int64(1 << 30))
	if _, created, err := b.CreateStream(def); err != nil || created {
		t.Fatalf("other retention: created %t, %v", created, err)
	}
	if _, _, err := b.CreateCache(CacheDef{Tenant: "t", Namespace: "n", Cache: "c", Shards: 2}); err != nil {
		t.Fatal(err)
	}
	if err := b.PutTenantKeys("t", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	before := b.ListStreams("", "")
	closeTest(t, b)

	b = openTest(t, Options{}.in(dir))
	if diff := cmp.Diff(before, b.ListStreams("t", "n")); diff != "" {
		t.Fatal(diff)
	}
	if got := b.ListStreams("t", "n")[0]; got.ID != info.ID || *got.RetentionBytes != 1<<30 {
		t.Fatalf("got %+v", got)
	}
	if c, ok := b.GetCache("t", "n", "c"); !ok || c.Shards != 2 {
		t.Fatalf("cache %+v %t", c, ok)
	}
	if keys, err := b.TenantKeys(); err != nil || string(keys["t"]) != "{}" {
		t.Fatalf("keys %q %v", keys, err)
	}
}

// What does not exist is not_found, and is made only by a broker that may.
func TestUnknownNames(t *testing.T) {
	b := openTest(t, Options{})
	if _, err := b.Stream("t", "n", "s"); !errors.Is(err, wire.ErrNotFound) {
		t.Fatalf("stream: %v", err)
	}
	if _, err := b.Cache("t", "n", "c"); !errors.Is(err, wire.ErrNotFound) || !strings.Contains(err.Error(), "cache scope not found: t/n/c") {
		t.Fatalf("cache: %v", err)
	}
	b = openTest(t, Options{AutoCreate: true})
	if st, err := b.StreamBytes([]byte("t"), []byte("n"), []byte("s")); err != nil || st.Durable() || st.Shards() != 1 {
		t.Fatalf("stream: %v", err)
	}
	for _, name := range []string{"", "a/b", "a:b", "a*", "a\x00", "\xff", strings.Repeat("x", 256)} {
		if _, err := b.Stream("t", "n", name); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

// HZ-17: a second broker on the same directory is refused and changes nothing.
func TestTwoBrokersOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, Options{}.in(dir))
	stream(t, b, StreamDef{Durable: true})
	before := listTree(t, dir)
	if _, err := Open(t.Context(), Options{}.in(dir)); !errors.Is(err, ring.ErrLocked) {
		t.Fatalf("got %v", err)
	}
	if diff := cmp.Diff(before, listTree(t, dir)); diff != "" {
		t.Fatal(diff)
	}
}

func listTree(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	err := filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		if err == nil && !fi.IsDir() {
			files[path] = fi.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Every problem of a configuration is listed at once.
func TestOptionsAreValidated(t *testing.T) {
	_, err := Open(t.Context(), Options{CoreShards: -1, SegmentBytes: 1, SubscriberQueue: 5000})
	for _, want := range []string{"CoreShards", "SegmentBytes", "SubscriberQueue"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
}
