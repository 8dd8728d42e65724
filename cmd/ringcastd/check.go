package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// check returns every combination of settings that cannot work, each with the names of the
// settings it is about (OPS-8; broker.md 6.4).
func (l *Loaded) check() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	c := &l.Config

	l.checkAddresses(bad)
	l.checkFiles(bad)

	within := func(name string, v, low, high int64) {
		if v < low || v > high {
			bad("%s: %d is not in %d..%d", envName(name), v, low, high)
		}
	}
	const gib, day = 1 << 30, 24 * 3600 * 1000
	within("max-idle-timeout-ms", c.MaxIdleTimeout.V, 100, day)
	within("keepalive-ms", c.KeepAlive.V, 1, day)
	within("stream-window-bytes", c.StreamWindow.V, 64<<10, gib)
	within("conn-window-bytes", c.ConnWindow.V, 64<<10, 4*gib)
	within("quic-listeners", c.QUICListeners.V, 0, quicListenersMax)
	within("max-client-connections", c.MaxConns.V, 1, 1<<20)
	within("max-connections-per-ip", c.MaxConnsPerIP.V, 0, 1<<20)
	within("auth-timeout-ms", c.AuthTimeout.V, 0, day)
	within("preauth-max-frame-bytes", c.PreauthMaxFrame.V, 1<<10, 16<<20)
	within("preauth-max-streams-per-conn", c.PreauthStreams.V, 1, 1024)
	within("durable-fsync-interval-ms", c.FsyncInterval.V, 1, 3600*1000)
	within("durable-segment-bytes", c.SegmentBytes.V, 64<<10, 64*gib)
	within("durable-retention-seconds", c.RetentionSeconds.V, 0, 100*365*24*3600)
	within("durable-retention-interval-seconds", c.RetentionInterval.V, 1, 24*3600)
	within("core-shards", c.CoreShards.V, 0, 256)
	within("max-frame-bytes", c.MaxFrame.V, 64<<10, 16<<20)
	within("broker-publish-inflight-bytes", c.Inflight.V, 64<<10, 1<<40)
	within("broker-publish-conn-inflight-bytes", c.ConnInflight.V, 64<<10, 1<<40)
	within("broker-publish-conn-total-inflight-bytes", c.ConnTotal.V, 0, 1<<40)
	within("tenant-publish-bytes-per-sec", c.TenantBytes.V, 0, 1<<40)
	within("tenant-publish-msgs-per-sec", c.TenantMsgs.V, 0, 1<<40)
	within("tenant-publish-burst-ms", c.TenantBurst.V, 1, 3600*1000)
	within("broker-pub-queue-depth", c.QueueDepth.V, 1, 1<<20)
	within("broker-pub-workers-per-conn", c.QueueFactor.V, 1, 1024)
	within("publish-queue-wait-ms", c.QueueWait.V, 1, 3600*1000)
	within("ack-wait-timeout-ms", c.AckWait.V, 1, 3600*1000)
	within("sub-stall-timeout-ms", c.SubStall.V, 0, 3600*1000)
	within("broker-publish-window", c.PublishWindow.V, 0, 1<<16)
	within("ring-bytes", c.RingBytes.V, 64<<10, 64*gib)
	within("state-bytes", c.StateBytes.V, 64<<10, 1<<40)
	within("retained-bytes", c.RetainedBytes.V, 0, 1<<40)
	within("event-batch-max-delay-us", c.BatchDelay.V, 0, 1000*1000)
	within("subscriber-queue-capacity", c.SubQueue.V, 1, 1<<20)
	within("subscriber-queue-capacity-max", c.SubQueueMax.V, 1, 1<<20)
	within("subscriber-queue-bytes", c.SubQueueBytes.V, 64<<10, 64*gib)
	within("max-subscriptions-per-conn", c.MaxSubs.V, 1, 1<<20)
	within("max-subscriptions-per-conn-total", c.MaxSubsTotal.V, 1, 1<<22)
	within("event-batch-max-events", c.BatchEvents.V, 1, 1<<16)
	within("event-batch-max-bytes", c.BatchBytes.V, 1, 16<<20)
	within("shutdown-drain-timeout-ms", c.DrainTimeout.V, 1, 3600*1000)
	within("shutdown-predrain-ms", c.Predrain.V, 0, 3600*1000)
	within("drain-linger-ms", c.DrainLinger.V, 0, 60*1000)

	above := func(a string, av int64, b string, bv int64, why string) {
		if av > bv {
			bad("%s (%d) is above %s (%d): %s", envName(a), av, envName(b), bv, why)
		}
	}
	above("event-batch-max-bytes", c.BatchBytes.V, "max-frame-bytes", c.MaxFrame.V, "a batch would not fit a frame")
	above("preauth-max-frame-bytes", c.PreauthMaxFrame.V, "max-frame-bytes", c.MaxFrame.V, "a stranger would be allowed more than a client")
	above("broker-publish-conn-inflight-bytes", c.ConnInflight.V, "broker-publish-inflight-bytes", c.Inflight.V, "one identity would hold more than the process")
	if c.ConnTotal.V != 0 {
		above("broker-publish-conn-inflight-bytes", c.ConnInflight.V, "broker-publish-conn-total-inflight-bytes", c.ConnTotal.V, "one identity would hold more than its connection")
		above("broker-publish-conn-total-inflight-bytes", c.ConnTotal.V, "broker-publish-inflight-bytes", c.Inflight.V, "one connection would hold more than the process")
	}
	if _, err := parseQuotas(c.TenantQuotas.V); err != nil {
		bad("%s: %v", envName("tenant-publish-quotas"), err)
	}
	above("max-subscriptions-per-conn", c.MaxSubs.V, "max-subscriptions-per-conn-total", c.MaxSubsTotal.V, "one identity would hold more than its connection")
	above("subscriber-queue-capacity", c.SubQueue.V, "subscriber-queue-capacity-max", c.SubQueueMax.V, "the default is beyond the most")
	above("max-frame-bytes", c.MaxFrame.V, "conn-window-bytes", c.ConnWindow.V, "a frame would not fit a connection's window")
	above("drain-linger-ms", c.DrainLinger.V, "shutdown-drain-timeout-ms", c.DrainTimeout.V, "the budget would be all linger")
	if c.StreamWindow.V >= c.ConnWindow.V {
		bad("%s (%d) is not below %s (%d): one stalled stream would stop its connection",
			envName("stream-window-bytes"), c.StreamWindow.V, envName("conn-window-bytes"), c.ConnWindow.V)
	}
	return out
}

