package core

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
)

// Open takes the data directory's lock, recovers every catalogued log and starts the executors.
// Logs are opened in parallel; all that are damaged are named in the error, and nothing is served
// then. ctx bounds the opening, not the broker's life.
func Open(ctx context.Context, o Options) (*Broker, error) {
	b, err := build(ctx, o)
	if err != nil {
		return nil, err
	}
	b.start()
	b.ready.Store(true)
	return b, nil
}

// build makes the whole state of a broker and starts nothing: its executors can be stepped.
func build(ctx context.Context, o Options) (*Broker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &Broker{
		opts: o.withDefaults(), files: newFileWorkers(),
		idle: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	b.inflight = sched.NewSharedBudget(b.opts.PublishInflightBytes)
	b.clock = sched.NewClock()
	b.state = &stateBudget{max: b.opts.StateBytes}
	b.subs.init()
	b.feedLimits = fanout.Limits{EventsMax: b.opts.EventBatchMaxEvents, BytesMax: b.opts.EventBatchMaxBytes, Delay: b.opts.EventBatchMaxDelay}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.closeStores())
	}
	return b, nil
}

// start starts the broker's goroutines; stop joins them.
func (b *Broker) start() {
	run, stop := context.WithCancel(context.Background())
	b.stopRun = stop
	b.files.start(b.opts.FileWorkers)
	for _, e := range b.executors {
		b.running.Go(func() { e.loop(run) })
	}
	b.running.Go(func() { b.trimPool(run) })
	if b.opts.quotas() && !b.opts.stopClock {
		b.running.Go(func() { _ = b.clock.Run(run) }) // returns nil
	}
}

func (b *Broker) open(ctx context.Context) (err error) {
	dir := b.opts.DataDir
	if dir != "" {
		if err := b.opts.FS.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("core: make data directory: %w", err)
		}
		if b.lock, err = b.opts.FS.Lock(filepath.Join(dir, "LOCK")); err != nil {
			return fmt.Errorf("core: lock data directory %s: %w", dir, err)
		}
	}
	if b.cat, err = openCatalogue(dir); err != nil {
		return err
	}
	if dir != "" {
		// The name of a new catalogue must not be younger than what it describes.
		if err := b.opts.FS.SyncDir(dir); err != nil {
			return fmt.Errorf("core: sync data directory: %w", err)
		}
	}
	if err := b.openExecutors(); err != nil {
		return err
	}
	return b.loadDefinitions(ctx)
}

// placeExecutors returns the CPU of each executor, -1 = unpinned. The number is always what was asked
// for, never derived; more than usable CPUs allow run unpinned (HZ-45).
func (b *Broker) placeExecutors(usable []int) []int {
	if b.opts.CoreShards == 0 {
		return []int{-1}
	}
	if !b.opts.CorePin {
		return sched.PlaceExecutors(b.opts.CoreShards, nil)
	}
	cpus := sched.PlaceExecutors(b.opts.CoreShards, usable)
	if cpus[0] < 0 {
		b.opts.Logger.Warn("more core shards than usable CPUs allow: they run unpinned",
			"core_shards", b.opts.CoreShards, "usable_cpus", len(usable))
	}
	return cpus
}

// openExecutors makes one executor per core shard, each with its engine where there is storage.
func (b *Broker) openExecutors() error {
	n := max(1, b.opts.CoreShards)
	cpus := b.placeExecutors(sched.UsableCPUs())
	for i := range n {
		var engine ring.Engine
		if b.opts.DataDir != "" {
			e, reason, err := b.opts.openEngine(b.opts.DataDir)
			if err != nil {
				return fmt.Errorf("core: open append engine %s: %w", b.opts.Engine, err)
			}
			engine = e
			b.engineName, b.engineReason = e.Name(), reason
		}
		e := newExecutor(b, i, engine)
		e.run = sched.NewExecutor(sched.ExecutorOptions{Shard: i, CPU: cpus[i], Logger: b.opts.Logger}, e)
		b.executors = append(b.executors, e)
	}
	if b.engineName != "" {
		b.opts.Logger.Info("append engine", "engine", b.engineName, "fallback", b.engineReason)
	}
	return nil
}

// loadDefinitions opens everything that the catalogue lists. The executors do not run yet.
func (b *Broker) loadDefinitions(ctx context.Context) error {
	streams, caches, err := b.cat.load()
	if err != nil {
		return err
	}
	if err := b.sweep(streams); err != nil {
		return err
	}
	for _, r := range caches {
		b.caches.put(appendKey(nil, r.Tenant, r.Namespace, r.Cache), &CacheInfo{CacheDef: r.CacheDef, ID: r.ID, Created: r.Created})
	}
	began := sched.Mono()
	opened := make([]*Stream, len(streams))
	problems := make([]error, len(streams))
	progress := newOpenProgress(b.opts.OnOpenProgress)
	for _, r := range streams {
		if r.Durable {
			progress.total += int(r.Shards)
		}
	}
	progress.tell(0, progress.total, 0)
	for i, r := range streams {
		if opened[i], err = b.newStream(r); err != nil {
			problems[i] = fmt.Errorf("core: catalogue row of stream %s/%s/%s: %w", r.Tenant, r.Namespace, r.Stream, err)
		}
	}
	b.eachLog(opened, func(i int, st *Stream) {
		problems[i] = b.openShards(ctx, st, progress) // every damaged log is to be named, so none stops the others
	})
	b.storageCounts.recovery = time.Duration(sched.Mono() - began)
	if err := ctx.Err(); err != nil {
		return errors.Join(fmt.Errorf("core: opening was cut short: %w", err), b.closeAll(opened))
	}
	if err := errors.Join(problems...); err != nil {
		return errors.Join(err, b.closeAll(opened))
	}
	for _, st := range opened {
		for _, s := range st.shards {
			s.attach()
		}
		def := st.def.Load()
		b.streams.put(appendKey(nil, def.Tenant, def.Namespace, def.Stream), st)
	}
	return nil
}

