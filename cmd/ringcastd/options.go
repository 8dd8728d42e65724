package main

import (
	"log/slog"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/admin"
	"github.com/ringcast/ringcast/core/serve"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/netio"
)

func ms(n Num) time.Duration { return time.Duration(n.V) * time.Millisecond }

// orOff turns a 0 that means "off" into the negative number that means it below, where 0 is the
// default.
func orOff[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

func coreOptions(l *Loaded, memory int64, lg *slog.Logger) core.Options {
	retained := l.RetainedBytes.V
	if retained == 0 {
		retained = max(memory/4, 256<<20)
	}
	mode, _ := log.ParseFsyncMode(l.FsyncMode.V) // the word was checked
	quotas, _ := parseQuotas(l.TenantQuotas.V)   // the text was checked
	return core.Options{
		DataDir: l.DataDir.V, Engine: l.StorageEngine.V,
		CoreShards: int(l.CoreShards.V), CorePin: l.CorePin.V,
		AutoCreate: l.AutoCreate.V, FsyncMode: mode, FsyncInterval: ms(l.FsyncInterval), SegmentBytes: l.SegmentBytes.V,
		NoPreallocate:        !l.Preallocate.V,
		RetentionBytes:       l.RetentionBytes.V,
		RetentionAge:         time.Duration(l.RetentionSeconds.V) * time.Second,
		RetentionInterval:    time.Duration(l.RetentionInterval.V) * time.Second,
		RepairChecksumTail:   l.RepairTail.V,
		VerifyAllOnOpen:      l.VerifyAll.V,
		PublishInflightBytes: l.Inflight.V, PublishConnInflightBytes: l.ConnInflight.V, PublishConnTotalInflightBytes: l.ConnTotal.V,
		TenantPublishQuota:  core.TenantQuota{BytesPerSec: l.TenantBytes.V, MsgsPerSec: l.TenantMsgs.V},
		TenantPublishQuotas: quotas, TenantPublishBurst: ms(l.TenantBurst),
		PublishQueueDepth: int(l.QueueDepth.V), PublishQueueFactor: int(l.QueueFactor.V),
		PublishQueueWait: ms(l.QueueWait), IngressWait: l.IngressWait.V,
		RingBytes: l.RingBytes.V, RetainedBytes: retained,
		StateBytes:      l.StateBytes.V,
		SubscriberQueue: int(l.SubQueue.V), SubscriberQueueMax: int(l.SubQueueMax.V), SubscriberQueueBytes: l.SubQueueBytes.V,
		EventBatchMaxEvents: int(l.BatchEvents.V), EventBatchMaxBytes: int(l.BatchBytes.V),
		EventBatchMaxDelay: time.Duration(l.BatchDelay.V) * time.Microsecond,
		Logger:             lg,
	}
}

func serveOptions(l *Loaded, lg *slog.Logger) serve.Options {
	return serve.Options{
		MaxFrameBytes: uint32(l.MaxFrame.V), PreauthMaxFrameBytes: uint32(l.PreauthMaxFrame.V),
		PreauthStreams: int(l.PreauthStreams.V), AuthTimeout: orOff(ms(l.AuthTimeout)),
		PublishWindow: orOff(int(l.PublishWindow.V)), AckWait: ms(l.AckWait), QueueWait: ms(l.QueueWait),
		AckOnQueue: !l.AckOnCommit.V, RecordPublishers: l.RecordPublisher.V,
		MaxSubscriptions: int(l.MaxSubs.V), MaxSubscriptionsConn: int(l.MaxSubsTotal.V),
		StallTimeout: ms(l.SubStall), DrainLinger: ms(l.DrainLinger),
		Logger: lg,
	}
}

func listenOptions(l *Loaded, lg *slog.Logger) netio.ServerOptions {
	return netio.ServerOptions{
		Addr: l.QUICBind.V, RequireALPN: l.TLSRequireALPN.V,
		IdleTimeout: ms(l.MaxIdleTimeout), KeepAlive: ms(l.KeepAlive),
		StreamWindow: uint64(l.StreamWindow.V), ConnWindow: uint64(l.ConnWindow.V),
		MaxConns: int(l.MaxConns.V), MaxConnsPerIP: orOff(int(l.MaxConnsPerIP.V)),
		Logger: lg,
	}
}

// sessionStats hands the counters of the session layer to the admin port: the two packages lie
// beside each other and do not know each other.
func sessionStats(s serve.Stats) admin.Sessions {
	return admin.Sessions{
		ConnsOpen: s.ConnsOpen, StreamsOpen: s.StreamsOpen, SubscriptionsOpen: s.SubscriptionsOpen,
		Conns: s.Conns, Streams: s.Streams, Subscriptions: s.Subscriptions,
		AuthOK: s.AuthOK, AuthFailed: s.AuthFailed, AuthDraining: s.AuthDraining,
		AuthTimeouts: s.AuthTimeouts, StreamAuthTimeouts: s.StreamAuthTimeouts,
		Forbidden: s.Forbidden, Unsupported: s.Unsupported, JSONPublishes: s.JSONPublishes, UnackedLost: s.UnackedLost,
		AckTimeouts: s.AckTimeouts, LateOutcomes: s.LateOutcomes, Overdue: s.Overdue,
		SubscriptionsRefused: s.SubscriptionsRefused,
		BadInput:             s.BadInput, SubscriptionEnds: s.SubscriptionEnds,
	}
}

// notes names what an operator chose that weakens a promise, for every place that shows the broker.
func (l *Loaded) notes() []string {
	var out []string
	if !l.AckOnCommit.V {
		out = append(out, "ack_on_commit is off: an acknowledgement means queued, whatever the stream's mode says")
	}
	if l.DataDir.V == "" {
		out = append(out, "there is no data directory: streams are in memory and a restart empties them")
	} else if l.FsyncMode.V != "on_commit" {
		out = append(out, "durable_fsync_mode is "+l.FsyncMode.V+": streams made without a mode of their own lose acknowledged records in a power cut")
	}
	if l.RepairTail.V {
		out = append(out, "durable_repair_checksum_tail is on: damage at the end of a log is cut off at start, with acknowledged records")
	}
	if l.HTTPInsecure.V {
		out = append(out, "http_insecure is on: tokens may travel in the clear")
	}
	return out
}
