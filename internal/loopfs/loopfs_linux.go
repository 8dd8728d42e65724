package loopfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FS is a mounted ext4 file system.
type FS struct {
	t testing.TB
	// Dir is where it is mounted; it holds lost+found and nothing else at first.
	Dir string

	base, holder, image string
	release             func() // gives the loop device its bounds back; nil when they were not changed
}

// New makes a file system and mounts it until the test ends.
func New(t testing.TB, o Options) *FS {
	t.Helper()
	if os.Geteuid() != 0 {
		lacking(t, "it needs root")
	}
	mkfs := tool(t, "mkfs.ext4")
	tool(t, "mount")
	tool(t, "umount")
	sweep()
	base, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	f := &FS{t: t, base: base, Dir: filepath.Join(base, "mnt"), holder: filepath.Join(base, "holder")}
	t.Cleanup(f.remove)
	for _, dir := range []string{f.Dir, f.holder} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if o.HolderMiB > 0 {
		if err := syscall.Mount("tmpfs", f.holder, "tmpfs", 0, fmt.Sprintf("size=%dm", o.HolderMiB)); err != nil {
			lacking(t, fmt.Sprintf("mount a tmpfs: %v", err))
		}
	}
	f.image = filepath.Join(f.holder, "image")
	mib := max(16, o.MiB)
	if o.MiB == 0 {
		mib = 48
	}
	if err := os.WriteFile(f.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f.image, int64(mib)<<20); err != nil {
		t.Fatal(err)
	}
	// No reserved blocks: root may fill it, as a broker's own user fills a real one.
	if out, err := exec.Command(mkfs, "-q", "-F", "-m", "0", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", f.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	if err := f.mount(); err != nil {
		lacking(t, err.Error())
	}
	if o.HolderMiB > 0 {
		if err := f.wholeRequests(); err != nil {
			lacking(t, err.Error())
		}
		f.wearJournal()
	}
	return f
}

// wearJournal has the journal written once around, so that what fails when the holder is full is a
// write of data, whose sync fails once and succeeds when it is repeated, and not the journal, whose
// failure is for good (T3).
func (f *FS) wearJournal() {
	name := filepath.Join(f.Dir, "wear")
	for range 600 {
		file, err := os.Create(name)
		if err != nil {
			f.t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			f.t.Fatal(err)
		}
		file.Close()
		if err := os.Remove(name); err != nil {
			f.t.Fatal(err)
		}
	}
}

// wholeRequests makes the loop device write one page at a time. A larger request that finds room for
// its first pages only is a short write of the file below, and the loop driver of Linux 6.18 answers
// that as a success: a device that lies, which is not what T3 is about.
func (f *FS) wholeRequests() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("loopfs: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == f.Dir {
			name := filepath.Join("/sys/block", filepath.Base(fields[0]), "queue", "max_sectors_kb")
			was, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(name, []byte("4"), 0)
			}
			if err != nil {
				return fmt.Errorf("loopfs: bound the requests of a loop device: %w", err)
			}
			f.release = func() { _ = os.WriteFile(name, was, 0) } // the next user of the device
			return nil
		}
	}
	return fmt.Errorf("loopfs: %s is not mounted", f.Dir)
}

// tool finds a program, also where only root's PATH leads.
func tool(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p
		}
	}
	lacking(t, name+" is not installed")
	return ""
}

func (f *FS) mount() error {
	out, err := exec.Command(tool(f.t, "mount"), "-t", "ext4", "-o", "loop", f.image, f.Dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("loopfs: mount: %w: %s", err, out)
	}
	return nil
}

func (f *FS) unbound() {
	if f.release != nil {
		f.release()
		f.release = nil
	}
}

// Cut stops the file system as a power cut does: what was not synced, contents, names and the
// journal in memory, never reaches the image. From now on every access fails, until Remount.
func (f *FS) Cut() {
	f.t.Helper()
	if err := shutdown(f.Dir); err != nil {
		f.t.Fatalf("shut the file system down: %v", err)
	}
}

// Remount mounts it anew, as after a boot. Nobody may have files open in it.
func (f *FS) Remount() {
	f.t.Helper()
	f.unbound()
	if err := unmount(f.Dir, 0); err != nil {
		f.t.Fatalf("unmount: %v", err)
	}
	if err := f.mount(); err != nil {
		f.t.Fatal(err)
	}
}

// AbortJournal makes the file system give up its journal, as it does after an error of the device:
// every write, sync and creation answers EROFS from then on. Remount ends that.
func (f *FS) AbortJournal() {
	f.t.Helper()
	if err := syscall.Mount("", f.Dir, "", syscall.MS_REMOUNT, "abort"); err != nil {
		f.t.Fatalf("abort the journal: %v", err)
	}
}

// GrowHolder gives the memory behind the image another size, in MiB.
func (f *FS) GrowHolder(mib int) {
	f.t.Helper()
	if err := syscall.Mount("", f.holder, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%dm", mib)); err != nil {
		f.t.Fatalf("grow the holder: %v", err)
	}
}

// Fill writes files until no more than leave bytes are free, and returns what removes them.
func (f *FS) Fill(leave int64) (empty func()) {
	f.t.Helper()
	name := filepath.Join(f.Dir, fmt.Sprintf("filler-%d", time.Now().UnixNano()))
	file, err := os.Create(name)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	for {
		var st syscall.Statfs_t
		if err := syscall.Statfs(f.Dir, &st); err != nil {
			f.t.Fatal(err)
		}
		n := int64(st.Bavail)*st.Bsize - leave
		if n < st.Bsize {
			break
		}
		info, err := file.Stat()
		if err != nil {
			f.t.Fatal(err)
		}
		// Extents need blocks of their own, so the last step may be refused as a whole.
		if err := syscall.Fallocate(int(file.Fd()), 0, info.Size(), n); err != nil && !errors.Is(err, syscall.ENOSPC) {
			f.t.Fatalf("fill: %v", err)
		} else if err != nil {
			break
		}
	}
	if err := file.Sync(); err != nil {
		f.t.Fatalf("fill: %v", err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			f.t.Errorf("empty: %v", err)
		}
	}
}

// remove takes everything down.
func (f *FS) remove() {
	f.unbound()
	for _, dir := range []string{f.Dir, f.holder} {
		if err := unmount(dir, 0); err != nil {
			f.t.Errorf("unmount %s: %v; it is detached", dir, err)
			_ = unmount(dir, syscall.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(f.base); err != nil {
		f.t.Errorf("remove: %v", err)
	}
}

// unmount unmounts dir if something is mounted there. A process that was killed a moment ago may
// still be letting go of its files, so busy is asked again for a while.
func unmount(dir string, flags int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		err := syscall.Unmount(dir, flags)
		if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
			return nil // EINVAL: nothing is mounted there
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// sweep takes down what test processes left that were killed.
func sweep() {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return
	}
	defer mounts.Close()
	var dirs []string
	for sc := bufio.NewScanner(mounts); sc.Scan(); {
		if fields := strings.Fields(sc.Text()); len(fields) > 1 && orphan(fields[1]) {
			dirs = append(dirs, fields[1])
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- { // what was mounted last goes first
		thaw(dirs[i])
		_ = syscall.Unmount(dirs[i], syscall.MNT_DETACH)
	}
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range left {
		if orphan(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// orphan says whether a path belongs to a file system whose test process is dead.
func orphan(path string) bool {
	_, rest, ok := strings.Cut(path, "/"+prefix)
	if !ok {
		return false
	}
	text, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(text)
	return err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
