package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Inspection is what there is in the directory of a log, found by reading what an open would read.
type Inspection struct {
	Dir         string
	CatalogueID uint64
	Shard       uint32
	// Base, Next, Epoch and Producers are those after the next start; 0 when it refuses the log.
	Base, Next, Epoch uint64
	Producers         int
	Segments          []SegmentInfo // as found, oldest first
	// Mark is durable.mark, nil when there is none, or none that holds (BadMark).
	Mark    *Mark
	BadMark bool
	Others  []string // names in the directory that are none of a log's
	// Plan is what the next start does; nil when it refuses the log, and Refused says why.
	Plan    *Plan
	Refused *CorruptError
}

// SegmentInfo is one segment file.
type SegmentInfo struct {
	ID, Base uint64
	// Next to Mode are known of a segment that stays, and 0 otherwise.
	Next                    uint64
	Bytes                   int64 // end of the data
	Entries, Records        uint64
	FirstMicros, LastMicros uint64
	Sealed, OnCommit, Stays bool

	FileBytes      int64
	CreatedMicros  uint64
	Nonce          uint64
	Problem        string // what is wrong with the header; "" when nothing is
	IndexFileFound bool
}

// Identify reads which log a directory holds, from the first segment header in it that holds. found is
// false when there is none.
func Identify(o Options) (catalogueID uint64, shard uint32, found bool, err error) {
	p := newPlanner(o.withDefaults())
	if err := p.list(); err != nil {
		return 0, 0, false, err
	}
	for _, s := range p.segs {
		h, what, err := p.peekHeader(s)
		if err != nil {
			return 0, 0, false, err
		}
		if what == "" {
			return h.catalogue, h.shard, true, nil
		}
	}
	return 0, 0, false, nil
}

// peekHeader reads the size and the header of a segment; what says why there is none.
func (p *planner) peekHeader(s *foundSegment) (h segmentHeader, what string, err error) {
	f, err := p.open(s.id)
	if err != nil {
		return h, "", err
	}
	defer f.Close()
	if s.size, err = f.Size(); err != nil {
		return h, "", fmt.Errorf("log: %w", err)
	}
	block := make([]byte, blockBytes)
	n, err := readFull(f, block, 0)
	if err != nil {
		return h, "", fmt.Errorf("log: %w", err)
	}
	if allZero(block[:n]) {
		return h, "blank", nil
	}
	h, what = decodeSegmentHeader(block[:n])
	return h, what, nil
}

// Inspect reads what an open would read, and reports it; nothing is changed. Damage is no error but part
// of what it reports.
func Inspect(ctx context.Context, o Options) (*Inspection, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.FS = &watchFS{fs: o.FS, ctx: ctx}
	in := &Inspection{Dir: o.Dir, CatalogueID: o.CatalogueID, Shard: o.Shard}
	plan, err := MakePlan(walkAll(o))
	if err != nil {
		var ok bool
		if in.Refused, ok = errors.AsType[*CorruptError](err); !ok {
			return nil, err
		}
	}
	p := newPlanner(o)
	if err := p.list(); err != nil {
		return nil, err
	}
	in.Plan, in.Mark = plan, p.plan.Mark
	stays := make(map[uint64]*SegmentPlan)
	if plan != nil {
		in.Base, in.Next, in.Epoch, in.Producers = plan.Base, plan.Next, plan.epoch, plan.producers.Len()
		for i := range plan.Segments {
			stays[plan.Segments[i].ID] = &plan.Segments[i]
		}
	}
	for _, s := range p.segs {
		h, what, err := p.peekHeader(s)
		if err != nil {
			return nil, err
		}
		info := SegmentInfo{ID: s.id, Base: h.base, FileBytes: s.size, CreatedMicros: h.created, Nonce: h.nonce, Problem: what, IndexFileFound: p.indexes[s.id]}
		if sp := stays[s.id]; sp != nil {
			info.Next, info.Bytes, info.Entries, info.Records = sp.Next, sp.Bytes, sp.Entries, sp.Records
			info.FirstMicros, info.LastMicros = sp.FirstMicros, sp.LastMicros
			info.Sealed, info.OnCommit, info.Stays = sp.Sealed, sp.OnCommit, true
		}
		in.Segments = append(in.Segments, info)
	}
	return in, in.others(p)
}

// others lists the names that are none of a log's, and finds a mark that does not hold.
func (in *Inspection) others(p *planner) error {
	names, err := p.o.FS.ReadDir(p.o.Dir)
	if err != nil && !isNotExist(err) {
		return fmt.Errorf("log: inspect: %w", err)
	}
	for _, name := range names {
		_, seg := parseName(name, ".seg")
		_, idx := parseName(name, ".idx")
		_, free := parseName(name, freeExt) // a step of the plan tells of it
		if !seg && !idx && !free && name != markName && name != checkpointName {
			in.Others = append(in.Others, name)
		}
	}
	in.BadMark = in.Mark == nil && slices.Contains(names, markName)
	return nil
}

// walkAll has a plan count the entries of all segments, which an open need not know.
func walkAll(o Options) Options {
	o.walkAll = true
	return o
}
