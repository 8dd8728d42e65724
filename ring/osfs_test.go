package ring

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
)

func create(t testing.TB, name string) File {
	t.Helper()
	f, err := OS().Open(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFileLayerReadsWhatItWrote(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a", "b", "f")
	if err := OS().MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := OS().MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatalf("second MkdirAll: %v", err)
	}
	f := create(t, name)
	if n, err := f.WriteAt([]byte("hello"), 3); n != 5 || err != nil {
		t.Fatalf("WriteAt = %d, %v", n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Allocate(0, 1<<16); err != nil && !errors.Is(err, ErrUnsupported) {
		t.Fatal(err)
	}
	if n, err := f.Size(); n != 8 || err != nil {
		t.Fatalf("Size = %d, %v after Allocate, want 8", n, err)
	}
	b := make([]byte, 9)
	if n, err := f.ReadAt(b, 0); n != 8 || err != io.EOF || !bytes.Equal(b[:n], []byte("\x00\x00\x00hello")) {
		t.Fatalf("ReadAt = %d, %v, %q", n, err, b)
	}
	if err := f.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if err := OS().Rename(name, name+"2"); err != nil {
		t.Fatal(err)
	}
	if err := OS().SyncDir(filepath.Dir(name)); err != nil {
		t.Fatal(err)
	}
	if names, err := OS().ReadDir(filepath.Dir(name)); err != nil || !slices.Equal(names, []string{"f2"}) {
		t.Fatalf("ReadDir = %v, %v", names, err)
	}
	if info, err := OS().Stat(name + "2"); err != nil || info.Size() != 4 {
		t.Fatalf("Stat = %v, %v", info, err)
	}
	if err := OS().Remove(name + "2"); err != nil {
		t.Fatal(err)
	}
	if err := OS().RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
}

// Callers branch on the class; the errno and the standard library's classes are found as well.
func TestErrorsHaveAClassAndKeepTheirErrno(t *testing.T) {
	dir := t.TempDir()
	f := create(t, filepath.Join(dir, "f"))
	closed := create(t, filepath.Join(dir, "g"))
	closed.Close()
	_, missing := OS().Open(filepath.Join(dir, "none"), os.O_RDONLY, 0)
	_, exists := OS().Open(filepath.Join(dir, "f"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	_, isDir := OS().Open(dir, os.O_RDONLY, 0)
	_, writeClosed := closed.WriteAt([]byte{1}, 0)
	for _, c := range []struct {
		err  error
		want []error
	}{
		{missing, []error{ErrNotExist, fs.ErrNotExist, syscall.ENOENT}},
		{exists, []error{ErrExist, fs.ErrExist, syscall.EEXIST}},
		{isDir, []error{ErrIO, syscall.EISDIR}},
		{writeClosed, []error{ErrClosed, fs.ErrClosed}},
		{OS().Remove(dir), []error{ErrExist, syscall.ENOTEMPTY}},
		{OS().SyncDir(filepath.Join(dir, "none")), []error{ErrNotExist}},
		{OS().MkdirAll(f.Name()+"/x", 0o755), []error{ErrIO, syscall.ENOTDIR}},
		{Classify("write", "x", syscall.ENOSPC), []error{ErrNoSpace, syscall.ENOSPC}},
		{Classify("write", "x", syscall.EDQUOT), []error{ErrNoSpace, syscall.EDQUOT}},
		{Classify("write", "x", syscall.EFBIG), []error{ErrNoSpace, syscall.EFBIG}},
		{Classify("write", "x", syscall.EROFS), []error{ErrReadOnly, syscall.EROFS}},
		{Classify("write", "x", syscall.EIO), []error{ErrIO, syscall.EIO}},
		{Classify("open", "x", syscall.EMFILE), []error{ErrTooManyFiles, syscall.EMFILE}},
		{Classify("open", "x", syscall.EACCES), []error{ErrPermission, syscall.EACCES}},
		{Classify("write", "x", syscall.ECANCELED), []error{ErrCanceled, syscall.ECANCELED}},
		{Classify("x", "x", syscall.ENOSYS), []error{ErrUnsupported, syscall.ENOSYS}},
	} {
		for _, want := range c.want {
			if !errors.Is(c.err, want) {
				t.Errorf("%v: is not %v", c.err, want)
			}
		}
		classes := 0
		for _, class := range []error{ErrNoSpace, ErrReadOnly, ErrIO, ErrNotExist, ErrExist, ErrPermission, ErrTooManyFiles, ErrLocked, ErrUnsupported, ErrCanceled, ErrClosed} {
			if errors.Is(c.err, class) {
				classes++
			}
		}
		if classes != 1 {
			t.Errorf("%v: has %d classes", c.err, classes)
		}
		if again := Classify("other", "other", c.err); again != c.err {
			t.Errorf("%v: classified twice: %v", c.err, again)
		}
	}
	if Classify("read", "x", nil) != nil || Classify("read", "x", io.EOF) != io.EOF {
		t.Error("nil and io.EOF must pass")
	}
}

func TestSecondLockIsRefused(t *testing.T) { // HZ-17
	name := filepath.Join(t.TempDir(), "LOCK")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OS().Lock(name); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v, want ErrLocked", err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "content" {
		t.Fatalf("the lock changed the file: %q, %v", b, err)
	}
	if runtime.GOOS == "linux" && !cloexec(t, first.(*os.File).Fd()) {
		t.Error("a child process would inherit the lock")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OS().Lock(name)
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	again.Close()
}
