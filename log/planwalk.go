package log

import (
	"fmt"
	"path/filepath"
)

// walk is what one pass over a segment found.
type walk struct {
	seg SegmentPlan
	// why the pass stopped; nothing at the exact end of the file.
	why   stop
	later int64 // position of an entry that proves the end to be damage, 0 = none
	index *memIndex
}

// walkSegments goes through the segments with a header, oldest first, and decides which stay and
// where they end.
func (p *planner) walkSegments() error {
	if len(p.segs) == 0 {
		return nil
	}
	p.plan.Base = p.segs[0].header.base
	p.plan.Next = p.plan.Base
	last := len(p.segs) - 1
	for i, s := range p.segs {
		if err := p.o.Interrupt(0); err != nil {
			return fmt.Errorf("log: open: %w", err)
		}
		if s.header.base != p.plan.Next {
			prev := p.segs[max(0, i-1)]
			return p.corrupt(prev.id, prev.size, "the segment ends at offset %d, the next one (%d) begins at %d",
				p.plan.Next, s.id, s.header.base)
		}
		if i == last {
			if i > 0 {
				p.freezeProducers(s, p.segs[i-1])
			}
			return p.takeNewest(s)
		}
		v := provenWhole
		if i == last-1 {
			if i > 0 {
				p.freezeProducers(s, p.segs[i-1])
			}
			var err error
			if v, err = p.proven(s, p.segs[last]); err != nil {
				return err
			}
		}
		stays, err := p.takeRetired(s, p.segs[i+1], v)
		if err != nil {
			return err
		}
		if !stays {
			// The newest does not meet this one. Stopped between the cut and this, the next recovery comes
			// to the same end.
			p.remove(p.segs[last].id, fmt.Sprintf("it does not begin at offset %d, where the log ends", p.plan.Next))
			p.segs = p.segs[:last]
			return nil
		}
	}
	return nil
}

// proof is what the newest segment tells about the one before it.
type proof uint8

const (
	// provenWhole: all of it was synced before the next one was written.
	provenWhole proof = iota + 1
	// mayBeShort: the next one has entries, but they may have overtaken the end of this one.
	mayBeShort
	// isTheTail: the next one has no entries, so the log ends in this one.
	isTheTail
)

// proven says what is known of the last but one segment. It is whole if durable.mark has reached
// the newest; or if there is an entry in the newest and either was written under on_commit. Then
// its last group was synced before the first group of the newest was written, or by an open, which
// syncs everything.
func (p *planner) proven(s, newest *foundSegment) (proof, error) {
	if p.plan.Mark != nil && p.plan.Mark.Segment >= newest.id {
		return provenWhole, nil
	}
	entries, commit, err := p.peek(newest)
	if err != nil {
		return 0, err
	}
	if !entries {
		return isTheTail, nil
	}
	if !commit {
		if _, commit, err = p.peek(s); err != nil {
			return 0, err
		}
	}
	if commit {
		return provenWhole, nil
	}
	return mayBeShort, nil
}

// peek says whether a segment has a header of its own anywhere behind its first block, and whether
// the first one found was written under on_commit.
func (p *planner) peek(s *foundSegment) (entries, commit bool, err error) {
	f, err := p.open(s.id)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	sc := p.scanner(f, s, true)
	pos, err := sc.find(blockBytes, func(h *entryHeader, _ int64) bool {
		commit = h.flags&flagCommit != 0
		return h.nonce == s.header.nonce
	})
	p.plan.Report.Scanned += sc.scanned
	if err != nil {
		return false, false, fmt.Errorf("log: recover: %w", err)
	}
	return pos != 0, pos != 0 && commit, nil
}

// takeRetired walks a segment that is not the newest. It is whole when it ends where the next one
// begins. When it is not, and had to be, that is damage; else it is ended by the rule of the end of
// data, and stays is false: the next one has to go.
func (p *planner) takeRetired(s, next *foundSegment, v proof) (stays bool, err error) {
	w, known, err := walk{}, false, error(nil)
	if v == provenWhole && p.before(s) && !p.o.VerifyAll && !p.o.walkAll {
		w, known, err = p.openSealed(s, next)
	}
	if err == nil && !known {
		w, err = p.walk(s, v != provenWhole || p.o.VerifyAll)
	}
	if err != nil {
		return false, err
	}
	whole := w.seg.Next == next.header.base
	switch {
	case whole && p.marked(s.id) && p.plan.Mark.Bytes > w.seg.Bytes:
		return false, p.corrupt(s.id, w.seg.Bytes, "durable.mark (%d bytes) covers entries that are not there", p.plan.Mark.Bytes)
	case whole && !w.seg.HasEntries():
		p.remove(s.id, "a segment without entries")
		return true, nil
	case whole:
		if w.seg.Bytes < s.size {
			p.cutTo(s, w.seg.Bytes, "its entries end there and the next segment goes on")
		}
		return true, p.keep(s, &w, true)
	case v == provenWhole || v == mayBeShort && w.seg.Next > next.header.base:
		what := w.why.what
		if what == "" {
			what = "the file ends"
		}
		return false, p.corrupt(s.id, w.seg.Bytes, "%s, at offset %d; the next segment (%d) begins at %d", what, w.seg.Next, next.id, next.header.base)
	}
	if err := p.judge(s, &w); err != nil {
		return false, err
	}
	if w.seg.Bytes < s.size {
		p.cutTo(s, w.seg.Bytes, w.why.what)
	}
	return false, p.keep(s, &w, w.seg.HasEntries())
}

