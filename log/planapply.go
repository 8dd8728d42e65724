package log

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringcast/ringcast/ring"
)

// apply carries out the steps of a plan, in order. Each leaves a directory from which MakePlan
// comes to the same end. Index and mark are hints: when they cannot be written (a full disk), the
// log opens without them. It returns the indexes that are therefore needed in memory.
func (p *Plan) apply(o Options) (unwritten map[uint64]*memIndex, err error) {
	unwritten = make(map[uint64]*memIndex)
	for _, s := range p.Steps {
		name := filepath.Join(o.Dir, s.File)
		switch s.Kind {
		case StepRemove:
			err = applyRemove(o.FS, o.Dir, name)
		case StepCut:
			err = applyCut(o.FS, name, s.Size)
		case StepSync:
			err = applySync(o.FS, name)
		case StepIndex:
			var x *memIndex
			if x, err = p.indexOf(o, s.Segment); err == nil && writeIndexFile(o.FS, name, p.segment(s.Segment).Base, x) != nil {
				unwritten[s.Segment] = x
			}
		case StepMark:
			// Best effort: an old mark lags, which it may.
			_ = writeMark(o.FS, name, Mark{Segment: s.Segment, Bytes: s.Size})
		}
		if err != nil {
			return nil, fmt.Errorf("log: recover: %s: %w", s, err)
		}
	}
	return unwritten, nil
}

func applyRemove(fs ring.FS, dir, name string) error {
	if err := fs.Remove(name); err != nil && !isNotExist(err) {
		return err
	}
	return fs.SyncDir(dir)
}

func applyCut(fs ring.FS, name string, size int64) error {
	f, err := fs.Open(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Sync()
}

func applySync(fs ring.FS, name string) error {
	f, err := fs.Open(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// writeMark rewrites durable.mark in place: 32 bytes, within one sector.
func writeMark(fs ring.FS, name string, m Mark) error {
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	defer f.Close()
	if size, err := f.Size(); err == nil && size > markBytes {
		_ = f.Truncate(markBytes) // a longer file is no mark
	}
	return writeFull(f, appendMark(nil, m), 0)
}

func (p *Plan) segment(id uint64) *SegmentPlan {
	for i := range p.Segments {
		if p.Segments[i].ID == id {
			return &p.Segments[i]
		}
	}
	panic("log: plan without the segment of its step")
}

// indexOf returns the index of a segment that stays: the one the plan still has, or made anew from
// the headers.
func (p *Plan) indexOf(o Options, id uint64) (*memIndex, error) {
	s := p.segment(id)
	if s.index != nil {
		return s.index, nil
	}
	f, err := o.FS.Open(filepath.Join(o.Dir, segmentName(id)), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return rebuildIndex(f, s.Bytes, &s.header, o.IndexSpacing, p)
}

// rebuildIndex walks the headers of the first size bytes of a segment.
func rebuildIndex(f ring.File, size int64, h *segmentHeader, spacing int64, p *Plan) (*memIndex, error) {
	x := newMemIndex(size, spacing, p.chunks)
	sc := newScanner(f, size, h, false, make([]byte, walkWindowBytes))
	var e scannedEntry
	for {
		more, why, err := sc.step(&e)
		if err != nil {
			return nil, err
		}
		if !more {
			if why.what != "" {
				return nil, &CorruptError{Dir: p.Dir, Shard: p.Shard, Segment: h.id, Pos: sc.pos, What: why.what}
			}
			break
		}
		if indexDue(e.pos, x.last, spacing) {
			x.add(indexEntry{base: e.header.base, pos: e.pos})
		}
	}
	return x, nil
}
