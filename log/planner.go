package log

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ringcast/ringcast/ring"
)

// planner makes a Plan. The rules are those of docs/formats/log.md, "Recovery"; in short:
//
//	... O O P N B      O older, P the last but one, N the newest with a header, B blank (prepared)
//
// O was sealed before the segment after P was put to use: every entry must be there.
// P may be unsealed. Where N proves that it was synced (see proven), every entry must be there;
// otherwise it may end early, and then N, which does not meet it, goes.
// N ends where the rule of the end of data says. B goes.
type planner struct {
	o       Options
	plan    *Plan
	segs    []*foundSegment // with a header, oldest first (blank ones are moved to blank)
	blank   []*foundSegment
	indexes map[uint64]bool // index files found
	cut     map[uint64]bool // segments with a StepCut, which syncs them

	staleIndexes []Step
	window       []byte     // of full scans
	walkWindow   []byte     // of walks
	chunks       *sync.Pool // of *indexChunk; the log goes on with it
}

// foundSegment is a segment file as found.
type foundSegment struct {
	id     uint64
	size   int64
	header segmentHeader
}

func newPlanner(o Options) *planner {
	return &planner{
		o:          o,
		plan:       &Plan{Dir: o.Dir, Shard: o.Shard, producers: NewProducers()},
		indexes:    make(map[uint64]bool),
		cut:        make(map[uint64]bool),
		walkWindow: make([]byte, walkWindowBytes),
		chunks:     new(sync.Pool),
	}
}

func isNotExist(err error) bool { return errors.Is(err, ring.ErrNotExist) }

func (p *planner) corrupt(id uint64, pos int64, format string, args ...any) error {
	return &CorruptError{Dir: p.o.Dir, Shard: p.o.Shard, Segment: id, Pos: pos, What: fmt.Sprintf(format, args...)}
}

func (p *planner) open(id uint64) (ring.File, error) {
	f, err := p.o.FS.Open(filepath.Join(p.o.Dir, segmentName(id)), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("log: recover: %w", err)
	}
	return f, nil
}

// readHeaders reads the first block of each segment. Damage is refused; blocks that are blank as
// far as the file goes are told apart: a prepared segment that was never put to use.
func (p *planner) readHeaders() error {
	block := make([]byte, blockBytes)
	found := p.segs
	p.segs = nil
	for _, s := range found {
		b, err := p.firstBlock(s, block)
		if err != nil {
			return err
		}
		if allZero(b) {
			p.blank = append(p.blank, s)
			continue
		}
		h, what := decodeSegmentHeader(b)
		switch {
		case what != "":
			return p.corrupt(s.id, 0, "%s", what)
		case h.id != s.id:
			return p.corrupt(s.id, 8, "the file is segment %d", h.id)
		case h.catalogue != p.o.CatalogueID || h.shard != p.o.Shard:
			return p.corrupt(s.id, 48, "the file belongs to log %016x, shard %d", h.catalogue, h.shard)
		}
		s.header = h
		p.segs = append(p.segs, s)
	}
	return nil
}

