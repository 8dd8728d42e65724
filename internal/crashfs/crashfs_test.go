package crashfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/ringcast/ringcast/ring"
)

var _ ring.FS = (*FS)(nil)

func open(t *testing.T, f *FS, name string) ring.File {
	t.Helper()
	file, err := f.Open(name, os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	return file
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, f ring.File, off int64, b []byte) {
	t.Helper()
	_, err := f.WriteAt(b, off)
	must(t, err)
}

// read returns a file's bytes, or nil when it is not there.
func read(t *testing.T, f *FS, name string) []byte {
	t.Helper()
	file, err := f.Open(name, os.O_RDONLY, 0)
	if errors.Is(err, ring.ErrNotExist) {
		return nil
	}
	must(t, err)
	size, err := file.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := file.ReadAt(b, 0); int64(n) != size || err != nil && err != io.EOF {
		t.Fatalf("ReadAt = %d, %v", n, err)
	}
	return b
}

func TestSyncedDataAndNamesSurviveEverySeed(t *testing.T) {
	f := New()
	must(t, f.MkdirAll("/d/e", 0o755))
	file := open(t, f, "/d/e/a")
	want := bytes.Repeat([]byte("synced.."), 500)
	write(t, file, 0, want)
	must(t, file.Sync())
	must(t, f.SyncDir("/d/e"))
	write(t, file, int64(len(want)), bytes.Repeat([]byte("x"), 3000))
	for seed := range uint64(500) {
		got := read(t, f.Crash(seed), "/d/e/a")
		// Sectors are whole: the one that holds the end of the synced bytes may be rewritten, but not with others.
		if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
			t.Fatalf("seed %d: synced bytes are gone: %d of %d bytes", seed, len(got), len(want))
		}
	}
}

