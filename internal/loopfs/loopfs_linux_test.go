package loopfs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What the tests of brokers build on: a cut keeps what was synced and loses what was not, contents
// and names alike; an aborted journal answers EROFS; a full one ENOSPC, and has room again.
func TestFileSystemFailsAsARealOne(t *testing.T) {
	f := New(t, Options{})
	write := func(name string, sync bool) {
		t.Helper()
		file, err := os.Create(filepath.Join(f.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Write([]byte(strings.Repeat(name, 100))); err != nil {
			t.Fatal(err)
		}
		if !sync {
			return
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		dir, err := os.Open(f.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := dir.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	write("kept", true)
	write("lost", false)
	f.Cut()
	if err := os.WriteFile(filepath.Join(f.Dir, "late"), []byte("x"), 0o600); err == nil {
		t.Error("a write after the power cut")
	}
	f.Remount()
	if text, err := os.ReadFile(filepath.Join(f.Dir, "kept")); err != nil || len(text) != 400 {
		t.Errorf("what was synced: %d bytes, %v", len(text), err)
	}
	if _, err := os.Stat(filepath.Join(f.Dir, "lost")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was not synced is there: %v", err)
	}
	f.AbortJournal()
	if err := os.WriteFile(filepath.Join(f.Dir, "late"), []byte("x"), 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("with an aborted journal: %v", err)
	}
	f.Remount()
	if err := os.WriteFile(filepath.Join(f.Dir, "late"), []byte("x"), 0o600); err != nil {
		t.Errorf("mounted anew: %v", err)
	}
	empty := f.Fill(0)
	if err := os.WriteFile(filepath.Join(f.Dir, "full"), make([]byte, 8192), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on the full disk: %v", err)
	}
	empty()
	if err := os.WriteFile(filepath.Join(f.Dir, "full"), make([]byte, 8192), 0o600); err != nil {
		t.Errorf("after space returned: %v", err)
	}
}

// T3: on a holder that is too small the sync fails that meets the missing space, and the next one of the
// same file says that all is well. That is why a failed sync is never believed to have been repeated.
func TestFailedSyncSucceedsWhenRepeated(t *testing.T) {
	f := New(t, Options{MiB: 96, HolderMiB: 12})
	file, err := os.Create(filepath.Join(f.Dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	page := make([]byte, 4096)
	for i := range page {
		page[i] = byte(i) | 1
	}
	for range 10_000 {
		if _, err := file.Write(page); err != nil {
			t.Fatalf("a write failed before a sync did: %v", err)
		}
		if err := syscall.Fdatasync(int(file.Fd())); err == nil {
			continue
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			t.Errorf("the sync behind the failed one: %v", err)
		}
		return
	}
	t.Error("no sync failed")
}

// A test process that was killed leaves its mount; the next one takes it down. The killed process is
// stood in for by one that has ended, and a mount under its name.
func TestLeftoversOfADeadProcessAreTakenDown(t *testing.T) {
	f := New(t, Options{})
	dead := exec.Command("/bin/true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(os.TempDir(), prefix+strconv.Itoa(dead.Process.Pid)+"-x")
	mnt := filepath.Join(left, "mnt")
	if err := os.MkdirAll(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	sweep()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
		_ = syscall.Unmount(mnt, syscall.MNT_DETACH)
	}
	if _, err := os.Stat(filepath.Join(f.Dir, "lost+found")); err != nil {
		t.Errorf("the sweep took a living one: %v", err)
	}
}
