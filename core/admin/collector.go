package admin

import (
	"sort"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
)

// tenantsMax is how many tenants get a label of their own; the others are added up under
// tenantOverflow (broker.md 6.2).
const (
	tenantsMax     = 100
	tenantOverflow = "_overflow"
)

// collector turns snapshots into metrics when it is asked, so that nothing is counted twice and no
// counter is written for metrics alone. Labels come from closed sets; streams, peers and error
// texts are never labels.
type collector struct{ s *Server }

// Describe sends nothing: which metrics there are is told by Collect.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of now.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	e.gauge(readyState, boolValue(c.s.ready()))
	e.gauge(drainDuration, float64(c.s.drainMS.Load()))
	for name, n := range c.s.drainForced.all() {
		e.count(drainForced, n, name)
	}
	v := c.s.services.Load()
	if v == nil {
		return
	}
	st := v.Broker.Status()
	c.broker(e, &st)
	c.storage(e, &st)
	c.sessions(e, v.Sessions())
	c.listeners(e, v)
	c.auth(e, v)
	cs := v.Cache.Stats()
	e.gauge(cacheEntries, float64(cs.Entries))
	e.gauge(cacheBytes, float64(cs.Bytes))
	e.count(cacheReads, cs.Hits, "hit")
	e.count(cacheReads, cs.Misses, "miss")
	e.count(cacheWrites, cs.Puts, "put")
	e.count(cacheWrites, cs.Deletes, "delete")
	e.count(cacheRemoved, cs.Expired, "expired")
	e.count(cacheRemoved, cs.Evicted, "evicted")
}

// broker is what core counts: publishes, tenants, subscribers, memory.
func (c *collector) broker(e emitter, st *core.Status) {
	var finished, failed, refused, claimed, restarts, commits uint64
	var claims [core.ClaimSizes]uint64
	var queued, waiting int64
	acked := map[string]uint64{}
	for _, x := range st.Executors {
		finished, failed, refused = finished+x.Finished, failed+x.Failed, refused+x.Refused
		claimed, restarts = claimed+x.Claimed, restarts+x.Restarts
		for i, n := range x.ClaimSizes {
			claims[i] += n
		}
		queued, waiting = queued+x.Queued, waiting+x.Waiting
		for reason, n := range x.AckedDropped {
			acked[reason] += n
		}
		commits += x.Commits
		e.count(executorSteps, x.Sched.Steps, shardLabel(x.Shard))
		e.count(executorParks, x.Sched.Parks, shardLabel(x.Shard))
		e.count(executorYields, x.Sched.Yields, shardLabel(x.Shard))
		e.gauge(executorPinned, boolValue(x.Sched.Pinned), shardLabel(x.Shard))
	}
	e.count(publishRequests, finished-failed-refused, "ok")
	e.count(publishRequests, failed, "failed")
	e.count(publishRequests, refused, "refused")
	e.gauge(ingressDepth, float64(queued))
	e.gauge(ingressWaiting, float64(waiting))
	e.count(ingressParked, st.Parked)
	for reason, n := range acked {
		e.count(ackedDropped, n, reason)
	}
	e.histogram(claimJobs, append(claims[:], 0), powers, float64(claimed)) // none is larger
	e.count(workerRestarts, restarts)
	e.gauge(inflightRequests, float64(st.Outstanding))
	e.gauge(inflightBytes, float64(st.InflightBytes))
	e.gauge(retainedBytes, float64(st.RetainedBytes))
	e.gauge(stateBytes, float64(st.StateBytes))
	e.count(commitsDone, commits)
	e.gauge(subscriptionsOpen, float64(st.Subscriptions))
	e.count(deliveredRecords, st.DeliveredRecords)
	e.count(deliveredBytes, st.DeliveredBytes)
	e.count(subDropped, st.DroppedBatches)
	e.gauge(streamsDefined, float64(st.Streams))
	e.gauge(cachesDefined, float64(st.Caches))
	e.gauge(poolInUse, float64(st.Pool.InUse))
	e.gauge(poolInUseBytes, float64(st.Pool.InUseBytes))
	e.gauge(poolFreeBytes, float64(st.Pool.PooledBytes))
	e.count(poolGets, st.Pool.Gets)
	e.count(poolMisses, st.Pool.Misses)

	tenants := st.Tenants
	sort.Slice(tenants, func(i, j int) bool {
		a, b := &tenants[i], &tenants[j]
		if a.PublishedBytes != b.PublishedBytes {
			return a.PublishedBytes > b.PublishedBytes
		}
		return a.Tenant < b.Tenant
	})
	var bytes, dropped uint64
	sums := make(map[string]*core.TenantStatus)
	for i, t := range tenants {
		name := t.Tenant
		if i >= tenantsMax {
			name = tenantOverflow
		}
		x := sums[name]
		if x == nil {
			x = &core.TenantStatus{}
			sums[name] = x
		}
		x.Add(&t)
		bytes, dropped = bytes+t.PublishedBytes, dropped+t.DroppedQueueFull
	}
	for name, x := range sums {
		e.count(tenantMessages, x.PublishedRecords, name)
		e.count(tenantBytes, x.PublishedBytes, name)
		e.count(tenantQueueFull, x.DroppedQueueFull, name, "dropped")
		e.count(tenantQueueFull, x.RefusedQueueFull, name, "refused")
		e.count(tenantQueueFull, x.WithdrawnQueueFull, name, "withdrawn")
		e.count(tenantThrottled, x.ThrottledDropped, name, "dropped")
		e.count(tenantThrottled, x.ThrottledRefused, name, "refused")
		e.count(tenantThrottled, x.ThrottledWaited, name, "waited")
		e.count(tenantLost, x.Lost, name)
	}
	e.count(publishBytes, bytes)
	e.count(ingressDropped, dropped)
}

