package log

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// What a repair is refused for, with errors.Is.
var (
	// ErrForeign: a segment of another log lies in the directory. It is to be moved away, not repaired.
	ErrForeign = errors.New("log: a segment of another log")
	// ErrNewer: a segment or an entry is whole and in a form that this version does not know.
	ErrNewer = errors.New("log: written by a newer version")
)

// RepairOptions choose what a repair may do.
type RepairOptions struct {
	// TruncateAtDamage cuts the log at its first damaged byte: everything behind is dropped, also what
	// holds. Without it a damaged log is refused with its *CorruptError.
	TruncateAtDamage bool
	// Progress is told the bytes of each read while damage is looked for; may be nil.
	Progress func(n int64)
}

// Repair is what a repair means to do; Apply does it.
type Repair struct {
	// Steps are carried out in order. Behind them come what every start does: indexes, syncs, mark.
	Steps []Step
	// Saved are the files that lose bytes, or go.
	Saved []string
	// Loss is what is dropped knowingly; nil when only what an open does is done.
	Loss *Loss
	// Damage is the first damage, nil when there is none.
	Damage *Damage

	dir   string
	shard uint32
}

// Loss is what a truncation drops, as far as it can be known.
type Loss struct {
	// First is the first offset that is dropped; it is given out again to what is appended next. Next
	// is one past the last offset that any header speaks of.
	First, Next uint64
	Bytes       int64 // of segment files
	Segments    int   // that go as a whole
	// Intact counts the dropped records that hold: they lie behind the damage.
	Intact uint64
}

// Changes says whether the repair changes any byte or name.
func (r *Repair) Changes() bool {
	for _, s := range r.Steps {
		if s.Kind != StepSync {
			return true
		}
	}
	return false
}

// PlanRepair finds out what a repair has to do, and changes nothing. Damage that the choices of ro do
// not cover is a *CorruptError; segments of another log or of a newer version are never cut: ErrForeign,
// ErrNewer.
func PlanRepair(ctx context.Context, o Options, ro RepairOptions) (*Repair, error) {
	o.RepairChecksumTail = false
	o.walkAll = true // also what a start takes from indexes and the checkpoint of the producers
	r := &Repair{dir: o.Dir, shard: o.Shard}
	if ro.TruncateAtDamage {
		v, err := Verify(ctx, o, ro.Progress)
		if err != nil {
			return nil, err
		}
		if len(v.Damage) > 0 {
			return r, r.truncate(ctx, o, v)
		}
	}
	o.FS = &watchFS{fs: o.FS, ctx: ctx}
	plan, err := MakePlan(o)
	if err != nil {
		return nil, err
	}
	p := newPlanner(o.withDefaults())
	for _, s := range plan.Steps {
		r.Steps = append(r.Steps, s)
		empty, err := p.holdsNothing(s)
		if err != nil {
			return nil, err
		}
		if !empty {
			r.Saved = append(r.Saved, s.File)
		}
	}
	return r, nil
}

