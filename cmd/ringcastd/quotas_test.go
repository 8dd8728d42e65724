package main

import (
	"io"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/core"
)

// broker.md 1.8: quotas of single tenants are read from one line and reach the broker; a line that does
// not say what it means refuses the start.
func TestTenantQuotasAreRead(t *testing.T) {
	l, err := load(t, "", map[string]string{
		"RINGCAST_TENANT_PUBLISH_BYTES_PER_SEC": "1MiB", "RINGCAST_TENANT_PUBLISH_MSGS_PER_SEC": "500",
		"RINGCAST_TENANT_PUBLISH_QUOTAS": "a:4MiB:0, b:0:10", "RINGCAST_TENANT_PUBLISH_BURST_MS": "250",
		"RINGCAST_BROKER_PUBLISH_CONN_TOTAL_INFLIGHT_BYTES": "20MiB",
	}, "--dev")
	if err != nil {
		t.Fatal(err)
	}
	o := coreOptions(l, 0, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	want := map[string]core.TenantQuota{"a": {BytesPerSec: 4 << 20}, "b": {MsgsPerSec: 10}}
	if diff := cmp.Diff(want, o.TenantPublishQuotas); diff != "" {
		t.Error(diff)
	}
	if want := (core.TenantQuota{BytesPerSec: 1 << 20, MsgsPerSec: 500}); o.TenantPublishQuota != want {
		t.Errorf("%+v", o.TenantPublishQuota)
	}
	if o.TenantPublishBurst.Milliseconds() != 250 || o.PublishConnTotalInflightBytes != 20<<20 {
		t.Errorf("burst %v, connection %d", o.TenantPublishBurst, o.PublishConnTotalInflightBytes)
	}
	for _, text := range []string{"a", "a:1", ":1:2", "a:x:1", "a:1:x", "a:-1:1", "a:1:-1", "a:1:1,", "a:1:1,a:2:2", "a:1:1:1", "a:2048GiB:1"} {
		if q, err := parseQuotas(text); err == nil {
			t.Errorf("%q was read as %v", text, q)
		}
	}
}
