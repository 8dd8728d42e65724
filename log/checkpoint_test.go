package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// idempotents publishes as the broker does: append, then add.
type idempotents struct {
	t    testing.TB
	log  *Log
	seqs map[uint64]uint64
}

func (p *idempotents) publish(id uint64, size int) {
	p.t.Helper()
	e := entryOf(recordsAt(p.log.Next(), 1, size))
	e.HasProducer, e.ProducerID, e.Sequence, e.Digest = true, id, p.seqs[id], Digest(e.Section)
	first, err := p.log.Append(e, 1)
	for errors.Is(err, ErrGroupFull) {
		pump(p.log)
		first, err = p.log.Append(e, 1)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.log.Producers().Add(id, e.Sequence, e.Digest, first, e.Count)
	p.seqs[id]++
}

// segmentedLog holds at least four segments, with batches of eight producers in all of them, of five only in
// the first two. It is killed: nothing is closed.
func segmentedLog(t testing.TB, fs *crashfs.FS, change ...func(*Options)) (Options, *Log, *idempotents) {
	t.Helper()
	o := testOptions(fs, append([]func(*Options){withSegment(16 << 10)}, change...)...)
	l := mustOpen(t, o)
	p := &idempotents{t: t, log: l, seqs: map[uint64]uint64{}}
	for i := 0; len(l.view.Load().segs) < 5; i++ {
		id := uint64(1 + i%3)
		if len(l.view.Load().segs) < 3 {
			id = uint64(1 + i%8)
		}
		p.publish(id, 100+i%7*40)
		pump(l)
	}
	return o, l, p
}

// Recovery takes the state from the checkpoint, reads no sealed segment from end to end, and comes to the
// state before the restart: the windows of all producers with their digests, also of those whose batches
// went with segments that were deleted.
func TestProducersOutliveTheirSegments(t *testing.T) { // LOG-22, PUB-23, PUB-24, HZ-18
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		fs := crashfs.New()
		o, l, p := segmentedLog(t, fs, withMode(mode))
		for range 200 { // windows of 64, all full for producer 1
			p.publish(1, 20)
			pump(l)
		}
		before := l.Producers().Snapshot()
		files := snapshotDir(t, fs, testDir)
		segs := l.view.Load().segs
		for gone := range len(segs) {
			kept := maps.Clone(files)
			for _, s := range segs[:gone] {
				delete(kept, segmentName(s.id))
				delete(kept, indexName(s.id))
			}
			ko := o
			ko.FS = restoreDir(t, kept)
			k := mustOpen(t, ko)
			if d := cmp.Diff(before, k.Producers().Snapshot()); d != "" {
				t.Fatalf("%v, without %d segments (-before +after):\n%s", mode, gone, d)
			}
			want := 1
			if mode != FsyncOnCommit && gone+1 < len(segs) && o.Mode != FsyncOnCommit {
				want = k.Recovery().Walked // the last but one is read where nothing proves it whole
				if want > 2 {
					t.Errorf("%v: %d segments were walked", mode, want)
				}
			}
			if r := k.Recovery(); r.Walked != want || r.Segments != len(segs)-gone || r.Records != l.Next()-segs[gone].base {
				t.Errorf("%v, without %d segments: %+v", mode, gone, r)
			}
			checkRecords(t, k, segs[gone].base, l.Next())
			for i, s := range k.view.Load().segs {
				was := segs[gone+i]
				if s.end.Load() != was.end.Load() || s.firstMicros.Load() != was.firstMicros.Load() || s.lastMicros.Load() != was.lastMicros.Load() {
					t.Errorf("segment %d is known otherwise than before", s.id)
				}
			}
			// What is resent after the restart is answered, not written.
			for id, seq := range p.seqs {
				if v, _, next := k.Producers().Check(id, seq-1, 0); v != ProducerReused || next != seq {
					t.Errorf("%v: the last batch of producer %d with other content: %d", mode, id, v)
				}
			}
			k.letGo()
		}
		l.letGo()
	}
}

