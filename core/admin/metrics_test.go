package admin

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/ringcast/ringcast/core"
)

// The names that dashboards of the reference use exist with our prefix (broker.md 6.5), and the new
// ones follow the naming rule.
func TestMetricsKeepTheirNames(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable"}).attach()
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/secret-stream", r.all(), `{}`), http.StatusCreated, "")
	r.Drained(1500*time.Millisecond, "sessions")
	a := r.do("GET", "/metrics", "", "")
	r.want(a, http.StatusOK, "")
	for _, want := range []string{
		`ringcast_ready_state 1`, `ringcast_drain_duration_ms 1500`, `ringcast_drain_forced_total{subsystem="sessions"} 1`,
		`ringcast_publish_requests_total{result="ok"} 0`, `ringcast_publish_bytes_total 0`, `ringcast_broker_ingress_queue_depth 0`,
		`ringcast_broker_ingress_dropped_total 0`, `ringcast_broker_acked_publishes_dropped_total{reason="storage"} 0`,
		`ringcast_broker_ingress_parked_total 0`, `ringcast_broker_ingress_waiting 0`,
		`ringcast_tenant_publish_queue_full_total{action="withdrawn",tenant="t1"} 0`, `ringcast_tenant_publish_lost_total{tenant="t1"} 0`,
		`ringcast_tenant_publish_throttled_total{action="refused",tenant="t1"} 0`,
		`ringcast_broker_publish_claim_jobs_count 0`, `ringcast_broker_publish_claim_jobs_bucket{le="64"} 0`,
		`ringcast_broker_publish_worker_restarts_total 0`, `ringcast_broker_json_publishes_total 0`, `ringcast_inflight_requests 0`,
		`ringcast_tenant_published_messages_total{tenant="t1"} 0`, `ringcast_tenant_publish_queue_full_total{action="dropped",tenant="t1"} 0`,
		`ringcast_sub_queue_dropped_total 0`, `ringcast_sub_connection_subscribers 0`, `ringcast_subscriber_disconnect_total{cause="reader"} 1`,
		`ringcast_storage_engine{engine="portable"} 1`, `ringcast_storage_engine{engine="uring"} 0`, `ringcast_storage_engine{engine="uring-direct"} 0`,
		`ringcast_storage_engine_fallback 0`,
		`ringcast_storage_log_bytes 0`, `ringcast_storage_retention_segments_total{shard="0"} 0`,
		`ringcast_storage_retention_bytes_total{shard="0"} 0`, `ringcast_storage_retention_failures_total{shard="0"} 0`,
		`ringcast_storage_appends_total 0`, `ringcast_storage_append_records_total 0`, `ringcast_storage_sync_batch_appends_count 0`,
		`ringcast_storage_sync_duration_seconds_count{shard="0"} 0`, `ringcast_storage_unsynced_records 0`, `ringcast_storage_segment_roll_total 0`,
		`ringcast_storage_file_failures_total{what="checkpoint"} 0`, `ringcast_storage_recovery_truncated_bytes 0`, `ringcast_storage_recovery_duration_seconds`,
		`ringcast_storage_sync_total{shard="0"}`, `ringcast_storage_full_total{shard="0"} 0`,
		`ringcast_quic_connections_refused_total{reason="per_ip"} 2`, `ringcast_quic_auth_timeout_total{what="connection"} 0`,
		`ringcast_serve_bad_input_total{reason="magic"} 7`, `ringcast_serve_connections 3`, `ringcast_wire_bufs`, `go_goroutines`, `process_open_fds`,
	} {
		if !strings.Contains(a.text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(a.text, "secret-stream") {
		t.Error("a stream's name is in the metrics")
	}
	problems, err := promlint.New(strings.NewReader(ours(a.text))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Metric == "ringcast_drain_duration_ms" {
			continue // a name of the reference
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// ours keeps the lines about our own metrics.
func ours(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ringcast_") || strings.HasPrefix(line, "# HELP ringcast_") || strings.HasPrefix(line, "# TYPE ringcast_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// A label comes from a closed set: a tenant's name at most tenantsMax times, then one for the rest.
func TestTenantLabelsAreCapped(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	for i := range tenantsMax + 20 {
		def := core.StreamDef{Tenant: fmt.Sprintf("tenant-%03d", i), Namespace: "n", Stream: "s"}
		if _, _, err := r.broker.CreateStream(def); err != nil {
			t.Fatal(err)
		}
	}
	a := r.do("GET", "/metrics", "", "")
	r.want(a, http.StatusOK, "")
	n := len(regexp.MustCompile(`ringcast_tenant_published_bytes_total\{`).FindAllString(a.text, -1))
	if n != tenantsMax+1 || !strings.Contains(a.text, `{tenant="_overflow"}`) {
		t.Errorf("%d tenants have a label, want %d and the overflow", n, tenantsMax)
	}
}

// Two scrapes at once give the same kind of answer and disturb nobody.
func TestCollectorIsConsistent(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&collector{s: r.Server})
	for range 3 {
		if _, err := reg.Gather(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRatesAreDifferencesOverTime(t *testing.T) {
	var r rates
	at := time.Unix(1000, 0)
	if diff := cmp.Diff(perSecond{}, r.of(totals{PublishedRecords: 10}, at)); diff != "" {
		t.Errorf("first look: %s", diff)
	}
	got := r.of(totals{PublishedRecords: 110, PublishedBytes: 50, DroppedBatches: 4}, at.Add(2*time.Second))
	if diff := cmp.Diff(perSecond{PublishedRecords: 50, PublishedBytes: 25, DroppedBatches: 2, OverSeconds: 2}, got); diff != "" {
		t.Error(diff)
	}
	if again := r.of(totals{PublishedRecords: 111}, at.Add(2500*time.Millisecond)); again != got {
		t.Errorf("a look soon after: %v, want the same", again)
	}
	if later := r.of(totals{PublishedRecords: 510}, at.Add(6*time.Second)); later.PublishedRecords != 100 || later.OverSeconds != 4 {
		t.Errorf("later: %v", later)
	}
}

func TestWorstReadersComeFirst(t *testing.T) {
	var subs []core.SubscriptionInfo
	for i := range laggingMax + 10 {
		subs = append(subs, core.SubscriptionInfo{ID: uint64(i), Position: 100, Tail: 100 + uint64(i)})
	}
	subs = append(subs, core.SubscriptionInfo{ID: 999, Position: 5, Tail: 5, Dropped: 3}, core.SubscriptionInfo{ID: 1000, Position: 7, Tail: 5})
	list := lagging(subs)
	if len(list) != laggingMax || list[0].ID != laggingMax+9 || list[0].Lag != laggingMax+9 {
		t.Errorf("%d readers, the first %+v", len(list), list[0])
	}
	if got := lagging(subs[:1]); len(got) != 0 {
		t.Errorf("a reader that is not behind is listed: %v", got)
	}
}
