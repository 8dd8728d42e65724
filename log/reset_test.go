package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
)

// voided gathers what outcomes void. Every one of them must be of a reset.
func voided(t testing.TB, outs ...Outcome) (from, to uint64, n int) {
	t.Helper()
	for _, out := range outs {
		if out.Err != nil {
			if !errors.Is(out.Err, ErrReset) {
				t.Fatalf("outcome: %v", out.Err)
			}
			from, to = out.FailedFrom, out.FailedTo
			n++
		}
	}
	return from, to, n
}

// PUB-27, BUG-11: whatever a log is doing when it is reset, all that is not committed is void, once, and
// the next append takes its offsets; what was committed stays. Nothing that was voided is there after a
// power cut, also not what had been written and synced already.
func TestResetVoidsWhatIsNotCommitted(t *testing.T) {
	stage := func(t testing.TB, l *Log) { appendOne(t, l, 2, 100) }
	submit := func(t testing.TB, l *Log) *ring.Op {
		t.Helper()
		stage(t, l)
		for j := l.TakeJob(); j != nil; j = l.TakeJob() {
			j.Run()
			l.JobDone(j)
		}
		op := l.NextOp()
		if op == nil {
			t.Fatal("nothing to submit")
		}
		return op
	}
	ends := func(l *Log, op *ring.Op) Outcome { // the offsets are not free until the operation has ended
		if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 50)), 1); !errors.Is(err, ErrGroupFull) {
			t.Errorf("append between the reset and the end: %v", err)
		}
		runHere(op)
		return l.OpDone(op)
	}
	states := []struct {
		name string
		void uint64 // records
		run  func(testing.TB, *Log) []Outcome
	}{
		{"at rest", 0, func(_ testing.TB, l *Log) []Outcome { return []Outcome{l.Reset()} }},
		{"staged", 2, func(t testing.TB, l *Log) []Outcome {
			stage(t, l)
			return []Outcome{l.Reset()}
		}},
		{"staged, while its segment is opened", 2, func(t testing.TB, l *Log) []Outcome {
			stage(t, l)
			j := l.TakeJob()
			outs := []Outcome{l.Reset()}
			if j != nil {
				j.Run()
				outs = append(outs, l.JobDone(j))
			}
			return outs
		}},
		{"in flight", 2, func(t testing.TB, l *Log) []Outcome {
			op := submit(t, l)
			return []Outcome{l.Reset(), ends(l, op)}
		}},
		{"in flight, twice", 2, func(t testing.TB, l *Log) []Outcome {
			op := submit(t, l)
			return []Outcome{l.Reset(), l.Reset(), ends(l, op), l.Reset()}
		}},
		{"in flight, and the next fills", 4, func(t testing.TB, l *Log) []Outcome {
			op := submit(t, l)
			stage(t, l)
			return []Outcome{l.Reset(), ends(l, op)}
		}},
		{"in flight, and the next fills a new segment", 4, func(t testing.TB, l *Log) []Outcome {
			op := submit(t, l)
			if _, err := l.Append(entryOf(recordsAt(l.Next(), 2, 40<<10)), 1); err != nil {
				t.Fatal(err)
			}
			return []Outcome{l.Reset(), ends(l, op)}
		}},
		{"in flight, written and not ended", 2, func(t testing.TB, l *Log) []Outcome {
			op := submit(t, l)
			runHere(op)
			return []Outcome{l.Reset(), l.OpDone(op)}
		}},
		{"in flight, and the write fails", 2, func(t testing.TB, l *Log) []Outcome {
			op := submit(t, l)
			out := l.Reset()
			runPart(op, 100, diskError(syscall.ENOSPC))
			return []Outcome{out, l.OpDone(op)}
		}},
	}
	for _, mode := range []FsyncMode{FsyncOnCommit, FsyncPeriodic, FsyncNone} {
		for _, direct := range []bool{false, true} {
			for before := range uint64(3) {
				for _, state := range states {
					t.Run(fmt.Sprintf("%v/direct=%t/before=%d/%s", mode, direct, before, state.name), func(t *testing.T) {
						fs := crashfs.New()
						o := testOptions(fs, withMode(mode), withDirect(direct))
						l := mustOpen(t, o)
						for range before {
							commitOne(t, l, 1, 60)
						}
						outs := state.run(t, l)
						if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 50)), 1); err != nil && !errors.Is(err, ErrGroupFull) {
							t.Fatal(err)
						} else if err == nil && l.Next() != before+1 {
							t.Fatalf("took offset %d before the reset is done", l.Next()-1)
						} else if err == nil {
							outs = append(outs, pump(l)...)
						}
						outs = append(outs, pump(l)...)
						next := l.Committed()
						switch from, to, n := voided(t, outs...); {
						case state.void == 0 && n != 0:
							t.Errorf("%d outcomes void something", n)
						case state.void != 0 && (n != 1 || from != before || to != before+state.void):
							t.Errorf("%d outcomes, the last voids [%d, %d)", n, from, to)
						}
						if next != before && next != before+1 || l.Next() != next {
							t.Fatalf("committed %d, next %d, of %d", next, l.Next(), before)
						}
						checkRecords(t, l, 0, next)
						if first := commitOne(t, l, 1, 70); first != next {
							t.Fatalf("the next append is at %d", first)
						}
						checkRecords(t, l, 0, next+1)
						if mode == FsyncOnCommit {
							after := mustOpen(t, testOptions(fs.Crash(crashfs.SeedLoseAll), withDirect(direct)))
							checkRecords(t, after, 0, next+1)
							if err := after.Close(); err != nil {
								t.Error(err)
							}
						}
						if err := l.Close(); err != nil {
							t.Fatal(err)
						}
						again := mustOpen(t, testOptions(fs, withMode(mode), withDirect(direct)))
						checkRecords(t, again, 0, next+1)
						if err := again.Close(); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	}
}

// A sync that fails while a reset waits for it poisons, as ever; so does Fail, and a reset of a poisoned
// log changes nothing.
func TestResetOfAPoisonedLogChangesNothing(t *testing.T) {
	for _, fail := range []bool{false, true} {
		l := mustOpen(t, testOptions(crashfs.New()))
		commitOne(t, l, 1, 50)
		appendOne(t, l, 2, 50)
		op := l.NextOp()
		l.Reset()
		var out Outcome
		if fail {
			if out = l.Fail(errors.New("the owner")); out.Err != nil {
				t.Fatalf("void before the write has ended: %+v", out)
			}
			runHere(op)
		} else {
			runPart(op, opSize(op), diskError(syscall.EIO))
		}
		if out = l.OpDone(op); !errors.Is(out.Err, ErrPoisoned) || out.FailedFrom != 1 || out.FailedTo != 3 {
			t.Errorf("fail %t: %+v", fail, out)
		}
		if out := l.Reset(); out.Err != nil || out.Committed != 1 {
			t.Errorf("fail %t: reset afterwards: %+v", fail, out)
		}
		if _, err := l.Append(entryOf(recordsAt(1, 1, 50)), 1); !errors.Is(err, ErrPoisoned) {
			t.Errorf("fail %t: append: %v", fail, err)
		}
		if err := l.Close(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("fail %t: close: %v", fail, err)
		}
	}
}

// Resets at random, among appends, rolls, failing writes, power cuts and reopenings: the log is the slice
// of what was committed.
func TestRandomResets(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 27))
		fs := crashfs.New()
		direct := seed%2 == 1
		l := mustOpen(t, testOptions(fs, withDirect(direct), withSegment(16<<10)))
		var job *Job
		var op *ring.Op
		for range 400 {
			switch rng.IntN(9) {
			case 0, 1, 2:
				_, err := l.Append(entryOf(recordsAt(l.Next(), 1+rng.IntN(3), 8+rng.IntN(2000))), 1)
				if err != nil && !errors.Is(err, ErrGroupFull) {
					t.Fatalf("seed %d: append: %v", seed, err)
				}
			case 3, 4:
				if job == nil {
					job = l.TakeJob()
				} else {
					job.Run()
					l.JobDone(job)
					job = nil
				}
			case 5, 6:
				if op == nil {
					op = l.NextOp()
				} else {
					if rng.IntN(6) == 0 {
						runPart(op, rng.Int64N(opSize(op)), diskError(syscall.ENOSPC))
					} else {
						runHere(op)
					}
					l.OpDone(op)
					op = nil
				}
			case 7:
				committed := l.Committed()
				if l.Reset(); l.Committed() != committed {
					t.Fatalf("seed %d: a reset moved committed from %d to %d", seed, committed, l.Committed())
				}
			case 8:
				if rng.IntN(10) > 0 {
					continue
				}
				checkRecords(t, l, 0, l.Committed())
				if op != nil || job != nil { // a power cut: what was committed is there, and perhaps a group more
					committed := l.Committed()
					fs = fs.Crash(rng.Uint64())
					l = mustOpen(t, testOptions(fs, withDirect(direct), withSegment(16<<10)))
					op, job = nil, nil
					if l.Committed() < committed {
						t.Fatalf("seed %d: %d of %d records after the power cut", seed, l.Committed(), committed)
					}
					checkRecords(t, l, 0, l.Committed())
				}
			}
		}
	}
}
