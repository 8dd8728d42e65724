package ring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	fsFreeze = 0xc0045877 // the ioctl FIFREEZE
)

// HZ-26: a disk that hangs in pulses of 200 ms (T5), with writes to 64 files waiting for it. The
// process has no more threads than its settings say, and everything ends when the disk goes on.
func TestSlowDiskDoesNotMultiplyThreads(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a disk that hangs")
	}
	if alone(t) {
		return
	}
	dir := loopDisk(t)
	const files, workers = 64, 3
	for _, kind := range engines {
		t.Run(kind, func(t *testing.T) {
			e, _, err := Open(kind, Options{Depth: files, Workers: workers, Dir: dir})
			if err != nil {
				t.Skip(err)
			}
			defer e.Close()
			done := make(inbox, files)
			sub := filepath.Join(dir, kind)
			if err := os.Mkdir(sub, 0o755); err != nil {
				t.Fatal(err)
			}
			b := blocks(4, 'x')
			var ops []*Op
			for i := range files {
				op := &Op{Kind: OpWriteSync, File: create(t, filepath.Join(sub, fmt.Sprint(i))), Vec: [][]byte{b}, Owner: done}
				if e.Direct() {
					d, err := OS().OpenDirect(op.File.Name(), true)
					if err != nil {
						t.Fatal(err)
					}
					defer d.Close()
					op.Kind, op.File = OpWriteDirect, d
				}
				ops = append(ops, op)
			}
			before := threads(t)
			most := 0
			for range 3 {
				thaw := freeze(t, dir)
				submitted := make(chan struct{})
				go func() { defer close(submitted); e.Submit(ops) }()
				for hanging := true; hanging; {
					select {
					case err := <-thaw:
						if err != nil {
							t.Fatal(err)
						}
						hanging = false
					case <-time.After(10 * time.Millisecond):
						most = max(most, threads(t))
					}
				}
				<-submitted
				for range ops {
					if op := done.next(t); op.Err != nil {
						t.Fatal(op.Err)
					}
				}
			}
			// The workers, one kernel worker for what is not a regular file, the thread that is held in
			// Submit, and what Go adds so that others can run meanwhile.
			if bound := before + 2*workers + 4; most > bound {
				t.Errorf("%d threads with a disk that hangs, %d before: the bound is %d", most, before, bound)
			}
		})
	}
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip(err)
	}
	return len(tasks)
}

// loopDisk is a small ext4 of its own.
func loopDisk(t *testing.T) (dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, c := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no disk of its own to be had: %v: %v\n%s", c, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// freeze makes the disk hang for 200 ms. Another process thaws it, whatever becomes of this one; its
// end comes on the channel.
func freeze(t *testing.T, dir string) <-chan error {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// It is started before the freeze and needs nothing of that disk.
	thaw := exec.Command("sh", "-c", "sleep 0.2; exec fsfreeze -u \"$0\"", dir) //nolint:noctx // it must outlive the test
	thaw.Dir = "/"
	if err := thaw.Start(); err != nil {
		t.Skip(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), fsFreeze, 0); errno != 0 {
		_ = thaw.Wait()
		t.Skipf("the disk cannot be frozen: %v", errno)
	}
	ended := make(chan error, 1)
	go func() { ended <- thaw.Wait() }()
	return ended
}
