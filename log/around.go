package log

import (
	"context"
	"fmt"
	"path/filepath"
	"sort"
)

// EntryInfo is one entry as EntriesAround shows it.
type EntryInfo struct {
	Segment     uint64
	Pos         int64
	Length      uint32
	Offset      uint64 // of its first record
	Count       uint32
	Kind        Kind
	Epoch       uint64
	Micros      uint64
	OnCommit    bool
	GroupPos    int64 // where the write that it came in begins
	HasProducer bool
	ProducerID  uint64
	Sequence    uint64
	Digest      uint64
	Publisher   string
	BodyHolds   bool
}

// Around is the neighbourhood of an offset.
type Around struct {
	Entries []EntryInfo
	// Stop says why the entries do not go on behind the last one, "" when they do or the segment ends
	// there exactly; StopPos is the place.
	Stop    string
	StopPos int64
}

// EntriesAround lists the entry that holds offset, up to before entries in front of it and up to after
// behind it, of the same segment. It goes by lengths in headers and so reads past damaged bodies; what
// the next start would do with them is not its business. Nothing is changed. The list is empty when
// no segment has the offset.
func EntriesAround(ctx context.Context, o Options, offset uint64, before, after int) (*Around, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.FS = &watchFS{fs: o.FS, ctx: ctx}
	p := newPlanner(o)
	if err := p.list(); err != nil {
		return nil, err
	}
	var in *foundSegment
	for _, s := range p.segs {
		h, what, err := p.peekHeader(s)
		if err != nil {
			return nil, err
		}
		// The last one that begins at or below the offset; of two that begin there, the newer one.
		if what == "" && h.base <= offset && (in == nil || h.base >= in.header.base) {
			s.header, in = h, s
		}
	}
	if in == nil {
		return &Around{}, nil
	}
	f, err := p.open(in.id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := p.scanner(f, in, false)
	if err := p.seekBack(sc, in, offset, before); err != nil {
		return nil, err
	}
	out, err := around(sc, in.id, offset, before, after)
	if err != nil {
		return nil, fmt.Errorf("log: inspect: %w", err)
	}
	return out, nil
}

// seekBack moves sc to an entry at least before entries in front of offset, by the index; where that
// leads nowhere, the walk begins at the start of the segment.
func (p *planner) seekBack(sc *scanner, s *foundSegment, offset uint64, before int) error {
	x, err := openIndexFile(p.o.FS, filepath.Join(p.o.Dir, indexName(s.id)), s.header.base)
	if err != nil && !isNotExist(err) {
		return fmt.Errorf("log: inspect: %w", err)
	}
	if x == nil {
		return nil
	}
	defer x.f.Close()
	// Each index entry stands for at least one entry of the log.
	i := sort.Search(x.len(), func(i int) bool {
		e, err := x.at(i)
		return err != nil || e.base > offset
	}) - 1 - before
	if i < 0 {
		return nil
	}
	e, err := x.at(i)
	if err != nil || e.pos < blockBytes || e.pos%unitBytes != 0 {
		return nil //nolint:nilerr // an index is a hint
	}
	b, err := sc.view(e.pos, entryHeaderBytes)
	if err != nil {
		return fmt.Errorf("log: inspect: %w", err)
	}
	var h entryHeader
	if decodeEntryHeader(b, &h) && h.nonce == sc.nonce && h.base == e.base && h.groupPos() <= e.pos {
		sc.pos, sc.next, sc.epoch, sc.micros, sc.group = e.pos, h.base, h.epoch, h.micros, h.group
	}
	return nil
}

// around walks from where sc stands.
func around(sc *scanner, id, offset uint64, before, after int) (*Around, error) {
	out := &Around{}
	var e scannedEntry
	for {
		more, why, err := sc.step(&e)
		if err != nil {
			return nil, err
		}
		if !more {
			out.Stop, out.StopPos = why.what, sc.pos
			break
		}
		passed := e.header.base > offset
		if passed && after == 0 {
			break
		}
		if passed {
			after--
		}
		info, err := describe(sc, id, &e)
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, info)
		if e.header.next() <= offset && len(out.Entries) > before {
			out.Entries = append(out.Entries[:0], out.Entries[len(out.Entries)-before:]...)
		}
	}
	return out, nil
}

// describe makes the line of an entry that sc has just passed.
func describe(sc *scanner, id uint64, e *scannedEntry) (EntryInfo, error) {
	h := &e.header
	info := EntryInfo{
		Segment: id, Pos: e.pos, Length: h.length, Offset: h.base, Count: h.count, Kind: h.kind, Epoch: h.epoch,
		Micros: h.micros, OnCommit: h.flags&flagCommit != 0, GroupPos: h.groupPos(),
	}
	producer, publisher, ok := optionParts(h.flags, e.option)
	if ok && producer != nil {
		part := decodeProducerPart(producer)
		info.HasProducer, info.ProducerID, info.Sequence, info.Digest = true, part.id, part.sequence, part.digest
	}
	info.Publisher = string(publisher)
	after := sc.pos
	sc.pos = e.pos // bodyHolds looks behind the header at pos
	holds, err := sc.bodyHolds(h)
	sc.pos = after
	info.BodyHolds = holds && ok
	return info, err
}