// firstBlock learns the size of a segment file and reads its first block into buf; what it returns is
// shorter where the file is.
func (p *planner) firstBlock(s *foundSegment, buf []byte) ([]byte, error) {
	f, err := p.open(s.id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if s.size, err = f.Size(); err != nil {
		return nil, wrapRecover(err)
	}
	n, err := readFull(f, buf, 0)
	return buf[:n], wrapRecover(err)
}

// dropEmptyInside removes segments that hold nothing but a header, are not the newest, and do not
// begin before the next one: they were put to use, their first write failed, and another file took
// their place. One that begins before the next has lost its entries; the walk judges it.
func (p *planner) dropEmptyInside() {
	var next *foundSegment
	for i := len(p.segs) - 1; i >= 0; i-- {
		s := p.segs[i]
		if next != nil && s.size <= blockBytes && s.header.base >= next.header.base && !p.marked(s.id) {
			p.remove(s.id, "a segment without entries")
			p.segs = slices.Delete(p.segs, i, i+1)
			continue
		}
		next = s
	}
}

// marked says whether durable.mark speaks of entries in this very segment.
func (p *planner) marked(id uint64) bool {
	return p.plan.Mark != nil && p.plan.Mark.Segment == id && p.plan.Mark.Bytes > blockBytes
}

// covered says whether byte pos of segment id lies below durable.mark.
func (p *planner) covered(id uint64, pos int64) bool {
	return p.plan.Mark != nil && p.plan.Mark.covers(id, pos)
}

// checkMark refuses a log whose mark speaks of a segment newer than all that are there.
func (p *planner) checkMark() error {
	m := p.plan.Mark
	if m == nil {
		return nil
	}
	if len(p.segs) == 0 || p.segs[len(p.segs)-1].id < m.Segment {
		return p.corrupt(m.Segment, m.Bytes, "durable.mark covers a segment that is not there")
	}
	return nil
}

// leftover plans to remove a file that belongs to no segment.
func (p *planner) leftover(name, why string) {
	p.step(Step{Kind: StepRemove, File: name, Why: why})
	p.plan.Report.Removed++
}

func (p *planner) remove(id uint64, why string) {
	p.step(Step{Kind: StepRemove, File: segmentName(id), Segment: id, Why: why})
	if p.indexes[id] {
		p.step(Step{Kind: StepRemove, File: indexName(id), Segment: id, Why: why})
		delete(p.indexes, id)
	}
	p.plan.Report.Removed++
}

// cutTo plans to cut a segment back.
func (p *planner) cutTo(s *foundSegment, size int64, why string) {
	p.step(Step{Kind: StepCut, File: segmentName(s.id), Segment: s.id, Size: size, Why: why})
	p.cut[s.id] = true
	p.plan.Report.Truncated += s.size - size
}

// checkBlank refuses a log whose head may be lost. Numbers only grow, so a file with a blank header is a
// prepared one when all that have a header are older. Otherwise it was given up, which a failed unlink
// leaves behind, or its header was lost. Between two segments the walk tells: when they meet, nothing was
// in it. Before the first one nobody can, unless that begins at offset 0.
func (p *planner) checkBlank() error {
	for _, s := range p.blank {
		if what := p.lostHead(s); what != "" {
			return p.corrupt(s.id, 0, "%s", what)
		}
	}
	return nil
}

// lostHead says why a blank segment may have been the head of the log, "" when it cannot.
func (p *planner) lostHead(s *foundSegment) string {
	if len(p.segs) == 0 || p.segs[0].header.base == 0 || s.id > p.segs[0].id {
		return ""
	}
	first := p.segs[0]
	return fmt.Sprintf("segment header is blank, before the first segment that has one (%d, which begins at offset %d)", first.id, first.header.base)
}

// dropBlank removes prepared segments that were never put to use. A blank header with an entry
// behind it that belongs at or above the log's end is a lost header, not a prepared file: what an
// older use of a recycled file left behind has lower offsets.
func (p *planner) dropBlank() error {
	for _, s := range p.blank {
		f, err := p.open(s.id)
		if err != nil {
			return err
		}
		sc := p.scanner(f, s, true)
		pos, err := sc.find(blockBytes, func(h *entryHeader, _ int64) bool { return h.base >= p.plan.Next })
		f.Close()
		p.plan.Report.Scanned += sc.scanned
		if err != nil {
			return fmt.Errorf("log: recover: %w", err)
		}
		if pos != 0 || p.plan.Mark != nil && p.plan.Mark.Segment == s.id {
			return p.corrupt(s.id, 0, "segment header is blank, and there are entries behind it")
		}
		p.remove(s.id, "a prepared segment that was never used")
	}
	// Index files whose segment is gone: an unlink that was cut short.
	for _, s := range p.segs {
		delete(p.indexes, s.id)
	}
	for _, id := range slices.Sorted(maps.Keys(p.indexes)) {
		p.step(Step{Kind: StepRemove, File: indexName(id), Segment: id, Why: "an index without a segment"})
		p.plan.Report.Removed++
	}
	return nil
}

// scanner returns a scanner over s that verifies bodies or walks headers only.
func (p *planner) scanner(f ring.File, s *foundSegment, bodies bool) *scanner {
	window := p.walkWindow
	if bodies {
		// Most logs are small, and a broker opens thousands.
		if want := max(walkWindowBytes, min(s.size, scanWindowBytes)); int64(len(p.window)) < want {
			p.window = make([]byte, want)
		}
		window = p.window
	}
	sc := newScanner(f, s.size, &s.header, bodies, window)
	sc.interrupt = p.o.Interrupt
	return sc
}
