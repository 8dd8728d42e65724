package log

import (
	"fmt"
	"reflect"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
)

// witness knows what a crash at this moment must leave.
type witness struct {
	t      *testing.T
	fs     *crashfs.FS
	o      Options // without FS
	log    *Log
	acked  uint64          // answered as committed
	bounds map[uint64]bool // offsets between entries
	images int
	seeds  []uint64
	nested bool
}

// promised is the least that must be there.
func (w *witness) promised() uint64 {
	switch {
	case w.log == nil:
		return w.acked // everything was closed, and closing makes durable
	case w.o.Mode == FsyncOnCommit:
		return w.acked
	}
	return w.log.durable
}

// staged is the most that can be there.
func (w *witness) staged() uint64 {
	if w.log == nil {
		return w.acked
	}
	return max(w.log.next, w.acked)
}

// crash looks at what a power cut now would leave, for every seed.
func (w *witness) crash(n int, op, path string) {
	for _, seed := range w.seeds {
		w.images++
		what := fmt.Sprintf("cut before operation %d (%s %s), seed %d", n, op, path, seed)
		image := w.fs.Crash(seed)
		if w.nested {
			// The machine dies again while it recovers, at every operation of that.
			broken := image.Crash(crashfs.SeedKeepAll)
			broken.OnOp(func(m int, op, path string) {
				w.check(fmt.Sprintf("%s, again at %d (%s %s)", what, m, op, path), broken.Crash(seed*7+uint64(m)))
			})
			o := w.o
			o.FS = broken
			if l, err := Open(o); err == nil {
				l.letGo()
			}
		}
		w.check(what, image)
	}
}

// check opens an image: acknowledged records are there once and in order, what follows them is a
// prefix of what was being written, a second recovery changes nothing, and the log goes on.
func (w *witness) check(what string, image *crashfs.FS) {
	w.t.Helper()
	o := w.o
	o.FS = image
	l, err := Open(o)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	next := l.Committed()
	if next < w.promised() || next > w.staged() || !w.bounds[next] {
		w.t.Fatalf("%s: %d records, promised %d, staged %d", what, next, w.promised(), w.staged())
	}
	checkRecords(w.t, l, 0, next)
	before := snapshotDir(w.t, image, testDir)
	l2, err := Open(o)
	if err != nil || !reflect.DeepEqual(before, snapshotDir(w.t, image, testDir)) {
		w.t.Fatalf("%s: a second recovery is not the first: %v", what, err)
	}
	commitOne(w.t, l2, 1, 20)
	checkRecords(w.t, l2, 0, next+1)
	// HZ-7: what was written after the recovery survives the next one.
	l3, err := Open(o)
	if err != nil {
		w.t.Fatalf("%s: after one more record: %v", what, err)
	}
	checkRecords(w.t, l3, 0, next+1)
	l.letGo()
	l2.letGo()
	l3.letGo()
}

