package core

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/log"
)

// StorageStatus is what the logs of all shards did since the start.
type StorageStatus struct {
	// Logs are the counters of all logs added up, also of those whose stream was deleted.
	Logs log.Stats
	// Unsynced is how many committed records no sync covers yet.
	Unsynced uint64
	// Recovery is how long the logs took to open when the broker started; RecoveryTruncated is how many
	// bytes of unfinished writes were cut off them.
	Recovery          time.Duration
	RecoveryTruncated int64
}

// storageCounts are the broker's part of StorageStatus.
type storageCounts struct {
	mu   sync.Mutex
	past log.Stats // of logs that were let go; guarded by mu

	recovery  time.Duration // set before the broker is ready
	truncated atomic.Int64
}

// letGo keeps the counters of a log that goes, so that sums never fall.
func (c *storageCounts) letGo(s log.Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past.Add(s)
}

// storage adds the logs up. One that is let go meanwhile may be missing in one answer.
func (b *Broker) storage() StorageStatus {
	b.storageCounts.mu.Lock()
	st := StorageStatus{Logs: b.storageCounts.past}
	b.storageCounts.mu.Unlock()
	st.Recovery, st.RecoveryTruncated = b.storageCounts.recovery, b.storageCounts.truncated.Load()
	b.streams.all(func(s *Stream) {
		for _, sh := range s.shards {
			if sh.log == nil {
				continue
			}
			l := sh.log.Stats()
			st.Logs.Add(l)
			st.Unsynced += max(l.Committed, l.Durable) - l.Durable
		}
	})
	return st
}

// DiskTimes is a histogram of how long disk operations took, from their submission until the executor
// has taken their end.
type DiskTimes struct {
	// Counts[i] are those below DiskTimeBase<<i; the last one has all longer ones.
	Counts [diskTimeBuckets]uint64
	Sum    time.Duration
}

// DiskTimeBase is the bound of the first bucket of DiskTimes.
const DiskTimeBase = 64 * time.Microsecond

const diskTimeBuckets = 18 // the last bound is 4 s

// diskTimes is DiskTimes while it is counted: by the executor, once per operation, read by anyone.
type diskTimes struct {
	counts [diskTimeBuckets]atomic.Uint64
	sum    atomic.Int64
}

func (t *diskTimes) add(d int64) {
	d = max(d, 0)
	t.counts[min(bits.Len64(uint64(d)/uint64(DiskTimeBase)), diskTimeBuckets-1)].Add(1)
	t.sum.Add(d)
}

func (t *diskTimes) read() DiskTimes {
	d := DiskTimes{Sum: time.Duration(t.sum.Load())}
	for i := range t.counts {
		d.Counts[i] = t.counts[i].Load()
	}
	return d
}