func TestUnsyncedDataIsTornAtSectors(t *testing.T) {
	f := New()
	file := open(t, f, "a")
	old := bytes.Repeat([]byte("o"), 4*sectorSize)
	write(t, file, 0, old)
	must(t, file.Sync())
	must(t, f.SyncDir("."))
	write(t, file, 0, bytes.Repeat([]byte("n"), 4*sectorSize))
	seen := map[string]bool{}
	for seed := range uint64(300) {
		b := read(t, f.Crash(seed), "a")
		pattern := ""
		for i := 0; i < len(b); i += sectorSize {
			sector := b[i : i+sectorSize]
			if n := bytes.Count(sector, []byte("n")); n != 0 && n != sectorSize || bytes.Count(sector, []byte("o")) != sectorSize-n {
				t.Fatalf("seed %d: sector %d is torn inside", seed, i/sectorSize)
			}
			pattern += string(sector[0])
		}
		seen[pattern] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d of 16 patterns of torn sectors seen: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
	if b := read(t, f.Crash(SeedLoseAll), "a"); !bytes.Equal(b, old) {
		t.Error("SeedLoseAll kept something")
	}
	if b := read(t, f.Crash(SeedKeepAll), "a"); bytes.Contains(b, []byte("o")) {
		t.Error("SeedKeepAll lost something")
	}
}

func TestUnsyncedLengthIsOldNewOrBetween(t *testing.T) {
	for _, c := range []struct{ old, new int }{{100, 5000}, {5000, 100}} {
		f := New()
		file := open(t, f, "a")
		write(t, file, 0, bytes.Repeat([]byte("o"), c.old))
		must(t, file.Sync())
		must(t, f.SyncDir("."))
		if c.new < c.old {
			must(t, file.Truncate(int64(c.new)))
		} else {
			write(t, file, int64(c.old), bytes.Repeat([]byte("n"), c.new-c.old))
		}
		seen := map[string]bool{}
		for seed := range uint64(300) {
			switch n := len(read(t, f.Crash(seed), "a")); {
			case n == c.old:
				seen["old"] = true
			case n == c.new:
				seen["new"] = true
			case n > min(c.old, c.new) && n < max(c.old, c.new):
				seen["between"] = true
			default:
				t.Fatalf("length %d, from %d to %d", n, c.old, c.new)
			}
		}
		if len(seen) != 3 {
			t.Errorf("from %d to %d: seen only %v", c.old, c.new, seen)
		}
	}
}

func TestTruncatedBytesAreZeroWhenTheFileGrowsAgain(t *testing.T) {
	f := New()
	file := open(t, f, "a")
	write(t, file, 0, bytes.Repeat([]byte("o"), 2000))
	must(t, file.Sync())
	must(t, file.Truncate(10))
	write(t, file, 1500, []byte("n"))
	want := append(append(bytes.Repeat([]byte("o"), 10), make([]byte, 1490)...), 'n')
	if got := read(t, f, "a"); !bytes.Equal(got, want) {
		t.Fatalf("before the cut: %q", got)
	}
	must(t, file.Sync())
	must(t, f.SyncDir("."))
	if got := read(t, f.Crash(SeedLoseAll), "a"); !bytes.Equal(got, want) {
		t.Fatalf("after sync and cut: %q", got)
	}
}

func TestNamesNeedTheirDirectorySynced(t *testing.T) { // HZ-3
	f := New()
	must(t, f.MkdirAll("d", 0o755))
	file := open(t, f, "d/new")
	write(t, file, 0, []byte("x"))
	must(t, file.Sync())
	seen := map[bool]bool{}
	for seed := range uint64(50) {
		seen[read(t, f.Crash(seed), "d/new") != nil] = true
	}
	if !seen[true] || !seen[false] {
		t.Errorf("a synced file in an unsynced directory must be there by chance: %v", seen)
	}
	must(t, f.SyncDir("d"))
	must(t, f.Rename("d/new", "d/renamed"))
	counts := map[string]int{}
	for seed := range uint64(100) {
		names, err := f.Crash(seed).ReadDir("d")
		must(t, err)
		counts[fmt.Sprint(names)]++
	}
	if len(counts) != 2 || counts["[new]"] == 0 || counts["[renamed]"] == 0 {
		t.Errorf("a rename must happen as a whole or not at all: %v", counts)
	}
	must(t, f.Remove("d/renamed"))
	must(t, f.SyncDir("d"))
	if names, _ := f.Crash(SeedKeepAll).ReadDir("d"); len(names) != 0 {
		t.Errorf("removed, and the directory synced, but there: %v", names)
	}
}

// The same seed must give the same disk, or a failing seed could not be replayed.
func TestCrashIsRepeatable(t *testing.T) {
	f := New()
	for i := range 20 {
		write(t, open(t, f, fmt.Sprintf("f%d", i)), int64(i*100), bytes.Repeat([]byte{byte(i)}, 3000))
	}
	for seed := range uint64(20) {
		a, b := f.Crash(seed), f.Crash(seed)
		names, _ := a.ReadDir("/")
		if other, _ := b.ReadDir("/"); !slices.Equal(names, other) {
			t.Fatalf("seed %d: %v, then %v", seed, names, other)
		}
		for _, n := range names {
			if !bytes.Equal(read(t, a, n), read(t, b, n)) {
				t.Fatalf("seed %d: %s differs", seed, n)
			}
		}
	}
}

// script is a careful program: what it confirms must survive a cut at any operation.
func script(f *FS) (confirmed int, err error) {
	if err := f.MkdirAll("logs/x", 0o755); err != nil {
		return 0, err
	}
	file, err := f.Open("logs/x/tmp", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	if err := f.Rename("logs/x/tmp", "logs/x/seg"); err != nil {
		return 0, err
	}
	if err := f.SyncDir("logs/x"); err != nil {
		return 0, err
	}
	for i := range 5 {
		if _, err := file.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, 700), int64(i)*700); err != nil {
			return i, err
		}
		if err := file.Sync(); err != nil {
			return i, err
		}
	}
	return 5, nil
}

