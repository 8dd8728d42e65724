package core

import (
	"math/bits"
	"sync/atomic"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// executorStats are an executor's counters: plain fields that it adds to, and copies of them that
// it publishes once per step for whoever looks.
type executorStats struct {
	claims, claimed           uint64
	claimSizes                [ClaimSizes]uint64
	submits, ops              uint64
	finished, failed, refused uint64
	full                      uint64
	trimmed, trimmedBytes     uint64
	trimFailed                uint64
	restarts, commits         uint64

	published      [13]atomic.Uint64
	publishedSizes [ClaimSizes]atomic.Uint64
	queued         atomic.Int64

	// ackedDropped counts publishes that were acknowledged when queued and failed later: so rare that it
	// is counted where others read it.
	ackedDropped [dropReasons]atomic.Uint64
}

// ClaimSizes is how many sizes of claims are told apart: up to 1, 2, 4, ... 64 publishes.
const ClaimSizes = 7

// claim counts a claim of n publishes.
func (s *executorStats) claim(n int) {
	s.claims++
	s.claimed += uint64(n)
	s.claimSizes[bits.Len(uint(n-1))]++
}

func (s *executorStats) flush(e *executor) {
	if s.claims != s.published[0].Load() {
		for i, n := range s.claimSizes {
			s.publishedSizes[i].Store(n)
		}
	}
	for i, v := range [...]uint64{s.claims, s.claimed, s.submits, s.ops, s.finished, s.failed, s.refused, s.full, s.trimmed, s.trimmedBytes, s.trimFailed, s.restarts, s.commits} {
		if s.published[i].Load() != v {
			s.published[i].Store(v)
		}
	}
	s.queued.Store(int64(e.queue.Len()))
}

// ExecutorStatus is the state of one core shard.
type ExecutorStatus struct {
	Shard  int
	Engine string
	// Claims counts claims, Claimed the publishes in them, ClaimSizes the claims of up to 1, 2, 4, ... 64
	// publishes (and of more than the size before).
	Claims, Claimed uint64
	ClaimSizes      [ClaimSizes]uint64
	// Submits is how many system calls carried Ops disk operations.
	Submits, Ops uint64
	// Finished counts publishes that were answered: in all, with an error, with a refusal.
	Finished, Failed, Refused uint64
	// AckedDropped counts publishes that were acknowledged when queued and failed later, by reason. The
	// keys are a closed set.
	AckedDropped map[string]uint64
	// StorageFull counts publishes refused because the disk was full.
	StorageFull uint64
	// Trimmed counts the segments that retention has deleted, of TrimmedBytes; TrimFailed deletions
	// that failed and are tried again.
	Trimmed, TrimmedBytes, TrimFailed uint64
	// Restarts counts panics that were recovered from while publishes were handled; it must stay 0.
	Restarts uint64
	// Commits counts atomic commits that were made visible.
	Commits uint64
	// Queued and Admitted are publishes in lanes, and in all from admission to answer; Waiting those
	// that wait for room in the queue.
	Queued, Admitted, Waiting int64
	Sched                     sched.ExecutorStats
	Ring                      ring.Stats
	// Disk is how long the operations of Ring took.
	Disk DiskTimes
}

// TenantStatus is what one tenant did.
type TenantStatus struct {
	Tenant           string
	PublishedRecords uint64
	PublishedBytes   uint64
	// Publishes that found no room: unacked ones dropped, acked ones refused, and acked ones whose client
	// was gone before they had room.
	DroppedQueueFull, RefusedQueueFull, WithdrawnQueueFull uint64
	// Publishes over the tenant's quota: unacked ones dropped, acked ones refused, unacked ones that waited.
	ThrottledDropped, ThrottledRefused, ThrottledWaited uint64
	// Lost counts unacked publishes that failed for any other reason.
	Lost uint64
}

// Add adds the counters of another tenant.
func (t *TenantStatus) Add(o *TenantStatus) {
	t.PublishedRecords += o.PublishedRecords
	t.PublishedBytes += o.PublishedBytes
	t.DroppedQueueFull += o.DroppedQueueFull
	t.RefusedQueueFull += o.RefusedQueueFull
	t.WithdrawnQueueFull += o.WithdrawnQueueFull
	t.ThrottledDropped += o.ThrottledDropped
	t.ThrottledRefused += o.ThrottledRefused
	t.ThrottledWaited += o.ThrottledWaited
	t.Lost += o.Lost
}

// FailedLogsMax is how many failed logs are named; what fails is mostly the disk under all of them.
const FailedLogsMax = 16

// Status is a snapshot of the broker's counters. Taking it disturbs nobody.
type Status struct {
	Ready    bool
	Draining bool
	// Engine is the append engine that runs; EngineReason says why it is not the preferred one.
	Engine       string
	EngineReason string
	Streams      int
	Caches       int
	// FailedShards is how many shards take nothing until the broker restarts: their logs failed for good.
	FailedShards int
	// FailedLogs are their directories below DATA/logs, at most FailedLogsMax of them.
	FailedLogs    []string
	LogBytes      int64 // of the segments that can be read, of all logs
	Subscriptions int
	// Delivered and Dropped count records of all subscriptions since the start.
	DeliveredRecords uint64
	DeliveredBytes   uint64
	DroppedBatches   uint64
	InflightBytes    int64
	// Parked counts publishes that stood in line for room while their stream's reader went on.
	Parked        uint64
	RetainedBytes int64 // kept alive by replay rings
	StateBytes    int64 // of the keyed states that are in memory
	Outstanding   int64
	Executors     []ExecutorStatus
	Tenants       []TenantStatus
	Pool          wire.PoolStats
	Storage       StorageStatus
}

// Status returns the counters of now.
func (b *Broker) Status() Status {
	st := Status{
		Ready:         b.ready.Load(),
		Draining:      b.draining.Load(),
		Engine:        b.engineName,
		EngineReason:  b.engineReason,
		InflightBytes: b.inflight.Used(),
		Parked:        b.parked.Load(),
		RetainedBytes: b.retained.Load(),
		StateBytes:    b.state.used.Load(),
		Outstanding:   b.outstanding.Load(),
		Pool:          b.opts.Pool.Stats(),
		Storage:       b.storage(),
	}
	for _, e := range b.executors {
		st.Executors = append(st.Executors, e.status())
	}
	b.streams.all(func(s *Stream) {
		st.Streams++
		for _, sh := range s.shards {
			if sh.failure.Load() != nil {
				st.FailedShards++
				if sh.log != nil && len(st.FailedLogs) < FailedLogsMax {
					st.FailedLogs = append(st.FailedLogs, logName(s.id, sh.num))
				}
			}
			if sh.log != nil {
				st.LogBytes += sh.log.Held()
			}
		}
	})
	b.caches.all(func(*CacheInfo) { st.Caches++ })
	b.tenants.all(func(t *tenantState) {
		ts := TenantStatus{
			Tenant:             t.name,
			PublishedRecords:   t.publishedRecords.Load(),
			PublishedBytes:     t.publishedBytes.Load(),
			DroppedQueueFull:   t.queueFull[queueFullDropped].Load(),
			RefusedQueueFull:   t.queueFull[queueFullRefused].Load(),
			WithdrawnQueueFull: t.queueFull[queueFullWithdrawn].Load(),
			Lost:               t.lost.Load(),
		}
		if q := t.quota; q != nil {
			ts.ThrottledDropped = q.throttled[throttleDropped].Load()
			ts.ThrottledRefused = q.throttled[throttleRefused].Load()
			ts.ThrottledWaited = q.throttled[throttleWaited].Load()
		}
		st.Tenants = append(st.Tenants, ts)
	})
	b.subs.status(&st)
	return st
}

func (e *executor) status() ExecutorStatus {
	s := &e.stats
	var sizes [ClaimSizes]uint64
	for i := range sizes {
		sizes[i] = s.publishedSizes[i].Load()
	}
	return ExecutorStatus{
		Shard:        e.id,
		Engine:       e.engineName(),
		Claims:       s.published[0].Load(),
		Claimed:      s.published[1].Load(),
		ClaimSizes:   sizes,
		Submits:      s.published[2].Load(),
		Ops:          s.published[3].Load(),
		Finished:     s.published[4].Load(),
		Failed:       s.published[5].Load(),
		Refused:      s.published[6].Load(),
		AckedDropped: s.acksBroken(),
		StorageFull:  s.published[7].Load(),
		Trimmed:      s.published[8].Load(),
		TrimmedBytes: s.published[9].Load(),
		TrimFailed:   s.published[10].Load(),
		Restarts:     s.published[11].Load(),
		Commits:      s.published[12].Load(),
		Queued:       s.queued.Load(),
		Admitted:     e.admission.Entered(),
		Waiting:      e.admission.Waiting(),
		Sched:        e.run.Stats(),
		Ring:         e.engineStats(),
		Disk:         e.disk.read(),
	}
}

// dropReason is why a publish that was acknowledged when it was queued failed later.
type dropReason uint8

const (
	dropStorage    dropReason = iota // the log failed
	dropOverloaded                   // the disk is full
	dropNotFound                     // the stream was deleted
	dropMoved                        // the shard is served elsewhere
	dropDraining                     // the broker stopped first
	dropOther
	dropReasons
)

var dropReasonNames = [dropReasons]string{"storage", "overloaded", "not_found", "shard_unavailable", "draining", "other"}

func (r dropReason) String() string { return dropReasonNames[r] }

func dropReasonOf(e *wire.Error) dropReason {
	switch e.Code {
	case wire.CodeStorage:
		return dropStorage
	case wire.CodeOverloaded:
		return dropOverloaded
	case wire.CodeNotFound:
		return dropNotFound
	case wire.CodeShardUnavailable:
		return dropMoved
	case wire.CodeDraining:
		return dropDraining
	}
	return dropOther
}

func (s *executorStats) acksBroken() map[string]uint64 {
	m := make(map[string]uint64, dropReasons)
	for r := range dropReasons {
		m[r.String()] = s.ackedDropped[r].Load()
	}
	return m
}

func (e *executor) engineName() string {
	if e.engine == nil {
		return ""
	}
	return e.engine.Name()
}

func (e *executor) engineStats() ring.Stats {
	if e.engine == nil {
		return ring.Stats{}
	}
	return e.engine.Stats()
}
