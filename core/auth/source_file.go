package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// fileLookEvery is how often a file is looked at again: a burst of connections costs one look.
const fileLookEvery = time.Second

// keyFile is one key set in a file, read again when the file changes. A file that is gone holds no keys. One
// that cannot be read or understood is reported once, and the keys it had before stay: whoever writes it
// in place must not lock everybody out for that moment.
type keyFile struct {
	name string
	lg   *slog.Logger
	now  func() time.Time

	mu     sync.Mutex // guards all below
	looked time.Time
	read   bool // set and err are of the file with mark
	mark   fileMark
	set    *KeySet
	err    error // of the last reading; matters only while there is no set
}

type fileMark struct {
	mod  time.Time
	size int64
}

func (f *keyFile) keys() (*KeySet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if f.read && now.Sub(f.looked) < fileLookEvery {
		return f.current()
	}
	f.looked = now
	info, err := os.Stat(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		f.read, f.mark, f.set, f.err = true, fileMark{}, nil, nil
		return nil, nil
	}
	if err != nil {
		f.fail(fmt.Errorf("auth: keys: %w", err), f.mark)
		return f.current()
	}
	mark := fileMark{info.ModTime(), info.Size()}
	if f.read && mark == f.mark {
		return f.current()
	}
	set, err := readKeySet(f.name)
	if err != nil {
		f.fail(err, mark)
		return f.current()
	}
	f.read, f.mark, f.set, f.err = true, mark, set, nil
	return set, nil
}

func (f *keyFile) current() (*KeySet, error) {
	if f.set == nil {
		return nil, f.err
	}
	return f.set, nil
}

func (f *keyFile) fail(err error, mark fileMark) {
	if f.set != nil {
		f.lg.Error("keys not reloaded, the old ones stay in use", "file", f.name, "err", err)
	}
	f.read, f.mark, f.err = true, mark, err
}

func readKeySet(name string) (*KeySet, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, keySetBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %w", err)
	}
	if len(text) > keySetBytesMax {
		return nil, fmt.Errorf("auth: keys in %s: more than %d bytes", name, keySetBytesMax)
	}
	set, err := ParseKeySet(text)
	if err != nil {
		return nil, fmt.Errorf("auth: keys in %s: %w", name, err)
	}
	return set, nil
}

// FileSource serves one key set, from a file, to every tenant.
type FileSource struct{ f keyFile }

// NewFileSource reads the file, which must hold a usable set now.
func NewFileSource(name string, lg *slog.Logger) (*FileSource, error) {
	s := &FileSource{keyFile{name: name, lg: orDiscard(lg), now: time.Now}}
	set, err := s.f.keys()
	if err != nil {
		return nil, err
	}
	if len(set.Keys()) == 0 {
		return nil, fmt.Errorf("auth: keys: %s holds no key", name)
	}
	return s, nil
}

// Keys implements KeySource.
func (s *FileSource) Keys(context.Context, string) (*KeySet, error) { return s.f.keys() }

// DirSource serves the key set of TENANT.json in a directory. Files may come and go.
type DirSource struct {
	dir string
	lg  *slog.Logger
	now func() time.Time

	mu    sync.Mutex // guards files
	files map[string]*keyFile
}

// NewDirSource opens a directory, which must exist.
func NewDirSource(dir string, lg *slog.Logger) (*DirSource, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("auth: keys: %s is not a directory", dir)
	}
	return &DirSource{dir: dir, lg: orDiscard(lg), now: time.Now, files: make(map[string]*keyFile)}, nil
}

// Keys implements KeySource. A tenant whose id cannot be a file name has no keys here.
func (s *DirSource) Keys(_ context.Context, tenant string) (*KeySet, error) {
	if checkTenant(tenant) != nil || strings.ContainsAny(tenant, `/\`) {
		return nil, nil
	}
	s.mu.Lock()
	f := s.files[tenant]
	s.mu.Unlock()
	if f != nil {
		return f.keys()
	}
	f = &keyFile{name: filepath.Join(s.dir, tenant+".json"), lg: s.lg, now: s.now}
	set, err := f.keys()
	if f.mark == (fileMark{}) {
		return nil, err // no such file; not remembered, since anybody may ask for any name
	}
	s.mu.Lock()
	if _, ok := s.files[tenant]; !ok {
		s.files[tenant] = f
	}
	s.mu.Unlock()
	return set, err
}

func orDiscard(lg *slog.Logger) *slog.Logger {
	if lg == nil {
		return slog.New(slog.DiscardHandler)
	}
	return lg
}