// A checkpoint that is missing, torn, of another log or another version, or speaks of another place, is
// as good as none: all headers are walked and give the same state.
func TestBadCheckpointIsNoCheckpoint(t *testing.T) { // LOG-22
	fs := crashfs.New()
	o, l, _ := segmentedLog(t, fs)
	before := l.Producers().Snapshot()
	files := snapshotDir(t, fs, testDir)
	good := files[checkpointName]
	c, ok := decodeCheckpoint(good, o.CatalogueID, o.Shard)
	if !ok {
		t.Fatal("the checkpoint that was written does not decode")
	}
	l.letGo()
	resealed := func(change func(*checkpoint)) []byte {
		other := *c
		change(&other)
		return other.encode(o.CatalogueID, o.Shard)
	}
	cases := map[string][]byte{
		"none":              nil,
		"empty":             {},
		"torn":              good[:len(good)-1],
		"longer":            append(bytes.Clone(good), 0),
		"other log":         c.encode(o.CatalogueID+1, o.Shard),
		"other shard":       c.encode(o.CatalogueID, o.Shard+1),
		"other place":       resealed(func(c *checkpoint) { c.base++ }),
		"other use of it":   resealed(func(c *checkpoint) { c.before++; c.after++; c.state = nil }),
		"batches not below": resealed(func(c *checkpoint) { c.base = 3 }),
	}
	for bit := 0; bit < len(good)*8; bit += 211 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		cases[fmt.Sprintf("bit %d", bit)] = b
	}
	for what, b := range cases {
		image := maps.Clone(files)
		if delete(image, checkpointName); b != nil {
			image[checkpointName] = b
		}
		bo := o
		bo.FS = restoreDir(t, image)
		k := mustOpen(t, bo)
		if d := cmp.Diff(before, k.Producers().Snapshot()); d != "" {
			t.Fatalf("%s (-before +after):\n%s", what, d)
		}
		if r := k.Recovery(); r.Walked != r.Segments {
			t.Errorf("%s: believed: %+v", what, r)
		}
		pump(k) // it is written anew, so that the next open is short again
		k.letGo()
		k = mustOpen(t, bo)
		if r := k.Recovery(); r.Walked != 1 {
			t.Errorf("%s: the open after: %+v", what, r)
		}
		if d := cmp.Diff(before, k.Producers().Snapshot()); d != "" {
			t.Errorf("%s, the open after (-before +after):\n%s", what, d)
		}
		k.letGo()
	}
}

