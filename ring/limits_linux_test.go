package ring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A real short write: the file size limit lies inside the buffers. What was written is credited,
// the rest is the error of a full disk, and the engine goes on. HZ-4, HZ-10
func TestWriteAcrossTheFileSizeLimit(t *testing.T) {
	eachEngine(t, 4, func(t *testing.T, e Engine) {
		f := create(t, filepath.Join(t.TempDir(), "f"))
		const limit = 64 << 10
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		op := &Op{Kind: OpWriteSync, File: f, Off: limit - 5000, Vec: [][]byte{
			bytes.Repeat([]byte("a"), 3000), bytes.Repeat([]byte("b"), 3000), bytes.Repeat([]byte("c"), 3000)}}
		do(t, e, op)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(op.Err, ErrNoSpace) || !errors.Is(op.Err, syscall.EFBIG) || op.Written != 5000 {
			t.Errorf("%v, %d bytes, want EFBIG after 5000", op.Err, op.Written)
		}
		if e.Stats().ShortWrites == 0 {
			t.Error("no short write counted")
		}
		again := &Op{Kind: OpWriteSync, File: f, Off: op.Off, Vec: op.Vec}
		if do(t, e, again); again.Err != nil || again.Written != 9000 {
			t.Errorf("when there is room again: %v, %d bytes", again.Err, again.Written)
		}
	})
}

func TestFullDeviceIsNoSpace(t *testing.T) { // HZ-10
	eachEngine(t, 4, func(t *testing.T, e Engine) {
		f, err := OS().Open("/dev/full", os.O_RDWR, 0)
		if err != nil {
			t.Skip(err)
		}
		defer f.Close()
		op := &Op{Kind: OpWrite, File: f, Vec: [][]byte{[]byte("x")}}
		if do(t, e, op); !errors.Is(op.Err, ErrNoSpace) || op.Written != 0 {
			t.Errorf("%v, %d bytes", op.Err, op.Written)
		}
	})
}

// HZ-26: kernel threads are bounded by the setting and not by the load.
func TestKernelThreadsAreCapped(t *testing.T) {
	if alone(t) {
		return
	}
	const workers, files = 3, 64
	runtime.LockOSThread() // the kernel's workers belong to the thread that submits
	defer runtime.UnlockOSThread()
	e, err := OpenURing(URingOptions{Depth: files, Workers: workers, Dir: t.TempDir()})
	if err != nil {
		t.Skip(err)
	}
	defer e.Close()
	dir := t.TempDir()
	done := make(inbox, files)
	var ops []*Op
	for i := range files {
		op := &Op{Kind: OpWriteSync, File: create(t, filepath.Join(dir, fmt.Sprint(i))), Vec: [][]byte{blocks(16, 'x')}, Owner: done}
		if d, err := OS().OpenDirect(op.File.Name(), true); err == nil && i%2 == 0 {
			defer d.Close()
			op.Kind, op.File = OpWriteDirect, d
		}
		ops = append(ops, op)
	}
	most := 0
	for range 5 {
		e.Submit(ops)
		for range ops {
			most = max(most, kernelThreads(t))
			if op := done.next(t); op.Err != nil {
				t.Fatal(op.Err)
			}
		}
	}
	if most > workers+1 || most == 0 { // and one for files that are not regular
		t.Errorf("%d kernel threads for %d workers", most, workers)
	}
}

// alone runs the test in a process of its own, and returns true in the one that started it. The
// kernel's workers outlive the rings of other tests by seconds.
func alone(t *testing.T) bool {
	t.Helper()
	const marker = "RING_TEST_ALONE"
	if os.Getenv(marker) != "" {
		return false
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), marker+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("%s", out)
	}
	return true
}

func kernelThreads(t *testing.T) (n int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip(err)
	}
	for _, task := range tasks {
		b, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/comm") // may have ended
		if strings.HasPrefix(string(b), "iou-wrk") {
			n++
		}
	}
	return n
}

// HZ-22: a profiler at 1 kHz and a storm of the runtime's own preemption signals.
func TestSignalsDoNotDisturbTheRing(t *testing.T) {
	eachEngine(t, 8, func(t *testing.T, e Engine) {
		runtime.SetCPUProfileRate(1000) // StartCPUProfile asks for 100 and keeps what is set
		if err := pprof.StartCPUProfile(io.Discard); err != nil {
			t.Skip(err)
		}
		defer pprof.StopCPUProfile()
		stop := make(chan struct{})
		var storm sync.WaitGroup
		storm.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				tasks, _ := os.ReadDir("/proc/self/task")
				for _, task := range tasks {
					tid, _ := strconv.Atoi(task.Name())
					_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) // a thread may have ended
				}
			}
		})
		defer storm.Wait()
		defer close(stop)
		d, f := direct(t, t.TempDir())
		b := blocks(1, 'x')
		end := time.Now().Add(time.Second)
		for n := int64(0); time.Now().Before(end); n++ {
			op := &Op{Kind: OpWriteSync, File: f, Off: n * DirectAlign, Vec: [][]byte{b[:100]}}
			if n%2 == 0 {
				op.Kind, op.File, op.Vec = OpWriteDirect, d, [][]byte{b}
			}
			if do(t, e, op); op.Err != nil || op.Written != vecLen(op.Vec) {
				t.Fatalf("operation %d: %v, %d bytes", n, op.Err, op.Written)
			}
		}
	})
}
