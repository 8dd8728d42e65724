package log

import "sync/atomic"

// Stats is a snapshot of what a log did since Open.
type Stats struct {
	Base, Durable, Committed uint64
	Segments                 int
	Groups                   uint64 // writes ended; Entries/Groups is publishes per write (LOG-8)
	Syncs                    uint64 // syncs of Tick ended; under on_commit every group is one
	Entries                  uint64 // committed
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

// counters are written by the owner, a few times per group, and read by Stats.
type counters struct {
	groups, syncs, entries, records, bytes, rolls     atomic.Uint64
	failedWrites, openErrors, indexErrors, markErrors atomic.Uint64
	preWritten, outran, extendErrors                  atomic.Uint64
	trimmed, trimmedBytes, trimErrors, recycled       atomic.Uint64
	checkpointErrors                                  atomic.Uint64
	durable                                           atomic.Uint64
}

func (c *counters) commit(g *group) {
	c.entries.Add(uint64(g.entries))
	c.records.Add(g.records)
	c.bytes.Add(uint64(g.size))
}

// Held is the bytes of the segments that can be read, header blocks included. Any goroutine.
func (l *Log) Held() int64 { return l.view.Load().bytes() }

// Stats may be called by anybody. The numbers are those of slightly different moments.
func (l *Log) Stats() Stats {
	v := l.view.Load()
	c := &l.stats
	return Stats{
		Base: v.base, Durable: c.durable.Load(), Committed: l.committed.Load(), Segments: len(v.segs),
		Groups: c.groups.Load(), Syncs: c.syncs.Load(), Entries: c.entries.Load(), Records: c.records.Load(),
		Bytes: c.bytes.Load(), Rolls: c.rolls.Load(), FailedWrites: c.failedWrites.Load(),
		OpenErrors: c.openErrors.Load(), IndexErrors: c.indexErrors.Load(), MarkErrors: c.markErrors.Load(),
		PreWritten: c.preWritten.Load(), Outran: c.outran.Load(), ExtendErrors: c.extendErrors.Load(),
		Held: v.bytes(), Trimmed: c.trimmed.Load(), TrimmedBytes: c.trimmedBytes.Load(), TrimErrors: c.trimErrors.Load(), Recycled: c.recycled.Load(),
		CheckpointErrors: c.checkpointErrors.Load(),
		Poisoned:         l.failed.Load() != nil,
	}
}