// storage is what the engines count, and which engine runs.
func (c *collector) storage(e emitter, st *core.Status) {
	e.gauge(failedShards, float64(st.FailedShards))
	if st.Engine == "" {
		return
	}
	for _, name := range [...]string{"portable", "uring", "uring-direct"} {
		e.gauge(storageEngine, boolValue(name == st.Engine), name)
	}
	e.gauge(storageLogBytes, float64(st.LogBytes))
	c.logs(e, &st.Storage)
	e.gauge(engineFallback, boolValue(st.EngineReason != ""))
	for _, x := range st.Executors {
		shard := shardLabel(x.Shard)
		e.count(storageSubmits, x.Ring.Submits, shard)
		e.count(storageOps, x.Ring.Ops, shard)
		e.count(storageBytes, x.Ring.Bytes, shard)
		e.count(storageSyncs, x.Ring.Syncs, shard)
		e.count(storageErrors, x.Ring.Errors, shard)
		e.count(storageShort, x.Ring.ShortWrites, shard)
		e.count(storageRetries, x.Ring.Retries, shard)
		e.count(storageOverflows, x.Ring.Overflows, shard)
		e.count(storageFull, x.StorageFull, shard)
		e.histogram(storageDisk, x.Disk.Counts[:], func(i int) float64 { return (core.DiskTimeBase << i).Seconds() }, x.Disk.Sum.Seconds(), shard)
		e.count(retentionSegments, x.Trimmed, shard)
		e.count(retentionBytes, x.TrimmedBytes, shard)
		e.count(retentionErrors, x.TrimFailed, shard)
	}
}