// takeNewest walks the newest segment and ends it by the rule of the end of data.
func (p *planner) takeNewest(s *foundSegment) error {
	w, err := p.walk(s, true)
	if err != nil {
		return err
	}
	if err := p.judge(s, &w); err != nil {
		return err
	}
	sealed := false
	if w.seg.Bytes < s.size {
		p.cutTo(s, w.seg.Bytes, w.why.what)
		// What is left behind a torn end can never be read as a continuation: the next append opens
		// a new segment, or puts a new nonce into a header without entries.
		sealed = w.seg.HasEntries()
	}
	return p.keep(s, &w, sealed)
}

// judge applies the rule of the end of data to the place where a walk stopped.
func (p *planner) judge(s *foundSegment, w *walk) error {
	what := w.why.what
	if p.covered(s.id, w.seg.Bytes) {
		if repaired, err := p.repairTail(s, w); repaired || err != nil {
			return err
		}
		if what == "" {
			what = "the file ends"
		}
		return p.corrupt(s.id, w.seg.Bytes, "%s, below durable.mark (segment %d, %d bytes)", what, p.plan.Mark.Segment, p.plan.Mark.Bytes)
	}
	if w.why.refuse {
		return p.corrupt(s.id, w.seg.Bytes, "%s", what)
	}
	if w.later != 0 {
		return p.corrupt(s.id, w.seg.Bytes, "%s, but the entry at byte %d was written when all before its group was on the disk", what, w.later)
	}
	return nil
}

// keep records a segment that stays and compares its index file.
func (p *planner) keep(s *foundSegment, w *walk, sealed bool) error {
	w.seg.Sealed = sealed
	p.plan.Next = w.seg.Next
	name := indexName(s.id)
	if w.seg.Walked && w.seg.HasEntries() && !(p.indexes[s.id] && indexMatches(p.o.FS, filepath.Join(p.o.Dir, name), w.seg.Base, w.index)) {
		why := "missing"
		if p.indexes[s.id] {
			why = "not that of the segment"
		}
		p.staleIndexes = append(p.staleIndexes, Step{Kind: StepIndex, File: name, Segment: s.id, Why: why})
	}
	switch {
	case !w.seg.Walked:
	case sealed:
		w.index.free()
	default:
		w.seg.index = w.index
	}
	p.plan.Segments = append(p.plan.Segments, w.seg)
	return nil
}

// walk reads the entries of s until a place where they do not go on, and feeds what
// recovery collects: counts, times, producers, the index.
func (p *planner) walk(s *foundSegment, bodies bool) (walk, error) {
	f, err := p.open(s.id)
	if err != nil {
		return walk{}, err
	}
	defer f.Close()
	sc := p.scanner(f, s, bodies)
	w := walk{
		seg:   SegmentPlan{ID: s.id, Base: s.header.base, FileBytes: s.size, Walked: true, header: s.header},
		index: newMemIndex(max(s.size, p.o.SegmentBytes), p.o.IndexSpacing, p.chunks),
	}
	before := p.before(s)
	var e scannedEntry
	for {
		more, why, err := sc.step(&e)
		if err != nil {
			return walk{}, fmt.Errorf("log: recover: %w", err)
		}
		if !more {
			w.why = why
			break
		}
		w.count(&e)
		if indexDue(e.pos, w.index.last, p.o.IndexSpacing) {
			w.index.add(indexEntry{base: e.header.base, pos: e.pos})
		}
		p.collect(&e, !before)
	}
	w.seg.Bytes, w.seg.Next, w.seg.Records = sc.pos, sc.next, sc.next-s.header.base
	if bodies && w.why.what != "" {
		if w.later, err = sc.laterGroup(); err != nil {
			return walk{}, fmt.Errorf("log: recover: %w", err)
		}
	}
	p.plan.Report.Scanned += sc.scanned
	return w, nil
}

func (w *walk) count(e *scannedEntry) {
	if w.seg.Entries == 0 {
		w.seg.FirstMicros = e.header.micros
		w.seg.OnCommit = e.header.flags&flagCommit != 0
	}
	w.seg.LastMicros = e.header.micros
	w.seg.Entries++
}

// collect takes from an entry what outlives the walk; the producer only when it is not known from the
// checkpoint.
func (p *planner) collect(e *scannedEntry, producer bool) {
	h := &e.header
	p.plan.epoch = max(p.plan.epoch, h.epoch)
	p.plan.micros = max(p.plan.micros, h.micros)
	if !producer {
		return
	}
	if b, _, ok := optionParts(h.flags, e.option); ok && b != nil {
		part := decodeProducerPart(b)
		p.plan.producers.Add(part.id, part.sequence, part.digest, h.base, h.count)
	}
}
