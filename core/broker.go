package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// Broker is a running engine. All methods are safe for concurrent use.
type Broker struct {
	opts Options
	lock io.Closer // the data directory's; nil without one
	cat  *catalogue

	engineName   string
	engineReason string

	executors []*executor
	files     *fileWorkers
	stopRun   context.CancelFunc
	running   sync.WaitGroup

	// defMu serialises changes of definitions: creating, changing and deleting streams and caches.
	defMu   sync.Mutex
	streams table[*Stream]
	caches  table[*CacheInfo]
	tenants table[*tenantState]
	// opened counts streams, so that their shards spread over the executors. Guarded by defMu.
	opened uint64

	subs       subscriptions
	feedLimits fanout.Limits

	inflight *sched.Budget
	// retained is the memory that the replay rings keep alive. Written by the executors.
	retained atomic.Int64
	// outstanding counts publishes from admission to answer; idle is signalled when it reaches
	// zero while draining.
	outstanding atomic.Int64
	idle        chan struct{}
	draining    atomic.Bool
	ready       atomic.Bool

	closeOnce sync.Once
	closeErr  error
}

// DrainError says that accepted publishes were still unfinished when the budget of a shutdown ended.
type DrainError struct {
	Outstanding int64
	Err         error
}

func (e *DrainError) Error() string {
	return fmt.Sprintf("core: %d accepted publishes were not finished: %v", e.Outstanding, e.Err)
}

func (e *DrainError) Unwrap() error { return e.Err }

// Open takes the data directory's lock, recovers every catalogued log and starts the executors.
// Logs are opened in parallel; all that are damaged are named in the error, and nothing is served
// then. ctx bounds the opening, not the broker's life.
func Open(ctx context.Context, o Options) (*Broker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &Broker{opts: o.withDefaults(), idle: make(chan struct{}, 1)}
	b.inflight = sched.NewBudget(b.opts.PublishInflightBytes)
	b.subs.init()
	b.feedLimits = fanout.Limits{EventsMax: b.opts.EventBatchMaxEvents, BytesMax: b.opts.EventBatchMaxBytes, Delay: b.opts.EventBatchMaxDelay}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	b.ready.Store(true)
	return b, nil
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
	if err := b.openExecutors(); err != nil {
		return err
	}
	if err := b.loadDefinitions(ctx); err != nil {
		return err
	}
	b.files = startFileWorkers(b.opts.FileWorkers)
	run, stop := context.WithCancel(context.Background())
	b.stopRun = stop
	for _, e := range b.executors {
		b.running.Go(func() { e.loop(run) })
	}
	b.running.Go(func() { b.trimPool(run) })
	return nil
}

// trimEvery is how often frame memory that nobody used meanwhile is given back.
const trimEvery = 5 * time.Second

// trimPool keeps a spike from holding its frames for ever (HZ-47).
func (b *Broker) trimPool(ctx context.Context) {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.opts.Pool.Trim()
		}
	}
}