// Offsets are given out again after they were void, so a checkpoint is of a place only as long as the
// records before that are those it speaks of.
func TestCheckpointOfRecordsThatNeverWere(t *testing.T) { // LOG-22
	inner := crashfs.New()
	fs := ringtest.NewFS(inner)
	o := testOptions(fs, withSegment(16<<10))
	l := mustOpen(t, o)
	p := &idempotents{t: t, log: l, seqs: map[uint64]uint64{}}
	for len(l.view.Load().segs) < 3 {
		p.publish(1, 400)
		pump(l)
	}
	// A group is in flight, another segment begins behind it, and then the group fails.
	rolls := l.Stats().Rolls
	var op *ring.Op
	for l.Stats().Rolls == rolls {
		e := entryOf(recordsAt(l.Next(), 1, 400))
		e.HasProducer, e.ProducerID, e.Sequence, e.Digest = true, 2, p.seqs[2], Digest(e.Section)
		first, err := l.Append(e, 1)
		if errors.Is(err, ErrGroupFull) {
			if op = l.NextOp(); op == nil {
				t.Fatal("no room and nothing to write")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Producers().Add(2, e.Sequence, e.Digest, first, 1)
		p.seqs[2]++
	}
	if op == nil || l.unwritten == nil || l.unwritten.base <= l.written {
		t.Fatal("no state is frozen above what is written")
	}
	// While it waits to be written, what is deleted is covered by the one before.
	trims := 0
	l.SetRetention(Retention{Bytes: 1})
	l.Retain(1, l.Committed())
	l.SetRetention(Retention{})
	if len(l.trash) == 0 {
		t.Fatal("retention found nothing")
	}
	for j := l.TakeJob(); j != nil; j = l.TakeJob() {
		trim := j.kind == jobTrim
		j.Run()
		l.JobDone(j)
		if trim {
			ko := o
			ko.FS = inner.Crash(crashfs.SeedKeepAll)
			k := mustOpen(t, ko)
			if v, _, next := k.Producers().Check(1, p.seqs[1], 0); v != ProducerAppend || next != p.seqs[1] {
				t.Fatalf("producer 1 after a segment was deleted: %d, next %d, want %d", v, next, p.seqs[1])
			}
			k.letGo()
			trims++
		}
	}
	if trims == 0 {
		t.Fatal("nothing was deleted")
	}
	runPart(op, 0, diskError(syscall.EIO))
	l.OpDone(op)
	pump(l)
	if l.unwritten != nil {
		t.Fatal("the state of void records is still to be written")
	}
	if l.Producers().Len() != 1 {
		t.Fatalf("%d producers", l.Producers().Len())
	}
	for range 100 {
		p.publish(1, 400)
		pump(l)
	}
	before := l.Producers().Snapshot()
	o.FS = inner.Crash(crashfs.SeedKeepAll)
	k := mustOpen(t, o)
	if d := cmp.Diff(before, k.Producers().Snapshot()); d != "" {
		t.Errorf("-before +after:\n%s", d)
	}
	if r := k.Recovery(); r.Walked != 1 || r.Segments < 4 {
		t.Errorf("%+v", r)
	}
	k.letGo()
	l.letGo()
}

// Whatever operation the power fails at, the state afterwards is that of the entries that are there.
func TestProducersAfterAPowerCutAnywhere(t *testing.T) { // LOG-22, LOG-3
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		fs := crashfs.New()
		o := testOptions(nil, withMode(mode), withSegment(12<<10))
		var l *Log
		images := 0
		fs.OnOp(func(n int, op, path string) {
			if l == nil || invariants.Enabled && n%7 != 0 {
				return
			}
			for seed := range uint64(2) {
				images++
				ko := o
				ko.FS = fs.Crash(seed)
				k, err := Open(ko)
				if err != nil {
					t.Fatalf("%v, operation %d (%s %s), seed %d: %v", mode, n, op, path, seed, err)
				}
				if got, want := k.Producers().Snapshot(), producersOf(t, ko.FS); !reflect.DeepEqual(got, want) {
					t.Fatalf("%v, operation %d (%s %s), seed %d:\n%s", mode, n, op, path, seed, cmp.Diff(want, got))
				}
				names, err := ko.FS.ReadDir(testDir)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					if name == checkpointTemp {
						t.Fatalf("operation %d: %s is still there", n, name)
					}
				}
				k.letGo()
			}
		})
		so := o
		so.FS = fs
		l = mustOpen(t, so)
		p := &idempotents{t: t, log: l, seqs: map[uint64]uint64{}}
		for i := range 70 {
			p.publish(uint64(1+i%5), 300)
			if i%3 == 0 {
				pump(l)
			}
		}
		pump(l)
		l.letGo()
		if images < 100 && !invariants.Enabled {
			t.Errorf("%d images", images)
		}
	}
}

// producersOf reads the state from every entry of a log, by the format alone.
func producersOf(t testing.TB, fs ring.FS) []ProducerState {
	t.Helper()
	files := snapshotDir(t, fs, testDir)
	p := NewProducers()
	for id := range uint64(1000) {
		b, ok := files[segmentName(id)]
		if !ok || allZero(b[:min(len(b), blockBytes)]) {
			continue
		}
		for at := blockBytes; at+entryHeaderBytes <= len(b) && be32(b[at:]) == entryMagic; at += int(be32(b[at+8:])) {
			if binary.BigEndian.Uint64(b[at+40:]) != binary.BigEndian.Uint64(b[40:]) {
				break
			}
			if b[at+7]&flagProducer != 0 {
				p.Add(binary.BigEndian.Uint64(b[at+64:]), binary.BigEndian.Uint64(b[at+72:]), binary.BigEndian.Uint64(b[at+80:]), binary.BigEndian.Uint64(b[at+16:]), be32(b[at+12:]))
			}
		}
	}
	return p.Snapshot()
}