func TestCutAtEveryOperation(t *testing.T) {
	whole := New()
	if n, err := script(whole); n != 5 || err != nil {
		t.Fatalf("script = %d, %v", n, err)
	}
	for n := 1; n <= whole.Ops(); n++ {
		f := New()
		f.CutAt(n)
		confirmed, err := script(f)
		if !errors.Is(err, ErrPowerCut) || !errors.Is(err, ring.ErrIO) {
			t.Fatalf("cut %d: %v", n, err)
		}
		if _, err := f.ReadDir("/"); !errors.Is(err, ErrPowerCut) {
			t.Fatalf("cut %d: the dead file layer answers: %v", n, err)
		}
		for seed := range uint64(30) {
			check(t, f.Crash(seed), confirmed, n, seed)
		}
	}
}

func TestHookSeesEveryOperationAndMayCrashThere(t *testing.T) {
	f := New()
	calls := 0
	f.OnOp(func(n int, _, _ string) {
		calls++
		if n != calls {
			t.Errorf("operation %d announced as %d", calls, n)
		}
		if seg := read(t, f.Crash(SeedLoseAll), "logs/x/seg"); len(seg)%700 != 0 {
			t.Errorf("operation %d: %d bytes", n, len(seg))
		}
	})
	if _, err := script(f); err != nil {
		t.Fatal(err)
	}
	if calls != f.Ops() || calls == 0 {
		t.Errorf("%d calls, %d operations", calls, f.Ops())
	}
}

func check(t *testing.T, after *FS, confirmed, cut int, seed uint64) {
	t.Helper()
	got := read(t, after, "logs/x/seg")
	for i := range confirmed {
		if want := bytes.Repeat([]byte{byte(i + 1)}, 700); len(got) < (i+1)*700 || !bytes.Equal(got[i*700:(i+1)*700], want) {
			t.Fatalf("cut %d seed %d: confirmed record %d is gone (%d bytes)", cut, seed, i, len(got))
		}
	}
}

func TestLocksEndWithThePower(t *testing.T) { // HZ-17
	f := New()
	l, err := f.Lock("LOCK")
	must(t, err)
	if _, err := f.Lock("LOCK"); !errors.Is(err, ring.ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	after := f.Crash(SeedKeepAll)
	_, err = after.Lock("LOCK")
	must(t, err)
	must(t, l.Close())
	_, err = f.Lock("LOCK")
	must(t, err)
}

func TestErrorsAreThoseOfTheRealFileLayer(t *testing.T) {
	f := New()
	must(t, f.MkdirAll("d", 0o755))
	file := open(t, f, "d/f")
	must(t, file.Close())
	_, missing := f.Open("none", os.O_RDWR, 0)
	_, noDir := f.Open("x/y", os.O_RDWR|os.O_CREATE, 0)
	_, excl := f.Open("d/f", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0)
	_, closed := file.WriteAt([]byte("x"), 0)
	ro, err := f.Open("d/f", os.O_RDONLY, 0)
	must(t, err)
	_, readOnly := ro.WriteAt([]byte("x"), 0)
	for what, c := range map[string]struct{ err, want error }{
		"missing":   {missing, ring.ErrNotExist},
		"no dir":    {noDir, ring.ErrNotExist},
		"exclusive": {excl, ring.ErrExist},
		"closed":    {closed, ring.ErrClosed},
		"read only": {readOnly, ring.ErrIO},
		"not empty": {f.Remove("d"), ring.ErrExist},
		"rename":    {f.Rename("none", "d/x"), ring.ErrNotExist},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	must(t, f.RemoveAll("d"))
	must(t, f.RemoveAll("d"))
	if _, err := f.Stat("d/f"); !errors.Is(err, ring.ErrNotExist) {
		t.Errorf("after RemoveAll: %v", err)
	}
}