// closeAll closes the logs of streams.
func (b *Broker) closeAll(streams []*Stream) error {
	errs := make([]error, len(streams))
	b.eachLog(streams, func(i int, st *Stream) { errs[i] = st.closeLogs() })
	return errors.Join(errs...)
}

// eachLog calls fn for the streams that are not nil, several at a time, since each waits for the
// disk. One at a time they are the caller's own calls, in order.
func (b *Broker) eachLog(streams []*Stream, fn func(i int, st *Stream)) {
	var g errgroup.Group
	g.SetLimit(b.opts.openParallel)
	for i, st := range streams {
		switch {
		case st == nil:
		case b.opts.openParallel == 1:
			fn(i, st)
		default:
			g.Go(func() error {
				fn(i, st)
				return nil
			})
		}
	}
	_ = g.Wait()
}

// openParallel is how many streams' logs are opened or closed at once, by default.
const openParallel = 8

// newStream makes the handle of a row; openShards opens its logs. defMu is held, or Open runs.
func (b *Broker) newStream(r streamRow) (*Stream, error) {
	def := r.StreamDef
	mode, routing, err := def.normalise(&b.opts)
	if err != nil {
		return nil, err
	}
	st := &Stream{
		broker: b, id: r.ID, created: r.Created, mode: mode, routing: routing, tenant: b.tenant(def.Tenant),
		removed: make(chan struct{}),
	}
	st.def.Store(&def)
	st.first = b.opened
	b.opened += uint64(def.Shards)
	return st, nil
}

// openProgress counts logs that are open and bytes that were read. The telling is under the lock, so that it never falls.
type openProgress struct {
	mu    sync.Mutex // guards done and told
	done  int
	told  int64 // bytes at the last telling between two logs
	total int
	read  atomic.Int64
	tell  func(done, total int, read int64)
}

// newOpenProgress tells nobody when tell is nil.
func newOpenProgress(tell func(done, total int, read int64)) *openProgress {
	if tell == nil {
		tell = func(int, int, int64) {}
	}
	return &openProgress{tell: tell}
}

// tellBytes is how much is read between two tellings at the most.
const tellBytes = 64 << 20

// reading counts bytes that were read.
func (p *openProgress) reading(n int64) {
	read := p.read.Add(n)
	if read/tellBytes == (read-n)/tellBytes {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if read > p.told {
		p.told = read
		p.tell(p.done, p.total, read)
	}
}

func (p *openProgress) opened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.told = max(p.told, p.read.Load())
	p.tell(p.done, p.total, p.told)
}

// openShards opens or makes the shards of st, until ctx ends, and tells progress.
func (b *Broker) openShards(ctx context.Context, st *Stream, progress *openProgress) error {
	def := st.def.Load()
	var errs []error
	for n := range def.Shards {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		e := b.executors[(st.first+uint64(n))%uint64(len(b.executors))]
		var l *log.Log
		if def.Durable {
			var err error
			l, err = log.Open(log.Options{
				FS: b.opts.FS, Dir: b.shardDir(st.id, n), CatalogueID: st.id, Shard: n,
				Mode: st.mode, SegmentBytes: b.opts.SegmentBytes, Pool: b.opts.Pool,
				Direct: e.engine.Direct(), NoPreWrite: b.opts.NoPreallocate,
				RepairChecksumTail: b.opts.RepairChecksumTail, VerifyAll: b.opts.VerifyAllOnOpen,
				Interrupt: func(read int64) error {
					progress.reading(read)
					return ctx.Err()
				},
				NowMicros: func() uint64 { return uint64(b.opts.Now().UnixMicro()) },
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("core: stream %s/%s/%s shard %d: %w", def.Tenant, def.Namespace, def.Stream, n, err))
				continue
			}
			if r := l.Recovery(); r.Repaired > 0 {
				b.opts.Logger.Error("DATA LOST: cut damaged, acknowledged bytes off a log, because durable_repair_checksum_tail is on; turn it off again",
					"stream", def.Tenant+"/"+def.Namespace+"/"+def.Stream, "id", st.id, "shard", n,
					"durable_bytes", r.Repaired, "bytes", r.Truncated, "next_offset", l.Next())
			} else if r.Truncated > 0 {
				b.opts.Logger.Warn("cut an unfinished write off a log", "stream", st.id, "shard", n, "bytes", r.Truncated)
			}
			b.storageCounts.truncated.Add(l.Recovery().Truncated)
			progress.opened()
		}
		s := newShard(st, n, e, l)
		s.account = b.account(e, def.Tenant)
		st.shards = append(st.shards, s)
	}
	return errors.Join(errs...)
}
