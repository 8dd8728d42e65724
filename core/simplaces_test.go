package core

import (
	"errors"
	"fmt"

	"github.com/ringcast/ringcast/wire"
)

// What there is for a publish.
const (
	simRoom = iota
	simNoSlot
	simNoBytes
)

// room says what there is for a publish, by the rules: bytes of the identity, of the connection and of the
// process, whose last eighth is not for a tenant that holds a quarter; a place that is guaranteed to the tenant, or
// one that may be borrowed, and nobody of the tenant in line.
func (w *simWorld) room(p *simPublisher, cost int64) int {
	fits := func(used, size int64) bool { return used+min(cost, size) <= size }
	o, a, t := &w.b.opts, p.shard.real.exec.admission, p.shard.real.account
	d, top := int64(o.PublishQueueDepth), o.PublishInflightBytes
	if p.shard.real.stream.tenant.bytes.Held() >= max(1, top/4) {
		top -= top / 8
	}
	switch {
	case !fits(p.account.Used(), o.PublishConnInflightBytes), p.conn != nil && !fits(p.conn.Used(), o.PublishConnTotalInflightBytes),
		w.b.inflight.Used()+min(cost, o.PublishInflightBytes) > top:
		return simNoBytes
	case w.line(p.shard) > 0, t.Held() >= d && a.Entered() >= d*int64(o.PublishQueueFactor-1):
		return simNoSlot
	}
	return simRoom
}

// line is how many publishes of a shard's tenant stand in line at its executor.
func (w *simWorld) line(s *simShard) (n int) {
	for _, p := range w.parked {
		if w.sent[p.tag].shard.real.account == s.real.account {
			n++
		}
	}
	return n
}

// simPlace is where a publish stands in line for room in its queue.
type simPlace struct {
	Place
	w          *simWorld
	tag        uint64
	may, asked bool
}

func (p *simPlace) Park() bool {
	p.asked = p.may
	return p.may
}

// Admitted is called when the publish has its room. Of one shard those that stand in line have it in
// the order in which they came, and before anything that came later.
func (p *simPlace) Admitted() {
	w := p.w
	s := w.sent[p.tag].shard
	for i, other := range w.parked {
		if other == p {
			w.parked = append(w.parked[:i:i], w.parked[i+1:]...)
			break
		}
		if w.sent[other.tag].shard == s {
			w.overtaken = fmt.Sprintf("publish %d has its room before publish %d, which stood in line", p.tag, other.tag)
		}
	}
	w.admit(p.tag)
}

// admit notes that a publish is on its way to its executor.
func (w *simWorld) admit(tag uint64) {
	s := &w.sent[tag]
	s.attempt = s.shard.model.Accept(s.batch, s.waits, s.onQueue)
	w.admitted++
	run := &w.runs[s.shard.real.exec.id]
	run.pushed = append(run.pushed, s.job)
	run.mixed = run.mixed || s.shard.model.Durable || !s.waits
}

// withdraw takes somebody out of the line: he has waited too long, or has gone.
func (w *simWorld) withdraw() {
	if len(w.parked) == 0 {
		return
	}
	i := w.c.N(len(w.parked))
	p := w.parked[i]
	s := &w.sent[p.tag]
	why := Withdrawal(w.c.N(2))
	w.trace.Add("withdraw", p.tag, uint64(why))
	w.seen.Withdrawn++
	w.parked = append(w.parked[:i:i], w.parked[i+1:]...)
	if !w.b.Withdraw(&p.Place, why) {
		w.fail("publish %d stands in line and cannot be withdrawn", p.tag)
	}
	if w.b.Withdraw(&p.Place, why) {
		w.fail("publish %d was withdrawn twice", p.tag)
	}
	n := len(w.answers) - 1
	if n < 0 || w.answers[n].tag != p.tag || !errors.Is(w.answers[n].res.Err, wire.ErrOverloaded) {
		w.fail("publish %d was withdrawn, and told %+v", p.tag, w.answers)
	}
	w.answers = w.answers[:n]
	if s.attempt != nil {
		w.fail("publish %d was withdrawn, and has its room", p.tag)
	}
	action := queueFullRefused
	if why == ClientGone {
		action = queueFullWithdrawn
	}
	w.counted(s.shard, action)
	s.pub.goBack(s.batch)
	w.checkCounts()
}

func (w *simWorld) counted(s *simShard, action queueFullAction) {
	name := s.stream.def.Tenant
	full := w.full[name]
	if full == nil {
		full = new([queueFullActions]int)
		w.full[name] = full
	}
	full[action]++
}
