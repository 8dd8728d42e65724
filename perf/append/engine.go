package append

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// turn is how long a subject runs and how much it may write.
type turn struct {
	warm     time.Duration // not measured
	length   time.Duration
	bytesMax int64 // of payload; the turn ends early
}

// poolBytes is frame memory that is kept: each writer has one frame.
const poolBytes = 64 << 20

// growingSuffix is what follows the kind of an engine in the name of one whose logs do not pre-write.
const growingSuffix = "/growing"

// openEngine opens what name says: a kind of ring.Open, with growingSuffix or without.
func openEngine(name, dir string) (e ring.Engine, grow bool, fell string, err error) {
	kind, grow := strings.CutSuffix(name, growingSuffix)
	e, fell, err = ring.Open(kind, ring.Options{Dir: dir})
	return e, grow, fell, err
}

// runEngine is one turn of logs on the engine of the given name, in an empty directory.
func runEngine(ctx context.Context, name, dir string, c Cell, t turn, as runAs) (m Measure, err error) {
	mode, err := log.ParseFsyncMode(c.Fsync)
	if err != nil {
		return m, err
	}
	engine, grow, _, err := openEngine(name, dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	o, err := startOwner(engine, dir, c, mode, grow, wire.NewPool(poolBytes), as)
	if err != nil {
		return m, err
	}
	l := startLoad(o, c, t.bytesMax)
	l.warm.wait(ctx, t.warm, l.full)
	logs, from := o.stats(), startUsage()
	l.measuring.Store(true)
	l.measured.wait(ctx, t.length, l.full)
	l.measuring.Store(false)
	to, after := endUsage(), o.stats()
	latency, err := l.end()
	if err = errors.Join(err, o.stop()); err != nil {
		return m, err
	}
	m.use(from, to)
	m.latency(latency)
	m.Records = after.Records - logs.Records
	m.Writes = after.Groups - logs.Groups
	m.Syncs = after.Syncs - logs.Syncs
	if mode == log.FsyncOnCommit {
		m.Syncs += m.Writes
	}
	m.WriteBytes = float64(after.Bytes-logs.Bytes) / float64(max(m.Writes, 1))
	m.PayloadBytes = m.Records * uint64(c.Bytes)
	return m, nil
}

// stats is the sum over the logs, taken between two steps: no group is half counted.
func (o *owner) stats() log.Stats {
	var sum log.Stats
	t := newTask(taskCall, nil)
	done := make(chan struct{})
	t.call = func() {
		for _, s := range o.logs {
			st := s.log.Stats()
			sum.Records += st.Records
			sum.Groups += st.Groups
			sum.Bytes += st.Bytes
			sum.Syncs += st.Syncs
		}
		close(done)
	}
	o.inbox.Push(&t.node)
	<-done
	return sum
}

// load is the writers of one turn: closed loops, each of which waits for its commit.
type load struct {
	owner     *owner
	cell      Cell
	bytesMax  int64
	warm      *phase // every log has been appended to
	measured  *phase // every writer has an append that is measured
	measuring atomic.Bool
	stop      atomic.Bool
	appended  atomic.Int64 // bytes; a writer adds now and then
	full      chan struct{}
	filled    sync.Once
	writers   sync.WaitGroup
	latency   []*hdrhistogram.Histogram // of each writer
	errs      []error
}

func startLoad(o *owner, c Cell, bytesMax int64) *load {
	l := &load{owner: o, cell: c, bytesMax: bytesMax, full: make(chan struct{}), warm: newPhase(c.Writers), measured: newPhase(c.Writers)}
	l.latency = make([]*hdrhistogram.Histogram, c.Writers)
	l.errs = make([]error, c.Writers)
	for w := range c.Writers {
		l.latency[w] = newHistogram()
		l.writers.Go(func() { l.errs[w] = l.write(w) })
	}
	return l
}

func (l *load) end() (*hdrhistogram.Histogram, error) {
	l.stop.Store(true)
	l.writers.Wait()
	sum := newHistogram()
	for _, h := range l.latency {
		sum.Merge(h)
	}
	return sum, errors.Join(l.errs...)
}

// write is one writer. Its n-th append goes to log w + n times the number of writers: fewer writers
// than logs visit all of them in turn, more share them evenly.
func (l *load) write(w int) error {
	record := make([]byte, l.cell.Bytes)
	random := rand.NewChaCha8([32]byte{byte(w), 1})
	_, _ = random.Read(record) // never fails
	t := newTask(taskAppend, nil)
	t.done = make(chan error, 1)
	t.entry = log.Entry{Kind: log.KindRecords, Count: 1, Section: wire.AppendSection(nil, record)}
	logs := l.owner.logs
	added := 0
	warm, measured := l.warm.arrive, l.measured.arrive
	defer func() { warm(); measured() }()
	for n := w; !l.stop.Load(); n += l.cell.Writers {
		t.shard = logs[n%len(logs)]
		began := time.Now()
		l.owner.inbox.Push(&t.node)
		if err := <-t.done; err != nil {
			return err
		}
		if l.measuring.Load() {
			recordLatency(l.latency[w], time.Since(began))
			measured()
			measured = nothing
		}
		if n >= len(logs)-l.cell.Writers {
			warm()
			warm = nothing
		}
		if added += l.cell.Bytes; added >= 1<<20 {
			if l.appended.Add(int64(added)) >= l.bytesMax {
				l.filled.Do(func() { close(l.full) })
				return nil
			}
			added = 0
		}
	}
	return nil
}

// nothing takes the place of an arrival that has been.
func nothing() {}
