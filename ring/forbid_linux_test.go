package ring_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// forbid names how io_uring is forbidden in a process started by these tests.
const forbid = "RING_TEST_FORBID"

var forbidden = map[string]func() error{
	"EPERM":          func() error { return ringtest.ForbidIOURing(syscall.EPERM) },
	"ENOSYS":         func() error { return ringtest.ForbidIOURing(syscall.ENOSYS) },
	"enter EPERM":    func() error { return ringtest.ForbidIOURing(syscall.EPERM, ringtest.IOURingEnter) },
	"enter ENOSYS":   func() error { return ringtest.ForbidIOURing(syscall.ENOSYS, ringtest.IOURingEnter) },
	"register EPERM": func() error { return ringtest.ForbidIOURing(syscall.EPERM, ringtest.IOURingRegister) },
	"ENOMEM":         func() error { return ringtest.ForbidIOURing(syscall.ENOMEM) },
	"EMFILE":         func() error { return ringtest.ForbidIOURing(syscall.EMFILE) },
	"later":          func() error { return nil },
}

func init() { beforeTests[forbid] = func(v string) error { return forbidden[v]() } }

// again runs one test of this binary in a process where io_uring is forbidden.
func again(t *testing.T, how string, args ...string) {
	t.Helper()
	if os.Getenv(forbid) != "" {
		t.Skip("is the process that was started")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), forbid+"="+how)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if !strings.Contains(string(out), "PASS") {
		t.Errorf("nothing ran:\n%s", out)
	}
}

// HZ-19: the kernel refuses at set-up, or only once the ring is used. The engine is then the
// portable one, with a reason that a person can act on; by name it is a failure.
func TestForbiddenRingFallsBackWithAReason(t *testing.T) {
	for how := range forbidden {
		if how != "later" {
			t.Run(how, func(t *testing.T) { again(t, how, "-test.run=^TestInAWorldWithoutRing$") })
		}
	}
}

func TestInAWorldWithoutRing(t *testing.T) {
	how := os.Getenv(forbid)
	if how == "" {
		t.Skip("runs in a process of its own, see TestForbiddenRingFallsBackWithAReason")
	}
	for _, kind := range []string{ring.URing, ring.URingDirect} {
		if _, _, err := ring.Open(kind, ring.Options{Dir: t.TempDir()}); err == nil {
			t.Fatalf("%s opened by name", kind)
		}
	}
	e, reason, err := ring.Open(ring.KindAuto, ring.Options{Dir: t.TempDir()})
	switch how {
	case "ENOMEM", "EMFILE":
		if how == "ENOMEM" && os.Geteuid() != 0 && err == nil {
			// An ordinary user's memory for rings is limited on purpose: that is a refusal, and named (HZ-24).
			if e.Close(); e.Name() != ring.Portable || !strings.Contains(reason, "RLIMIT_MEMLOCK") {
				t.Fatalf("engine %s (%s)", e.Name(), reason)
			}
			return
		}
		if err == nil || how == "EMFILE" && !errors.Is(err, ring.ErrTooManyFiles) {
			t.Fatalf("exhaustion is no reason to fall back, got %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	want := "operation not permitted"
	if strings.HasSuffix(how, "ENOSYS") {
		want = "function not implemented"
	}
	if e.Name() != ring.Portable || !strings.Contains(reason, want) {
		t.Errorf("engine %q, reason %q, want %q", e.Name(), reason, want)
	}
	if v, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err == nil && !strings.Contains(reason, "kernel.io_uring_disabled = "+strings.TrimSpace(string(v))) {
		t.Errorf("the reason does not give the sysctl: %q", reason)
	}
}

// HZ-19: the whole suite where only auto can work.
func TestSuiteWithoutRing(t *testing.T) {
	for _, how := range []string{"EPERM", "ENOSYS", "enter EPERM"} {
		t.Run(how, func(t *testing.T) {
			again(t, how, "-test.run=Operations|Direct|Gathered|Depth|Errors|Failure|Close|Short|Slow|Survives|Memory")
		})
	}
}

// HZ-19: the filter comes while the ring is in use.
func TestRingForbiddenWhileInUse(t *testing.T) { again(t, "later", "-test.run=^TestForbidMyself$") }

func TestForbidMyself(t *testing.T) {
	if os.Getenv(forbid) != "later" {
		t.Skip("runs in a process of its own, see TestRingForbiddenWhileInUse")
	}
	e, err := ring.OpenURing(ring.URingOptions{Dir: t.TempDir()})
	if err != nil {
		t.Skip(err)
	}
	f := open(t, ring.OS(), filepath.Join(t.TempDir(), "f"))
	kind, file := ring.OpWriteSync, f
	if d, err := ring.OS().OpenDirect(f.Name(), true); err == nil {
		defer d.Close()
		kind, file = ring.OpWriteDirect, d // a second half of them
	}
	done := make(inbox, 64)
	var ops []*ring.Op
	for i := range 32 {
		ops = append(ops, &ring.Op{Kind: ring.OpWriteSync, File: f, Off: int64(i) << 12, Vec: [][]byte{ring.AlignedBytes(4096)}, Owner: done})
		if i%2 == 0 {
			ops[i].Kind, ops[i].File = kind, file
		}
	}
	e.Submit(ops)
	if err := ringtest.ForbidIOURing(syscall.EPERM); err != nil {
		t.Fatal(err)
	}
	for range ops {
		if op := done.next(t); op.Err != nil && !errors.Is(op.Err, syscall.EPERM) {
			t.Errorf("in flight: %v", op.Err)
		}
	}
	for range 3 {
		op := &ring.Op{Kind: ring.OpWriteSync, File: f, Vec: [][]byte{{1}}, Owner: done}
		e.Submit([]*ring.Op{op})
		if done.next(t); !errors.Is(op.Err, syscall.EPERM) {
			t.Errorf("after: %v", op.Err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
