package log

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// producing is a log that idempotent producers write to.
type producing struct {
	t    *testing.T
	fs   *crashfs.FS
	o    Options
	log  *Log
	seqs map[uint64]uint64
	salt byte // of payloads
}

func newProducing(t *testing.T, change ...func(*Options)) *producing {
	fs := crashfs.New()
	p := &producing{t: t, fs: fs, o: testOptions(fs, change...), seqs: map[uint64]uint64{}}
	p.log = mustOpen(t, p.o)
	return p
}

// stage appends the next batch of a producer, as core does: Append, then Add.
func (p *producing) stage(id uint64, size int) {
	p.t.Helper()
	rec := recordAt(p.log.Next(), size)
	rec[len(rec)-1] ^= p.salt
	e := entryOf([][]byte{rec})
	e.HasProducer, e.ProducerID, e.Sequence, e.Digest = true, id, p.seqs[id], Digest(e.Section)
	first, err := p.log.Append(e, 1+p.log.Next())
	if err != nil {
		p.t.Fatal(err)
	}
	p.log.Producers().Add(id, e.Sequence, e.Digest, first, e.Count)
	p.seqs[id]++
}

// batch stages one and commits it.
func (p *producing) batch(id uint64, size int) {
	p.t.Helper()
	p.stage(id, size)
	for _, out := range pump(p.log) {
		if out.Err != nil {
			p.t.Fatal(out.Err)
		}
	}
}

// stateOf opens files and returns the producers and what recovery did. The files stay as they were.
func stateOf(t testing.TB, files map[string][]byte, o Options) ([]ProducerState, RecoveryReport) {
	t.Helper()
	o.FS = restoreDir(t, files)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.letGo()
	return l.Producers().Snapshot(), l.Recovery()
}

func checkState(t testing.TB, what string, got, want []ProducerState) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s: producers differ (-want +got):\n%s", what, d)
	}
}

// The state after a restart is the one before - sequences, the last 64 batches, their digests - also
// when the segments that held its entries are deleted, at every size of the log; and it is the one
// that reading all entries gives.
func TestProducerStateOutlivesItsSegments(t *testing.T) { // LOG-22, PUB-23, PUB-24
	p := newProducing(t, withSegment(16<<10))
	rng := rand.New(rand.NewPCG(1, 1))
	deleted, forgotten := 0, 0
	for i := range 900 {
		switch {
		case i < 30:
			p.batch(uint64(1000+i), 100) // once, and never again
		case i%3 == 0:
			p.batch(7, 100) // more than 64 batches
		default:
			p.batch(1+rng.Uint64N(20), 50+rng.IntN(400))
		}
		if i%61 != 0 {
			continue
		}
		before := p.log.Producers().Snapshot()
		files := snapshotDir(t, p.fs, testDir)
		got, r := stateOf(t, files, p.o)
		checkState(t, "after a kill", got, before)
		if want := max(0, r.Segments-1); (r.Segments - r.Walked) != want {
			t.Fatalf("%d of %d segments were opened by their ends, want %d", (r.Segments - r.Walked), r.Segments, want)
		}
		walked := maps.Clone(files)
		delete(walked, checkpointName)
		got, r = stateOf(t, walked, p.o)
		checkState(t, "without the checkpoint", got, before)
		if (r.Segments - r.Walked) != 0 {
			t.Fatal("without a checkpoint not every header was read")
		}
		segs := p.log.view.Load().segs
		for n := range len(segs) - 1 { // retention deletes from the head, index by index
			delete(files, segmentName(segs[n].id))
			delete(files, indexName(segs[n].id))
			got, _ = stateOf(t, files, p.o)
			checkState(t, fmt.Sprintf("with %d of %d segments deleted", n+1, len(segs)), got, before)
			deleted++
		}
		if files[checkpointName] != nil {
			delete(files, checkpointName)
			if got, _ = stateOf(t, files, p.o); !reflect.DeepEqual(got, before) {
				forgotten++
			}
		}
	}
	if deleted < 60 || forgotten < 10 {
		t.Errorf("%d deletions, %d of them would have been forgotten: the test does not test", deleted, forgotten)
	}
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
}