// checkAddresses judges where the broker may listen.
func (l *Loaded) checkAddresses(bad func(string, ...any)) {
	c := &l.Config
	quic, err := splitBind(c.QUICBind.V)
	if err != nil {
		bad("%s: %v", envName("quic-bind"), err)
	}
	if n := c.QUICListeners.V; err == nil && quic.port != 0 && int64(quic.port)+n-1 > portMax {
		bad("%s: %d consecutive ports from %d on pass %d (%s)", envName("quic-listeners"), n, quic.port, portMax, envName("quic-bind"))
	}
	http, err := splitBind(c.HTTPBind.V)
	if err != nil {
		bad("%s: %v", envName("http-bind"), err)
	}
	if l.Dev.V {
		if quic.host != "" && !quic.loopback() {
			bad("%s %s is not a loopback address: %s has a development key, it serves this machine only", envName("quic-bind"), c.QUICBind.V, envName("dev"))
		}
		if http.host != "" && !http.loopback() {
			bad("%s %s is not a loopback address: %s serves this machine only", envName("http-bind"), c.HTTPBind.V, envName("dev"))
		}
	} else if http.host != "" && !http.loopback() && c.HTTPTLSCert.V == "" && !c.HTTPInsecure.V {
		bad("%s %s is beyond loopback without TLS: set %s and %s, or %s=true if something else protects it",
			envName("http-bind"), c.HTTPBind.V, envName("http-tls-cert"), envName("http-tls-key"), envName("http-insecure"))
	}
}

// checkFiles judges what must be there before the broker starts.
func (l *Loaded) checkFiles(bad func(string, ...any)) {
	c := &l.Config
	pair := func(a, av, b, bv string) {
		if (av == "") != (bv == "") {
			bad("%s and %s: one is set without the other", envName(a), envName(b))
		}
	}
	pair("tls-cert", c.TLSCert.V, "tls-key", c.TLSKey.V)
	pair("http-tls-cert", c.HTTPTLSCert.V, "http-tls-key", c.HTTPTLSKey.V)
	for name, file := range map[string]string{
		"tls-cert": c.TLSCert.V, "tls-key": c.TLSKey.V, "http-tls-cert": c.HTTPTLSCert.V,
		"http-tls-key": c.HTTPTLSKey.V, "tls-client-ca": c.TLSClientCA.V,
	} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			bad("%s: %v", envName(name), err)
		}
	}
	if !l.Dev.V {
		if c.TLSCert.V == "" {
			bad("%s and %s: the client listener needs a certificate (%s generates one for this machine)", envName("tls-cert"), envName("tls-key"), envName("dev"))
		}
	} else if c.DataDir.V == "" {
		bad("%s: %s needs a data directory for its keys", envName("data-dir"), envName("dev"))
	}
	if j := c.JWKS.V; strings.Contains(j, "://") {
		u, err := url.Parse(j)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			bad("%s: not an http or https URL", envName("jwks"))
		case !strings.Contains(j, "{tenant}"):
			bad("%s: the URL has no {tenant} in it", envName("jwks"))
		}
	} else if j != "" {
		if _, err := os.Stat(j); err != nil {
			bad("%s: %v", envName("jwks"), err)
		}
	}
}

// Bounds of quic-listeners: one beyond half the CPUs only costs, and ports end.
const (
	quicListenersMax     = 64
	quicListenersDerived = 4
	portMax              = 1<<16 - 1
)

// quicListeners is how many client listeners there are to be: what was said, or half of the usable
// CPUs, at most 4, of which fewer will do where ports are taken (broker.md 3.2).
func (l *Loaded) quicListeners(cpus int) (n int, fewer bool) {
	if n := l.QUICListeners.V; n > 0 {
		return int(n), false
	}
	return max(1, min(cpus/2, quicListenersDerived)), true
}

// bind is a listening address.
type bind struct {
	host string
	port uint16
}

func splitBind(s string) (bind, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return bind{}, fmt.Errorf("%q is not HOST:PORT", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return bind{}, fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return bind{host, uint16(n)}, nil
}

// loopback says whether only this machine can reach the address. A name is taken for what it says:
// localhost is loopback, any other name is not.
func (b bind) loopback() bool {
	if b.host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(b.host)
	return err == nil && a.IsLoopback()
}
