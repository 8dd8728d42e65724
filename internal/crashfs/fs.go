package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/ringcast/ringcast/ring"
)

// ErrPowerCut is the cause of every failure after the cut; its class is ring.ErrIO.
var ErrPowerCut = errors.New("power cut")

// FS is a ring.FS in memory. New makes an empty one.
type FS struct {
	mu    sync.Mutex // guards everything
	root  *node
	locks map[*node]struct{}
	ops   int
	cut   int // operation at which the power goes; 0 = never
	dead  bool
	onOp  func(n int, op, path string)
}

// New returns an empty file layer. Its root and the current directory are the same.
func New() *FS {
	return &FS{root: newDir(0o755), locks: map[*node]struct{}{}}
}

// CutAt turns the power off during operation n, counted from 1 since New: it has begun but
// nothing of it is certain, and it and all later calls fail with ErrPowerCut. Operations are the
// calls that change something: create, write, sync, truncate, allocate, mkdir, rename, remove, syncdir.
func (f *FS) CutAt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = n
}

// Ops is how many operations have begun.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// OnOp has fn called before each operation, on the goroutine that makes it, without a lock: fn
// may call Crash. Set it before the first operation.
func (f *FS) OnOp(fn func(n int, op, path string)) { f.onOp = fn }

// begin counts an operation and takes the lock, also on error; end with mu.Unlock. cut tells
// that the power goes during this one: its effects must stay uncertain.
func (f *FS) begin(op, path string) (cut bool, err error) {
	f.mu.Lock()
	if err := f.alive(op, path); err != nil {
		return false, err
	}
	f.ops++
	n := f.ops
	if f.onOp != nil {
		f.mu.Unlock()
		f.onOp(n, op, path)
		f.mu.Lock()
		if err := f.alive(op, path); err != nil {
			return false, err
		}
	}
	f.dead = n == f.cut
	return f.dead, nil
}

// finish is the result of an operation that took effect, unless the power went during it.
func (f *FS) finish(cut bool, op, path string) error {
	if cut {
		return f.fail(op, path, ErrPowerCut)
	}
	return nil
}

// alive fails once the power is off. mu is held.
func (f *FS) alive(op, path string) error { return f.finish(f.dead, op, path) }

func (f *FS) fail(op, path string, err error) error { return ring.Classify(op, path, err) }

// find walks to the directory that holds name; dir is nil for the root. mu is held.
func (f *FS) find(name string) (dir *node, base string, err error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", nil
	}
	dir = f.root
	for _, p := range parts[:len(parts)-1] {
		next := dir.now[p]
		if next == nil {
			return nil, "", syscall.ENOENT
		}
		if !next.isDir {
			return nil, "", syscall.ENOTDIR
		}
		dir = next
	}
	return dir, parts[len(parts)-1], nil
}

// parent is find for calls that change an entry: the root is none.
func (f *FS) parent(name string) (dir *node, base string, err error) {
	dir, base, err = f.find(name)
	if err == nil && dir == nil {
		err = syscall.EBUSY
	}
	return dir, base, err
}

// lookup finds what name stands for. mu is held.
func (f *FS) lookup(name string) (*node, error) {
	dir, base, err := f.find(name)
	if err != nil {
		return nil, err
	}
	if dir == nil {
		return f.root, nil
	}
	n := dir.now[base]
	if n == nil {
		return nil, syscall.ENOENT
	}
	return n, nil
}

// look is lookup by a call that changes nothing.
func (f *FS) look(name string) (*node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, ErrPowerCut
	}
	return f.lookup(name)
}

func split(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean(name)), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

func (f *FS) Open(name string, flag int, perm fs.FileMode) (ring.File, error) {
	n, err := f.look(name)
	create := errors.Is(err, syscall.ENOENT) && flag&os.O_CREATE != 0
	switch {
	case create:
		if n, err = f.create(name, perm); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, f.fail("open", name, err)
	case n.isDir:
		return nil, f.fail("open", name, syscall.EISDIR)
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, f.fail("open", name, syscall.EEXIST)
	case flag&os.O_APPEND != 0:
		return nil, f.fail("open", name, syscall.EINVAL) // WriteAt and O_APPEND exclude each other
	}
	file := &file{fs: f, node: n, name: name, writable: flag&(os.O_WRONLY|os.O_RDWR) != 0}
	if flag&os.O_TRUNC != 0 && !create {
		return file, file.Truncate(0)
	}
	return file, nil
}

