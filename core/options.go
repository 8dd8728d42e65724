package core

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// Options configure a Broker. The zero value of a field means its default.
type Options struct {
	// DataDir holds the catalogue and the logs. Empty: in-memory streams only, durable ones are
	// refused (LOG-1).
	DataDir string
	// FS is the file layer under DataDir. Default ring.OS().
	FS ring.FS
	// Engine is the append engine: "auto" (default), "portable", "uring" or "uring-direct"; see
	// package ring. A named one that cannot run refuses the start.
	Engine string

	// CoreShards is the number of executors. 0 (default) is one, neither locked nor pinned.
	CoreShards int
	// CorePin pins the executors of CoreShards > 0 to CPUs where the process's mask allows it.
	CorePin bool

	// AutoCreate lets a publish, subscribe or cache access create what it names.
	AutoCreate bool
	// FsyncMode is the mode of streams that are created without one. Default on_commit.
	FsyncMode log.FsyncMode
	// FsyncInterval is the longest that periodic streams stay unsynced. Default 250 ms.
	FsyncInterval time.Duration
	// SegmentBytes is the size at which a log starts a new segment. Default 256 MiB.
	SegmentBytes int64
	// NoPreallocate leaves segments to grow as they are written. By default zeros are written ahead of
	// their tails, because syncs are cheaper then.
	NoPreallocate bool
	// VerifyAllOnOpen reads every body of every log when the broker starts. By default it reads what may
	// have been in flight, and verifies the rest when it is read.
	VerifyAllOnOpen bool
	// OnOpenProgress is told how many logs of those in the catalogue are open, and how many bytes of them
	// were read: once before the first one, after each, and after each 64 MiB, in order. It is called
	// from Open, must not block, and may be nil.
	OnOpenProgress func(done, total int, read int64)

	// RetentionBytes and RetentionAge bound what a shard of a durable stream keeps that has no bound
	// of its own. Default 0: everything.
	RetentionBytes int64
	RetentionAge   time.Duration
	// RetentionInterval is how often the logs are looked at for what is to go. Default 60 s.
	RetentionInterval time.Duration
	// RepairChecksumTail cuts damage off the end of a log's newest segment at start, although it was on
	// the disk, when nothing follows it. Default false: the start is refused.
	RepairChecksumTail bool

	// PublishInflightBytes bounds the bytes of accepted, unfinished publishes. Default 64 MiB.
	PublishInflightBytes int64
	// PublishConnInflightBytes is the same for one identity on one connection. Default 16 MiB.
	PublishConnInflightBytes int64
	// PublishConnTotalInflightBytes is the same for all identities of one connection together. Default
	// four times that of one, at most that of the process.
	PublishConnTotalInflightBytes int64
	// PublishQueueDepth is D: jobs guaranteed to each tenant on an executor. Default 64.
	PublishQueueDepth int
	// PublishQueueFactor is W: an executor holds D*W jobs. Default 4.
	PublishQueueFactor int
	// PublishQueueWait is how long an acked publish may wait for room. Default 2 s.
	PublishQueueWait time.Duration
	// IngressWait makes unacked publishes wait for room instead of being dropped.
	IngressWait bool

	// Router says who owns a shard, and Forwarder sends publishes there. Default: every shard is here, and
	// nobody is asked.
	Router    Router
	Forwarder Forwarder

	// QuorumTimeout is how long a publish of a replicated shard waits for its majority. Default 5 s.
	QuorumTimeout time.Duration

	// TenantPublishQuota is what each tenant may publish per second, TenantPublishQuotas what single
	// tenants may instead of that. Default: no bound.
	TenantPublishQuota  TenantQuota
	TenantPublishQuotas map[string]TenantQuota
	// TenantPublishBurst is how long a tenant may have been silent to publish that much at once.
	// Default 1 s.
	TenantPublishBurst time.Duration

	// RingRecords and RingBytes bound a shard's replay ring. Defaults 1024 and 64 MiB.
	RingRecords int
	RingBytes   int64

	// RetainedBytes bounds the frames that all replay rings together keep alive: over it the rings
	// shrink, oldest batches first within each. Default 256 MiB.
	RetainedBytes int64

	// StateBytes bounds the keyed state that atomic commits make, of all shards: a commit that would pass
	// it is refused. Default 256 MiB.
	StateBytes int64

	// SubscriberQueue and SubscriberQueueMax are the default and the largest queue of a
	// subscriber in published batches. Defaults 512 and 4096.
	SubscriberQueue    int
	SubscriberQueueMax int
	// SubscriberQueueBytes bounds the frames that one subscriber's queue keeps alive. Default 16 MiB.
	SubscriberQueueBytes int64
	// EventBatchMaxEvents and EventBatchMaxBytes bound the joining of batches into one frame.
	// Defaults 64 and 64 KiB.
	EventBatchMaxEvents int
	EventBatchMaxBytes  int
	// EventBatchMaxDelay lets a busy reader's batch wait for more. Default 0: never.
	EventBatchMaxDelay time.Duration

	// FileWorkers is how many goroutines run the logs' slow file work. Default 4.
	FileWorkers int

	// Pool is where frame memory comes from. Default: a pool of its own.
	Pool *wire.Pool
	// Logger receives lifecycle and degradation messages. Default: discard.
	Logger *slog.Logger
	// Now is the wall clock. Default time.Now; tests may set it.
	Now func() time.Time

	// openEngine opens the append engine of one executor; tests put theirs here.
	openEngine func(dir string) (ring.Engine, string, error)
	// await waits until done, which a call of e closes; the simulation steps e instead.
	await func(e *executor, done <-chan struct{}) error
	// openParallel is how many streams' logs are opened or closed at once.
	openParallel int
	// stopClock leaves the clock of the quotas to a test.
	stopClock bool
}

