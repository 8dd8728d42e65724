package log

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/internal/crashfs"
)

func TestProducerVerdicts(t *testing.T) { // PUB-23, PUB-24
	p := NewProducers()
	check := func(id, seq, digest uint64, want Verdict, offset, expected uint64) {
		t.Helper()
		if v, o, e := p.Check(id, seq, digest); v != want || o != offset || e != expected {
			t.Errorf("Check(%d, %d, %d) = %d %d %d, want %d %d %d", id, seq, digest, v, o, e, want, offset, expected)
		}
	}
	check(7, 0, 1, ProducerAppend, 0, 0)
	check(7, 1, 1, ProducerUnknown, 0, 0)
	for seq := range uint64(100) {
		check(7, seq, 1000+seq, ProducerAppend, 0, seq)
		p.Add(7, seq, 1000+seq, 10*seq, 10)
		p.Add(7, seq, 1000+seq, 10*seq, 10) // again, changes nothing
		check(7, seq, 1000+seq, ProducerDuplicate, 10*seq, seq+1)
	}
	check(7, 100, 5, ProducerAppend, 0, 100)
	check(7, 101, 5, ProducerGap, 0, 100)
	check(7, 36, 1036, ProducerDuplicate, 360, 100) // the 64th from the end
	check(7, 36, 5, ProducerReused, 360, 100)
	check(7, 35, 1035, ProducerExpired, 0, 100)
	check(8, 3, 5, ProducerUnknown, 0, 0)
	p.Truncate(980)
	check(7, 98, 1098, ProducerAppend, 0, 98)
	check(7, 97, 1097, ProducerDuplicate, 970, 98)
	p.Truncate(0)
	check(7, 40, 1040, ProducerGap, 0, 36) // 36 batches are known to have been before
	check(7, 36, 1, ProducerAppend, 0, 36)
	check(7, 35, 1, ProducerExpired, 0, 36)
	p = NewProducers()
	p.Add(9, 0, 1, 5, 1)
	p.Truncate(5)
	if p.Len() != 0 {
		t.Error("a producer whose only batch is void is still known")
	}
}

// The producer whose newest batch is oldest is forgotten first.
func TestProducersAreBounded(t *testing.T) {
	p := NewProducers()
	offset := uint64(0)
	add := func(id, seq uint64) {
		p.Add(id, seq, 0, offset, 1)
		offset++
	}
	for id := range uint64(producersMax) {
		add(id, 0)
	}
	add(0, 1)            // 0 is the newest now, 1 the oldest
	add(producersMax, 0) // one too many
	if v, _, _ := p.Check(1, 1, 0); v != ProducerUnknown {
		t.Errorf("producer 1: %d, want unknown", v)
	}
	if v, _, _ := p.Check(0, 2, 0); v != ProducerAppend {
		t.Errorf("producer 0: %d, want append", v)
	}
	if p.Len() != producersMax {
		t.Errorf("%d producers", p.Len())
	}
}