// OpenDirect opens a file whose writes are aligned as direct ones must be. With sync a write that
// returned is on disk, and nothing else of the file is for that.
func (f *FS) OpenDirect(name string, sync bool) (ring.File, error) {
	opened, err := f.Open(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	o := opened.(*file)
	o.direct, o.writeSync = true, sync
	return o, nil
}

func (f *FS) create(name string, perm fs.FileMode) (*node, error) {
	cut, err := f.begin("create", name)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	dir, base, err := f.parent(name)
	if err != nil {
		return nil, f.fail("open", name, err)
	}
	n := dir.now[base]
	if n == nil {
		n = newFile(perm)
		dir.change(change{name: base, node: n})
	}
	return n, f.finish(cut, "open", name)
}

func (f *FS) MkdirAll(name string, perm fs.FileMode) error {
	parts := split(name)
	path := ""
	for i, p := range parts {
		path = filepath.Join(path, p)
		if filepath.IsAbs(name) && i == 0 {
			path = string(filepath.Separator) + p
		}
		made, err := f.mkdir(path, perm)
		if err != nil {
			return err
		}
		// Ours, or the last one that somebody else may have made without syncing it.
		if made || i == len(parts)-1 {
			if err := f.SyncDir(filepath.Dir(path)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *FS) mkdir(path string, perm fs.FileMode) (made bool, err error) {
	n, err := f.look(path)
	if err == nil && n.isDir {
		return false, nil
	} else if err == nil {
		return false, f.fail("mkdir", path, syscall.ENOTDIR)
	} else if !errors.Is(err, syscall.ENOENT) {
		return false, f.fail("mkdir", path, err)
	}
	cut, err := f.begin("mkdir", path)
	defer f.mu.Unlock()
	if err != nil {
		return false, err
	}
	dir, base, err := f.parent(path)
	if err != nil {
		return false, f.fail("mkdir", path, err)
	}
	if dir.now[base] == nil {
		dir.change(change{name: base, node: newDir(perm)})
	}
	return true, f.finish(cut, "mkdir", path)
}

// Rename inside one directory happens as a whole. Between two, the new name and the end of the
// old one are changes of their own.
func (f *FS) Rename(oldName, newName string) error {
	cut, err := f.begin("rename", oldName)
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	from, oldBase, err := f.parent(oldName)
	if err != nil {
		return f.fail("rename", oldName, err)
	}
	n := from.now[oldBase]
	if n == nil {
		return f.fail("rename", oldName, syscall.ENOENT)
	}
	to, newBase, err := f.parent(newName)
	if err != nil {
		return f.fail("rename", newName, err)
	}
	if there := to.now[newBase]; there != nil && (there.isDir != n.isDir || there.isDir && len(there.now) > 0) {
		return f.fail("rename", newName, syscall.EEXIST)
	}
	switch {
	case from == to && oldBase == newBase:
	case from == to:
		from.change(change{name: newBase, node: n, old: oldBase})
	default:
		to.change(change{name: newBase, node: n})
		from.change(change{name: oldBase})
	}
	return f.finish(cut, "rename", oldName)
}

func (f *FS) Remove(name string) error {
	cut, err := f.begin("remove", name)
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	dir, base, err := f.parent(name)
	if err != nil {
		return f.fail("remove", name, err)
	}
	n := dir.now[base]
	if n == nil {
		return f.fail("remove", name, syscall.ENOENT)
	}
	if n.isDir && len(n.now) > 0 {
		return f.fail("remove", name, syscall.ENOTEMPTY)
	}
	dir.change(change{name: base})
	return f.finish(cut, "remove", name)
}

// RemoveAll is one operation per file and directory, the deepest first.
func (f *FS) RemoveAll(name string) error {
	n, err := f.look(name)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	} else if err != nil {
		return f.fail("remove", name, err)
	}
	var children []string
	if n.isDir {
		if children, err = f.ReadDir(name); err != nil {
			return err
		}
	}
	for _, c := range children {
		if err := f.RemoveAll(filepath.Join(name, c)); err != nil {
			return err
		}
	}
	return f.Remove(name)
}

func (f *FS) ReadDir(name string) ([]string, error) {
	n, err := f.look(name)
	if err == nil && !n.isDir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, f.fail("readdir", name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(n.now)), nil
}

func (f *FS) Stat(name string) (fs.FileInfo, error) {
	n, err := f.look(name)
	if err != nil {
		return nil, f.fail("stat", name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return n.info(filepath.Base(name)), nil
}

func (f *FS) SyncDir(name string) error {
	cut, err := f.begin("syncdir", name)
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	if cut {
		return f.finish(cut, "syncdir", name)
	}
	n, err := f.lookup(name)
	if err == nil && !n.isDir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return f.fail("syncdir", name, err)
	}
	n.syncDir()
	return nil
}

// Lock is held until Close of what it returns, or until the power goes: Crash forgets it.
func (f *FS) Lock(name string) (io.Closer, error) {
	opened, err := f.Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	n := opened.(*file).node
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, taken := f.locks[n]; taken {
		return nil, &ring.Error{Op: "lock", Path: name, Class: ring.ErrLocked, Err: ring.ErrLocked}
	}
	f.locks[n] = struct{}{}
	return &lock{fs: f, node: n}, nil
}

type lock struct {
	fs   *FS
	node *node
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.node)
	return nil
}
