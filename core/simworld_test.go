package core

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/sim"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/sched"
	"github.com/ringcast/ringcast/wire"
)

// simWorld is a broker without goroutines, on a disk in memory and a clock of its own, and what is known
// of it. The catalogue is a file of dir.
type simWorld struct {
	t     *testing.T
	c     *sim.Chooser
	trace sim.Trace
	seen  *simSeen
	dir   string
	o     Options // of every start, but for what differs
	plan  simPlan

	disk *crashfs.FS
	fs   *ringtest.FS
	now  int64 // the scale of sched.Mono
	wall int64 // us since the epoch
	// cutAt is the operation of disk at which the power goes, off says that it has, meta what the catalogue
	// was then.
	cutAt int
	off   bool
	meta  []byte

	b       *Broker
	engines []*ringtest.Engine
	runs    []simRun // per executor
	inStep  bool
	calm    bool // no more faults

	batches    *sim.Batches
	section    []byte // scratch of request
	streams    []*simStream
	shards     []*simShard
	publishers []*simPublisher
	readers    []*simReader
	nextPub    uint32
	creating   bool
	names      int

	// Since the start of this broker.
	sent     []simSent
	admitted int
	parked   []*simPlace
	// overtaken is what Admitted found, which must not panic.
	overtaken string
	answers   []simAnswer
	failed    int // error answers
	refused   int
	vanished  int // of shards that are gone
	onQueue   int
	full      map[string]*[queueFullActions]int
	// uncertain: some publishes that nobody waits for may have been applied and taken back.
	uncertain bool
}

// simRun is what an executor's goroutine would know.
type simRun struct {
	woken, again bool
	wakeAt       int64
	// pushed is what came in since the last step; mixed: not all of it is answered in the order of service.
	pushed []sim.Job
	mixed  bool
}

type simStream struct {
	st      *Stream
	def     StreamDef
	deleted bool
}

type simShard struct {
	stream *simStream
	real   *shard
	model  *sim.Shard
	lane   int
	// witness sees all that an in-memory shard publishes.
	witness *fanout.Feeder
	rolls   uint64
	// broken: its disk answered something else than that it is full. What is refused then may be there.
	broken bool
	// fenced: nothing is claimed, so that the next offset does not rise above claimed.
	fenced  bool
	claimed uint64
}

// simSent is a publish that was accepted, by its tag.
type simSent struct {
	pub            *simPublisher
	shard          *simShard
	batch          *sim.Batch
	waits, onQueue bool
	attempt        *sim.Attempt // nil until it has room
	job            sim.Job
}

type simAnswer struct {
	tag uint64
	res PublishResult
}