// truncate plans to cut the log at the first damage of v. The mark goes first: afterwards it may lag,
// never lead. Segments go newest first, each with a sync of the directory, so that a repair that is
// stopped leaves a longer log and never a gap (LOG-13).
func (r *Repair) truncate(ctx context.Context, o Options, v *Verification) error {
	d := v.Damage[0]
	r.Damage = &d
	for i := range v.Damage {
		switch what := v.Damage[i]; what.Kind {
		case DamageForeign:
			return fmt.Errorf("%w: %s: %s", ErrForeign, segmentName(what.Segment), what.What)
		case DamageNewer:
			return fmt.Errorf("%w: %s, byte %d: %s", ErrNewer, segmentName(what.Segment), what.Pos, what.What)
		}
	}
	r.Loss = &Loss{First: d.First, Next: v.Next}
	p := newPlanner(o.withDefaults())
	p.o.FS = &watchFS{fs: o.FS, ctx: ctx}
	if err := p.list(); err != nil {
		return err
	}
	if p.plan.Mark != nil {
		r.add(Step{Kind: StepRemove, File: markName, Why: "it is written anew for what stays"})
	}
	if _, err := p.o.FS.Stat(filepath.Join(p.o.Dir, checkpointName)); err == nil {
		// It may know batches that are dropped, and would call them duplicates when they are published again.
		r.add(Step{Kind: StepRemove, File: checkpointName, Why: "the producers are found anew in what stays"})
	} else if !isNotExist(err) {
		return fmt.Errorf("log: repair: %w", err)
	}
	if d.Kind == DamageMark {
		r.Loss.Next = max(r.Loss.Next, r.Loss.First)
		return nil
	}
	var kept uint64 // records below the damage
	for i := len(p.segs) - 1; i >= 0 && p.segs[i].id >= d.Segment; i-- {
		s := p.segs[i]
		h, what, err := p.peekHeader(s)
		if err != nil {
			return err
		}
		if s.id > d.Segment || d.Kind == DamageHeader {
			why := fmt.Sprintf("it lies behind the damage in segment %d", d.Segment)
			if s.id == d.Segment {
				why = d.What
				r.Loss.First = v.offsetBelow(p.segs, i)
			}
			p.remove(s.id, why)
			r.Loss.Bytes += s.size
			r.Loss.Segments++
			continue
		}
		if what != "" {
			return fmt.Errorf("log: repair: %s changed: %s", segmentName(s.id), what)
		}
		if d.Pos < s.size {
			p.cutTo(s, d.Pos, d.What)
			r.Loss.Bytes += s.size - d.Pos
		}
		kept = d.First - h.base
	}
	for _, s := range p.plan.Steps {
		r.add(s)
	}
	below := kept
	for i := range p.segs {
		if s := p.segs[i]; s.id < d.Segment {
			below += v.records[s.id]
		}
	}
	r.Loss.Intact = v.Records - min(below, v.Records)
	return nil
}

func (r *Repair) add(s Step) {
	r.Steps = append(r.Steps, s)
	if (s.Kind == StepRemove || s.Kind == StepCut) && filepath.Ext(s.File) != freeExt {
		r.Saved = append(r.Saved, s.File)
	}
}

// holdsNothing says whether a step of a recovery takes nothing away that anybody could want back: it
// changes hints only, or removes a file that was prepared, and perhaps belonged to a deleted segment.
func (p *planner) holdsNothing(s Step) (bool, error) {
	id, segment := parseName(s.File, ".seg")
	switch {
	case s.Kind == StepCut:
		return false, nil
	case s.Kind != StepRemove || !segment:
		return true, nil
	}
	_, what, err := p.peekHeader(&foundSegment{id: id})
	return what == "blank", err
}

// offsetBelow is the offset at which the segments before segs[i] end.
func (v *Verification) offsetBelow(segs []*foundSegment, i int) uint64 {
	for i--; i >= 0; i-- {
		if end, ok := v.ends[segs[i].id]; ok {
			return end
		}
	}
	return 0
}

// Repaired is what Apply has reached.
type Repaired struct {
	// Plan is that of the repaired log, made after everything was done: it changes nothing any more.
	Plan *Plan
	// Backup is the directory with the saved files, "" when there was nothing to save.
	Backup string
}

// Apply saves what will lose bytes to backup ("" = nothing is saved), carries the repair out and
// plans again: when it returns no error, the log opens. ctx ends it before the first change only; a
// repair that has begun is finished. progress is told what is saved and may be nil. One that was killed is done by planning and applying again.
func (r *Repair) Apply(ctx context.Context, o Options, backup string, progress func(n int64)) (*Repaired, error) {
	o = o.withDefaults()
	o.RepairChecksumTail = false
	out := &Repaired{}
	if backup != "" && len(r.Saved) > 0 {
		if err := r.save(ctx, o.FS, backup, progress); err != nil {
			return nil, err
		}
		out.Backup = backup
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	if r.Loss != nil {
		if _, err := (&Plan{Dir: r.dir, Shard: r.shard, Steps: r.Steps}).apply(o); err != nil {
			return out, err
		}
	}
	plan, err := MakePlan(o)
	if err != nil {
		return out, err
	}
	if _, err := plan.apply(o); err != nil {
		return out, err
	}
	if out.Plan, err = MakePlan(o); err != nil {
		return out, err
	}
	if out.Plan.Changes() {
		// Indexes and mark are written as well as can be: a full disk does not keep a log from opening.
		return out, fmt.Errorf("log: repair %s: the log opens, but there is still to do: %s", r.dir, firstChange(out.Plan))
	}
	return out, nil
}

func firstChange(p *Plan) string {
	for _, s := range p.Steps {
		if s.Kind != StepSync {
			return s.String()
		}
	}
	return ""
}
