package log

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringcast/ringcast/ring"
)

// handle is an open segment file with the index that finds positions in it. Every user holds a
// reference; the last one closes it, so that a file can be sealed, unlinked or evicted under a
// reader.
type handle struct {
	seg  *segment
	file ring.File
	mem  *memIndex  // while the segment is written, or when its index file could not be
	disk *indexFile // otherwise; nil when the index file is missing or bad
	refs atomic.Int32
}

// index returns what finds positions, nil when there is nothing but walking.
func (h *handle) index() index {
	switch {
	case h.mem != nil:
		return h.mem
	case h.disk != nil:
		return h.disk
	}
	return nil
}

// done ends a use that get began.
func (h *handle) done() {
	s := h.seg
	h.release()
	s.users.Add(-1) // last: who finds no user finds the file closed, too
}

func (h *handle) release() {
	if h.refs.Add(-1) != 0 {
		return
	}
	h.file.Close() // nothing is lost with its error: what counts was synced
	if h.mem != nil {
		h.mem.free()
	}
	if h.disk != nil {
		h.disk.f.Close()
	}
}

// files keeps the segment files of one log open: the one that is written, and of the sealed ones
// those that were read last.
type files struct {
	fs  ring.FS
	dir string

	mu     sync.Mutex // guards what follows and the fields of segments that say so; never held over a file call
	clock  uint64
	sealed []*segment // with an open handle, those not pinned
	closed bool
}

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

// pin makes file and index the handle of s until unpin: it is not closed to make room.
func (f *files) pin(s *segment, file ring.File, x *memIndex) {
	h := &handle{seg: s, file: file, mem: x}
	h.refs.Store(1)
	f.mu.Lock()
	s.open = h
	f.mu.Unlock()
}

// unpin lets go of the pinned handle of a segment that is sealed now. Readers open it anew.
func (f *files) unpin(s *segment) {
	f.mu.Lock()
	h := s.open
	s.open = nil
	f.mu.Unlock()
	if h != nil {
		h.release()
	}
}

// errGone says that a segment left the log after the caller took a view with it.
var errGone = errors.New("log: segment was deleted")

// get returns the handle of s with a reference of the caller's, which ends with done. errGone says
// that the segment was retired: the newest view does not have it any more.
func (f *files) get(s *segment) (*handle, error) {
	f.mu.Lock()
	switch {
	case f.closed:
		f.mu.Unlock()
		return nil, ErrClosed
	case s.gone:
		f.mu.Unlock()
		return nil, errGone
	}
	s.users.Add(1)
	f.clock++
	s.used = f.clock
	if h := s.open; h != nil {
		h.refs.Add(1) // the log's own reference is there: it cannot be on its way to 0
		f.mu.Unlock()
		return h, nil
	}
	f.mu.Unlock()

	h, err := f.openSealed(s)
	var evicted *handle
	f.mu.Lock()
	switch {
	case err != nil:
		if s.gone {
			err = errGone // its name went while we looked for it
		}
	case f.closed || s.gone || s.open != nil:
		// Closed, retired, or opened by somebody else meanwhile: this handle is the caller's alone.
	default:
		h.refs.Add(1)
		s.open = h
		evicted = f.admit(s)
	}
	f.mu.Unlock()
	if err != nil {
		s.users.Add(-1)
		return nil, err
	}
	if evicted != nil {
		evicted.release()
	}
	return h, nil
}

// retire takes segments that the view does not have any more from the readers: get answers errGone
// from now on, and the handles that are kept open for others are closed. Who has one reads on.
func (f *files) retire(segs []*segment) {
	var open []*handle
	f.mu.Lock()
	for _, s := range segs {
		s.gone = true
		if s.open != nil {
			open = append(open, s.open)
			s.open = nil
		}
	}
	f.sealed = slices.DeleteFunc(f.sealed, func(s *segment) bool { return s.gone })
	f.mu.Unlock()
	for _, h := range open {
		h.release()
	}
}

// unused says that nobody has the file of a retired segment open, or is opening it. It stays true:
// nobody can begin to.
func (f *files) unused(s *segment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.gone && s.users.Load() == 0
}

// admit adds s to the sealed segments that stay open and returns the handle that makes room, if
// any. f.mu is held.
func (f *files) admit(s *segment) *handle {
	f.sealed = append(f.sealed, s)
	if len(f.sealed) <= sealedOpenMax {
		return nil
	}
	oldest := 0
	for i, o := range f.sealed {
		if o.used < f.sealed[oldest].used {
			oldest = i
		}
	}
	out := f.sealed[oldest]
	f.sealed[oldest] = f.sealed[len(f.sealed)-1]
	f.sealed = f.sealed[:len(f.sealed)-1]
	h := out.open
	out.open = nil
	return h
}

func (f *files) openSealed(s *segment) (*handle, error) {
	file, err := f.fs.Open(f.path(segmentName(s.id)), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("log: read: %w", err)
	}
	h := &handle{seg: s, file: file}
	h.refs.Store(1)
	// A hint: without it the segment is walked.
	h.disk, _ = openIndexFile(f.fs, f.path(indexName(s.id)), s.base)
	return h, nil
}

// close lets go of everything. Readers in progress end with their own references.
func (f *files) close(v *view) {
	var all []*handle
	f.mu.Lock()
	f.closed = true
	for _, s := range v.segs {
		if s.open != nil {
			all = append(all, s.open)
			s.open = nil
		}
	}
	f.sealed = nil
	f.mu.Unlock()
	for _, h := range all {
		h.release()
	}
}