func newSimWorld(t *testing.T, dir string, c *sim.Chooser, seen *simSeen) *simWorld {
	w := &simWorld{t: t, c: c, seen: seen, dir: dir, batches: sim.NewBatches(), wall: 1_700_000_000_000_000, now: 1}
	w.setDisk(crashfs.New())
	w.o = Options{
		SegmentBytes:         64 << 10,
		NoPreallocate:        c.One(2),
		PublishInflightBytes: int64(c.Between(16, 512)) << 10,
		PublishQueueDepth:    c.Between(1, 24),
		PublishQueueFactor:   c.Between(1, 4),
		RingRecords:          c.Between(1, 64),
		RetainedBytes:        int64(c.Between(1, 512)) << 10,
		SubscriberQueue:      c.Between(1, 16),
		EventBatchMaxEvents:  c.Between(1, 64),
		Now:                  func() time.Time { return time.UnixMicro(w.wall) },
		openParallel:         1,
		openEngine: func(string) (ring.Engine, string, error) {
			e := ringtest.NewEngine(c.Between(1, 6))
			if w.plan.direct {
				e.ForDirect()
			}
			w.engines = append(w.engines, e)
			return e, "", nil
		},
		await: w.await,
	}
	w.o.PublishConnInflightBytes = max(1<<10, w.o.PublishInflightBytes/int64(c.Between(1, 4)))
	w.o.PublishConnTotalInflightBytes = min(w.o.PublishInflightBytes, w.o.PublishConnInflightBytes*int64(c.Between(1, 3)))
	w.plan = newSimPlan(c)
	if err := os.WriteFile(w.metaPath(), emptyCatalogue(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// emptyCatalogue is the file of one, so that no seed waits for the syncs that make it.
func emptyCatalogue(t *testing.T) []byte {
	if simCatalogue == nil {
		dir := t.TempDir()
		cat, err := openCatalogue(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := cat.close(); err != nil {
			t.Fatal(err)
		}
		if simCatalogue, err = os.ReadFile(filepath.Join(dir, "meta.db")); err != nil {
			t.Fatal(err)
		}
	}
	return simCatalogue
}

var simCatalogue []byte // read-only once set

func (w *simWorld) metaPath() string { return filepath.Join(w.dir, "meta.db") }

func (w *simWorld) fail(format string, args ...any) {
	panic(simFailure(fmt.Sprintf(format, args...)))
}

// must ends the seed if the model found something.
func (w *simWorld) must(err error) {
	if err != nil {
		w.fail("%v", err)
	}
}

// setDisk puts a disk under the world. Its paths do not depend on where dir is.
func (w *simWorld) setDisk(d *crashfs.FS) {
	w.disk, w.cutAt, w.off, w.meta = d, 0, false, nil
	w.fs = ringtest.NewFS(moved{d, crashRoot, w.dir})
	d.OnOp(func(n int, _, _ string) {
		if n == w.cutAt {
			w.off, w.meta = true, w.catalogue()
		}
	})
}

// cutIn has the power go at an operation to come.
func (w *simWorld) cutIn(ops int) {
	w.cutAt = w.disk.Ops() + ops
	w.disk.CutAt(w.cutAt)
}

func (w *simWorld) catalogue() []byte {
	meta, err := os.ReadFile(w.metaPath())
	if err != nil {
		w.fail("%v", err)
	}
	return meta
}

// open starts a broker on what there is, through power cuts while it starts, and compares what
// it found with what there was.
func (w *simWorld) open(orderly bool) {
	atLeast := map[*simShard]uint64{}
	for _, s := range w.shards {
		if l := s.real.log; l != nil {
			atLeast[s] = min(l.Stats().Durable, s.model.Tail())
		}
	}
	for w.start(); w.off; w.start() {
		w.seen.CutsAtStart++
		if w.b != nil {
			_ = w.b.cat.close()
		}
		w.crash()
	}
	w.b.cat.db.NoSync = true // the file outlives every crash of this process
	w.runs = make([]simRun, len(w.b.executors))
	for i, e := range w.b.executors {
		e.inbox = sched.NewInbox[*task](func() { w.runs[i].woken = true })
		w.runs[i].woken = true
	}
	w.sent, w.answers, w.publishers, w.parked, w.admitted = nil, nil, nil, nil, 0
	w.failed, w.refused, w.vanished, w.onQueue, w.uncertain = 0, 0, 0, 0, false
	w.full = map[string]*[queueFullActions]int{}
	w.adopt(atLeast, orderly)
	w.trace.Add("open", uint64(len(w.b.executors)), uint64(len(w.streams)))
}

// start builds a broker once, and perhaps has the power go meanwhile.
func (w *simWorld) start() {
	o := w.o
	o.CoreShards = w.c.N(4)
	o.FS = w.fs
	o.Pool = wire.NewPool(1 << 20)
	w.engines = nil
	w.fs.Forget()
	if !w.calm && w.c.One(4) {
		w.cutIn(1 + w.c.N(30))
	}
	var err error
	if w.b, err = build(context.Background(), o.in(w.dir)); err != nil && !w.off {
		w.fail("start: %v", err)
	}
	if !w.off {
		w.cutAt = 0
		w.disk.CutAt(0)
	}
}

// crash puts what a power cut left in the place of the disk and of the catalogue.
func (w *simWorld) crash() {
	meta := w.meta
	if !w.off {
		meta = w.catalogue()
	}
	if err := os.WriteFile(w.metaPath(), meta, 0o600); err != nil {
		w.fail("%v", err)
	}
	w.setDisk(w.disk.Crash(w.c.Seed()))
}

// adopt joins the streams of a new broker with the model's.
func (w *simWorld) adopt(atLeast map[*simShard]uint64, orderly bool) {
	old := map[uint64]*simStream{}
	for _, s := range w.streams {
		old[s.st.id] = s
	}
	w.streams = nil
	var found []*Stream
	w.b.streams.all(func(st *Stream) { found = append(found, st) })
	slices.SortFunc(found, func(a, b *Stream) int { return int(a.id) - int(b.id) })
	shards := w.shards
	w.shards = nil
	for _, st := range found {
		s := old[st.id]
		if s == nil {
			if !w.creating {
				w.fail("stream %d exists, and nobody made it", st.id)
			}
			w.track(st)
			continue
		}
		if s.deleted {
			w.fail("stream %d exists again", st.id)
		}
		s.st = st
		delete(old, st.id)
		w.streams = append(w.streams, s)
		for _, sh := range shards {
			if sh.stream == s {
				w.reopen(sh, st.shards[sh.real.num], atLeast[sh], orderly)
			}
		}
	}
	for _, s := range old {
		if !s.deleted {
			w.fail("stream %d is gone", s.st.id)
		}
	}
	w.creating = false
}

// track makes models of a new stream's shards.
func (w *simWorld) track(st *Stream) {
	s := &simStream{st: st, def: *st.def.Load()}
	w.streams = append(w.streams, s)
	for _, real := range st.shards {
		onCommit := st.mode == log.FsyncOnCommit
		sh := &simShard{
			stream: s, real: real, lane: len(w.shards),
			model: sim.NewShard(fmt.Sprintf("%d.%d", st.id, real.num), w.batches, s.def.Durable, s.def.Durable && onCommit),
		}
		w.watch(sh)
		if tail := real.visible.Load(); tail != 0 {
			w.fail("stream %d is new and has %d records", st.id, tail)
		}
	}
}

func (w *simWorld) reopen(sh *simShard, real *shard, atLeast uint64, orderly bool) {
	sh.real = real
	w.watch(sh)
	if real.log == nil {
		sh.model.Emptied()
		return
	}
	pages, records := w.read(real.log, 0, real.log.Committed())
	w.must(sh.model.Recovered(records, atLeast, orderly))
	for _, p := range pages {
		p.Release()
	}
}

// watch has everything that becomes readable told to the model.
func (w *simWorld) watch(sh *simShard) {
	w.shards = append(w.shards, sh)
	sh.rolls, sh.broken, sh.fenced = 0, false, false
	if sh.real.log != nil {
		return
	}
	all := fanout.NewSubscriber(fanout.SubscriberOptions{Capacity: 1 << 20, CapacityBytes: 1 << 40})
	sh.real.readers.Add(all)
	sh.witness = fanout.NewFeeder(all, &simSink{give: func(_ uint64, _ bool, record []byte) error {
		w.must(sh.model.Readable(record))
		return nil
	}}, fanout.Limits{})
}

// breaks notes that the disk of a shard's log fails, which is not full.
func (w *simWorld) breaks(real *shard) {
	for _, s := range w.shards {
		if s.real == real {
			s.broken = true
		}
	}
}

// read returns the records [from, to) of a log; they are the pages' memory.
func (w *simWorld) read(l *log.Log, from, to uint64) (pages []*log.Page, records [][]byte) {
	for from < to {
		p, err := l.Read(from, 64<<10)
		if err != nil {
			w.fail("read %d of %d: %v", from, to, err)
		}
		pages = append(pages, p)
		for i := range p.Entries {
			e := &p.Entries[i]
			if e.Base < from && e.Base+uint64(e.Count) <= from || e.Base > from {
				w.fail("read at %d gave an entry of %d..%d", from, e.Base, e.Base+uint64(e.Count))
			}
			rest := e.Records
			for range e.Count {
				rec, after, ok := wire.NextRecord(rest)
				if !ok {
					w.fail("entry at %d has less than its %d records", e.Base, e.Count)
				}
				records, rest = append(records, rec), after
				from++
			}
		}
	}
	return pages, records
}

// await is how a caller waits for an executor: others go on meanwhile.
func (w *simWorld) await(e *executor, done <-chan struct{}) error {
	for range 10_000 {
		select {
		case <-done:
			return nil
		default:
		}
		if w.c.One(3) {
			w.background()
		}
		w.step(e)
	}
	w.fail("executor %d does not run a call", e.id)
	return nil
}

// step takes one step of an executor and compares what came of it.
func (w *simWorld) step(e *executor) {
	r := &w.runs[e.id]
	fair := !r.mixed && e.queue.Len() == 0 && len(r.pushed) <= stepTasksMax/2
	queued := r.pushed
	r.woken, r.pushed, r.mixed = false, nil, false
	w.inStep = true
	r.again, r.wakeAt = e.Step(w.now)
	w.inStep = false
	if w.overtaken != "" {
		w.fail("%s", w.overtaken)
	}
	w.trace.Add("step", uint64(e.id), uint64(len(w.answers)), uint64(e.queue.Len()), uint64(e.inflight))
	if w.off {
		w.answers = w.answers[:0] // nobody hears them
		return
	}
	for _, s := range w.shards {
		if s.real.exec == e {
			w.look(s)
		}
	}
	var served []sim.Job
	for _, a := range w.answers {
		served = append(served, w.sent[a.tag].job)
		w.answered(a)
	}
	w.answers = w.answers[:0]
	for _, s := range w.shards {
		w.must(s.model.EndStep())
	}
	if fair && len(queued) == len(served) {
		w.checkShares(queued, served)
	}
	w.checkCounts()
}

// look tells the model what became readable.
func (w *simWorld) look(s *simShard) {
	sh := s.real
	if sh.failure.Load() != nil || sh.log != nil && sh.log.Err() != nil {
		s.model.Failed()
		w.uncertain = w.uncertain || s.model.Uncertain()
	}
	if sh.lane.Blocked() {
		w.seen.BlockedLanes++
	}
	if s.fenced && sh.next() > s.claimed {
		w.fail("shard %s is fenced at %d, and %d are claimed", s.model.Name, s.claimed, sh.next())
	}
	visible, tail := sh.visible.Load(), s.model.Tail()
	switch {
	case sh.log == nil:
		for {
			worked, cause, _, err := s.witness.Step(context.Background())
			if cause != 0 {
				w.fail("the witness of shard %s ended: %v, %v", s.model.Name, cause, err)
			}
			if !worked {
				break
			}
		}
		if s.model.Tail() != visible {
			w.fail("shard %s has %d records, and %d were published", s.model.Name, visible, s.model.Tail())
		}
	case visible < tail:
		w.seen.TakenBack++
		w.must(s.model.TakeBack(visible))
	case visible > tail:
		if n := sh.log.Stats().Rolls; n > s.rolls {
			w.seen.Rolls += int(n - s.rolls)
			s.rolls = n
		}
		pages, records := w.read(sh.log, tail, visible)
		for _, r := range records {
			w.must(s.model.Readable(r))
		}
		for _, p := range pages {
			p.Release()
		}
		w.trace.Add("readable", uint64(sh.stream.id), uint64(sh.num), visible)
	}
}

func (w *simWorld) checkShares(queued, served []sim.Job) {
	for _, j := range queued[min(1, len(queued)):] {
		if j.Tenant != queued[0].Tenant {
			w.seen.SharesChecked++
			// What is claimed is answered when it is a quantum, so the order within one is not that of the claims.
			w.must(sim.CheckShares(queued, served, 2*sched.Quantum, claimJobsMax, claimBytesMax))
			return
		}
	}
}

// checkCounts compares the counters that must agree at any moment at which no step is under way.
func (w *simWorld) checkCounts() {
	entered := int64(0)
	for _, e := range w.b.executors {
		if e.stats.restarts != 0 {
			w.fail("executor %d recovered from a panic", e.id)
		}
		n := int64(0)
		for _, t := range e.tenants {
			n += t.Held()
		}
		if all := e.admission.Entered(); n != all {
			w.fail("executor %d: %d jobs are in, of its tenants %d", e.id, all, n)
		}
		entered += n
	}
	parked := int64(len(w.parked))
	if n := w.b.outstanding.Load(); n != entered+parked {
		w.fail("%d publishes are outstanding, %d jobs are in, %d parked", n, entered, parked)
	}
	if entered+parked == 0 && w.b.inflight.Used() != 0 {
		w.fail("nothing is in, and %d bytes are taken", w.b.inflight.Used())
	}
}

// checkIdle compares everything that must be given back when nothing is left to be done (HZ-40).
func (w *simWorld) checkIdle() {
	b := w.b
	if n := b.outstanding.Load(); n != 0 || b.inflight.Used() != 0 {
		w.fail("%d publishes are outstanding, %d bytes are taken", n, b.inflight.Used())
	}
	var finished, failed, refused, ackedDropped uint64
	for _, e := range b.executors {
		if e.admission.Entered() != 0 || e.inflight != 0 || e.jobs != 0 || e.queue.Len() != 0 || len(e.dirty) != 0 ||
			len(e.ops) != 0 || len(e.outcomes) != 0 || len(e.leaving) != 0 || !e.inbox.Empty() {
			w.fail("executor %d is idle with %d jobs in, %d operations, %d file jobs, %d queued, %d dirty logs, %d leaving shards",
				e.id, e.admission.Entered(), e.inflight, e.jobs, e.queue.Len(), len(e.dirty), len(e.leaving))
		}
		finished, failed = finished+e.stats.finished, failed+e.stats.failed
		refused += e.stats.refused
		for i := range e.stats.ackedDropped {
			ackedDropped += e.stats.ackedDropped[i].Load()
		}
	}
	vanished, onQueue := w.vanished, w.onQueue
	for _, s := range w.shards {
		if sh := s.real; sh.lane != nil && (sh.lane.Len() != 0 || sh.lane.Running() || sh.lane.Blocked() && !sh.gone) ||
			sh.pending.count != 0 || sh.inflight != 0 || sh.jobs != 0 {
			w.fail("shard %s is idle with %d publishes in its lane, %d pending, blocked %t",
				s.model.Name, sh.lane.Len(), sh.pending.count, sh.lane.Blocked())
		}
		w.must(s.model.Quiet())
		vanished, onQueue = vanished+s.model.Vanished, onQueue+s.model.VanishedOnQueue
	}
	for _, p := range w.publishers {
		if n := p.account.Used(); n != 0 {
			w.fail("publisher %d still has %d bytes taken", p.id, n)
		}
	}
	if w.uncertain {
		vanished, onQueue = int(failed)-w.failed, int(ackedDropped)
	}
	if int(finished) != w.admitted || len(w.parked) != 0 || int(failed) != w.failed+vanished || int(refused) != w.refused || int(ackedDropped) != onQueue {
		w.fail("counted: %d finished, %d failed, %d refused, %d acknowledged and dropped; there were %d, %d and %d, %d, %d",
			finished, failed, refused, ackedDropped, w.admitted, w.failed, vanished, w.refused, onQueue)
	}
	for name, full := range w.full {
		t, _ := b.tenants.get([]byte(name))
		for action, n := range full {
			if got := t.queueFull[action].Load(); got != uint64(n) {
				w.fail("tenant %s: %d publishes found no room (action %d), there were %d", name, got, action, n)
			}
		}
	}
}
