package log

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringcast/ringcast/ring"
)

// Retention bounds what a log keeps (broker.md 4.7). Zero is no bound.
//
// Whole segments go, oldest first, and only sealed ones: the segment that is written to stays, and so
// does the newest one in any case, since the next offset is known from it.
type Retention struct {
	// Bytes is the most that the segments may take together, header blocks included. The oldest go
	// until the sum is not above it, so that less may be left: up to one segment.
	Bytes int64
	// Age is how old the newest record of a segment may become, by its append time.
	Age time.Duration
}

// limited says whether there is a bound at all.
func (r Retention) limited() bool { return r.Bytes > 0 || r.Age > 0 }

// SetRetention replaces the bounds. They apply from the next Retain on. Owner only.
func (l *Log) SetRetention(r Retention) { l.retention = r }

// Retain takes what the bounds do not allow out of the log: readers do not find it from now on, and
// jobs delete it. Nothing at or above floor is touched; on a single broker that is Committed, on a
// replicated shard the offset up to which the others have it (LOG-16). now is the wall clock in
// microseconds. Owner only; it costs a look at each segment, and is called once in a while.
//
// Append times never fall, so a clock that was ahead for a moment leaves records from the future,
// and so will be all that follow until the clock gets there. Such a segment is aged from when this
// process first saw that, until its time has come: retention never stops for longer than Age and a
// restart.
func (l *Log) Retain(now, floor uint64) {
	l.trimHeld = false
	if !l.retention.limited() || l.poison != nil || l.closed || l.closing {
		return
	}
	v := l.view.Load()
	held := v.bytes()
	limit := min(l.unsealed(v), floor, l.durable)
	n, open := 0, true
	for i, s := range v.segs {
		if i+1 == len(v.segs) || v.segs[i+1].base > limit {
			break
		}
		expired := l.expired(s, now) // asked of all: one from the future ages from now on
		over := l.retention.Bytes > 0 && held > l.retention.Bytes
		if open = open && (over || expired); open {
			held -= s.end.Load()
			n++
		}
	}
	if n == 0 {
		return
	}
	// The order is what readers rely on: who is told that a segment is gone sees the new base.
	l.view.Store(v.without(n))
	l.files.retire(v.segs[:n])
	l.trash = append(l.trash, v.segs[:n]...)
}

// HoldRetention leaves what is not deleted yet to the next process, until the next Retain: for a log
// that is about to be closed. Owner only.
func (l *Log) HoldRetention() { l.trimHeld = true }

// unsealed is the first offset of the segments in the view that may still change: nothing there can
// be deleted. At the least the newest one counts.
func (l *Log) unsealed(v *view) uint64 {
	if len(v.segs) == 0 {
		return 0
	}
	limit := v.segs[len(v.segs)-1].base
	for _, t := range l.retired {
		limit = min(limit, t.seg.base)
	}
	if f := l.fail; f != nil && f.tail != nil {
		limit = min(limit, f.tail.seg.base)
	}
	return limit
}

// expired says whether the newest record of s is too old.
func (l *Log) expired(s *segment, now uint64) bool {
	since := s.lastMicros.Load()
	if since <= now {
		s.aheadSince = 0
	} else {
		if s.aheadSince == 0 || s.aheadSince > now {
			s.aheadSince = now
		}
		since = s.aheadSince
	}
	return l.retention.Age > 0 && now-since >= uint64(l.retention.Age.Microseconds())
}

// trimDue: a segment is to be deleted. A log that closes leaves that to the next process.
func (l *Log) trimDue() bool { return len(l.trash) > 0 && !l.trimHeld && !l.closing }

// trimJob makes the job that deletes the oldest segment of the trash. They go one by one, each gone
// for good before the next: power that fails in between leaves a longer log and never a gap (LOG-13).
func (l *Log) trimJob() {
	s := l.trash[0]
	j := &l.job
	j.kind, j.id, j.size, j.unused = jobTrim, s.id, s.end.Load(), l.files.unused(s)
	j.recycle = j.unused && l.recycles(j.size)
}

// trim deletes a segment and its index, or keeps the file for the next segment. It may follow one
// that failed half way.
func (j *Job) trim() {
	if j.recycle && j.retire() {
		return
	}
	for _, name := range [...]string{segmentName(j.id), indexName(j.id)} {
		if err := j.fs.Remove(j.path(name)); err != nil && !isNotExist(err) {
			j.err = err
			return
		}
	}
	j.err = j.fs.SyncDir(j.dir)
	j.fatal = j.err != nil
}

// Trimmed says what a job that was handed back has deleted: segments and their bytes; none when it
// was of another kind. err says why it deleted nothing: it will be tried again.
func (j *Job) Trimmed() (segments int, bytes int64, err error) {
	switch {
	case j.kind != jobTrim:
		return 0, 0, nil
	case j.err != nil:
		return 0, 0, j.err
	}
	return 1, j.size, nil
}

func (l *Log) trimDone(j *Job) Outcome {
	switch {
	case j.fatal || errors.Is(j.err, ring.ErrReadOnly):
		return l.poisoned(fmt.Errorf("log: delete segment %d: %w", j.id, j.err))
	case j.err != nil:
		l.stats.trimErrors.Add(1)
		l.trimHeld = true
	default:
		l.trash[0] = nil
		l.trash = l.trash[1:]
		if j.free != nil {
			l.free = j.free
			l.stats.recycled.Add(1)
		}
		l.stats.trimmed.Add(1)
		l.stats.trimmedBytes.Add(uint64(j.size))
	}
	return l.outcome()
}
