package ring

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// HZ-10: a data directory on a full disk, where a file can still be made but not be written, keeps
// neither io_uring nor the broker from starting.
func TestFullDiskDoesNotStopTheEngine(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no small file system to be had: mount: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	// More than fits: what is written fills it.
	if err := os.WriteFile(filepath.Join(dir, "filler"), bytes.Repeat([]byte{1}, 1<<20), 0o600); err == nil {
		t.Fatal("1 MiB fits in 64 KiB")
	}
	e, reason, err := Open(KindAuto, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p, free, err := Open(KindAuto, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := p.Name()
	if want == URingDirect {
		want = URing // direct writes had no room for their proof; io_uring is not given up for that
	}
	if e.Name() != want && e.Name() != p.Name() {
		t.Fatalf("engine %s (%s) on the full disk, %s (%s) elsewhere", e.Name(), reason, p.Name(), free)
	}
}
