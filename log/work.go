package log

import (
	"errors"
	"slices"

	"github.com/ringcast/ringcast/ring"
)

// TakeJob returns file work to be done, nil when there is none or a job is out. What waits most is
// first: the cut after a failure holds everything, an unopened segment the writes, the seal of a
// retired one the durable bound. Nobody waits for a segment that is deleted.
func (l *Log) TakeJob() *Job {
	if l.poison != nil || l.closed {
		return nil
	}
	j := &l.job
	if l.jobOut {
		if j.kind == jobExtend && (l.fail != nil || l.openDue() || l.sealDue()) {
			j.stop.Store(true) // it is in the way
		}
		return nil
	}
	*j = Job{fs: l.o.FS, dir: l.dir}
	switch {
	case l.fail != nil && l.fail.tail != nil:
		if l.syncing {
			return nil
		}
		l.endJob(jobCut, l.fail.tail, l.fail.at)
	case l.openDue():
		l.openJob()
	case l.sealDue():
		l.endJob(jobSeal, l.retired[0], l.retired[0].written)
	case l.prepareDue():
		j.kind, j.id, j.first, j.free = jobPrepare, l.nextID, l.preWritten(), l.free
		l.free = nil
		l.nextID++
	case l.dueCheckpoint() != nil:
		l.checkpointJob(l.dueCheckpoint())
	case l.markDue():
		j.kind, j.mark, j.file = jobMark, l.mark, l.markFile
		l.rest = false
	case l.trimDue():
		l.trimJob()
	case l.extendDue():
		l.extendJob()
	default:
		return nil
	}
	l.jobOut = true
	return j
}

// openDue: entries are staged for a segment without a header. At most one segment before it may be
// unsealed: recovery relies on that (planner).
func (l *Log) openDue() bool {
	t := l.cur
	if t == nil || t.opened || l.fail != nil {
		return false
	}
	return len(l.retired) == 0 || len(l.retired) == 1 && l.retired[0] == t.prev
}

func (l *Log) openJob() {
	j, t := &l.job, l.cur
	j.kind, j.tail, j.aligned, j.first = jobOpen, t, t.aligned, l.preWritten()
	if s := l.spare; s != nil {
		j.id, j.file, j.direct, j.ready = s.id, s.file, s.direct, s.ready
		l.spare = nil
	} else {
		j.id = l.nextID
		l.nextID++
	}
	t.seg.id = j.id
	j.header = segmentHeader{
		id: j.id, base: t.seg.base, epoch: l.epoch, created: l.o.NowMicros(), nonce: t.seg.nonce,
		catalogue: l.o.CatalogueID, shard: l.o.Shard,
	}
}

// endJob makes the job that ends t at size.
func (l *Log) endJob(kind jobKind, t *tail, size int64) {
	j := &l.job
	j.kind, j.tail, j.file, j.direct, j.size, j.index = kind, t, t.file, t.direct, size, t.mem
	j.header = *t.seg.header()
}

// sealDue: the oldest retired segment has all its entries and nothing uses its file.
func (l *Log) sealDue() bool {
	return len(l.retired) > 0 && !l.syncing && (l.flight == nil || l.flight.tail != l.retired[0])
}

// prepareDue: the segment is half full, and the next one is to be ready when it is.
func (l *Log) prepareDue() bool {
	t := l.cur
	return !l.closing && l.spare == nil && t != nil && t.shown && t.pos > t.adopted &&
		t.written >= max(l.o.SegmentBytes/2, l.prepareAfter)
}

// Unmarked says that durable.mark is behind what is durable: Rest is to be called in a while. Owner
// only.
func (l *Log) Unmarked() bool {
	return l.mark != l.marked && !(l.jobOut && l.job.kind == jobMark && l.job.mark == l.mark)
}

// Rest has durable.mark written, if it is behind. The owner calls it some time after it found the log
// Unmarked. Each commit of a lone publisher would else cost a second write; and while writes keep
// coming it is enough that the mark is not far behind. Owner only.
func (l *Log) Rest() { l.rest = true }

// markDue: the durable bound has moved, and it is time to say so.
func (l *Log) markDue() bool {
	return l.mark != l.marked && (l.rest || l.closing || l.mark.Segment != l.marked.Segment ||
		l.mark.Bytes-l.marked.Bytes >= markLagBytes)
}

