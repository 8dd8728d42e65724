package log

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Plan is what recovery found and what it means to do, made by reading only. Open applies it; an
// inspecting command prints it.
type Plan struct {
	Dir   string
	Shard uint32
	// Base and Next bound the offsets that are readable after the steps.
	Base, Next uint64
	// Segments are those that stay, oldest first, as they are after the steps.
	Segments []SegmentPlan
	// Steps are carried out in order. Stopped after any of them and started over, recovery comes to
	// the same end.
	Steps  []Step
	Mark   *Mark // durable.mark as found, nil when absent or bad
	Report RecoveryReport

	producers  *Producers
	checkpoint *checkpoint // that producers was taken from, nil when all headers were walked
	unwritten  *checkpoint // the one that the next open could begin with
	epoch      uint64
	micros     uint64
	nextID     uint64 // first segment number that was never used
	chunks     *sync.Pool
}

// SegmentPlan is one segment that stays.
type SegmentPlan struct {
	ID, Base, Next uint64
	Bytes          int64 // end of data
	FileBytes      int64 // as found; more than Bytes where something is cut
	Records        uint64
	// Entries are those that were walked. All of them when Walked is set, else the segment is known by
	// its header, its index and its end.
	Entries                 uint64
	Walked                  bool
	FirstMicros, LastMicros uint64
	// Sealed: nothing is appended to it any more. Of the newest: false means that the next append
	// goes on in it, or (without entries) puts it to use with a new header.
	Sealed bool
	// OnCommit: its entries were written under on_commit.
	OnCommit bool

	header segmentHeader
	index  *memIndex // of the newest
}

// HasEntries says whether there is anything behind the header.
func (s *SegmentPlan) HasEntries() bool { return s.Bytes > blockBytes }

// StepKind says what a step does.
type StepKind uint8

const (
	StepRemove StepKind = iota + 1 // unlink File, sync the directory
	StepCut                        // cut Segment to Size bytes and sync it
	StepSync                       // sync Segment: its bytes may be in the page cache only
	StepIndex                      // write the index of Segment anew
	StepMark                       // write durable.mark: Size bytes of Segment
)

// Step is one change that recovery makes.
type Step struct {
	Kind    StepKind
	File    string // name in the directory
	Segment uint64
	Size    int64
	Why     string
}

// String describes the step for people.
func (s Step) String() string {
	switch s.Kind {
	case StepRemove:
		return fmt.Sprintf("remove %s: %s", s.File, s.Why)
	case StepCut:
		return fmt.Sprintf("cut %s to %d bytes: %s", s.File, s.Size, s.Why)
	case StepSync:
		return "sync " + s.File
	case StepIndex:
		return fmt.Sprintf("write %s: %s", s.File, s.Why)
	case StepMark:
		return fmt.Sprintf("write %s: segment %d, %d bytes", s.File, s.Segment, s.Size)
	}
	return fmt.Sprintf("step %d", s.Kind)
}

// Changes says whether the steps change any byte or name.
func (p *Plan) Changes() bool {
	for _, s := range p.Steps {
		if s.Kind != StepSync {
			return true
		}
	}
	return false
}

// RecoveryReport counts what recovery read and did.
type RecoveryReport struct {
	Segments       int
	Walked         int    // segments that were read from end to end
	Entries        uint64 // in them
	Records        uint64 // in all
	Scanned        int64  // read from segment files
	Truncated      int64  // cut off torn or unfinished ends
	Removed        int    // files that held nothing
	RebuiltIndexes int
	// Repaired counts bytes that were known to be durable, and were cut off all the same because
	// Options.RepairChecksumTail asks for it.
	Repaired int64
}

func segmentName(id uint64) string { return fmt.Sprintf("%020d.seg", id) }
func indexName(id uint64) string   { return fmt.Sprintf("%020d.idx", id) }

// parseName reads the number of a segment or index file.
func parseName(name, ext string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ext)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	return id, err == nil
}

