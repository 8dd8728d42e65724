package log

import "fmt"

// repairTail applies Options.RepairChecksumTail to a place in s that durable.mark covers. It is true
// when the place is to be taken for the end of the data all the same: s is the newest segment, the
// bytes are not those of a newer version, and no entry of s follows. The mark goes first, in a step
// of its own that may not fail: a mark that covers what was cut would refuse the log for good.
func (p *planner) repairTail(s *foundSegment, w *walk) (bool, error) {
	if !p.o.RepairChecksumTail || s != p.segs[len(p.segs)-1] || p.plan.Mark.Segment != s.id || w.why.refuse || w.later != 0 {
		return false, nil
	}
	f, err := p.open(s.id)
	if err != nil {
		return false, err
	}
	defer f.Close()
	sc := p.scanner(f, s, true)
	follows, err := sc.find(w.seg.Bytes+unitBytes, func(h *entryHeader, _ int64) bool { return followsDamage(h, s.header.nonce, w.seg.Next) })
	p.plan.Report.Scanned += sc.scanned
	if err != nil {
		return false, fmt.Errorf("log: recover: %w", err)
	}
	if follows != 0 {
		return false, nil
	}
	p.plan.Report.Repaired += p.plan.Mark.Bytes - w.seg.Bytes
	p.step(Step{Kind: StepRemove, File: markName, Segment: s.id, Why: "it covers damage that is cut off"})
	return true, nil
}

// followsDamage says whether a whole header behind a place where entries end is one of their
// continuation. A copy of the log inside a record that the damage hit can only have lower offsets:
// it was written before that record.
func followsDamage(h *entryHeader, nonce, next uint64) bool {
	return h.nonce == nonce && h.base > next
}