// openExecutors makes one executor per core shard, each with its engine where there is storage.
func (b *Broker) openExecutors() error {
	n := max(1, b.opts.CoreShards)
	cpus := make([]int, n)
	for i := range cpus {
		cpus[i] = -1
	}
	if b.opts.CoreShards > 0 && b.opts.CorePin {
		cpus = sched.PlaceExecutors(n, sched.UsableCPUs())
		if n > 1 && cpus[0] < 0 {
			b.opts.Logger.Warn("more core shards than usable CPUs allow: they run unpinned", "core_shards", n)
		}
	}
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
	for _, r := range caches {
		b.caches.put(appendKey(nil, r.Tenant, r.Namespace, r.Cache), &CacheInfo{CacheDef: r.CacheDef, ID: r.ID, Created: r.Created})
	}
	opened := make([]*Stream, len(streams))
	problems := make([]error, len(streams))
	var g errgroup.Group
	g.SetLimit(2 * openParallel)
	for i, r := range streams {
		st, err := b.newStream(r)
		if err != nil {
			return fmt.Errorf("core: catalogue row of stream %s/%s/%s: %w", r.Tenant, r.Namespace, r.Stream, err)
		}
		opened[i] = st
		g.Go(func() error {
			if ctx.Err() == nil {
				problems[i] = b.openShards(st)
			}
			return nil // every damaged log is to be named, so none stops the others
		})
	}
	_ = g.Wait()
	if err := errors.Join(problems...); err != nil {
		return errors.Join(err, closeAll(opened))
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(fmt.Errorf("core: opening was cut short: %w", err), closeAll(opened))
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

func closeAll(streams []*Stream) error {
	var errs []error
	for _, st := range streams {
		errs = append(errs, st.closeLogs())
	}
	return errors.Join(errs...)
}

// openParallel is how many streams are opened at once, per CPU of a small machine.
const openParallel = 4

// newStream makes the handle of a row; openShards opens its logs. defMu is held, or Open runs.
func (b *Broker) newStream(r streamRow) (*Stream, error) {
	def := r.StreamDef
	mode, routing, err := def.normalise(&b.opts)
	if err != nil {
		return nil, err
	}
	st := &Stream{broker: b, id: r.ID, created: r.Created, mode: mode, routing: routing, tenant: b.tenant(def.Tenant)}
	st.def.Store(&def)
	st.first = b.opened
	b.opened += uint64(def.Shards)
	return st, nil
}

// openShards opens or makes the shards of st.
func (b *Broker) openShards(st *Stream) error {
	def := st.def.Load()
	var errs []error
	for n := range def.Shards {
		e := b.executors[(st.first+uint64(n))%uint64(len(b.executors))]
		var l *log.Log
		if def.Durable {
			var err error
			l, err = log.Open(log.Options{
				FS: b.opts.FS, Dir: b.shardDir(st.id, n), CatalogueID: st.id, Shard: n,
				Mode: st.mode, SegmentBytes: b.opts.SegmentBytes, Pool: b.opts.Pool,
				NowMicros: func() uint64 { return uint64(b.opts.Now().UnixMicro()) },
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("core: stream %s/%s/%s shard %d: %w", def.Tenant, def.Namespace, def.Stream, n, err))
				continue
			}
			if r := l.Recovery(); r.Truncated > 0 {
				b.opts.Logger.Warn("cut an unfinished write off a log", "stream", st.id, "shard", n, "bytes", r.Truncated)
			}
		}
		s := newShard(st, n, e, l)
		s.account = b.account(e, def.Tenant)
		st.shards = append(st.shards, s)
	}
	return errors.Join(errs...)
}

// account is the tenant's in e's queue.
func (b *Broker) account(e *executor, tenant string) *sched.Tenant {
	e.tenantsMu.Lock()
	defer e.tenantsMu.Unlock()
	t := e.tenants[tenant]
	if t == nil {
		t = e.admission.NewTenant()
		e.tenants[tenant] = t
	}
	return t
}

// tenant is the counters of a tenant. defMu is held, or Open runs.
func (b *Broker) tenant(name string) *tenantState {
	key := []byte(name)
	t, ok := b.tenants.get(key)
	if !ok {
		t = &tenantState{name: name}
		b.tenants.put(key, t)
	}
	return t
}

func (b *Broker) streamDir(id uint64) string {
	return filepath.Join(b.opts.DataDir, "logs", "streams", fmt.Sprintf("%016x", id))
}

func (b *Broker) shardDir(id uint64, shard uint32) string {
	return filepath.Join(b.streamDir(id), strconv.FormatUint(uint64(shard), 10))
}

// Pool is where frame memory comes from.
func (b *Broker) Pool() *wire.Pool { return b.opts.Pool }

// Durable says whether the broker has storage.
func (b *Broker) Durable() bool { return b.opts.DataDir != "" }

// Close refuses what is queued, waits until nothing is in flight, flushes and closes the logs, and
// joins every goroutine. Call Drain first to finish what was accepted. ctx bounds the wait for the
// disk; when it ends first the logs are left as a crash would leave them, and the error says so.
// It may be called twice.
func (b *Broker) Close(ctx context.Context) error {
	b.closeOnce.Do(func() { b.closeErr = b.close(ctx) })
	return b.closeErr
}

func (b *Broker) close(ctx context.Context) error {
	b.ready.Store(false)
	b.draining.Store(true)
	b.subs.stopAll()
	var errs []error
	if b.stopRun != nil {
		for _, e := range b.executors {
			if err := e.call(e.stop); err != nil {
				errs = append(errs, err)
			}
		}
		for _, e := range b.executors {
			select {
			case <-e.quiet:
			case <-ctx.Done():
				// The engine still holds buffers: closing anything under it is worse than
				// leaving it to the end of the process.
				return errors.Join(append(errs, fmt.Errorf("core: executor %d has disk work in flight: %w", e.id, ctx.Err()))...)
			}
		}
		b.stopRun()
		b.running.Wait()
		b.files.close()
	}
	b.streams.all(func(st *Stream) { errs = append(errs, st.closeLogs()) })
	for _, e := range b.executors {
		if e.engine != nil {
			errs = append(errs, e.engine.Close())
		}
	}
	if b.cat != nil {
		errs = append(errs, b.cat.close())
	}
	if b.lock != nil {
		errs = append(errs, b.lock.Close())
	}
	return errors.Join(errs...)
}

// closeLogs flushes and closes the stream's logs. Nothing steps them any more.
func (s *Stream) closeLogs() error {
	var errs []error
	for _, sh := range s.shards {
		sh.replay.Reset(0)
		if sh.log != nil {
			if err := sh.log.Close(); err != nil {
				errs = append(errs, fmt.Errorf("core: close log of stream %d shard %d: %w", s.id, sh.num, err))
			}
		}
	}
	return errors.Join(errs...)
}