// MakePlan reads the directory of a log and decides what recovery has to do. It changes nothing.
// Damage is a *CorruptError.
func MakePlan(o Options) (*Plan, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c, err := readCheckpoint(&o)
	if err != nil {
		return nil, err
	}
	p := newPlanner(o)
	if err = p.make(c); err != nil {
		return nil, err
	}
	if !p.checkpointHolds() {
		p = newPlanner(o)
		if err := p.make(nil); err != nil {
			return nil, err
		}
	}
	p.plan.chunks = p.chunks
	return p.plan, nil
}

// make fills the plan. c is the checkpoint of the producers, if there is one.
func (p *planner) make(c *checkpoint) error {
	if err := p.list(); err != nil {
		return err
	}
	if err := p.readHeaders(); err != nil {
		return err
	}
	p.dropEmptyInside()
	p.useCheckpoint(c)
	if err := p.checkBlank(); err != nil {
		return err
	}
	if err := p.checkMark(); err != nil {
		return err
	}
	if err := p.walkSegments(); err != nil {
		return err
	}
	if err := p.dropBlank(); err != nil {
		return err
	}
	p.finish()
	return nil
}

// list reads the directory and durable.mark. A missing directory is an empty log.
func (p *planner) list() error {
	names, err := p.o.FS.ReadDir(p.o.Dir)
	if err != nil {
		if isNotExist(err) {
			return nil
		}
		return fmt.Errorf("log: recover: %w", err)
	}
	for _, name := range names { // sorted by name, and so by number
		if id, ok := parseName(name, ".seg"); ok {
			p.segs = append(p.segs, &foundSegment{id: id})
			p.plan.nextID = max(p.plan.nextID, id+1)
		}
		if id, ok := parseName(name, freeExt); ok {
			// A segment that was deleted and waited to be used again.
			p.plan.nextID = max(p.plan.nextID, id+1)
			p.leftover(name, "a file of a deleted segment")
		}
		if id, ok := parseName(name, ".idx"); ok {
			p.indexes[id] = true
		}
		if name == checkpointTemp {
			p.leftover(name, "a checkpoint that was not finished")
		}
		if name == markName {
			if err := p.readMark(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *planner) readMark() error {
	f, err := p.o.FS.Open(filepath.Join(p.o.Dir, markName), os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("log: recover: %w", err)
	}
	defer f.Close()
	b := make([]byte, markBytes+1) // one more: a longer file is no mark
	n, err := readFull(f, b, 0)
	if err != nil {
		return fmt.Errorf("log: recover: %w", err)
	}
	if m, ok := decodeMark(b[:n]); ok {
		p.plan.Mark = &m
		p.plan.nextID = max(p.plan.nextID, m.Segment+1)
	}
	return nil
}

// finish adds the steps that follow once it is clear what stays: syncs, indexes, the mark.
func (p *planner) finish() {
	plan := p.plan
	// The last two segments with entries may have bytes that only the page cache holds: the process
	// died, the machine did not. They are served only after a sync (HZ-1).
	for i := max(0, len(plan.Segments)-2); i < len(plan.Segments); i++ {
		if s := &plan.Segments[i]; !p.cut[s.ID] {
			p.step(Step{Kind: StepSync, File: segmentName(s.ID), Segment: s.ID})
		}
	}
	for _, s := range p.staleIndexes {
		p.step(s)
		plan.Report.RebuiltIndexes++
	}
	for i := len(plan.Segments) - 1; i >= 0; i-- {
		s := &plan.Segments[i]
		if !s.HasEntries() {
			continue
		}
		if plan.Mark == nil || *plan.Mark != (Mark{s.ID, s.Bytes}) {
			p.step(Step{Kind: StepMark, File: markName, Segment: s.ID, Size: s.Bytes})
		}
		break
	}
	plan.Report.Segments = len(plan.Segments)
	for i := range plan.Segments {
		if plan.Segments[i].Walked {
			plan.Report.Walked++
		}
		plan.Report.Entries += plan.Segments[i].Entries
		plan.Report.Records += plan.Segments[i].Records
	}
}

func (p *planner) step(s Step) { p.plan.Steps = append(p.plan.Steps, s) }