// agree fails unless the state with the checkpoint on the disk is the one that reading all headers gives.
func (p *producing) agree(what string) {
	p.t.Helper()
	files := snapshotDir(p.t, p.fs, testDir)
	got, _ := stateOf(p.t, files, p.o)
	delete(files, checkpointName)
	want, _ := stateOf(p.t, files, p.o)
	checkState(p.t, what, got, want)
}

// A group that is in flight when a segment begins may fail: the checkpoint of that moment speaks of
// records that never were. It is not written before the group has come back, and then never - also
// when the log comes to the same offset again, with other records, before another checkpoint is taken.
func TestVoidBatchesReachNoCheckpoint(t *testing.T) { // LOG-22, PUB-23, HZ-5
	for _, c := range []struct {
		name        string
		first       bool // the group is the first of the log
		write, open bool // what fails
	}{
		{"write", false, true, false}, {"open", false, false, true}, {"both", false, true, true}, {"first write", true, true, false},
	} {
		p := newProducing(t, withSegment(16<<10))
		rules := ringtest.NewFS(p.fs)
		p.log.letGo()
		p.o.FS = rules
		p.log = mustOpen(t, p.o)
		for !c.first && (p.log.cur == nil || !p.log.cur.full(2300, p.o.SegmentBytes)) {
			p.batch(1, 900) // 1024 bytes
		}
		for n := 1; ; n++ {
			p.stage(2, 900)
			if !c.first || n == 11 {
				break
			}
		}
		jobs := func() {
			for j := p.log.TakeJob(); j != nil; j = p.log.TakeJob() {
				j.Run()
				p.log.JobDone(j)
			}
		}
		jobs()
		op := p.log.NextOp()
		p.stage(3, 2000) // in the next segment
		if k := p.log.unwritten; k == nil || k.base <= p.log.written {
			t.Fatalf("%s: no checkpoint of a group in flight", c.name)
		}
		if c.open {
			if s := p.log.spare; s != nil {
				s.close()
				p.log.spare = nil
			}
			rules.Add(ringtest.Rule{Kind: ringtest.Open, Path: ".seg", Err: syscall.EMFILE, Times: -1})
		}
		jobs()
		rules.Clear()
		if c.write {
			runPart(op, 100, diskError(syscall.ENOSPC))
		} else {
			runHere(op)
		}
		p.log.OpDone(op)
		for p.log.fail != nil {
			jobs()
		}
		p.seqs = map[uint64]uint64{}
		for _, s := range p.log.Producers().Snapshot() {
			p.seqs[s.ID] = s.Next
		}
		p.salt = 0xFF // the same offsets again, with other payloads
		for i := range 60 {
			p.stage(2+uint64(i%2), 900)
			for steps := 0; ; steps++ {
				// Writes before jobs: the owner may get that far before a job runs.
				if op := p.log.NextOp(); op != nil {
					runHere(op)
					p.log.OpDone(op)
				} else if j := p.log.TakeJob(); j != nil {
					j.Run()
					p.log.JobDone(j)
				} else {
					break
				}
				p.agree(fmt.Sprintf("%s failed, batch %d, step %d", c.name, i, steps))
			}
		}
		if p.log.Stats().Rolls < 3 {
			t.Error("no segment was begun afterwards")
		}
		p.log.letGo()
	}
}