// A checkpoint that cannot be written costs a longer walk and nothing else; a directory that cannot be
// synced is believed never again.
func TestCheckpointThatCannotBeWritten(t *testing.T) { // HZ-10
	inner := crashfs.New()
	fs := ringtest.NewFS(inner)
	fs.Add(ringtest.Rule{Kind: ringtest.Open, Path: checkpointTemp, Err: syscall.ENOSPC, Times: -1})
	l := mustOpen(t, testOptions(fs, withSegment(16<<10)))
	p := &idempotents{t: t, log: l, seqs: map[uint64]uint64{}}
	for len(l.view.Load().segs) < 4 {
		p.publish(1, 300)
		for _, out := range pump(l) {
			if out.Err != nil {
				t.Fatal(out.Err)
			}
		}
	}
	if l.Stats().CheckpointErrors == 0 {
		t.Fatal("nothing failed")
	}
	fs.Clear()
	before := l.Producers().Snapshot()
	o := testOptions(inner.Crash(crashfs.SeedKeepAll), withSegment(16<<10))
	k := mustOpen(t, o)
	if d := cmp.Diff(before, k.Producers().Snapshot()); d != "" {
		t.Errorf("-before +after:\n%s", d)
	}
	k.letGo()
	l.letGo()
}

// What was frozen stays as it was while the state goes on, and comes back from its bytes.
func TestFrozenProducersDoNotChange(t *testing.T) { // LOG-22
	rapid.Check(t, func(t *rapid.T) {
		p := NewProducers()
		p.max = 4
		offset := uint64(1)
		type frozen struct {
			state []frozenProducer
			base  uint64
			want  []ProducerState
		}
		var all []frozen
		next := map[uint64]uint64{}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				all = append(all, frozen{p.freeze(), offset, p.Snapshot()})
			case 1:
				from := offset - min(offset-1, rapid.Uint64Range(0, 5).Draw(t, "void"))
				p.Truncate(from)
				clear(next)
				for _, s := range p.Snapshot() {
					next[s.ID] = s.Next
				}
				for len(all) > 0 && all[len(all)-1].base > from {
					all = all[:len(all)-1] // its job would not run
				}
				offset = from
			default:
				id := rapid.Uint64Range(1, 6).Draw(t, "id")
				p.Add(id, next[id], rapid.Uint64().Draw(t, "digest"), offset, 1)
				next[id]++
				offset++
			}
		}
		for _, f := range all {
			b := (&checkpoint{base: f.base, state: f.state}).encode(1, 2)
			c, ok := decodeCheckpoint(b, 1, 2)
			if !ok {
				t.Fatalf("does not decode: %+v", f.want)
			}
			if d := cmp.Diff(f.want, restoreProducers(c.state).Snapshot()); d != "" {
				t.Fatalf("-frozen +read:\n%s", d)
			}
		}
	})
}

// fullProducers is the largest state.
func fullProducers() *Producers {
	p := NewProducers()
	offset := uint64(0)
	for seq := range uint64(producerBatchesMax) {
		for id := range uint64(producersMax) {
			p.Add(id, seq, rand.Uint64(), offset, 1)
			offset++
		}
	}
	return p
}

func TestCheckpointIsBounded(t *testing.T) {
	c := &checkpoint{base: producersMax * producerBatchesMax, state: fullProducers().freeze()}
	b := c.encode(1, 0)
	if len(b) != checkpointMax {
		t.Errorf("%d bytes, want %d", len(b), checkpointMax)
	}
	if _, ok := decodeCheckpoint(b, 1, 0); !ok {
		t.Error("does not decode")
	}
	if n := testing.AllocsPerRun(1, func() { decodeCheckpoint(b[:checkpointHeaderBytes+4], 1, 0) }); n > 4 {
		t.Errorf("%v allocations for a short file", n)
	}
}

// BenchmarkFreezeProducers is what a full state costs the owner when a segment begins; the encoding is
// the job's.
func BenchmarkFreezeProducers(b *testing.B) {
	p := fullProducers()
	b.Run("freeze", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			p.freeze()
		}
	})
	b.Run("encode", func(b *testing.B) {
		c := &checkpoint{state: p.freeze()}
		for range b.N {
			c.encode(1, 0)
		}
	})
	b.Run("add_after_freeze", func(b *testing.B) {
		b.ReportAllocs()
		seq, offset := uint64(producerBatchesMax), uint64(producersMax*producerBatchesMax)
		for i := range b.N {
			if i%producersMax == 0 {
				p.freeze()
				seq++
			}
			p.Add(uint64(i%producersMax), seq-1, 1, offset, 1)
			offset++
		}
	})
}
