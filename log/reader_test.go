package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
)

// inbox takes ended operations and jobs to the owner, as an executor's does.
type inbox struct {
	ops  chan *ring.Op
	jobs chan *Job
}

func (i *inbox) OpDone(op *ring.Op) { i.ops <- op }

// drive is the owner of a log on an engine with a worker: it appends n entries and acknowledges.
func drive(t *testing.T, l *Log, engine ring.Engine, n int, acked *atomic.Uint64) {
	in := &inbox{ops: make(chan *ring.Op, 4), jobs: make(chan *Job, 4)}
	l.SetOwner(in)
	var workers sync.WaitGroup
	defer workers.Wait()
	out := 0 // operations and jobs out
	apply := func(o Outcome) {
		if o.Err != nil {
			t.Errorf("outcome: %v", o.Err)
		}
		acked.Store(o.Committed)
		out--
	}
	for appended := 0; appended < n || out > 0 || l.Committed() < l.Next(); {
		for appended < n {
			_, err := l.Append(entryOf(recordsAt(l.Next(), 1+appended%3, 200)), l.Next())
			if errors.Is(err, ErrGroupFull) {
				break
			}
			if err != nil {
				t.Errorf("append: %v", err)
				return
			}
			appended++
			if appended%17 == 0 {
				break // not everything fits in one group
			}
		}
		for j := l.TakeJob(); j != nil; j = l.TakeJob() {
			out++
			workers.Go(func() { j.Run(); in.jobs <- j })
		}
		if op := l.NextOp(); op != nil {
			out++
			engine.Submit([]*ring.Op{op})
		} else if op := l.Tick(); op != nil {
			out++
			engine.Submit([]*ring.Op{op})
		}
		if out == 0 {
			continue
		}
		select {
		case op := <-in.ops:
			apply(l.OpDone(op))
		case j := <-in.jobs:
			apply(l.JobDone(j))
		}
	}
}

// Readers on other goroutines see every record below the committed bound, whole and in order, while
// the owner appends, rolls and seals; with the engines that the broker runs.
func TestReadersSeeCommittedRecordsWhileTheOwnerAppends(t *testing.T) { // LOG-17, LOG-20
	kinds := []string{ring.Portable, ring.URing}
	for _, kind := range kinds {
		for _, mode := range []FsyncMode{FsyncOnCommit, FsyncPeriodic} {
			t.Run(fmt.Sprintf("%s/%s", kind, mode), func(t *testing.T) {
				engine, _, err := ring.Open(kind, ring.Options{Depth: 16})
				if err != nil {
					t.Skipf("engine %s does not run here: %v", kind, err)
				}
				defer engine.Close()
				o := testOptions(ring.OS(), withMode(mode), withSegment(64<<10), func(o *Options) { o.Dir = t.TempDir() })
				l := mustOpen(t, o)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var acked atomic.Uint64
				var done atomic.Bool
				var readers sync.WaitGroup
				for r := range 3 {
					readers.Go(func() {
						at := uint64(0)
						for ctx.Err() == nil {
							ended := done.Load()
							bound := acked.Load()
							got, err := readRecords(l, at, 1000*(r+1))
							if err != nil {
								t.Errorf("reader %d at %d: %v", r, at, err)
								return
							}
							for i, rec := range got {
								if string(rec) != string(recordAt(at+uint64(i), len(rec))) {
									t.Errorf("reader %d: record %d is not what was written", r, at+uint64(i))
									return
								}
							}
							if at += uint64(len(got)); at < bound {
								t.Errorf("reader %d ends at %d, acknowledged was %d", r, at, bound)
								return
							}
							if ended {
								return
							}
							if r == 2 {
								at /= 2 // reads history again, across sealed segments
							}
						}
					})
				}
				drive(t, l, engine, 3000, &acked)
				done.Store(true)
				readers.Wait()
				next := l.Next()
				checkRecords(t, l, 0, next)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if s := l.Stats(); s.Segments < 10 || s.Groups >= s.Entries {
					t.Errorf("%d segments, %d entries in %d writes", s.Segments, s.Entries, s.Groups)
				}
				l = mustOpen(t, o)
				checkRecords(t, l, 0, next)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A reader keeps its file through seal, eviction, unlink and Close.
func TestReaderKeepsItsFile(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, withSegment(8<<10)))
	for range 100 {
		commitOne(t, l, 1, 400)
	}
	v := l.view.Load()
	if len(v.segs) < 2*sealedOpenMax {
		t.Fatalf("%d segments", len(v.segs))
	}
	h, err := l.files.get(v.segs[0])
	if err != nil {
		t.Fatal(err)
	}
	checkRecords(t, l, 0, 100) // opens and evicts the others
	if n := len(l.files.sealed); n > sealedOpenMax {
		t.Errorf("%d sealed segments are open, the bound is %d", n, sealedOpenMax)
	}
	if err := fs.Remove(testDir + "/" + segmentName(v.segs[0].id)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var b [entryHeaderBytes]byte
	if n, err := readFull(h.file, b[:], blockBytes); err != nil || n != len(b) {
		t.Errorf("the file was closed under its reader: %v", err)
	}
	h.done()
	if _, err := h.file.Size(); !errors.Is(err, ring.ErrClosed) {
		t.Errorf("the last reference left the file open: %v", err)
	}
}
