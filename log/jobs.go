package log

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/ringcast/ringcast/ring"
)

type jobKind uint8

const (
	// jobPrepare makes a blank file with a durable name, ahead of need.
	jobPrepare jobKind = iota + 1
	// jobOpen puts a file to use: header written and synced. It makes the file when none is ready.
	jobOpen
	// jobSeal ends a full segment: exact length, synced, index written.
	jobSeal
	// jobCut does the same after a failed write.
	jobCut
	// jobMark rewrites durable.mark.
	jobMark
	// jobExtend writes zeros ahead of the tail.
	jobExtend
	// jobCheckpoint replaces the checkpoint of the producers.
	jobCheckpoint
	// jobTrim deletes a segment that retention took out of the log.
	jobTrim
)

// Job is slow file work. The owner takes it with TakeJob, Run is called on any goroutine but the
// owner's, and the owner hands it back with JobDone. A log has one job out at a time, and reuses
// it.
type Job struct {
	kind jobKind
	fs   ring.FS
	dir  string

	id     uint64
	file   ring.File // prepare: result; open: given or result
	direct ring.File // open: the same, where aligned; seal: to be closed
	// aligned: a file for direct writes is wanted, too.
	aligned bool
	ready   int64 // prepare, open: what was written before
	first   int64 // prepare: how much of that
	header  segmentHeader
	tail    *tail
	size    int64
	index   *memIndex
	mark    Mark
	buf     [markBytes]byte

	checkpoint *checkpoint

	from, to, zeroed int64       // extend; zeroed: the result
	stop             atomic.Bool // extend: the owner needs the region, or the job's place
	unused           bool        // trim: nobody has the file open
	recycle          bool        // trim: keep the file for another segment
	free             *freeFile   // trim: that file; prepare: one to be used

	err error
	// fatal: err is of a sync, which proves nothing when it is repeated.
	fatal bool
	// left: a file without entries could not be unlinked.
	left bool
	// indexErr: the index was not written, the rest was done.
	indexErr error
}

// Run does the work. It may block for as long as the disk does.
func (j *Job) Run() {
	switch j.kind {
	case jobPrepare:
		j.prepare()
	case jobOpen:
		j.open()
	case jobSeal, jobCut:
		j.seal()
	case jobMark:
		j.writeMark()
	case jobExtend:
		j.extend()
	case jobCheckpoint:
		j.writeCheckpoint()
	case jobTrim:
		j.trim()
	}
}

func (j *Job) path(name string) string { return filepath.Join(j.dir, name) }

// prepare makes a blank segment file. File and name are durable before there is a header in it, so
// that a header that cannot be read is never the trace of an unfinished creation. The zeros that
// follow the block are for speed, and are left away where there is no room for them.
func (j *Job) prepare() {
	if j.free != nil && j.reuse() {
		return
	}
	name := j.path(segmentName(j.id))
	f, err := j.fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		j.err = err
		return
	}
	j.file, j.ready = f, blockBytes
	if j.err = writeFull(f, zeros[:], 0); j.err == nil && j.first > blockBytes {
		// For speed only: what cannot be written is left away.
		j.ready, _ = j.writeAhead(blockBytes, j.first)
	}
	if j.err == nil {
		if j.err = f.Sync(); j.err == nil {
			j.err = j.fs.SyncDir(j.dir)
		}
		j.fatal = j.err != nil
	}
	if j.err != nil {
		j.discard()
	}
}

// open writes the header of a segment that is put to use.
func (j *Job) open() {
	if j.file == nil {
		if j.prepare(); j.err != nil {
			return
		}
	}
	if j.err = writeFull(j.file, j.header.encode(), 0); j.err == nil {
		j.err = j.file.Sync()
		j.fatal = j.err != nil
	}
	if j.err == nil && j.aligned && j.direct == nil {
		j.direct, j.err = openForDirect(j.fs, j.path(segmentName(j.id)))
	}
	if j.err != nil {
		j.discard()
	}
}

// openForDirect opens a segment for data-synced writes; nil where the file system has none.
func openForDirect(fs ring.FS, name string) (ring.File, error) {
	f, err := fs.OpenDirect(name, true)
	if errors.Is(err, ring.ErrUnsupported) {
		return nil, nil
	}
	return f, err
}

// discard gives up a file without entries, for good: half a header must not come back after a power
// cut, where it could not be told from damage. When the unlink fails, recovery does it.
func (j *Job) discard() {
	j.file.Close()
	j.file = nil
	if j.direct != nil {
		j.direct.Close()
		j.direct = nil
	}
	if j.fs.Remove(j.path(segmentName(j.id))) != nil {
		j.left = true
		return
	}
	if err := j.fs.SyncDir(j.dir); err != nil && !j.fatal {
		j.err, j.fatal = err, true
	}
}

// seal cuts the file to its exact length, makes it durable and writes its index. An index that
// cannot be written is no failure: it stays in memory, and the next open rebuilds it.
func (j *Job) seal() {
	size, err := j.file.Size()
	if err == nil && size != j.size {
		err = j.file.Truncate(j.size)
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.err, j.fatal = err, true
		return
	}
	if j.direct != nil {
		j.direct.Close()
		j.direct = nil
	}
	if j.size > blockBytes {
		j.indexErr = writeIndexFile(j.fs, j.path(indexName(j.header.id)), j.header.base, j.index)
	}
}

func (j *Job) writeMark() {
	if j.file == nil {
		if j.file, j.err = j.fs.Open(j.path(markName), os.O_RDWR|os.O_CREATE, 0o640); j.err != nil {
			j.file = nil
			return
		}
	}
	j.err = writeFull(j.file, appendMark(j.buf[:0], j.mark), 0)
}
