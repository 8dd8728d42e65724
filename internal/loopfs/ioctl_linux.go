package loopfs

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// The calls of ext4 and of every file system that have no system call of their own.
const (
	ext4Shutdown    = 0x8004587d // EXT4_IOC_SHUTDOWN
	noLogFlush      = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	freezeFS        = 0xc0045877 // FIFREEZE
	thawFS          = 0xc0045878 // FITHAW
	directoryAccess = syscall.O_RDONLY | syscall.O_DIRECTORY | syscall.O_CLOEXEC
)

func control(dir string, request uintptr, arg uint32) error {
	fd, err := syscall.Open(dir, directoryAccess, 0)
	if err != nil {
		return fmt.Errorf("loopfs: open %s: %w", dir, err)
	}
	defer syscall.Close(fd)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		return errno
	}
	return nil
}

func shutdown(dir string) error { return control(dir, ext4Shutdown, noLogFlush) }

func thaw(dir string) { _ = control(dir, thawFS, 0) }

// Freeze makes everything that writes to the file system, and every sync of it, hang until thaw is
// called, which may be done twice. Those that hang cannot be killed; so a process of its own thaws
// it after atMost, whatever becomes of the test.
func (f *FS) Freeze(atMost time.Duration) (thawed func()) {
	f.t.Helper()
	watch := exec.Command("/bin/sh", "-c", `sleep "$1"; exec "$2" -u "$3"`, "sh",
		strconv.FormatFloat(atMost.Seconds(), 'f', 1, 64), tool(f.t, "fsfreeze"), f.Dir)
	watch.Dir = "/"
	watch.Stdout, watch.Stderr = os.Stderr, nil
	watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the test is not its own
	if err := watch.Start(); err != nil {
		f.t.Fatalf("start the thaw timer: %v", err)
	}
	over := false
	thawed = func() {
		if over {
			return
		}
		over = true
		thaw(f.Dir)
		_ = syscall.Kill(-watch.Process.Pid, syscall.SIGKILL)
		_ = watch.Wait() // killed
	}
	f.t.Cleanup(thawed)
	if err := control(f.Dir, freezeFS, 0); err != nil {
		f.t.Fatalf("freeze: %v", err)
	}
	return thawed
}