// Retention deletes nothing whose producers only the log remembers, and waits for nothing when they
// cannot be written down: a full disk must be able to heal.
func TestRetentionWaitsForTheCheckpoint(t *testing.T) { // LOG-22, LOG-11
	for _, full := range []bool{false, true} {
		p := newProducing(t, withSegment(16<<10))
		rules := ringtest.NewFS(p.fs)
		p.log.letGo()
		p.o.FS = rules
		p.log = mustOpen(t, p.o)
		p.log.SetRetention(Retention{Bytes: 16 << 10})
		if full {
			rules.Add(ringtest.Rule{Kind: ringtest.Write, Path: checkpointTemp, Err: syscall.ENOSPC, Times: -1})
		}
		trimmed := 0
		for i := range 150 {
			p.stage(uint64(i%3), 700)
			before := p.log.Producers().Snapshot()
			for {
				if p.log.flight == nil && p.log.filling.entries == 0 {
					p.log.Retain(0, p.log.Committed())
				}
				if j := p.log.TakeJob(); j != nil {
					if j.kind == jobTrim {
						trimmed++
					}
					// Of a deletion whose directory is not synced yet, any part may have happened.
					p.fs.OnOp(func(_ int, op, _ string) {
						for seed := uint64(0); op == "syncdir" && j.kind == jobTrim && !full && seed < 8; seed++ {
							got, _ := stateOf(t, snapshotDir(t, p.fs.Crash(seed), testDir), p.o)
							checkState(t, "after a power cut in a deletion", got, before)
						}
					})
					j.Run()
					p.fs.OnOp(nil)
					p.log.JobDone(j)
				} else if op := p.log.NextOp(); op != nil {
					runHere(op)
					p.log.OpDone(op)
				} else {
					break
				}
				if p.log.flight != nil || p.log.filling.entries > 0 || full {
					continue
				}
				got, _ := stateOf(t, snapshotDir(t, p.fs, testDir), p.o)
				checkState(t, "in the middle of a sweep", got, before)
				got, _ = stateOf(t, snapshotDir(t, p.fs.Crash(crashfs.SeedLoseAll), testDir), p.o)
				checkState(t, "after a power cut in the middle of a sweep", got, before)
			}
		}
		if trimmed < 3 {
			t.Errorf("full disk %v: %d segments deleted", full, trimmed)
		}
		if n := p.log.Stats().CheckpointErrors; (n > 0) != full {
			t.Errorf("full disk %v: %d checkpoints failed", full, n)
		}
		if err := p.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Two segments may begin before a checkpoint could be written. What was sealed meanwhile is deleted only
// after one that covers it is on the disk, also while the last write of the second is in flight.
func TestDeletionWaitsForACheckpointOfItsOwn(t *testing.T) { // LOG-22
	p := newProducing(t, withMode(FsyncPeriodic), withSegment(16<<10))
	fill := func(step func()) {
		for p.log.cur == nil || !p.log.cur.full(2300, p.o.SegmentBytes) {
			p.stage(p.log.Next()%3, 900)
			step()
		}
	}
	write := func() {
		if op := p.log.NextOp(); op != nil {
			runHere(op)
			p.log.OpDone(op)
		}
	}
	fill(func() { pump(p.log) })
	p.stage(7, 2000) // the second segment begins, and is opened
	j := p.log.TakeJob()
	j.Run()
	p.log.JobDone(j)
	write()
	fill(write)
	p.stage(8, 900)
	op := p.log.NextOp() // the last write of the second segment
	p.stage(9, 2000)     // the third one begins
	p.log.SetRetention(Retention{Bytes: 1})
	kinds := func() (kinds []jobKind) {
		for {
			p.log.Retain(0, p.log.Committed())
			j := p.log.TakeJob()
			if j == nil {
				return kinds
			}
			kinds = append(kinds, j.kind)
			j.Run()
			p.log.JobDone(j)
		}
	}
	got := kinds()
	runHere(op)
	p.log.OpDone(op)
	got = append(got, kinds()...)
	if at := slices.Index(got, jobCheckpoint); at < 0 || slices.Index(got, jobTrim) < at || !slices.Contains(got, jobSeal) {
		t.Fatalf("jobs %v: want the checkpoint, then the deletion", got)
	}
	write()
	pump(p.log)
	state, _ := stateOf(t, snapshotDir(t, p.fs, testDir), p.o)
	checkState(t, "after the deletion", state, p.log.Producers().Snapshot())
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
}
