package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// DamageKind says what is damaged, and so what can be done about it.
type DamageKind string

const (
	DamageEntries DamageKind = "entries" // bytes between entries that hold, or at the end
	DamageHeader  DamageKind = "header"  // the first block of a segment
	DamageGap     DamageKind = "gap"     // a segment does not begin where the one before it ends
	DamageMark    DamageKind = "mark"    // durable.mark speaks of what is not there
	DamageForeign DamageKind = "foreign" // a segment of another log
	DamageNewer   DamageKind = "newer"   // whole, but in a form that this version does not know
)

// Damage is one place that no crash explains.
type Damage struct {
	Kind    DamageKind
	Segment uint64
	Pos     int64 // where in the segment it begins
	Bytes   int64 // up to the next entry that holds, or the end of the segment
	What    string
	// First and Next bound the offsets that are lost with it, Next excluded; they are equal when the
	// end is not known.
	First, Next uint64
}

// Note is something that the next start mends by itself, and that loses nothing that was promised.
type Note struct {
	Segment uint64
	Pos     int64
	What    string
}

// Verification is what Verify found.
type Verification struct {
	Dir      string
	Shard    uint32
	Segments int
	Entries  uint64 // that hold
	Records  uint64
	Read     int64 // bytes
	// Base and Next bound the offsets of what was found. With damage Next is the highest offset that
	// any header speaks of.
	Base, Next uint64
	Mark       *Mark
	// Damage is sorted by segment and position; of more than findingsMax the first are kept, Damages
	// counts all. So with Notes.
	Damage  []Damage
	Damages int
	Notes   []Note
	Noted   int
	// Plan is what a start does that knows nothing beforehand and walks every entry; nil when it refuses
	// the log, and Refused says why. One that has the checkpoint of the producers may not look there.
	Plan    *Plan
	Refused *CorruptError

	ends    map[uint64]uint64 // by segment: the offset behind its last entry that holds
	records map[uint64]uint64 // by segment: records that hold
}

// Verify reads every byte of every segment of a log and checks it: headers, checksums, order,
// contiguity, index and mark. It changes nothing. What Open judges is judged by the same code; what
// Open does not read (bodies of sealed segments) is checked on top. progress is told the bytes of each
// read and may be nil. Errors are those of reading, and of ctx.
func Verify(ctx context.Context, o Options, progress func(n int64)) (*Verification, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.RepairChecksumTail = false // what it would cut is damage all the same
	o.walkAll = true
	watch := &watchFS{fs: o.FS, ctx: ctx}
	o.FS = watch
	v := &verifier{p: newPlanner(o), out: &Verification{Dir: o.Dir, Shard: o.Shard,
		ends: make(map[uint64]uint64), records: make(map[uint64]uint64)}}
	plan, err := MakePlan(o)
	if err != nil {
		var ok bool
		if v.out.Refused, ok = errors.AsType[*CorruptError](err); !ok {
			return nil, err
		}
	}
	v.out.Plan = plan
	if err := v.p.list(); err != nil {
		return nil, err
	}
	v.out.Mark = v.p.plan.Mark
	watch.progress = func(n int64) {
		v.out.Read += n
		if progress != nil {
			progress(n)
		}
	}
	if err := v.run(); err != nil {
		return nil, fmt.Errorf("log: verify %s: %w", o.Dir, err)
	}
	return v.out, nil
}

// verifier goes through the segments, one at a time.
type verifier struct {
	p     *planner
	out   *Verification
	stays map[uint64]*SegmentPlan // by the plan, when there is one
	// ended: the log ends in the last segment but one, and the last one, which does not meet it, goes.
	ended bool
}

func (v *verifier) damage(d Damage) {
	v.out.Damages++
	if len(v.out.Damage) < findingsMax {
		v.out.Damage = append(v.out.Damage, d)
	}
}

