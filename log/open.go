package log

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringcast/ringcast/ring"
)

// Open recovers a log and makes it ready. It blocks on the disk. A log without a directory is
// made; its first segment only when something is appended, so that a full disk does not prevent
// reading. Damage is a *CorruptError and changes nothing.
//
// The cost is one scan of the newest segment, a few reads of each of the others, and one sync of each
// of the last two. Where the checkpoint of the producers is missing or bad, the headers of all entries
// are read instead: one 16 KiB read per 16 KiB of small entries, per entry where they are larger.
func Open(o Options) (*Log, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := o.FS.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("log: open: %w", err)
	}
	plan, err := MakePlan(o)
	if err != nil {
		return nil, err
	}
	if o.Epoch != 0 && o.Epoch < plan.epoch {
		return nil, fmt.Errorf("log: open %s: epoch %d is below %d of its entries", o.Dir, o.Epoch, plan.epoch)
	}
	indexes, err := plan.apply(o)
	if err != nil {
		return nil, err
	}
	return newLog(o, plan, indexes)
}

// newLog makes the log of a plan that was applied. indexes are those that could not be written.
func newLog(o Options, plan *Plan, indexes map[uint64]*memIndex) (*Log, error) {
	l := &Log{
		o: o, dir: o.Dir, commit: o.Mode == FsyncOnCommit, report: plan.Report,
		epoch: max(o.Epoch, plan.epoch, 1), micros: plan.micros,
		next: plan.Next, written: plan.Next, durable: plan.Next,
		producers: plan.producers, unwritten: plan.unwritten, nextID: plan.nextID, chunks: plan.chunks,
		files: files{fs: o.FS, dir: o.Dir},
	}
	l.voidCheckpoint()
	l.filling = &l.groups[0]
	l.pages.New = func() any { return &Page{} }
	v := &view{base: plan.Base}
	for i := range plan.Segments {
		s := &plan.Segments[i]
		if err := l.adopt(v, s, indexes[s.ID]); err != nil {
			l.view.Store(v)
			l.letGo()
			return nil, err
		}
		if s.HasEntries() {
			l.newest = Mark{Segment: s.ID, Bytes: s.Bytes}
		}
	}
	l.mark, l.marked = l.newest, l.newest
	l.view.Store(v)
	l.committed.Store(l.written)
	l.stats.durable.Store(l.durable)
	return l, nil
}

// adopt takes over a recovered segment: into the view when it has entries, as the place for the
// next ones when it is the newest and not sealed. x is its index when that has to stay in memory.
func (l *Log) adopt(v *view, s *SegmentPlan, x *memIndex) error {
	if s.Sealed && x == nil {
		v.segs = append(v.segs, newSegment(s))
		return nil
	}
	flag := os.O_RDWR
	if s.Sealed {
		flag = os.O_RDONLY
	}
	f, err := l.o.FS.Open(filepath.Join(l.dir, segmentName(s.ID)), flag, 0)
	if err != nil {
		return fmt.Errorf("log: open: %w", err)
	}
	if !s.HasEntries() {
		l.keepSpare(&spare{file: f, id: s.ID, ready: blockBytes})
		return nil
	}
	if x == nil {
		x = s.index
	}
	seg := newSegment(s)
	v.segs = append(v.segs, seg)
	l.files.pin(seg, f, x)
	if !s.Sealed {
		l.cur = &tail{
			seg: seg, file: f, mem: x, pos: s.Bytes, written: s.Bytes, indexed: x.last,
			opened: true, shown: true, commit: s.OnCommit, nextOff: s.Next, ready: alignUp(s.Bytes), adopted: s.Bytes,
		}
		if l.o.Direct && l.commit {
			return l.alignRecovered(l.cur)
		}
	}
	return nil
}

func newSegment(s *SegmentPlan) *segment {
	seg := &segment{id: s.ID, base: s.Base, nonce: s.header.nonce}
	seg.end.Store(s.Bytes)
	seg.firstMicros.Store(s.FirstMicros)
	seg.lastMicros.Store(s.LastMicros)
	return seg
}

// letGo closes every file of the log.
func (l *Log) letGo() {
	l.files.close(l.view.Load())
	for _, t := range append(l.retired, l.cur) {
		if t == nil {
			continue
		}
		if t.opened && !t.shown {
			t.file.Close()
		}
		t.closeDirect()
	}
	if l.spare != nil {
		l.spare.close()
		l.spare = nil
	}
	if l.free != nil {
		l.free.file.Close()
		l.free = nil
	}
	if l.markFile != nil {
		l.markFile.Close()
		l.markFile = nil
	}
}

// Close flushes, syncs, writes index and mark, and closes the files. It blocks on the disk. The
// owner calls it, with nothing out (ErrBusy otherwise). Entries that are still staged are written:
// what is below Committed afterwards is durable, the rest is void, and Close returns why. A poisoned
// log reports what poisoned it.
func (l *Log) Close() error {
	if l.closed {
		return l.Err()
	}
	if l.flight != nil || l.syncing || l.jobOut {
		return ErrBusy
	}
	l.closing = true
	err := l.drain()
	if l.poison == nil {
		if ferr := l.finish(); err == nil {
			err = ferr
		}
	}
	if l.poison != nil {
		err = l.poison
	}
	l.closed = true
	l.dropFree()
	if s := l.spare; s != nil {
		// Nothing is lost when that fails: recovery removes it.
		_ = applyRemove(l.o.FS, l.dir, l.files.path(segmentName(s.id)))
	}
	l.letGo()
	return err
}

// drain runs operations and jobs here until there are none.
func (l *Log) drain() error {
	var failed error
	for {
		var out Outcome
		if op := l.NextOp(); op != nil {
			runHere(op)
			out = l.OpDone(op)
		} else if j := l.TakeJob(); j != nil {
			j.Run()
			out = l.JobDone(j)
		} else {
			return failed
		}
		if out.Err != nil && failed == nil {
			failed = out.Err
		}
	}
}

// finish makes the segment that is written exact, durable and indexed, and the mark say so.
func (l *Log) finish() error {
	if t := l.cur; t != nil && t.shown {
		l.job = Job{fs: l.o.FS, dir: l.dir}
		l.endJob(jobSeal, t, t.written)
		l.job.Run()
		t.direct = l.job.direct
		if l.job.err != nil {
			return l.poisoned(l.job.err).Err
		}
		if l.job.indexErr != nil {
			l.stats.indexErrors.Add(1)
		}
		l.durableTo(l.written, l.newest)
	}
	return l.drain() // the mark
}

// runHere carries out an operation on this goroutine.
func runHere(op *ring.Op) {
	if op.Kind != ring.OpSync {
		for _, b := range op.Vec {
			if op.Err = writeFull(op.File, b, op.Off+op.Written); op.Err != nil {
				return
			}
			op.Written += int64(len(b))
		}
	}
	if op.Kind != ring.OpWrite {
		op.Err = op.File.Sync()
	}
}
