package log

import (
	"math/bits"
	"sync/atomic"
)

// Stats is a snapshot of what a log did since Open.
type Stats struct {
	Base, Durable, Committed uint64
	Segments                 int
	Groups                   uint64 // writes ended; Entries/Groups is publishes per write (LOG-8)
	Syncs                    uint64 // syncs of Tick ended; under on_commit every group is one
	Entries                  uint64 // committed
	GroupEntries             GroupSizes
	Records                  uint64
	Bytes                    uint64 // written by committed groups
	Rolls                    uint64
	FailedWrites             uint64
	OpenErrors               uint64 // segments that could not be made or opened
	IndexErrors              uint64 // indexes that could not be written and stay in memory
	MarkErrors               uint64
	PreWritten               uint64 // bytes of zeros written ahead
	Outran                   uint64 // segments that were filled faster than zeros could be written ahead
	ExtendErrors             uint64 // times zeros could not be written ahead
	Held                     int64  // bytes of the segments that can be read, header blocks included
	Trimmed                  uint64 // segments deleted by retention
	TrimmedBytes             uint64
	Recycled                 uint64 // of the deleted ones, whose files were kept for new ones
	TrimErrors               uint64 // deletions that failed and are tried again
	CheckpointErrors         uint64 // checkpoints of the producers that could not be written
	Poisoned                 bool
}

// GroupSizes counts committed groups by their entries: [i] those of more than 1<<(i-1) and at most 1<<i,
// the last one all larger ones. One group is one write and, under on_commit, one sync.
type GroupSizes [10]uint64

// Add adds what o counts. Bounds and flags are not counted and stay as they are.
func (s *Stats) Add(o Stats) {
	s.Groups += o.Groups
	s.Syncs += o.Syncs
	s.Entries += o.Entries
	for i, n := range o.GroupEntries {
		s.GroupEntries[i] += n
	}
	s.Records += o.Records
	s.Bytes += o.Bytes
	s.Rolls += o.Rolls
	s.FailedWrites += o.FailedWrites
	s.OpenErrors += o.OpenErrors
	s.IndexErrors += o.IndexErrors
	s.MarkErrors += o.MarkErrors
	s.PreWritten += o.PreWritten
	s.Outran += o.Outran
	s.ExtendErrors += o.ExtendErrors
	s.Trimmed += o.Trimmed
	s.TrimmedBytes += o.TrimmedBytes
	s.Recycled += o.Recycled
	s.TrimErrors += o.TrimErrors
	s.CheckpointErrors += o.CheckpointErrors
}

// counters are written by the owner, a few times per group, and read by Stats.
type counters struct {
	groups, syncs, entries, records, bytes, rolls     atomic.Uint64
	failedWrites, openErrors, indexErrors, markErrors atomic.Uint64
	preWritten, outran, extendErrors                  atomic.Uint64
	trimmed, trimmedBytes, trimErrors, recycled       atomic.Uint64
	checkpointErrors                                  atomic.Uint64
	durable                                           atomic.Uint64
	groupEntries                                      [len(GroupSizes{})]atomic.Uint64
}

func (c *counters) commit(g *group) {
	c.entries.Add(uint64(g.entries))
	c.records.Add(g.records)
	c.bytes.Add(uint64(g.size))
	c.groupEntries[min(bits.Len(uint(g.entries-1)), len(c.groupEntries)-1)].Add(1)
}

// Held is the bytes of the segments that can be read, header blocks included. Any goroutine.
func (l *Log) Held() int64 { return l.view.Load().bytes() }

// Stats may be called by anybody. The numbers are those of slightly different moments.
func (l *Log) Stats() Stats {
	v := l.view.Load()
	c := &l.stats
	s := Stats{
		Base: v.base, Durable: c.durable.Load(), Committed: l.committed.Load(), Segments: len(v.segs),
		Groups: c.groups.Load(), Syncs: c.syncs.Load(), Entries: c.entries.Load(), Records: c.records.Load(),
		Bytes: c.bytes.Load(), Rolls: c.rolls.Load(), FailedWrites: c.failedWrites.Load(),
		OpenErrors: c.openErrors.Load(), IndexErrors: c.indexErrors.Load(), MarkErrors: c.markErrors.Load(),
		PreWritten: c.preWritten.Load(), Outran: c.outran.Load(), ExtendErrors: c.extendErrors.Load(),
		Held: v.bytes(), Trimmed: c.trimmed.Load(), TrimmedBytes: c.trimmedBytes.Load(), TrimErrors: c.trimErrors.Load(), Recycled: c.recycled.Load(),
		CheckpointErrors: c.checkpointErrors.Load(),
		Poisoned:         l.failed.Load() != nil,
	}
	for i := range c.groupEntries {
		s.GroupEntries[i] = c.groupEntries[i].Load()
	}
	return s
}