func (v *verifier) note(id uint64, pos int64, format string, args ...any) {
	v.out.Noted++
	if len(v.out.Notes) < findingsMax {
		v.out.Notes = append(v.out.Notes, Note{Segment: id, Pos: pos, What: fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) run() error {
	if plan := v.out.Plan; plan != nil {
		v.stays = make(map[uint64]*SegmentPlan, len(plan.Segments))
		for i := range plan.Segments {
			v.stays[plan.Segments[i].ID] = &plan.Segments[i]
		}
	}
	if err := v.headers(); err != nil {
		return err
	}
	v.out.Segments = len(v.p.segs) + len(v.p.blank)
	if v.out.Plan == nil {
		v.p.dropEmptyInside()
	}
	segs := v.p.segs
	if len(segs) > 0 {
		v.out.Base, v.out.Next = segs[0].header.base, segs[0].header.base
	}
	for i, s := range segs {
		if v.ended {
			v.note(s.id, 0, "it does not begin where the log ends; the next start removes it")
			break
		}
		if i > 0 && v.out.Next < s.header.base {
			v.gap(segs[i-1], s)
		}
		if err := v.segment(i); err != nil {
			return err
		}
	}
	for _, s := range v.p.blank {
		if err := v.blank(s); err != nil {
			return err
		}
	}
	return v.finish()
}

// gap reports offsets that are missing between two segments: lost with a header between them, or with
// a file.
func (v *verifier) gap(prev, s *foundSegment) {
	first := v.out.Next
	v.out.Next = s.header.base
	for i := range v.out.Damage {
		if d := &v.out.Damage[i]; d.Segment > prev.id && d.Segment < s.id {
			d.First, d.Next = first, s.header.base
			return
		}
	}
	v.damage(Damage{Kind: DamageGap, Segment: prev.id, Pos: prev.size, First: first, Next: s.header.base,
		What: fmt.Sprintf("the entries end at offset %d, the next segment (%d) begins at %d", first, s.id, s.header.base)})
}

// headers reads the first block of each segment. Those that hold stay in p.segs.
func (v *verifier) headers() error {
	block := make([]byte, blockBytes)
	found := v.p.segs
	v.p.segs = nil
	for _, s := range found {
		b, err := v.p.firstBlock(s, block)
		if err != nil {
			return err
		}
		if allZero(b) {
			v.p.blank = append(v.p.blank, s)
			continue
		}
		h, what := decodeSegmentHeader(b)
		d := Damage{Kind: DamageHeader, Segment: s.id, Bytes: s.size, What: what}
		switch {
		case what != "":
			if newerSegment(b) {
				d.Kind = DamageNewer
			}
		case h.id != s.id:
			d.Pos, d.What = 8, fmt.Sprintf("the file is segment %d", h.id)
		case h.catalogue != v.p.o.CatalogueID || h.shard != v.p.o.Shard:
			d.Kind, d.Pos = DamageForeign, 48
			d.What = fmt.Sprintf("the file belongs to log %016x, shard %d", h.catalogue, h.shard)
		default:
			s.header = h
			v.p.segs = append(v.p.segs, s)
			continue
		}
		v.damage(d)
	}
	return nil
}

// segment reads segment i in full. Where entries stop, settle says what that is; behind damage it goes
// on with the next entry that continues the log.
func (v *verifier) segment(i int) error {
	s := v.p.segs[i]
	stays := v.stays[s.id]
	if v.out.Plan != nil && stays == nil {
		v.note(s.id, 0, "the next start removes this segment: %s", v.out.Plan.whyRemoved(s.id))
		return nil
	}
	end := s.size
	if stays != nil {
		end = stays.Bytes
		if end < s.size {
			v.note(s.id, end, "%d bytes behind the last entry: an unfinished write or space not used; the next start cuts them off", s.size-end)
		}
	}
	f, err := v.p.open(s.id)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := v.p.scanner(f, &foundSegment{id: s.id, size: end, header: s.header}, true)
	x := newMemIndex(max(end, v.p.o.SegmentBytes), v.p.o.IndexSpacing, v.p.chunks)
	defer x.free()
	v.out.ends[s.id] = s.header.base
	var e scannedEntry
	clean := true
	for {
		more, why, err := sc.step(&e)
		if err != nil {
			return err
		}
		if more {
			v.out.Entries++
			v.out.Records += uint64(e.header.count)
			v.out.records[s.id] += uint64(e.header.count)
			v.out.ends[s.id] = sc.next
			v.out.Next = max(v.out.Next, sc.next)
			if indexDue(e.pos, x.last, v.p.o.IndexSpacing) {
				x.add(indexEntry{base: e.header.base, pos: e.pos})
			}
			continue
		}
		d, err := v.settle(i, sc, why, stays != nil)
		if err != nil || d == nil {
			if err == nil && clean {
				v.index(s, x)
			}
			return err
		}
		clean = false
		at, err := v.resume(sc, d)
		if err != nil {
			return err
		}
		v.out.Next = max(v.out.Next, d.Next)
		v.damage(*d)
		if !at {
			return nil
		}
	}
}

// settle says what the place is where entries stop: nil when it is no damage.
func (v *verifier) settle(i int, sc *scanner, why stop, planned bool) (*Damage, error) {
	s := v.p.segs[i]
	d := &Damage{Kind: DamageEntries, Segment: s.id, Pos: sc.pos, What: cmp.Or(why.what, "the file ends"), First: sc.next, Next: sc.next}
	if why.refuse {
		d.Kind = DamageNewer
		return d, nil
	}
	if planned {
		if why.what == "" {
			return nil, nil // at the end that the plan found
		}
		return d, nil
	}
	mayEnd := i == len(v.p.segs)-1
	if mayEnd && why.what == "" && (v.p.plan.Mark == nil || v.p.plan.Mark.Segment != s.id) {
		return nil, nil // what is newer is missing, and reported as that
	}
	if !mayEnd {
		next := v.p.segs[i+1]
		if sc.next == next.header.base {
			if why.what != "" {
				v.note(s.id, sc.pos, "%d bytes behind the last entry; the next segment goes on", s.size-sc.pos)
			}
			return nil, nil
		}
		if i == len(v.p.segs)-2 && sc.next < next.header.base {
			proof, err := v.p.proven(s, next)
			if err != nil {
				return nil, err
			}
			mayEnd = proof != provenWhole
			v.ended = mayEnd
		}
		if !mayEnd && why.what == "" && sc.next < next.header.base {
			return nil, nil // a gap
		}
		d.Next = max(d.Next, next.header.base)
	}
	if !mayEnd {
		return d, nil
	}
	w := walk{seg: SegmentPlan{ID: s.id, Bytes: sc.pos, Next: sc.next}, why: why}
	if why.what != "" {
		var err error
		if w.later, err = sc.laterGroup(); err != nil {
			return nil, err
		}
	}
	if err := v.p.judge(s, &w); err != nil {
		c, ok := errors.AsType[*CorruptError](err)
		if !ok {
			return nil, err
		}
		d.What, v.ended = c.What, false
		return d, nil
	}
	if why.what != "" {
		v.note(s.id, sc.pos, "%d bytes behind the last entry: an unfinished write or space not used", s.size-sc.pos)
	}
	return nil, nil
}

// resume moves sc to the next entry behind damage that continues the log, and tells d how far it
// reaches; false when there is none.
func (v *verifier) resume(sc *scanner, d *Damage) (bool, error) {
	var found entryHeader
	at, err := sc.find(sc.pos+unitBytes, func(h *entryHeader, pos int64) bool {
		found = *h
		return followsDamage(h, sc.nonce, sc.next) && h.check() == "" && pos+int64(h.length) <= sc.size && h.groupPos() <= pos
	})
	if err != nil {
		return false, err
	}
	if at == 0 {
		d.Bytes = max(0, sc.size-d.Pos)
		return false, nil
	}
	d.Bytes, d.Next = at-d.Pos, found.base
	sc.pos, sc.next, sc.epoch, sc.micros, sc.group = at, found.base, found.epoch, found.micros, found.group
	return true, nil
}

// blank judges a segment without a header, as checkBlank and dropBlank do.
func (v *verifier) blank(s *foundSegment) error {
	if what := v.p.lostHead(s); what != "" {
		v.damage(Damage{Kind: DamageHeader, Segment: s.id, Bytes: s.size, What: what})
		return nil
	}
	f, err := v.p.open(s.id)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := v.p.scanner(f, s, true)
	next := v.out.Next
	pos, err := sc.find(blockBytes, func(h *entryHeader, _ int64) bool { return h.base >= next })
	if err != nil {
		return err
	}
	if pos != 0 || v.p.plan.Mark != nil && v.p.plan.Mark.Segment == s.id {
		v.damage(Damage{Kind: DamageHeader, Segment: s.id, Bytes: s.size, What: "segment header is blank, and there are entries behind it"})
		return nil
	}
	v.note(s.id, 0, "a prepared file that was never used; the next start removes it")
	return nil
}

// index compares the index file of a segment without damage.
func (v *verifier) index(s *foundSegment, x *memIndex) {
	switch {
	case x.len() == 0:
	case !v.p.indexes[s.id]:
		v.note(s.id, 0, "the index is missing; the next start writes it")
	case !indexMatches(v.p.o.FS, filepath.Join(v.p.o.Dir, indexName(s.id)), s.header.base, x):
		v.note(s.id, 0, "the index is not that of the segment; the next start writes it anew")
	}
}

// finish adds what the walk does not see, and sorts.
func (v *verifier) finish() error {
	o := v.out
	if o.Mark == nil {
		names, err := v.p.o.FS.ReadDir(v.p.o.Dir)
		if err != nil && !isNotExist(err) {
			return err
		}
		if slices.Contains(names, markName) {
			v.note(0, 0, "%s does not hold; it is treated as absent and written anew", markName)
		}
	}
	if r := o.Refused; r != nil {
		known := slices.ContainsFunc(o.Damage, func(d Damage) bool { return d.Segment == r.Segment && d.Pos <= r.Pos })
		if !known {
			// What speaks of a place where every entry holds can only be the mark.
			v.damage(Damage{Kind: DamageMark, Segment: r.Segment, Pos: r.Pos, What: r.What, First: o.Next, Next: o.Next})
		}
	}
	slices.SortStableFunc(o.Damage, func(a, b Damage) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Pos, b.Pos))
	})
	return nil
}

// whyRemoved is the reason that a plan gives for removing a segment.
func (p *Plan) whyRemoved(id uint64) string {
	for _, s := range p.Steps {
		if s.Kind == StepRemove && s.Segment == id {
			return s.Why
		}
	}
	return "it holds nothing"
}
