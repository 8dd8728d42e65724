package log

import (
	"fmt"
	"os"

	"github.com/ringcast/ringcast/ring"
)

// Recycling: a segment that retention deletes leaves blocks that were written before, which is what
// the next segment wants (prewrite.go), and costs the disk nothing. A log keeps one such file, if
// nobody reads it any more, through these steps, each of them durable before the next:
//
//	ID.seg -> ID.free          the log ends to have it (LOG-13); recovery removes what is left of it
//	header block zeroed        no header of the past under the name of the future
//	ID.free -> NEXT.seg        a prepared file like any other
//
// Entries of the past stay in it behind the tail. They carry another nonce, and offsets below those
// of the new segment: they continue nothing and prove nothing (docs/formats/log.md).

const freeExt = ".free"

// freeFile is a file that waits for its next use.
type freeFile struct {
	file ring.File
	id   uint64 // in its name
	size int64
}

func freeName(id uint64) string { return fmt.Sprintf("%020d%s", id, freeExt) }

// recycles says whether a deleted segment with so many bytes is kept: one at a time, and neither
// one of a fraction of the usual size nor one of a single giant entry.
func (l *Log) recycles(size int64) bool {
	return l.free == nil && !l.o.NoPreWrite && size >= l.o.SegmentBytes/2 && size <= l.o.SegmentBytes
}

// retire is trim for a file that is kept. False says that nothing has changed and the file can be
// deleted; after the rename there is no way back, and what fails deletes it.
func (j *Job) retire() bool {
	f, err := j.fs.Open(j.path(segmentName(j.id)), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	free := &freeFile{file: f, id: j.id}
	if err := j.fs.Rename(j.path(segmentName(j.id)), j.path(freeName(j.id))); err != nil {
		f.Close()
		return false
	}
	if err := j.fs.Remove(j.path(indexName(j.id))); err != nil && !isNotExist(err) {
		j.err = err // the next attempt removes it
	}
	if err := j.fs.SyncDir(j.dir); err != nil {
		j.err, j.fatal = err, true
	}
	if j.err == nil && free.blank() == nil {
		j.free = free
		return true
	}
	// It is no part of the log any more, and has no name that recovery takes for one.
	free.discard(j.fs, j.path(freeName(j.id)))
	return true
}

// blank makes the file one without a header.
func (f *freeFile) blank() (err error) {
	if f.size, err = f.file.Size(); err != nil {
		return err
	}
	if err := writeFull(f.file, zeros[:], 0); err != nil {
		return err
	}
	return f.file.Sync()
}

// discard gives the file up. Where the unlink fails recovery does it.
func (f *freeFile) discard(fs ring.FS, name string) {
	f.file.Close()
	_ = fs.Remove(name)
}

// reuse is prepare with a file of the past. False says that a new one is to be made.
func (j *Job) reuse() bool {
	f := j.free
	if err := j.fs.Rename(j.path(freeName(f.id)), j.path(segmentName(j.id))); err != nil {
		f.discard(j.fs, j.path(freeName(f.id)))
		return false
	}
	j.file, j.ready = f.file, alignDown(f.size)
	if j.err = j.fs.SyncDir(j.dir); j.err != nil {
		j.fatal = true
		j.discard()
	}
	return true
}

// dropFree gives up the file that waits, when the log is closed.
func (l *Log) dropFree() {
	if l.free != nil {
		l.free.discard(l.o.FS, l.files.path(freeName(l.free.id)))
		l.free = nil
	}
}
