package log

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ringcast/ringcast/ring"
)

// errShort is a write that reported success without having written everything.
var errShort = &ring.Error{Op: "write", Class: ring.ErrIO, Err: io.ErrShortWrite}

// What happens when the disk says no (docs/formats/log.md, "Failures"):
//
//	write fails        the file is cut back to the last good byte, synced and sealed by a job; only
//	                   then the staged offsets are void, so that what is answered as refused cannot
//	                   come back after a crash. The next append opens a new segment.
//	segment not opened what was staged for it is void. The next append tries again.
//	sync or cut fails  poisoned: nothing is accepted any more, readers stop at the durable bound.
//
// In every case all that is staged goes, because later entries build on the offsets of earlier ones.

// writeFailed begins the way back from a failed write of g.
func (l *Log) writeFailed(g *group, err error) {
	l.stats.failedWrites.Add(1)
	l.cutBack(g, fmt.Errorf("log: write: %w", err))
}

// cutBack gives up g and what is staged behind it: its segment is cut where it began.
func (l *Log) cutBack(g *group, err error) {
	t := g.tail
	l.fail = &failure{err: err, tail: t, at: g.start}
	if c := l.cur; c != nil && c != t {
		l.abandon(c)
	}
	l.cur = nil
	l.retired = slices.DeleteFunc(l.retired, func(r *tail) bool { return r == t })
}

// Reset voids everything that is not committed. What is staged goes at once or, when its segment has
// to be cut for it, with a job; a group in flight is cut off when it has come back, written or not. The
// Outcome that voids the offsets carries ErrReset, unless the disk has failed on its own account; until
// then Append says ErrGroupFull. Owner only.
func (l *Log) Reset() Outcome {
	g := l.filling
	switch {
	case l.poison != nil || l.closed || l.fail != nil: // void already, or on its way to be
	case l.flight != nil:
		l.reset = true
	case g.entries == 0: // nothing is staged
	case !g.tail.opened:
		l.cur = nil
		return l.voidAll(ErrReset)
	default:
		l.cutBack(g, ErrReset)
	}
	return l.outcome()
}

// abandon gives up a segment that no entry was written to. While the job that opens it is out, the
// job's end finds that nobody waits for it.
func (l *Log) abandon(t *tail) {
	if t.opened {
		l.keepSpare(t.spare())
		t.mem.free()
	}
}

// keepSpare keeps a file without entries for the next segment. Its header, if it has one, is
// written anew then, with a nonce of its own.
func (l *Log) keepSpare(s *spare) {
	if l.spare != nil {
		s.close() // recovery removes it: it holds no entry
		return
	}
	l.spare = s
}

// cutDone ends the way back: the file ends at the last good byte and that is durable.
func (l *Log) cutDone(j *Job) Outcome {
	if j.err != nil {
		return l.poisoned(j.err)
	}
	t, err := l.fail.tail, l.fail.err
	if t.shown {
		l.sealed(t, j)
	} else {
		t.ready = blockBytes
		l.keepSpare(t.spare())
		t.mem.free()
	}
	return l.voidAll(err)
}

// openFailed ends the attempt to open the segment that entries are staged for.
func (l *Log) openFailed(j *Job) Outcome {
	l.stats.openErrors.Add(1)
	if j.fatal || errors.Is(j.err, ring.ErrReadOnly) {
		return l.poisoned(j.err)
	}
	if l.cur != j.tail {
		return l.outcome() // nobody waits for it any more
	}
	l.cur = nil
	err := fmt.Errorf("log: open segment: %w", j.err)
	if l.flight != nil {
		// The last group of the segment before is still in flight, and may succeed.
		l.fail = &failure{err: err}
		return l.outcome()
	}
	return l.voidAll(err)
}

// poisoned ends the log's life until restart. The offsets that are staged are void at once, or when
// the group in flight comes back: they may or may not be on the disk then.
func (l *Log) poisoned(cause error) Outcome {
	if l.poison == nil {
		l.poison = fmt.Errorf("%w: %w", ErrPoisoned, cause)
		l.failed.Store(&l.poison)
		l.committed.Store(l.durable)
	}
	if l.flight != nil {
		return l.outcome()
	}
	return l.voidAll(l.poison)
}

// Fail ends the log's life until restart, as a failed sync does: its owner knows that its state is not to
// be relied on. What was given to the disk may be there; nothing more is written. Owner only.
func (l *Log) Fail(cause error) Outcome { return l.poisoned(cause) }

// voidAll gives back every offset that is staged. Nothing is in flight.
func (l *Log) voidAll(err error) Outcome {
	out := l.outcome()
	out.Err, out.FailedFrom, out.FailedTo = err, l.written, l.next
	l.groups[0].reset()
	l.groups[1].reset()
	l.next = l.written
	l.producers.Truncate(l.written)
	l.voidCheckpoint()
	if f := l.fail; f != nil && l.poison != nil && f.tail != nil {
		if !f.tail.shown {
			f.tail.file.Close() // nothing in it counts, and nobody else knows it
		}
		f.tail.closeDirect()
	}
	l.fail, l.reset = nil, false
	return out
}
