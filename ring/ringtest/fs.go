package ringtest

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/ringcast/ringcast/ring"
)

// Kind names a call of the file layer.
type Kind string

// The calls that rules can match and that are recorded.
const (
	Any        Kind = "" // in a rule: every kind
	Open       Kind = "open"
	OpenDirect Kind = "opendirect"
	MkdirAll   Kind = "mkdir"
	Rename     Kind = "rename"
	Remove     Kind = "remove"
	RemoveAll  Kind = "removeall"
	ReadDir    Kind = "readdir"
	Stat       Kind = "stat"
	SyncDir    Kind = "syncdir"
	Lock       Kind = "lock"
	Read       Kind = "read"
	Write      Kind = "write"
	Sync       Kind = "sync"
	Size       Kind = "size"
	Truncate   Kind = "truncate"
	Allocate   Kind = "allocate"
	Close      Kind = "close"
)

// Call is one recorded call.
type Call struct {
	Kind Kind
	Path string // for Rename the old name
	To   string // Rename only
	Off  int64  // Read, Write, Allocate
	N    int64  // bytes asked for; the new size of Truncate
	// Direct: a Write through a file of OpenDirect.
	Direct bool
}

// String prints the call with the last part of its path, for scripts in testdata.
func (c Call) String() string {
	s := string(c.Kind) + " " + filepath.Base(c.Path)
	switch c.Kind {
	case Rename:
		return s + " " + filepath.Base(c.To)
	case Read, Write, Allocate:
		s = fmt.Sprintf("%s %d+%d", s, c.Off, c.N)
		if c.Direct {
			s += " direct"
		}
		return s
	case Truncate:
		return fmt.Sprintf("%s %d", s, c.N)
	}
	return s
}

// Rule says what happens to calls. The zero value of a field asks for nothing.
type Rule struct {
	Kind Kind
	// Path must be contained in the call's path.
	Path string
	// Nth is the first matching call, counted from now, that the rule acts on; 0 is the same as 1.
	Nth int
	// Times is how many calls it acts on from there; 0 is one, below 0 is all.
	Times int

	// Err is what the call answers. Alone, the call is not carried out.
	Err syscall.Errno
	// Short is how many bytes a Write carries out; it then answers Err, or a short count without
	// an error, as the kernel does.
	Short int
	// IsShort makes Short count when it is 0.
	IsShort bool
	// Lie answers success without doing the work.
	Lie bool
	// Wait is received from, or closed, before anything else happens.
	Wait <-chan struct{}
	// Entered, when not nil, is sent to before the wait.
	Entered chan<- struct{}
}

type rule struct {
	Rule
	seen int
}

// FS wraps another file layer with rules and a record of the calls.
type FS struct {
	inner ring.FS

	mu    sync.Mutex // guards rules and calls
	rules []*rule
	calls []Call
}

// NewFS wraps inner, which is ring.OS() when nil.
func NewFS(inner ring.FS) *FS {
	if inner == nil {
		inner = ring.OS()
	}
	return &FS{inner: inner}
}

// Add puts a rule in force. Earlier rules win.
func (f *FS) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &rule{Rule: r})
}

// Fail makes the nth call of a kind from now answer errno.
func (f *FS) Fail(kind Kind, nth int, errno syscall.Errno) {
	f.Add(Rule{Kind: kind, Nth: nth, Err: errno})
}

// Short makes the nth write from now carry out only k bytes.
func (f *FS) Short(nth, k int) { f.Add(Rule{Kind: Write, Nth: nth, Short: k, IsShort: true}) }

// Clear ends every rule.
func (f *FS) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Calls returns what was called since the start or the last Forget, in order.
func (f *FS) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Call(nil), f.calls...)
}

// Forget empties the record.
func (f *FS) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

// Trace prints the recorded calls of the given kinds, one per line; all kinds when none is given.
func (f *FS) Trace(kinds ...Kind) string {
	var b strings.Builder
	for _, c := range f.Calls() {
		ok := len(kinds) == 0
		for _, k := range kinds {
			ok = ok || k == c.Kind
		}
		if ok {
			b.WriteString(c.String() + "\n")
		}
	}
	return b.String()
}

// enter records the call, waits where a rule says so, and returns the rule that acts on it, or nil.
func (f *FS) enter(c Call) *Rule {
	f.mu.Lock()
	f.calls = append(f.calls, c)
	var acts *Rule
	for _, r := range f.rules {
		if r.Kind != Any && r.Kind != c.Kind || !strings.Contains(c.Path, r.Path) {
			continue
		}
		r.seen++
		first, times := max(r.Nth, 1), r.Times
		if times == 0 {
			times = 1
		}
		if r.seen >= first && (times < 0 || r.seen < first+times) {
			acts = &r.Rule
			break
		}
	}
	f.mu.Unlock()
	if acts != nil {
		if acts.Entered != nil {
			acts.Entered <- struct{}{}
		}
		if acts.Wait != nil {
			<-acts.Wait
		}
	}
	return acts
}

// guard runs a call that a rule may replace by an error or a lie.
func (f *FS) guard(c Call, do func() error) error {
	if r := f.enter(c); r != nil {
		if r.Err != 0 {
			return ring.Classify(string(c.Kind), c.Path, r.Err)
		}
		if r.Lie {
			return nil
		}
	}
	return do()
}

func (f *FS) Open(name string, flag int, perm fs.FileMode) (file ring.File, err error) {
	err = f.guard(Call{Kind: Open, Path: name}, func() error {
		inner, err := f.inner.Open(name, flag, perm)
		file = &File{fs: f, inner: inner, name: name}
		return err
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *FS) OpenDirect(name string, sync bool) (file ring.File, err error) {
	err = f.guard(Call{Kind: OpenDirect, Path: name}, func() error {
		inner, err := f.inner.OpenDirect(name, sync)
		file = &File{fs: f, inner: inner, name: name, direct: true}
		return err
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *FS) MkdirAll(name string, perm fs.FileMode) error {
	return f.guard(Call{Kind: MkdirAll, Path: name}, func() error { return f.inner.MkdirAll(name, perm) })
}

func (f *FS) Rename(oldName, newName string) error {
	return f.guard(Call{Kind: Rename, Path: oldName, To: newName}, func() error { return f.inner.Rename(oldName, newName) })
}

func (f *FS) Remove(name string) error {
	return f.guard(Call{Kind: Remove, Path: name}, func() error { return f.inner.Remove(name) })
}

func (f *FS) RemoveAll(name string) error {
	return f.guard(Call{Kind: RemoveAll, Path: name}, func() error { return f.inner.RemoveAll(name) })
}

func (f *FS) ReadDir(name string) (names []string, err error) {
	err = f.guard(Call{Kind: ReadDir, Path: name}, func() (err error) {
		names, err = f.inner.ReadDir(name)
		return err
	})
	return names, err
}

func (f *FS) Stat(name string) (info fs.FileInfo, err error) {
	if r := f.enter(Call{Kind: Stat, Path: name}); r != nil && r.Err != 0 {
		return nil, ring.Classify(string(Stat), name, r.Err)
	}
	return f.inner.Stat(name) // there is nothing to lie with
}

func (f *FS) SyncDir(name string) error {
	return f.guard(Call{Kind: SyncDir, Path: name}, func() error { return f.inner.SyncDir(name) })
}

func (f *FS) Lock(name string) (c io.Closer, err error) {
	if r := f.enter(Call{Kind: Lock, Path: name}); r != nil && r.Err != 0 {
		return nil, ring.Classify(string(Lock), name, r.Err)
	}
	return f.inner.Lock(name)
}