// The state is that of a naive list of batches.
func TestProducersAgainstAList(t *testing.T) {
	type batch struct{ id, seq, digest, offset uint64 }
	rapid.Check(t, func(t *rapid.T) {
		p := NewProducers()
		p.max = 3
		var all []batch // what is remembered, in order of offset
		next := map[uint64]uint64{}
		offset := uint64(0)
		newest := func(id uint64) (o uint64) {
			for _, b := range all {
				if b.id == id {
					o = b.offset + 1
				}
			}
			return o
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := rapid.Uint64Range(1, 5).Draw(t, "id")
				if _, known := next[id]; !known {
					if len(next) == p.max {
						oldest := uint64(0)
						for k := range next {
							if oldest == 0 || newest(k) < newest(oldest) {
								oldest = k
							}
						}
						delete(next, oldest)
						kept := all[:0:0]
						for _, b := range all {
							if b.id != oldest {
								kept = append(kept, b)
							}
						}
						all = kept
					}
					next[id] = 0
				}
				digest := rapid.Uint64Range(0, 3).Draw(t, "digest")
				p.Add(id, next[id], digest, offset, 1)
				all = append(all, batch{id, next[id], digest, offset})
				next[id]++
				offset++
			},
			"truncate": func(t *rapid.T) {
				from := offset - min(offset, rapid.Uint64Range(0, 4).Draw(t, "n"))
				p.Truncate(from)
				for len(all) > 0 && all[len(all)-1].offset >= from {
					b := all[len(all)-1]
					all = all[:len(all)-1]
					if next[b.id]--; next[b.id] == 0 {
						delete(next, b.id)
					}
				}
				offset = from
			},
			"": func(t *rapid.T) {
				if p.Len() != len(next) {
					t.Fatalf("%d producers, want %d", p.Len(), len(next))
				}
				for _, b := range all {
					v, o, e := p.Check(b.id, b.seq, b.digest)
					if next[b.id]-b.seq > producerBatchesMax {
						if v != ProducerExpired {
							t.Fatalf("%+v: %d, want expired", b, v)
						}
						continue
					}
					if v != ProducerDuplicate || o != b.offset || e != next[b.id] {
						t.Fatalf("%+v: %d %d %d", b, v, o, e)
					}
				}
			},
		})
	})
}

// The state after a restart is the one before, with segments sealed and not, after a clean end and
// after a kill; what a failed write voided is forgotten in both.
func TestProducerStateSurvivesARestart(t *testing.T) { // LOG-22, PUB-23
	fs := crashfs.New()
	o := testOptions(fs, withSegment(16<<10))
	l := mustOpen(t, o)
	seqs := map[uint64]uint64{}
	publish := func(id uint64) {
		e := entryOf(recordsAt(l.Next(), 2, 90))
		e.HasProducer, e.ProducerID, e.Sequence, e.Digest = true, id, seqs[id], Digest(e.Section)
		if v, _, _ := l.Producers().Check(id, e.Sequence, e.Digest); v != ProducerAppend {
			t.Fatalf("producer %d sequence %d: %d", id, e.Sequence, v)
		}
		first, err := l.Append(e, 1)
		if err != nil {
			t.Fatal(err)
		}
		l.Producers().Add(id, e.Sequence, e.Digest, first, e.Count)
		seqs[id]++
	}
	for i := range 300 {
		publish(uint64(1 + i%3*i%7))
		if i%5 == 0 {
			commitOne(t, l, 1, 10) // others are in between
		}
		pump(l)
	}
	before := l.Producers().Snapshot()
	ko := o
	ko.FS = fs.Crash(crashfs.SeedKeepAll)
	killed := mustOpen(t, ko)
	if d := cmp.Diff(before, killed.Producers().Snapshot()); d != "" {
		t.Errorf("after a kill (-before +after):\n%s", d)
	}
	killed.letGo()

	publish(1)
	publish(99)
	for j := l.TakeJob(); j != nil; j = l.TakeJob() {
		j.Run()
		l.JobDone(j)
	}
	op := l.NextOp()
	runPart(op, 100, diskError(28))
	l.OpDone(op)
	pump(l)
	if v, _, e := l.Producers().Check(1, seqs[1]-1, 0); v != ProducerAppend || e != seqs[1]-1 {
		t.Errorf("a void batch is remembered: %d, expected %d", v, e)
	}
	if v, _, _ := l.Producers().Check(99, 0, 0); v != ProducerAppend {
		t.Error("a producer of void batches only is remembered")
	}
	seqs[1]--
	publish(1)
	pump(l)
	before = l.Producers().Snapshot()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	got := l.Producers().Snapshot()
	// The window may have lost its oldest batch to the one that became void; the log gives it back.
	for i := range got {
		if n := len(got[i].Batches) - len(before[i].Batches); n > 0 && n <= 1 {
			got[i].Batches = got[i].Batches[n:]
		}
	}
	if d := cmp.Diff(before, got); d != "" {
		t.Errorf("after a restart (-before +after):\n%s", d)
	}
}