func (w *witness) open() {
	o := w.o
	o.FS = w.fs
	l, err := Open(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.log = l
	w.bounds[l.Next()] = true
}

// take stages one entry.
func (w *witness) take(n, size int) {
	appendOne(w.t, w.log, n, size)
	w.bounds[w.log.Next()] = true
}

// step does the owner's duties until nothing is left; acknowledgements count at once.
func (w *witness) step() {
	for {
		var out Outcome
		if j := w.log.TakeJob(); j != nil {
			j.Run()
			out = w.log.JobDone(j)
		} else if op := w.log.NextOp(); op != nil {
			runHere(op)
			out = w.log.OpDone(op)
		} else {
			return
		}
		if out.Err != nil {
			w.t.Fatal(out.Err)
		}
		w.acked = out.Committed
	}
}

// script appends, rolls, seals, fails a write, closes and reopens.
func (w *witness) script() {
	w.open()
	for round := range 3 {
		for i := range 7 {
			for j := range 1 + i%4 {
				w.take(1+j%3, 120+(round*500+i*900+j*150)%4200)
			}
			w.step()
			if op := w.log.Tick(); op != nil && i%3 == 1 {
				runHere(op)
				w.log.OpDone(op)
			} else if op != nil {
				w.log.syncing = false // never submitted
			}
			w.step()
		}
		switch round {
		case 0:
			w.failWrite()
		case 1:
			if err := w.log.Close(); err != nil {
				w.t.Fatal(err)
			}
			w.acked = w.log.Committed()
			w.log = nil
			w.open()
		}
	}
	if err := w.log.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.log = nil
}

// failWrite has a group of three entries fail after its first one.
func (w *witness) failWrite() {
	for range 3 {
		w.take(1, 200)
	}
	for j := w.log.TakeJob(); j != nil; j = w.log.TakeJob() {
		j.Run()
		w.log.JobDone(j)
	}
	op := w.log.NextOp()
	runPart(op, opSize(op)/2, diskError(syscall.ENOSPC))
	w.log.OpDone(op)
	for _, out := range pump(w.log) {
		if out.Err != nil {
			w.acked = out.Committed
		}
	}
}

// setups are the ways in which groups are written: by the mode, and past the page cache.
var setups = []struct {
	name   string
	mode   FsyncMode
	direct bool
}{
	{"on_commit", FsyncOnCommit, false}, {"direct", FsyncOnCommit, true}, {"periodic", FsyncPeriodic, false}, {"none", FsyncNone, false},
}

func newWitness(t *testing.T, mode FsyncMode, direct bool, seeds ...uint64) *witness {
	fs := crashfs.New()
	return &witness{
		t: t, fs: fs, o: testOptions(nil, withMode(mode), withDirect(direct), withSegment(24<<10), withGroup(4)),
		bounds: map[uint64]bool{0: true}, seeds: seeds,
	}
}

// Power is cut at every operation of the script. Under on_commit no acknowledged record is lost;
// in the other modes none that was synced; and in every mode the log is a gap-free prefix.
func TestAcknowledgedRecordsSurviveAPowerCutAnywhere(t *testing.T) { // LOG-3, LOG-21, LOG-23, HZ-1, HZ-3, HZ-7
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			seeds := []uint64{crashfs.SeedLoseAll, 2, 3, crashfs.SeedKeepAll, 5}
			every := 1
			if invariants.Enabled { // race builds are slow
				seeds, every = seeds[:3], 5
			}
			w := newWitness(t, s.mode, s.direct, seeds...)
			w.fs.OnOp(func(n int, op, path string) {
				if n%every == 0 {
					w.crash(n, op, path)
				}
			})
			w.script()
			if w.images < 1000 && !invariants.Enabled {
				t.Errorf("only %d images", w.images)
			}
			t.Logf("%d images, %d records", w.images, w.acked)
		})
	}
}

// The machine dies again during recovery, at every operation of it.
func TestPowerCutDuringRecovery(t *testing.T) { // LOG-4, HZ-7
	for _, s := range setups[:3] {
		w := newWitness(t, s.mode, s.direct, 9)
		w.nested = true
		every := 5
		if invariants.Enabled {
			every = 37
		}
		w.fs.OnOp(func(n int, op, path string) {
			if n%every == 0 {
				w.crash(n, op, path)
			}
		})
		w.script()
	}
}

// killed ends a script in the middle of an operation, as SIGKILL does.
type killed struct{ op string }

// A process that dies leaves its page cache: whatever was written is there, in every mode. It is
// served only after a sync, so that a power cut afterwards takes nothing back that was read.
func TestAcknowledgedRecordsSurviveAKill(t *testing.T) { // LOG-2, HZ-1
	every := 1
	if invariants.Enabled {
		every = 7
	}
	for _, s := range setups {
		mode := s.name
		for n, ended := 1, false; !ended; n += every {
			w := newWitness(t, s.mode, s.direct)
			ended = w.runUntil(n)
			w.fs.OnOp(nil)
			o := w.o
			o.FS = w.fs
			l, err := Open(o)
			if err != nil {
				t.Fatalf("%s: killed at operation %d: %v", mode, n, err)
			}
			if next := l.Committed(); next < w.acked || next > w.staged() || !w.bounds[next] {
				t.Fatalf("%s: killed at operation %d: %d records, acknowledged %d, staged %d", mode, n, next, w.acked, w.staged())
			}
			checkRecords(t, l, 0, l.Committed())
			o.FS = w.fs.Crash(crashfs.SeedLoseAll)
			after, err := Open(o)
			if err != nil || after.Committed() != l.Committed() {
				t.Fatalf("%s: killed at operation %d: served %d records that were not on the disk: %v", mode, n, l.Committed(), err)
			}
			l.letGo()
			after.letGo()
		}
	}
}

// runUntil runs the script until operation n and says whether it came to its end before.
func (w *witness) runUntil(n int) (ended bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	w.fs.OnOp(func(m int, op, _ string) {
		if m == n {
			panic(killed{op})
		}
	})
	w.script()
	return true
}
