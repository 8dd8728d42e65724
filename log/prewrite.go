package log

import (
	"errors"
	"fmt"
	"os"

	"github.com/ringcast/ringcast/ring"
)

// Pre-writing: a sync after a write into extents that were written before has no change of the
// file's size and extents to put into the journal, and costs half or less of one behind the end of
// the file (docs/decisions/pre-writing.md). So zeros are written ahead of the tail, by a job, and
// the entries go over them.
//
//	|header|entries ..... |zeros ahead ........|
//	0      4096        pos                ready^        ready+step
//
// The region that a job writes belongs to it until it is handed back: a group that would reach into
// it waits, and stops the job at its next piece. A log that overtakes its job once writes faster
// than there is any use in zeros, and the segment goes on without; so does one whose groups are large
// (measured: docs/decisions/pre-writing.md). Pre-writing never fails an append: on a full disk the
// file is cut back to what it was.

// preWritten is how many bytes of a new segment are zeros before it is put to use, the header's
// block with them.
func (l *Log) preWritten() int64 {
	if l.o.NoPreWrite {
		return blockBytes
	}
	return max(blockBytes, alignDown(min(preWriteFirst, l.o.SegmentBytes/16)))
}

func alignDown(n int64) int64 { return n &^ (blockBytes - 1) }
func alignUp(n int64) int64   { return (n + blockBytes - 1) &^ (blockBytes - 1) }

// extendDue: less than half of what was written ahead is left, and writes are small.
func (l *Log) extendDue() bool {
	t := l.cur
	if t == nil || !t.opened || t.outran || t.groups == 0 || l.closing || l.fail != nil || l.o.NoPreWrite {
		return false
	}
	if t.written-max(t.adopted, blockBytes) > t.groups*preWriteGroupMax {
		return false
	}
	return t.ready < alignUp(l.o.SegmentBytes) && t.ready-t.pos <= min(t.ready/2, preWriteStepMax)
}

func (l *Log) extendJob() {
	j, t := &l.job, l.cur
	j.kind, j.tail, j.id = jobExtend, t, t.seg.id
	j.from = max(t.ready, alignUp(t.pos))
	j.to = min(j.from+min(max(j.from, preWriteStepMin), preWriteStepMax), alignUp(l.o.SegmentBytes))
}

// outrun says whether g would reach into the region that a job is writing to, and has the job end.
func (l *Log) outrun(g *group) bool {
	j := &l.job
	if !l.jobOut || j.kind != jobExtend || j.tail != g.tail || alignUp(g.end()) <= j.from {
		return false
	}
	if !g.tail.outran {
		g.tail.outran = true
		l.stats.outran.Add(1)
	}
	j.stop.Store(true)
	return true
}

func (l *Log) extendDone(j *Job) Outcome {
	t := j.tail
	if j.err != nil {
		l.stats.extendErrors.Add(1)
		if j.fatal || errors.Is(j.err, ring.ErrReadOnly) {
			return l.poisoned(j.err)
		}
		t.outran = true
		return l.outcome()
	}
	t.ready = max(t.ready, j.zeroed)
	l.stats.preWritten.Add(uint64(j.zeroed - j.from))
	return l.outcome()
}

// extend writes zeros to [from, to) of the segment and makes them durable. When that fails the file is
// cut back: entries end below from, and space that the log does not need is not taken from others.
func (j *Job) extend() {
	if j.zeroed, j.err = j.writeAhead(j.from, j.to); j.err != nil {
		j.fatal = errors.Is(j.err, errZeroSync) && !errors.Is(j.err, ring.ErrNoSpace)
		j.err = fmt.Errorf("log: pre-write: %w", j.err)
	}
}

// errZeroSync marks the failure of a sync.
var errZeroSync = errors.New("sync of zeros")

// writeAhead writes zeros past the page cache where that can be. A sync of the appends that go on
// meanwhile would have to write them, too; and zeros in the page cache lie in folios of many blocks,
// each of which makes a small write into it as dear to account for as a large one. It returns how
// far it came before it was stopped; on failure the file ends at from.
func (j *Job) writeAhead(from, to int64) (at int64, err error) {
	name := j.path(segmentName(j.id))
	f, err := j.fs.OpenDirect(name, false)
	direct := err == nil
	if errors.Is(err, ring.ErrUnsupported) {
		// A file of its own: whoever syncs this one does not take the failure of a sync from the appends.
		f, err = j.fs.Open(name, os.O_RDWR, 0)
	}
	if err != nil {
		return from, err
	}
	defer f.Close()
	for at = from; at < to && err == nil && !j.stop.Load(); {
		n := min(int64(len(zeroPiece)), to-at)
		if err = writeFull(f, zeroPiece[:n], at); err == nil {
			at += n
		}
		if err == nil && (!direct || at >= to || j.stop.Load()) {
			if err = f.Sync(); err != nil {
				err = fmt.Errorf("%w: %w", errZeroSync, err)
			}
		}
	}
	if err != nil {
		_ = f.Truncate(from)
		return from, err
	}
	return at, nil
}

// zeroPiece is what pre-writing writes at once; read-only, aligned.
var zeroPiece = ring.AlignedBytes(preWritePiece)
