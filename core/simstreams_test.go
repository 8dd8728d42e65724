package core

import (
	"fmt"
	"syscall"

	"github.com/ringcast/ringcast/internal/sim"
	"github.com/ringcast/ringcast/ring/ringtest"
)

func (w *simWorld) createStream() {
	if len(w.streams) >= 6 {
		return
	}
	w.names++
	def := StreamDef{
		Tenant: sim.Pick(w.c, simTenants), Namespace: "n", Stream: fmt.Sprint("s", w.names%4),
		Shards: uint32(w.c.Between(1, 3)), Durable: w.c.N(4) > 0,
	}
	if w.plan.fair {
		def.Durable, def.Shards = w.c.N(4) == 0, uint32(w.c.Between(2, 4))
	}
	if def.Durable {
		def.Fsync = sim.Pick(w.c, []string{"on_commit", "on_commit", "periodic", "none"})
		if w.plan.weak {
			def.Fsync = "periodic"
		}
	}
	full := w.plan.faults > 0 && !w.calm && w.c.One(4)
	if full {
		kind := sim.Pick(w.c, []ringtest.Kind{ringtest.MkdirAll, ringtest.SyncDir, ringtest.ReadDir, ringtest.Open})
		w.fs.Add(ringtest.Rule{Kind: kind, Path: "streams", Nth: 1 + w.c.N(3), Err: syscall.ENOSPC})
	}
	w.creating = true
	st, created, err := w.b.createStream(def, true)
	w.fs.Clear()
	w.trace.Add("create", uint64(def.Shards), uint64(b2i(created)), uint64(b2i(err == nil)))
	switch {
	case w.off:
		return // it may be there after the restart
	case err != nil:
		w.seen.UnmadeStreams++
		if !full {
			w.fail("create: %v", err)
		}
	case created:
		w.seen.Created++
		w.track(st)
	}
	w.creating = false
}

func (w *simWorld) deleteStream() {
	if len(w.streams) == 0 {
		return
	}
	s := sim.Pick(w.c, w.streams)
	if s.deleted {
		return
	}
	s.deleted = true
	w.seen.Deleted++
	w.trace.Add("delete", s.st.id)
	if _, err := w.b.beginRemoval(s.def.Tenant, s.def.Namespace, s.def.Stream); err != nil {
		w.fail("delete: %v", err)
	}
}

// forgetRemoved lets go of what belongs to deleted streams whose logs are closed.
func (w *simWorld) forgetRemoved() {
	if w.off {
		return
	}
	kept := w.streams[:0:0]
	for _, s := range w.streams {
		if s.deleted {
			select {
			case <-s.st.removed:
				if !w.owed(s) {
					w.forgetStream(s)
					continue
				}
			default:
			}
		}
		kept = append(kept, s)
	}
	w.streams = kept
}

// owed says whether publishes to a removed stream wait for room still; they are refused when they have it.
func (w *simWorld) owed(s *simStream) bool {
	for _, p := range w.publishers {
		if p.shard.stream == s && p.account.Used() != 0 {
			return true
		}
	}
	return false
}

func (w *simWorld) forgetStream(s *simStream) {
	shards := w.shards
	w.shards = nil
	for _, sh := range shards {
		if sh.stream != s {
			w.shards = append(w.shards, sh)
			continue
		}
		w.must(sh.model.Quiet())
		w.vanished += sh.model.Vanished
		w.onQueue += sh.model.VanishedOnQueue
	}
	publishers := w.publishers
	w.publishers = nil
	for _, p := range publishers {
		if p.shard.stream != s {
			w.publishers = append(w.publishers, p)
		} else if n := p.account.Used(); n != 0 {
			w.fail("publisher %d of a removed stream still has %d bytes taken", p.id, n)
		}
	}
}

// reset gives up what a shard has claimed and not committed.
func (w *simWorld) reset() {
	if len(w.shards) == 0 {
		return
	}
	s := sim.Pick(w.c, w.shards)
	if s.stream.deleted || !s.model.Durable {
		return
	}
	w.seen.Resets++
	s.broken = true
	w.trace.Add("reset", s.stream.st.id, uint64(s.real.num))
	w.must(w.b.Reset(s.stream.st, s.real.num))
}

// fence has a shard refuse everything, or serve again.
func (w *simWorld) fence() {
	if len(w.shards) == 0 {
		return
	}
	s := sim.Pick(w.c, w.shards)
	if s.stream.deleted {
		return
	}
	why := Served
	if s.real.fence.Load() == nil {
		why = Unavailable(w.c.Between(int(NotAssigned), int(Moving)))
	}
	w.trace.Add("fence", s.stream.st.id, uint64(s.real.num), uint64(why))
	s.fenced = s.fenced && why != Served // from before the call that ends it
	w.must(w.b.Fence(s.stream.st, s.real.num, why))
	s.fenced, s.claimed = why != Served, s.real.next()
}
