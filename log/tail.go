package log

import (
	"fmt"

	"github.com/ringcast/ringcast/ring"
)

// tail is a segment while it is appended to. The owner's.
type tail struct {
	seg     *segment
	file    ring.File
	direct  ring.File // for data-synced writes; nil: file, and syncs
	aligned bool      // groups are put together in aligned memory, from the start of a block
	block   []byte    // aligned: what the block that holds the staged end begins with
	ready   int64     // up to here the file was written before: zeros, or what a recycled file held
	groups  int64     // written since then
	adopted int64     // what it held when the log was opened
	outran  bool      // pre-writing was too slow for this segment, or failed
	mem     *memIndex
	pos     int64 // staged end
	written int64 // end of what is on the file
	indexed int64 // position of the newest entry that is staged and indexed
	opened  bool  // the header is durable, entries may follow
	shown   bool  // in the view
	commit  bool  // what flagCommit of its entries says
	prev    *tail // the segment before, while that is not sealed
	nextOff uint64
}

// align makes the groups of t such that they can be written past the page cache.
func (t *tail) align() {
	t.aligned, t.block = true, make([]byte, blockBytes)
}

// alignRecovered does so for a segment that goes on after a restart: the next write repeats what
// its last block holds.
func (l *Log) alignRecovered(t *tail) error {
	t.align()
	if n, err := readFull(t.file, t.block[:t.pos%blockBytes], alignDown(t.pos)); err != nil {
		return fmt.Errorf("log: open: %w", err)
	} else if int64(n) != t.pos%blockBytes {
		return l.corrupt(t.seg.id, alignDown(t.pos)+int64(n), "the file ends before its data")
	}
	var err error
	if t.direct, err = openForDirect(l.o.FS, l.files.path(segmentName(t.seg.id))); err != nil {
		return fmt.Errorf("log: open: %w", err)
	}
	return nil
}

func (t *tail) closeDirect() {
	if t.direct != nil {
		t.direct.Close()
		t.direct = nil
	}
}

// spare is a file without entries, waiting to be the next segment.
type spare struct {
	file   ring.File
	direct ring.File // see tail
	ready  int64
	id     uint64
}

// close lets go of the files. What is in them does not count.
func (s *spare) close() {
	s.file.Close()
	if s.direct != nil {
		s.direct.Close()
	}
}

// spare makes the files of t, which nothing was written to, those of another segment.
func (t *tail) spare() *spare {
	return &spare{file: t.file, direct: t.direct, ready: t.ready, id: t.seg.id}
}

// spare returns what a job has made.
func (j *Job) spare() *spare {
	return &spare{file: j.file, direct: j.direct, ready: j.ready, id: j.id}
}
