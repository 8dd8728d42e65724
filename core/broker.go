package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/fanout"
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
	// tenantsMu serialises the making of tenants. Never held while something waits for a disk.
	tenantsMu sync.Mutex
	// opened counts streams, so that their shards spread over the executors. Guarded by defMu.
	opened uint64

	subs       subscriptions
	feedLimits fanout.Limits

	inflight *sched.SharedBudget
	// clock is the time of the quotas. It runs if there are any.
	clock *sched.Clock
	// parked counts publishes that stood in line in a Place.
	parked atomic.Uint64
	// state bounds the keyed state of all shards.
	state *stateBudget

	storageCounts storageCounts
	// retained is the memory that the replay rings of all executors keep alive. Written by them.
	retained atomic.Int64
	// outstanding counts publishes from admission to answer; idle is signalled when it reaches
	// zero while draining.
	outstanding atomic.Int64
	idle        chan struct{}
	draining    atomic.Bool
	ready       atomic.Bool

	closeOnce sync.Once
	closed    chan struct{} // closed when the broker is; closeErr is set then
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

// Pool is where frame memory comes from.
func (b *Broker) Pool() *wire.Pool { return b.opts.Pool }

// Durable says whether the broker has storage.
func (b *Broker) Durable() bool { return b.opts.DataDir != "" }

// Close refuses what is queued, waits until nothing is in flight, flushes and closes the logs, and
// joins every goroutine. Call Drain first to finish what was accepted. ctx bounds the wait: when it
// ends first the disk still holds something, closing goes on for as long as the process lives, and
// the logs are otherwise left as a crash would leave them. Close may be called again, to wait on.
func (b *Broker) Close(ctx context.Context) error {
	b.closeOnce.Do(func() {
		go func() { // ends when the disk lets it; every Close waits for it
			b.closeErr = b.close()
			close(b.closed)
		}()
	})
	select {
	case <-b.closed:
		return b.closeErr
	default:
	}
	select {
	case <-b.closed:
		return b.closeErr
	case <-ctx.Done():
		return fmt.Errorf("core: close: disk work is in flight: %w", ctx.Err())
	}
}

func (b *Broker) close() error {
	b.shut()
	// A definition that is being changed is finished first; later ones are refused.
	b.defMu.Lock()
	defer b.defMu.Unlock()
	var err error
	if b.stopRun != nil {
		err = b.stop()
	}
	return errors.Join(err, b.closeStores())
}

// shut refuses what comes from now on and ends the readers.
func (b *Broker) shut() {
	b.ready.Store(false)
	b.draining.Store(true)
	b.subs.stopAll()
}

// stop has the executors refuse what is queued, waits until nothing is in flight and joins what
// start started.
func (b *Broker) stop() error {
	var errs []error
	for _, e := range b.executors {
		errs = append(errs, e.call(e.stop))
	}
	// A publish that waited for room may have got it just now. It is on its way to an executor,
	// which must be there to answer it.
	errs = append(errs, b.Drain(context.Background()))
	for _, e := range b.executors {
		<-e.quiet
	}
	b.stopRun()
	b.running.Wait()
	b.files.close()
	return errors.Join(errs...)
}

// closeStores flushes and closes the logs, in the order of their ids, the engines and the catalogue.
// Nothing steps them any more.
func (b *Broker) closeStores() error {
	var errs []error
	var streams []*Stream
	b.streams.all(func(st *Stream) { streams = append(streams, st) })
	slices.SortFunc(streams, func(a, b *Stream) int { return cmp.Compare(a.id, b.id) })
	errs = append(errs, b.closeAll(streams))
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
