package log

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ringcast/ringcast/ring"
)

// watchFS is a file layer for looking only: what would change anything is refused, reads end with
// ctx, and progress (nil = nobody asks) is told the bytes of each.
type watchFS struct {
	fs       ring.FS
	ctx      context.Context //nolint:containedctx // lives as long as one call of Verify, Inspect or PlanRepair
	progress func(n int64)
}

func refuseChange(op, name string) error {
	return fmt.Errorf("log: %s %s: a reading command changes nothing", op, name)
}

func (w *watchFS) Open(name string, flag int, perm fs.FileMode) (ring.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND) != 0 {
		return nil, refuseChange("open for writing", name)
	}
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	f, err := w.fs.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &watchFile{f, w}, nil
}

func (w *watchFS) ReadDir(name string) ([]string, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	return w.fs.ReadDir(name)
}

func (w *watchFS) Stat(name string) (fs.FileInfo, error) { return w.fs.Stat(name) }

func (w *watchFS) OpenDirect(name string, _ bool) (ring.File, error) {
	return nil, refuseChange("open for writing", name)
}
func (w *watchFS) MkdirAll(name string, _ fs.FileMode) error { return refuseChange("make", name) }
func (w *watchFS) Rename(name, _ string) error               { return refuseChange("rename", name) }
func (w *watchFS) Remove(name string) error                  { return refuseChange("remove", name) }
func (w *watchFS) RemoveAll(name string) error               { return refuseChange("remove", name) }
func (w *watchFS) SyncDir(name string) error                 { return refuseChange("sync", name) }
func (w *watchFS) Lock(name string) (io.Closer, error)       { return nil, refuseChange("lock", name) }

type watchFile struct {
	ring.File
	fs *watchFS
}

func (f *watchFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(b, off)
	if f.fs.progress != nil {
		f.fs.progress(int64(n))
	}
	return n, err
}
