package log

import (
	"reflect"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// While retention deletes the segments that the batches were in, and writes fail in between, a power cut
// at any operation leaves the state as it was before the publish that was going on, or after it.
func TestProducersOutliveRetentionAtAnyCut(t *testing.T) { // LOG-22, LOG-13, PUB-23
	inner := crashfs.New()
	fs := ringtest.NewFS(inner)
	o := testOptions(fs, withSegment(12<<10))
	l := mustOpen(t, o)
	p := &idempotents{t: t, log: l, seqs: map[uint64]uint64{}}
	l.SetRetention(Retention{Bytes: 14 << 10})
	var before, after []ProducerState
	images, trimmed, restored := 0, 0, 0
	inner.OnOp(func(n int, op, path string) {
		if after == nil || invariants.Enabled && n%5 != 0 {
			return
		}
		for _, seed := range []uint64{crashfs.SeedLoseAll, crashfs.SeedKeepAll, uint64(n)} {
			images++
			ko := o
			ko.FS = inner.Crash(seed)
			k, err := Open(ko)
			if err != nil {
				t.Fatalf("operation %d (%s %s), seed %d: %v", n, op, path, seed, err)
			}
			got := k.Producers().Snapshot()
			if !reflect.DeepEqual(got, before) && !reflect.DeepEqual(got, after) {
				t.Fatalf("operation %d (%s %s), seed %d, base %d (-before +after the cut):\n%s", n, op, path, seed, k.Base(), cmp.Diff(before, got))
			}
			if k.Base() > 0 {
				trimmed++
			}
			if len(got) > 0 && got[0].Batches[0].Offset < k.Base() {
				restored++
			}
			k.letGo()
		}
	})
	failures := 0
	for i := range 260 {
		before = l.Producers().Snapshot()
		id := uint64(1 + i/20) // no window is ever full: what is void takes nothing else with it
		if i%13 == 12 {
			fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: ".seg", Err: syscall.ENOSPC})
		}
		p.publish(id, 700)
		after = l.Producers().Snapshot()
		for {
			var out Outcome
			if j := l.TakeJob(); j != nil {
				j.Run()
				out = l.JobDone(j)
			} else if op := l.NextOp(); op != nil {
				if i%11 == 10 {
					runPart(op, 70, diskError(syscall.ENOSPC))
				} else {
					runHere(op)
				}
				out = l.OpDone(op)
			} else {
				break
			}
			if out.Err != nil {
				failures++
				p.seqs[id]--
			}
		}
		fs.Clear()
		l.Retain(1, l.Committed())
		pump(l)
	}
	after = nil
	if failures < 5 || images < 500 || trimmed < images/4 || restored < images/8 || l.Stats().Trimmed < 5 {
		t.Errorf("%d failures, %d images, %d of them trimmed, %d with batches of deleted segments, %d segments deleted",
			failures, images, trimmed, restored, l.Stats().Trimmed)
	}
	l.letGo()
}
