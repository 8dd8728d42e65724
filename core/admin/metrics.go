package admin

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// The metrics of this version. Names that the reference has are kept, with ringcast_ in place of
// its prefix (broker.md 6.5); the others are ringcast_PACKAGE_NOUN_UNIT. A "shard" label is a core
// shard.
var (
	readyState    = desc("ringcast_ready_state", "1 while the broker takes traffic.")
	drainDuration = desc("ringcast_drain_duration_ms", "How long the drain took; 0 before it.")
	drainForced   = desc("ringcast_drain_forced_total", "Drains of a part that were cut short: work was lost.", "subsystem")

	publishRequests  = desc("ringcast_publish_requests_total", "Publishes answered, by outcome.", "result")
	publishBytes     = desc("ringcast_publish_bytes_total", "Payload bytes published.")
	ingressDepth     = desc("ringcast_broker_ingress_queue_depth", "Publishes in lanes, waiting for their claim.")
	ingressWaiting   = desc("ringcast_broker_ingress_waiting", "Publishes that wait for room in a queue.")
	ingressParked    = desc("ringcast_broker_ingress_parked_total", "Publishes that waited for room in a queue while their stream was read on.")
	ingressDropped   = desc("ringcast_broker_ingress_dropped_total", "Unacknowledged publishes dropped because a queue was full.")
	ackedDropped     = desc("ringcast_broker_acked_publishes_dropped_total", "Publishes that were acknowledged when queued and failed later.", "reason")
	claimJobs        = desc("ringcast_broker_publish_claim_jobs", "Publishes per claim.")
	workerRestarts   = desc("ringcast_broker_publish_worker_restarts_total", "Panics that were recovered from while publishes were handled: must stay 0.")
	jsonPublishes    = desc("ringcast_broker_json_publishes_total", "Publishes in JSON.")
	inflightRequests = desc("ringcast_inflight_requests", "Accepted publishes without an outcome.")
	inflightBytes    = desc("ringcast_core_publish_inflight_bytes", "Payload bytes of accepted publishes without an outcome.")
	retainedBytes    = desc("ringcast_core_ring_bytes", "Frame memory that the replay rings keep alive.")
	stateBytes       = desc("ringcast_core_state_bytes", "Memory of the keyed states that atomic commits have made, as far as they were asked for.")
	commitsDone      = desc("ringcast_core_commits_total", "Atomic commits made visible.")
	streamsDefined   = desc("ringcast_core_streams", "Streams in the catalogue.")
	cachesDefined    = desc("ringcast_core_caches", "Caches in the catalogue.")

	tenantMessages  = desc("ringcast_tenant_published_messages_total", "Records published.", "tenant")
	tenantBytes     = desc("ringcast_tenant_published_bytes_total", "Payload bytes published.", "tenant")
	tenantQueueFull = desc("ringcast_tenant_publish_queue_full_total", "Publishes that found no room.", "tenant", "action")
	tenantThrottled = desc("ringcast_tenant_publish_throttled_total", "Publishes over the tenant's quota.", "tenant", "action")
	tenantLost      = desc("ringcast_tenant_publish_lost_total", "Unacknowledged publishes that failed for another reason than room or quota: unknown stream, failed log, drain.", "tenant")

	subscriptionsOpen = desc("ringcast_sub_connection_subscribers", "Open subscriptions.")
	deliveredRecords  = desc("ringcast_sub_delivered_records_total", "Records delivered to subscriptions.")
	deliveredBytes    = desc("ringcast_sub_delivered_bytes_total", "Bytes delivered to subscriptions.")
	subDropped        = desc("ringcast_sub_queue_dropped_total", "Deliveries (batches) dropped at a subscriber's full queue.")
	subDisconnect     = desc("ringcast_subscriber_disconnect_total", "Subscriptions ended, by cause.", "cause")
	subsRefused       = desc("ringcast_serve_subscriptions_refused_total", "Subscriptions refused by a limit.")

	executorSteps  = desc("ringcast_sched_steps_total", "Turns of an executor.", "shard")
	executorParks  = desc("ringcast_sched_parks_total", "Times an executor went to sleep.", "shard")
	executorYields = desc("ringcast_sched_yields_total", "Times an executor gave the processor to others.", "shard")
	executorPinned = desc("ringcast_sched_pinned", "1 while the executor is bound to a CPU.", "shard")

	failedShards     = desc("ringcast_storage_failed_shards", "Shards whose log failed for good; a restart is needed.")
	storageEngine    = desc("ringcast_storage_engine", "1 for the append engine that runs.", "engine")
	engineFallback   = desc("ringcast_storage_engine_fallback", "1 if the engine that runs is not the preferred one; /v1/status says why.")
	storageSubmits   = desc("ringcast_storage_submit_total", "Calls that started disk operations.", "shard")
	storageOps       = desc("ringcast_storage_ops_total", "Disk operations ended.", "shard")
	storageBytes     = desc("ringcast_storage_written_bytes_total", "Bytes written to logs.", "shard")
	storageSyncs     = desc("ringcast_storage_sync_total", "Syncs that succeeded.", "shard")
	storageErrors    = desc("ringcast_storage_op_failures_total", "Disk operations that failed.", "shard")
	storageShort     = desc("ringcast_storage_short_writes_total", "Writes that had to be continued.", "shard")
	storageRetries   = desc("ringcast_storage_retries_total", "Interrupted operations that were tried again.", "shard")
	storageOverflows = desc("ringcast_storage_ring_overflows_total", "Completion queue overflows.", "shard")
	storageFull      = desc("ringcast_storage_full_total", "Publishes refused because the disk was full.", "shard")

	storageAppends    = desc("ringcast_storage_appends_total", "Publishes committed to logs.")
	storageRecords    = desc("ringcast_storage_append_records_total", "Records committed to logs.")
	storageGroups     = desc("ringcast_storage_sync_batch_appends", "Publishes per write of a log; under on_commit each write is one sync.")
	storageDisk       = desc("ringcast_storage_sync_duration_seconds", "Time of disk operations until their executor has taken the end.", "shard")
	storageUnsynced   = desc("ringcast_storage_unsynced_records", "Committed records that no sync covers yet.")
	storageRolls      = desc("ringcast_storage_segment_roll_total", "Segments that were begun.")
	storageFailures   = desc("ringcast_storage_write_failures_total", "Groups whose write failed.")
	storageFiles      = desc("ringcast_storage_file_failures_total", "File work of logs that failed and is tried again.", "what")
	storagePreWritten = desc("ringcast_storage_prewritten_bytes_total", "Zeros written ahead of the logs' tails.")
	storageOutran     = desc("ringcast_storage_prewrite_outrun_total", "Segments that were filled faster than zeros could be written ahead.")
	storageRecycled   = desc("ringcast_storage_recycled_segments_total", "Retired segments whose files were kept for new ones.")
	storageRecovery   = desc("ringcast_storage_recovery_duration_seconds", "Time that opening the logs took at the start.")
	storageTruncated  = desc("ringcast_storage_recovery_truncated_bytes", "Bytes of unfinished writes that were cut off logs at the start.")
	storageLogBytes   = desc("ringcast_storage_log_bytes", "Bytes of the logs that can be read.")
	retentionSegments = desc("ringcast_storage_retention_segments_total", "Segments deleted by retention.", "shard")
	retentionBytes    = desc("ringcast_storage_retention_bytes_total", "Bytes deleted by retention.", "shard")
	retentionErrors   = desc("ringcast_storage_retention_failures_total", "Deletions by retention that failed and are tried again.", "shard")

	sessionConns        = desc("ringcast_serve_connections", "Open client connections.")
	sessionStreams      = desc("ringcast_serve_streams", "Open client streams.")
	sessionSubs         = desc("ringcast_serve_event_streams", "Open event streams.")
	sessionConnsTotal   = desc("ringcast_serve_connections_total", "Client connections since the start.")
	sessionStreamsTotal = desc("ringcast_serve_streams_total", "Client streams since the start.")
	sessionSubsTotal    = desc("ringcast_serve_event_streams_total", "Event streams since the start.")
	sessionAuth         = desc("ringcast_serve_auth_total", "Authentications of streams, by outcome.", "result")
	authTimeouts        = desc("ringcast_quic_auth_timeout_total", "Connections and streams given up because nobody authenticated.", "what")
	sessionForbidden    = desc("ringcast_serve_forbidden_total", "Requests refused for a missing permission or another tenant.")
	sessionUnsupported  = desc("ringcast_serve_unsupported_total", "Requests of a kind that this version does not serve.")
	unackedLost         = desc("ringcast_serve_unacked_lost_total", "Unacknowledged publishes dropped before a queue: unknown stream, bad shard, drain.")
	ackTimeouts         = desc("ringcast_serve_ack_timeout_total", "Publishes answered unacknowledged because their outcome took too long.")
	ackLate             = desc("ringcast_serve_ack_late_total", "Outcomes that came after that answer.")
	ackOverdue          = desc("ringcast_serve_ack_overdue_total", "Streams ended because their answers stood still.")
	badInput            = desc("ringcast_serve_bad_input_total", "Malformed input, by kind.", "reason")

	connsRefused     = desc("ringcast_quic_connections_refused_total", "Connections refused in the handshake.", "reason")
	connsAccepted    = desc("ringcast_quic_connections_accepted_total", "Connections whose handshake was finished.")
	handshakesOpen   = desc("ringcast_quic_handshakes", "Unfinished handshakes.")
	socketDrops      = desc("ringcast_netio_receive_dropped_total", "Datagrams dropped by the kernel because the receive buffer was full.")
	socketSendErrors = desc("ringcast_netio_send_errors_total", "Sends that failed and were treated as packet loss.")
	socketGSOErrors  = desc("ringcast_netio_gso_errors_total", "Segmented sends that the kernel or a device refused.")
	socketGSO        = desc("ringcast_netio_gso", "1 while segmentation offload is used.", "listener")
	socketBuffer     = desc("ringcast_netio_socket_buffer_bytes", "Socket buffers as the kernel gave them.", "listener", "direction")

	tokensVerified = desc("ringcast_auth_verified_total", "Tokens accepted.")
	tokensRefused  = desc("ringcast_auth_refused_total", "Tokens refused, by reason.", "reason")

	cacheEntries = desc("ringcast_cache_entries", "Entries of all caches.")
	cacheBytes   = desc("ringcast_cache_bytes", "Memory of all caches.")
	cacheReads   = desc("ringcast_cache_reads_total", "Cache reads, by outcome.", "result")
	cacheWrites  = desc("ringcast_cache_writes_total", "Cache writes.", "kind")
	cacheRemoved = desc("ringcast_cache_removed_total", "Entries that went away by themselves, by cause.", "cause")

	poolInUse      = desc("ringcast_wire_bufs", "Frame buffers handed out.")
	poolInUseBytes = desc("ringcast_wire_buf_bytes", "Memory of frame buffers handed out.")
	poolFreeBytes  = desc("ringcast_wire_buf_free_bytes", "Memory of frame buffers waiting to be used again.")
	poolGets       = desc("ringcast_wire_buf_gets_total", "Frame buffers handed out since the start.")
	poolMisses     = desc("ringcast_wire_buf_misses_total", "Of those, newly allocated.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// emitter sends values of a moment.
type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) count(d *prometheus.Desc, v uint64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// histogram sends counts of disjoint buckets; bounds are the upper ones of all but the last.
func (e emitter) histogram(d *prometheus.Desc, counts []uint64, bounds func(i int) float64, sum float64, labels ...string) {
	buckets := make(map[float64]uint64, len(counts))
	var n uint64
	for i, c := range counts {
		n += c
		if i < len(counts)-1 {
			buckets[bounds(i)] = n
		}
	}
	e.ch <- prometheus.MustNewConstHistogram(d, n, sum, buckets, labels...)
}

// powers are the bounds 1, 2, 4 ... of a histogram.
func powers(i int) float64 { return float64(uint(1) << i) }

func shardLabel(n int) string { return strconv.Itoa(n) }

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