// JobDone takes back a job whose Run has returned.
func (l *Log) JobDone(j *Job) Outcome {
	if j != &l.job || !l.jobOut {
		panic("log: JobDone with a job that is not out")
	}
	l.jobOut = false
	if j.left && j.id+1 == l.nextID {
		l.nextID-- // the next attempt goes over it: nothing blank stays below a segment
	}
	if j.kind == jobSeal || j.kind == jobCut {
		j.tail.direct = j.direct
	}
	if l.poison != nil {
		l.dropJob(j)
		return l.outcome()
	}
	switch j.kind {
	case jobCut:
		return l.cutDone(j)
	case jobOpen:
		return l.openDone(j)
	case jobSeal:
		return l.sealDone(j)
	case jobPrepare:
		return l.prepareDone(j)
	case jobMark:
		l.markDone(j)
	case jobExtend:
		return l.extendDone(j)
	case jobCheckpoint:
		return l.checkpointDone(j)
	case jobTrim:
		return l.trimDone(j)
	}
	return l.outcome()
}

// dropJob lets go of what a job made for a log that has been poisoned meanwhile.
func (l *Log) dropJob(j *Job) {
	switch j.kind {
	case jobOpen, jobPrepare:
		if j.file != nil {
			j.spare().close()
		}
	case jobMark:
		l.markDone(j)
	case jobTrim:
		if j.free != nil {
			j.free.file.Close()
		}
	}
}

func (l *Log) openDone(j *Job) Outcome {
	if j.err != nil {
		return l.openFailed(j)
	}
	t := j.tail
	if l.cur != t {
		l.keepSpare(j.spare())
		return l.outcome()
	}
	t.file, t.direct, t.ready, t.opened = j.file, j.direct, j.ready, true
	return l.outcome()
}

func (l *Log) sealDone(j *Job) Outcome {
	if j.err != nil {
		return l.poisoned(j.err)
	}
	l.retired = slices.Delete(l.retired, 0, 1)
	l.sealed(j.tail, j)
	return l.outcome()
}

// sealed records that t is complete and durable.
func (l *Log) sealed(t *tail, j *Job) {
	if l.cur != nil && l.cur.prev == t {
		l.cur.prev = nil
	}
	switch {
	case len(l.retired) > 0 && l.retired[0].seg.base < t.seg.base:
		// An older one is still to be sealed; its turn raises the bound for both.
	case len(l.retired) == 0 && (l.cur == nil || !l.cur.shown) && (l.fail == nil || l.fail.tail == t):
		l.durableTo(l.written, l.newest)
	default:
		l.durableTo(t.nextOff, Mark{Segment: t.seg.id, Bytes: t.written})
	}
	if j.indexErr != nil {
		l.stats.indexErrors.Add(1)
		return // readers go on with the index in memory
	}
	l.files.unpin(t.seg)
}

func (l *Log) prepareDone(j *Job) Outcome {
	switch {
	case j.err == nil:
		l.spare = j.spare()
		l.prepareAfter = 0
	case j.fatal || errors.Is(j.err, ring.ErrReadOnly):
		return l.poisoned(j.err)
	default:
		// Nobody waits for it yet. Try again a little later; at the latest the roll does.
		l.stats.openErrors.Add(1)
		if l.cur != nil {
			l.prepareAfter = l.cur.written + l.o.SegmentBytes/8
		}
	}
	return l.outcome()
}

func (l *Log) markDone(j *Job) {
	l.markFile = j.file
	l.marked = j.mark
	if j.err != nil {
		// It lags, which it may, and is written with the next step of the bound.
		l.stats.markErrors.Add(1)
	}
}

// roll begins a new segment at the next offset.
func (l *Log) roll() *tail {
	prev := l.cur
	if prev != nil {
		l.retired = append(l.retired, prev)
	}
	l.cur = &tail{
		seg:    &segment{base: l.next, nonce: l.o.nonce()},
		mem:    newMemIndex(l.o.SegmentBytes, l.o.IndexSpacing, l.chunks),
		pos:    blockBytes,
		ready:  blockBytes,
		commit: l.commit,
		prev:   prev, nextOff: l.next,
		written: blockBytes,
	}
	if l.o.Direct && l.commit {
		l.cur.align()
	}
	l.freezeProducers(l.cur, prev)
	l.prepareAfter = 0
	l.stats.rolls.Add(1)
	return l.cur
}
