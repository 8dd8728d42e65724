package ring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mount puts a file system into a directory for the length of a test.
func mount(t *testing.T, kind, options string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("none", dir, kind, 0, options); err != nil {
		t.Skipf("no %s to be had: mount: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

var directFirst = []string{URingDirect, URing, Portable}

// HZ-20: a file system without direct writes. By name that is an error which says so; the order of
// kinds goes on with the reason, and nothing is left behind in the directory.
func TestFileSystemWithoutDirectWritesIsNamed(t *testing.T) {
	dir := mount(t, "ramfs", "")
	_, _, err := Open(URingDirect, Options{Dir: dir})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
		t.Skipf("io_uring is not available: %v", err)
	}
	if !errors.Is(err, errNoDirect) || !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "no direct writes") {
		t.Errorf("by name: %v", err)
	}
	e, reason, err := openFirst(directFirst, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Name() != URing || e.Direct() || !strings.Contains(reason, "no direct writes") || strings.Contains(reason, "io_uring_disabled") {
		t.Errorf("engine %s, reason %q", e.Name(), reason)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// HZ-10: a disk that is full when the broker starts proves nothing: by name the engine starts, in
// the order of kinds the next one does and the reason is told.
func TestFullDiskLeavesDirectWritesUnproven(t *testing.T) {
	dir := mount(t, "tmpfs", "size=64k")
	e := openEngine(t, URingDirect, 4) // there is io_uring, and direct writes elsewhere
	if !e.Direct() {
		t.Fatal("not direct")
	}
	if _, err := OS().OpenDirect(create(t, filepath.Join(dir, "f")).Name(), true); errors.Is(err, ErrUnsupported) {
		t.Skip("a kernel whose tmpfs has no direct writes")
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), bytes.Repeat([]byte{1}, 1<<20), 0o600); err == nil {
		t.Fatal("1 MiB fits in 64 KiB")
	}
	byName, _, err := Open(URingDirect, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer byName.Close()
	next, reason, err := openFirst(directFirst, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if next.Name() != URing || !strings.Contains(reason, syscall.ENOSPC.Error()) {
		t.Errorf("engine %s, reason %q", next.Name(), reason)
	}
}

// HZ-20: where everything is there the best kind runs, and there is no reason to give.
func TestFirstKindThatIsNotRefusedRuns(t *testing.T) {
	dir := t.TempDir()
	openEngine(t, URingDirect, 4)
	e, reason, err := openFirst(directFirst, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Name() != URingDirect || !e.Direct() || reason != "" {
		t.Errorf("engine %s, reason %q", e.Name(), reason)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// HZ-20: the alignment that a file system asks for is believed, also when it says none.
func TestAlignmentQueryDecides(t *testing.T) {
	for _, c := range []struct {
		what     string
		mask     uint32
		mem, off uint32
		ok       bool
	}{
		{"a kernel that does not know", unix.STATX_BASIC_STATS, 0, 0, true},
		{"not supported", unix.STATX_DIOALIGN, 0, 0, false},
		{"memory not supported", unix.STATX_DIOALIGN, 0, 512, false},
		{"offset not supported", unix.STATX_DIOALIGN, 4, 0, false},
		{"sectors", unix.STATX_DIOALIGN, 4, 512, true},
		{"blocks", unix.STATX_DIOALIGN, 4096, 4096, true},
		{"larger blocks", unix.STATX_DIOALIGN, 512, 16384, false},
		{"larger memory", unix.STATX_DIOALIGN, 8192, 512, false},
	} {
		err := judgeAlignment(&unix.Statx_t{Mask: c.mask, Dio_mem_align: c.mem, Dio_offset_align: c.off})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// lyingEngine takes the direct write and says something about it.
type lyingEngine struct {
	Engine
	lie func(op *Op)
}

func (e lyingEngine) Submit(ops []*Op) {
	for _, op := range ops {
		e.lie(op)
		op.Owner.OpDone(op)
	}
}

// HZ-20: what the file holds afterwards is the proof, and not what the engine says.
func TestDirectProofReadsBack(t *testing.T) {
	// The file keeps what it held: nothing for the first write, the old block for the second.
	nothing := func(op *Op) { op.Written = vecLen(op.Vec) }
	stale := func(op *Op) {
		if op.Off == 0 {
			for i, b := range op.Vec {
				if _, err := op.File.WriteAt(b, int64(i)*DirectAlign); err != nil {
					t.Error(err)
				}
			}
		}
		op.Written = vecLen(op.Vec)
	}
	for what, c := range map[string]struct {
		lie     func(op *Op)
		refused bool
	}{
		"nothing written":  {nothing, true},
		"stale":            {stale, true},
		"short":            {func(op *Op) { op.Written = 512 }, true},
		"EINVAL":           {func(op *Op) { op.Err = Classify("write", "", syscall.EINVAL) }, true},
		"EOPNOTSUPP":       {func(op *Op) { op.Err = Classify("write", "", syscall.EOPNOTSUPP) }, true},
		"no memory":        {func(op *Op) { op.Err = Classify("write", "", syscall.ENOMEM) }, false},
		"full":             {func(op *Op) { op.Err = Classify("write", "", syscall.ENOSPC) }, false},
		"input and output": {func(op *Op) { op.Err = Classify("write", "", syscall.EIO) }, false},
	} {
		dir := t.TempDir()
		direct(t, dir) // skips where there is nothing to prove
		err := proveDirect(lyingEngine{lie: c.lie}, dir)
		if _, refused := errors.AsType[refusedError](err); err == nil || refused != c.refused {
			t.Errorf("%s: %v, refused %v, want %v", what, err, refused, c.refused)
		}
	}
}