// logs is what the logs of all shards count together.
func (c *collector) logs(e emitter, st *core.StorageStatus) {
	l := &st.Logs
	e.count(storageAppends, l.Entries)
	e.count(storageRecords, l.Records)
	e.histogram(storageGroups, l.GroupEntries[:], powers, float64(l.Entries))
	e.gauge(storageUnsynced, float64(st.Unsynced))
	e.count(storageRolls, l.Rolls)
	e.count(storageFailures, l.FailedWrites)
	e.count(storageFiles, l.OpenErrors, "open")
	e.count(storageFiles, l.IndexErrors, "index")
	e.count(storageFiles, l.MarkErrors, "mark")
	e.count(storageFiles, l.CheckpointErrors, "checkpoint")
	e.count(storageFiles, l.ExtendErrors, "extend")
	e.count(storagePreWritten, l.PreWritten)
	e.count(storageOutran, l.Outran)
	e.count(storageRecycled, l.Recycled)
	e.gauge(storageRecovery, st.Recovery.Seconds())
	e.gauge(storageTruncated, float64(st.RecoveryTruncated))
}

func (c *collector) sessions(e emitter, s Sessions) {
	e.gauge(sessionConns, float64(s.ConnsOpen))
	e.gauge(sessionStreams, float64(s.StreamsOpen))
	e.gauge(sessionSubs, float64(s.SubscriptionsOpen))
	e.count(sessionConnsTotal, s.Conns)
	e.count(sessionStreamsTotal, s.Streams)
	e.count(sessionSubsTotal, s.Subscriptions)
	e.count(sessionAuth, s.AuthOK, "ok")
	e.count(sessionAuth, s.AuthFailed, "failed")
	e.count(sessionAuth, s.AuthDraining, "draining")
	e.count(authTimeouts, s.AuthTimeouts, "connection")
	e.count(authTimeouts, s.StreamAuthTimeouts, "stream")
	e.count(sessionForbidden, s.Forbidden)
	e.count(sessionUnsupported, s.Unsupported)
	e.count(jsonPublishes, s.JSONPublishes)
	e.count(unackedLost, s.UnackedLost)
	e.count(ackTimeouts, s.AckTimeouts)
	e.count(ackLate, s.LateOutcomes)
	e.count(ackOverdue, s.Overdue)
	e.count(subsRefused, s.SubscriptionsRefused)
	for reason, n := range s.BadInput {
		e.count(badInput, n, reason)
	}
	for cause, n := range s.SubscriptionEnds {
		e.count(subDisconnect, n, cause)
	}
}

func (c *collector) listeners(e emitter, v *Services) {
	var conns, perIP, handshakes, stopped, accepted, drops, sendErrors, gsoErrors uint64
	var unfinished int
	for i, l := range v.Listeners() {
		conns, perIP = conns+l.RefusedConns, perIP+l.RefusedPerIP
		handshakes, stopped = handshakes+l.RefusedHandshakes, stopped+l.RefusedStopped
		accepted, unfinished = accepted+l.Accepted, unfinished+l.Handshakes
		drops, sendErrors, gsoErrors = drops+l.Socket.ReceiveDrops, sendErrors+l.Socket.SendErrors, gsoErrors+l.Socket.GSOErrors
		e.gauge(socketGSO, boolValue(l.Socket.GSO), shardLabel(i))
		e.gauge(socketBuffer, float64(l.Socket.ReceiveBuffer), shardLabel(i), "receive")
		e.gauge(socketBuffer, float64(l.Socket.SendBuffer), shardLabel(i), "send")
	}
	e.count(connsRefused, conns, "connections")
	e.count(connsRefused, perIP, "per_ip")
	e.count(connsRefused, handshakes, "handshakes")
	e.count(connsRefused, stopped, "draining")
	e.count(connsAccepted, accepted)
	e.gauge(handshakesOpen, float64(unfinished))
	e.count(socketDrops, drops)
	e.count(socketSendErrors, sendErrors)
	e.count(socketGSOErrors, gsoErrors)
}

func (c *collector) auth(e emitter, v *Services) {
	st := v.Verifier.Stats()
	e.count(tokensVerified, st.Verified)
	for reason, n := range st.Refused {
		e.count(tokensRefused, n, auth.Reason(reason).String())
	}
}