// quotas says whether any tenant has a quota.
func (o *Options) quotas() bool {
	return o.TenantPublishQuota != (TenantQuota{}) || len(o.TenantPublishQuotas) > 0
}

func (o Options) withDefaults() Options {
	o.Engine = cmp.Or(o.Engine, "auto")
	if o.FS == nil {
		o.FS = ring.OS()
	}
	o.FsyncInterval = cmp.Or(o.FsyncInterval, 250*time.Millisecond)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 256<<20)
	o.RetentionInterval = cmp.Or(o.RetentionInterval, time.Minute)
	o.PublishInflightBytes = cmp.Or(o.PublishInflightBytes, 64<<20)
	o.PublishConnInflightBytes = cmp.Or(o.PublishConnInflightBytes, 16<<20)
	o.PublishConnTotalInflightBytes = cmp.Or(o.PublishConnTotalInflightBytes, min(4*o.PublishConnInflightBytes, o.PublishInflightBytes))
	o.TenantPublishBurst = cmp.Or(o.TenantPublishBurst, time.Second)
	o.PublishQueueDepth = cmp.Or(o.PublishQueueDepth, 64)
	o.PublishQueueFactor = cmp.Or(o.PublishQueueFactor, 4)
	o.PublishQueueWait = cmp.Or(o.PublishQueueWait, 2*time.Second)
	o.QuorumTimeout = cmp.Or(o.QuorumTimeout, 5*time.Second)
	o.RingRecords = cmp.Or(o.RingRecords, 1024)
	o.RingBytes = cmp.Or(o.RingBytes, 64<<20)
	o.RetainedBytes = cmp.Or(o.RetainedBytes, 256<<20)
	o.StateBytes = cmp.Or(o.StateBytes, 256<<20)
	o.SubscriberQueue = cmp.Or(o.SubscriberQueue, 512)
	o.SubscriberQueueMax = cmp.Or(o.SubscriberQueueMax, 4096)
	o.SubscriberQueueBytes = cmp.Or(o.SubscriberQueueBytes, 16<<20)
	o.EventBatchMaxEvents = cmp.Or(o.EventBatchMaxEvents, 64)
	o.EventBatchMaxBytes = cmp.Or(o.EventBatchMaxBytes, 64<<10)
	o.FileWorkers = cmp.Or(o.FileWorkers, 4)
	if o.Pool == nil {
		o.Pool = wire.NewPool(256 << 20)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnOpenProgress == nil {
		o.OnOpenProgress = func(int, int, int64) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.openEngine == nil {
		kind := o.Engine
		o.openEngine = func(dir string) (ring.Engine, string, error) {
			return ring.Open(kind, ring.Options{Dir: dir})
		}
	}
	if o.await == nil {
		o.await = awaitCall
	}
	o.openParallel = cmp.Or(o.openParallel, openParallel)
	return o
}

// Validate returns every problem of o at once, joined.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("core: "+format, args...)) }
	o = o.withDefaults()
	if o.CoreShards < 0 || o.CoreShards > 256 {
		bad("CoreShards %d is not in 0..256", o.CoreShards)
	}
	if o.SegmentBytes < 64<<10 {
		bad("SegmentBytes %d is below 64 KiB", o.SegmentBytes)
	}
	if o.FsyncInterval < 0 {
		bad("FsyncInterval %v is negative", o.FsyncInterval)
	}
	if o.RetentionBytes < 0 || o.RetentionAge < 0 || o.RetentionInterval < 0 {
		bad("a retention bound or interval is negative")
	}
	if o.PublishInflightBytes < 0 || o.PublishConnInflightBytes < 0 {
		bad("publish byte budgets must be positive")
	}
	if o.PublishConnInflightBytes > o.PublishInflightBytes {
		bad("PublishConnInflightBytes %d is above PublishInflightBytes %d", o.PublishConnInflightBytes, o.PublishInflightBytes)
	} else if n := o.PublishConnTotalInflightBytes; n < o.PublishConnInflightBytes || n > o.PublishInflightBytes {
		bad("PublishConnTotalInflightBytes %d is not between PublishConnInflightBytes %d and PublishInflightBytes %d",
			n, o.PublishConnInflightBytes, o.PublishInflightBytes)
	}
	for name, q := range o.TenantPublishQuotas {
		if err := checkName("tenant", name); err != nil {
			bad("TenantPublishQuotas: %v", err)
		}
		if q.BytesPerSec < 0 || q.MsgsPerSec < 0 {
			bad("TenantPublishQuotas: the quota of %s is negative", name)
		}
	}
	if o.TenantPublishQuota.BytesPerSec < 0 || o.TenantPublishQuota.MsgsPerSec < 0 || o.TenantPublishBurst < 0 {
		bad("TenantPublishQuota or TenantPublishBurst is negative")
	}
	if o.PublishQueueDepth < 1 || o.PublishQueueFactor < 1 {
		bad("PublishQueueDepth and PublishQueueFactor must be at least 1")
	}
	if o.RetainedBytes < 1 || o.RingBytes < 1 || o.RingRecords < 1 {
		bad("RetainedBytes, RingBytes and RingRecords must be positive")
	}
	if o.StateBytes < 1 {
		bad("StateBytes must be positive")
	}
	if o.SubscriberQueue < 1 || o.SubscriberQueue > o.SubscriberQueueMax {
		bad("SubscriberQueue %d is not in 1..%d", o.SubscriberQueue, o.SubscriberQueueMax)
	}
	if o.EventBatchMaxEvents < 1 || o.EventBatchMaxBytes < 1 || o.EventBatchMaxBytes > wire.MaxFrameBytes {
		bad("event batch limits %d events, %d bytes are out of range", o.EventBatchMaxEvents, o.EventBatchMaxBytes)
	}
	if o.QuorumTimeout < 0 {
		bad("QuorumTimeout %v is negative", o.QuorumTimeout)
	}
	if o.Router != nil && o.Forwarder == nil {
		bad("a Router needs a Forwarder")
	}
	if o.FileWorkers < 1 {
		bad("FileWorkers must be at least 1")
	}
	return errors.Join(errs...)
}
