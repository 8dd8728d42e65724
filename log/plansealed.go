package log

import (
	"fmt"
	"os"
	"path/filepath"
)

// useCheckpoint begins with the producers of c, if it speaks of a place of this log.
func (p *planner) useCheckpoint(c *checkpoint) {
	if c == nil {
		return
	}
	for i, s := range p.segs {
		last := i+1 == len(p.segs)
		if s.header.nonce == c.after && s.header.base == c.base ||
			s.header.nonce == c.before && (last || p.segs[i+1].header.base == c.base) {
			p.plan.checkpoint, p.plan.producers = c, restoreProducers(c.state)
			return
		}
	}
}

// checkpointHolds says whether the log that was planned ends, or a segment of it begins, where the
// checkpoint says. A log that was cut below it holds other records than those it speaks of.
func (p *planner) checkpointHolds() bool {
	c := p.plan.checkpoint
	if c == nil || p.plan.Next == c.base {
		return true
	}
	for i := range p.plan.Segments {
		if p.plan.Segments[i].Base == c.base {
			return true
		}
	}
	return false
}

// before says whether the checkpoint covers all entries of s.
func (p *planner) before(s *foundSegment) bool {
	c := p.plan.checkpoint
	return c != nil && s.header.base < c.base
}

// freezeProducers remembers the state at the start of one of the last two segments, when the next open
// could begin there and not where this one did.
func (p *planner) freezeProducers(s, before *foundSegment) {
	if c := p.plan.checkpoint; c != nil && c.base >= s.header.base {
		return
	}
	p.plan.unwritten = &checkpoint{
		base: s.header.base, before: before.header.nonce, after: s.header.nonce, state: p.plan.producers.freeze(),
		older: p.plan.unwritten,
	}
}

// openSealed learns what is needed of a sealed segment from its first entry, its index, and the
// entries from the last indexed one on. known is false when that does not prove that the segment
// ends where the next one begins, or the index cannot be that of the segment: it is walked then.
func (p *planner) openSealed(s, next *foundSegment) (w walk, known bool, err error) {
	if !p.indexes[s.id] {
		return walk{}, false, nil
	}
	last, ok, err := p.lastIndexed(s)
	if err != nil || !ok {
		return walk{}, false, err
	}
	f, err := p.open(s.id)
	if err != nil {
		return walk{}, false, err
	}
	defer f.Close()
	w.seg = SegmentPlan{ID: s.id, Base: s.header.base, FileBytes: s.size, header: s.header}
	sc := p.scanner(f, s, false)
	defer func() { p.plan.Report.Scanned += sc.scanned }()
	var e scannedEntry
	more, _, err := sc.step(&e)
	if err != nil || !more {
		return walk{}, false, wrapRecover(err)
	}
	w.count(&e)
	if last.pos > blockBytes {
		sc.pos, sc.next = last.pos, last.base
	} else {
		p.collect(&e, false)
	}
	for {
		more, why, err := sc.step(&e)
		if err != nil {
			return walk{}, false, wrapRecover(err)
		}
		if !more {
			w.why = why
			break
		}
		if e.pos > last.pos && indexDue(e.pos, last.pos, p.o.IndexSpacing) {
			return walk{}, false, nil // the index ends before its segment does
		}
		w.seg.LastMicros = e.header.micros
		p.collect(&e, false)
	}
	w.seg.Entries = 0
	w.seg.Bytes, w.seg.Next, w.seg.Records = sc.pos, sc.next, sc.next-s.header.base
	return w, sc.next == next.header.base && sc.pos > last.pos, nil
}

// lastIndexed returns the last entry of the index of s; ok is false when the file cannot be its index.
func (p *planner) lastIndexed(s *foundSegment) (last indexEntry, ok bool, err error) {
	f, err := p.o.FS.Open(filepath.Join(p.o.Dir, indexName(s.id)), os.O_RDONLY, 0)
	if err != nil {
		if isNotExist(err) {
			return last, false, nil
		}
		return last, false, wrapRecover(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return last, false, wrapRecover(err)
	}
	n := (size - indexHeaderBytes) / indexEntryBytes
	if n < 1 || size != indexHeaderBytes+n*indexEntryBytes {
		return last, false, nil
	}
	var head [indexHeaderBytes + indexEntryBytes]byte
	got, err := readFull(f, head[:], 0)
	if err != nil {
		return last, false, wrapRecover(err)
	}
	first := decodeIndexEntry(head[indexHeaderBytes:])
	if got < len(head) || !checkIndexHeader(head[:], s.header.base) || first != (indexEntry{base: s.header.base, pos: blockBytes}) {
		return last, false, nil
	}
	b := head[:min(n, 2)*indexEntryBytes]
	if got, err = readFull(f, b, size-int64(len(b))); err != nil || got < len(b) {
		return last, false, wrapRecover(err)
	}
	last = decodeIndexEntry(b[len(b)-indexEntryBytes:])
	// Neighbours of an index are at least its spacing apart.
	if before := decodeIndexEntry(b); n > 1 && (last.base <= before.base || !indexDue(last.pos, before.pos, p.o.IndexSpacing)) {
		return last, false, nil
	}
	ok = last.pos%unitBytes == 0 && last.pos >= blockBytes+(n-1)*p.o.IndexSpacing && last.pos < s.size && last.base >= first.base
	return last, ok, nil
}

// wrapRecover says where a failure to read comes from; nil stays nil.
func wrapRecover(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("log: recover: %w", err)
}
