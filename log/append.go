// Hot path.

package log

import (
	"encoding/binary"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring"
)

// Append stages an entry and gives it its offsets. nowMicros is its append time, unless a newer
// one was given before. On error nothing happened: ErrGroupFull asks to try again after the next
// OpDone or JobDone, everything else is for good.
func (l *Log) Append(e *Entry, nowMicros uint64) (first uint64, err error) {
	switch {
	case l.closed:
		return 0, ErrClosed
	case l.poison != nil:
		return 0, l.poison
	case l.fail != nil || l.reset:
		return 0, ErrGroupFull // its offsets are not free yet
	}
	h := entryHeader{version: entryVersion, kind: e.Kind, count: e.Count, section: uint32(len(e.Section))}
	if err := h.describe(e); err != nil {
		return 0, err
	}
	size := int64(h.length)
	g := l.filling
	if g.entries > 0 && (g.entries >= l.o.GroupEntriesMax || g.size+size > l.o.GroupBytesMax) {
		return 0, ErrGroupFull
	}
	t := l.cur
	if t == nil || t.full(size, l.o.SegmentBytes) || t.commit != l.commit {
		// The entry goes to a new segment, and no group spans two.
		if g.entries > 0 {
			return 0, ErrGroupFull
		}
		t = l.roll()
	}
	l.micros = max(l.micros, nowMicros)
	h.base, h.epoch, h.micros, h.nonce = l.next, l.epoch, l.micros, t.seg.nonce
	if t.commit {
		h.flags |= flagCommit
	}
	if g.entries == 0 {
		g.begin(t, l.next, l.micros)
	}
	g.add(e, &h)
	l.next += uint64(e.Count)
	return h.base, nil
}

// describe fills in flags and lengths, and refuses what could not be read again.
func (h *entryHeader) describe(e *Entry) error {
	if e.Count == 0 || e.Kind < KindRecords || e.Kind > KindCommit || e.Kind != KindRecords && e.Count != 1 {
		return ErrEntry
	}
	if int64(len(e.Section)) > entryBytesMax || len(e.Publisher) > publisherMax {
		return ErrTooLarge
	}
	if uint64(len(e.Section)) < 4+4*uint64(e.Count) || binary.BigEndian.Uint32(e.Section) != e.Count {
		return ErrEntry
	}
	if e.HasProducer {
		h.flags |= flagProducer
		h.option += producerBytes
	}
	if e.Publisher != "" {
		h.flags |= flagPublisher
		h.option += 1 + uint32(len(e.Publisher))
	}
	size := entrySize(int64(h.option), int64(h.section))
	if size > entryBytesMax {
		return ErrTooLarge
	}
	h.length = uint32(size)
	return nil
}

// full says whether an entry of size must go to another segment. One that is larger than a segment
// gets one of its own (LOG-24).
func (t *tail) full(size, segmentBytes int64) bool {
	return t.pos > blockBytes && t.pos+size > segmentBytes
}

// NextOp returns the write that the owner must submit now. It is nil while one is in flight, when
// nothing is staged, and while the segment waits for a job.
func (l *Log) NextOp() *ring.Op {
	g := l.filling
	if l.flight != nil || g.entries == 0 || !g.tail.opened || l.fail != nil || l.poison != nil || l.closed || l.outrun(g) {
		return nil
	}
	l.flight = g
	if g == &l.groups[0] {
		l.filling = &l.groups[1]
	} else {
		l.filling = &l.groups[0]
	}
	return g.operation(l.fsyncOp(), l.owner)
}

// Tick returns a sync for what periodic mode has written and not synced; nil when there is nothing
// (LOG-18), one is in flight, or a retired segment is still to be sealed: that syncs it, and
// nothing newer may be called durable before (HZ-8).
func (l *Log) Tick() *ring.Op {
	if l.o.Mode != FsyncPeriodic || l.syncing || l.durable == l.written || len(l.retired) > 0 ||
		l.fail != nil || l.poison != nil || l.closed {
		return nil
	}
	t := l.cur // not nil, and shown: with everything sealed, all that is written is durable
	l.syncing, l.syncTarget = true, l.written
	l.syncMark = Mark{Segment: t.seg.id, Bytes: t.written}
	op := &l.syncOp
	op.Kind, op.File, op.Owner = ring.OpSync, t.file, l.owner
	op.Err, op.Written, op.Vec = nil, 0, nil
	return op
}

// OpDone takes back an operation that has ended. The engine's goroutines do not call it: the owner
// does, when the operation has reached it.
func (l *Log) OpDone(op *ring.Op) Outcome {
	if op == &l.syncOp {
		return l.syncDone(op)
	}
	g := l.flight
	if g == nil || op != &g.op {
		panic("log: OpDone with an operation that is not in flight")
	}
	l.flight = nil
	l.stats.groups.Add(1)
	err := op.Err
	if err == nil && op.Written < g.bytes() {
		err = errShort // an engine that credits a short write is wrong, but never believed
	}
	switch {
	case l.poison != nil:
		return l.voidAll(l.poison)
	case err == nil && l.reset:
		l.cutBack(g, ErrReset)
	case err == nil:
		l.commitGroup(g)
		if l.fail != nil {
			return l.voidAll(l.fail.err)
		}
	case l.commit && op.Written >= g.bytes():
		// Every byte was written, so it is the sync that failed.
		return l.poisoned(err)
	default:
		l.writeFailed(g, err)
		if l.reset {
			l.fail.err = ErrReset
		}
	}
	return l.outcome()
}

// commitGroup makes the entries of g readable.
func (l *Log) commitGroup(g *group) {
	t := g.tail
	if invariants.Enabled && (g.first != l.written || g.start != t.written) {
		panic("log: group does not continue what is written")
	}
	for _, e := range g.index {
		t.mem.add(e)
	}
	t.written, t.nextOff = g.end(), g.next()
	t.groups++
	t.seg.end.Store(t.written)
	t.seg.lastMicros.Store(g.last)
	if !t.shown {
		l.show(t, g.micros)
	}
	l.written = g.next()
	l.newest = Mark{Segment: t.seg.id, Bytes: t.written}
	if l.commit {
		// All older segments are durable: each of their groups was synced before the next one of
		// this log was submitted, and Open synced what was there.
		l.durableTo(l.written, l.newest)
	}
	l.committed.Store(l.written)
	l.stats.commit(g)
	g.reset()
}

// show adds a segment to the view with its first committed entry.
func (l *Log) show(t *tail, micros uint64) {
	t.seg.firstMicros.Store(micros)
	l.files.pin(t.seg, t.file, t.mem)
	t.shown = true
	l.view.Store(l.view.Load().with(t.seg))
}

// syncDone ends a sync of Tick.
func (l *Log) syncDone(op *ring.Op) Outcome {
	if !l.syncing {
		panic("log: OpDone with a sync that is not in flight")
	}
	l.syncing, op.File = false, nil
	l.stats.syncs.Add(1)
	switch {
	case l.poison != nil:
	case op.Err != nil:
		return l.poisoned(op.Err)
	default:
		l.durableTo(l.syncTarget, l.syncMark)
	}
	return l.outcome()
}

// durableTo raises the durable bound.
func (l *Log) durableTo(offset uint64, m Mark) {
	if offset <= l.durable {
		return
	}
	l.durable, l.mark = offset, m
	l.stats.durable.Store(offset)
}
