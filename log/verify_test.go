package log

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"runtime"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
)

func verify(t testing.TB, o Options) *Verification {
	t.Helper()
	v, err := Verify(context.Background(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Whatever recovery refuses, Verify names at the same place; what recovery opens has no damage in the
// segment that it reads in full.
func TestVerifyAgreesWithRecoveryOnEveryBit(t *testing.T) { // LOG-5, LOG-6, HZ-6
	for _, c := range []struct {
		mode   FsyncMode
		groups []int
		marked int
	}{{FsyncOnCommit, []int{1, 1, 1, 1, 1}, -1}, {FsyncOnCommit, []int{2, 3}, 4}, {FsyncPeriodic, []int{1, 1, 1, 1, 1}, 3}} {
		m := makeImage(t, c.mode, c.groups...)
		mark := 0
		if c.marked >= 0 {
			mark = m.ends[c.marked]
		}
		for _, bit := range flips(m) {
			if bit%3 != 0 && bit > 600 {
				continue
			}
			segment := append([]byte(nil), m.segment()...)
			segment[bit/8] ^= 1 << (bit % 8)
			files := m.with(segment, mark)
			fs := restoreDir(t, files)
			o := testOptions(fs, withMode(c.mode))
			_, err := MakePlan(o)
			v := verify(t, o)
			refused, _ := errors.AsType[*CorruptError](err)
			switch {
			case refused == nil && (v.Damages != 0 || v.Plan == nil):
				t.Fatalf("%v, bit %d: opens, but verify says %+v", c, bit, v.Damage)
			case refused != nil && (v.Damages == 0 || v.Damage[0].Segment != refused.Segment || v.Damage[0].Pos != refused.Pos || v.Refused == nil):
				t.Fatalf("%v, bit %d: refused with %v, but verify says %+v", c, bit, refused, v.Damage)
			}
			if !reflect.DeepEqual(snapshotDir(t, fs, testDir), files) {
				t.Fatalf("%v, bit %d: verify changed something", c, bit)
			}
		}
	}
}

// Every kind of damage is found at its place and of its kind, also what no start reads.
func TestVerifyFindsEveryKindOfDamage(t *testing.T) { // LOG-5, HZ-6
	p := surgeonPatient(t)
	if v := verify(t, p.options(restoreDir(t, p.files))); v.Damages != 0 || v.Noted != 0 || v.Records != p.next || v.Next != p.next || v.Segments != 6 {
		t.Fatalf("an untouched log: %+v", v)
	}
	for _, op := range p.operations() {
		fs := restoreDir(t, p.cutInto(op.operate))
		v := verify(t, p.options(fs))
		if v.Damages == 0 {
			t.Errorf("%s: nothing found", op.name)
			continue
		}
		d := v.Damage[0]
		if d.Kind != op.kind || d.Segment != op.segment || op.kind != DamageMark && d.Pos != op.pos || d.What == "" {
			t.Errorf("%s: %+v, want %s in segment %d at byte %d", op.name, d, op.kind, op.segment, op.pos)
		}
		if (v.Refused == nil) != op.opens {
			t.Errorf("%s: refused: %v", op.name, v.Refused)
		}
	}
}

// Several damages are told apart, with the offsets that are lost with each.
func TestVerifyGoesOnBehindDamage(t *testing.T) {
	p := surgeonPatient(t)
	fs := restoreDir(t, p.cutInto(func(f map[string][]byte) {
		f[segmentName(2)][at(1)+200] ^= 1
		clear(f[segmentName(2)][at(3):at(5)])
		f[segmentName(4)][at(6)+70] ^= 1
	}))
	v := verify(t, p.options(fs))
	want := []struct {
		segment     uint64
		pos, bytes  int64
		first, next uint64
	}{
		{2, at(1), surgeonEntry, p.base(2) + 1, p.base(2) + 2},
		{2, at(3), 2 * surgeonEntry, p.base(2) + 3, p.base(2) + 5},
		{4, at(6), surgeonEntry, p.base(4) + 6, p.base(5)},
	}
	if len(v.Damage) != len(want) {
		t.Fatalf("%+v", v.Damage)
	}
	for i, w := range want {
		if d := v.Damage[i]; d.Segment != w.segment || d.Pos != w.pos || d.Bytes != w.bytes || d.First != w.first || d.Next != w.next {
			t.Errorf("%+v, want %+v", d, w)
		}
	}
	if v.Records != p.next-4 {
		t.Errorf("%d records hold, want %d", v.Records, p.next-4)
	}
}

// What the next start mends by itself is no damage.
func TestVerifyNotesWhatAStartMends(t *testing.T) {
	p := surgeonPatient(t)
	fs := restoreDir(t, p.cutInto(func(f map[string][]byte) {
		delete(f, indexName(1))
		f[indexName(2)][30] ^= 1
		f[markName][3] ^= 1
		f[segmentName(5)] = append(f[segmentName(5)], make([]byte, 700)...)
	}))
	v := verify(t, p.options(fs))
	if v.Damages != 0 || v.Noted != 4 || v.Plan == nil || !v.Plan.Changes() {
		t.Errorf("%+v", v)
	}
}

// Segments of another log or of a newer version are called that: nobody may cut them.
func TestVerifyTellsForeignAndNewer(t *testing.T) {
	p := surgeonPatient(t)
	foreign := p.cutInto(func(map[string][]byte) {})
	o := p.options(restoreDir(t, foreign))
	o.Shard++
	if v := verify(t, o); v.Damages != 6 || v.Damage[0].Kind != DamageForeign {
		t.Errorf("%+v", v.Damage)
	}
	newer := restoreDir(t, p.cutInto(func(f map[string][]byte) {
		h := f[segmentName(3)][at(2) : at(2)+entryHeaderBytes]
		h[4] = 2 // version
		binary.BigEndian.PutUint32(h[60:], crc32.Checksum(h[:60], castagnoli))
		s := f[segmentName(4)]
		s[5] = 9
		binary.BigEndian.PutUint32(s[60:], crc32.Checksum(s[:60], castagnoli))
	}))
	v := verify(t, p.options(newer))
	if len(v.Damage) < 2 || v.Damage[0].Kind != DamageNewer || v.Damage[0].Pos != at(2) || v.Damage[1].Kind != DamageNewer || v.Damage[1].Segment != 4 || len(v.Damage) != 2 {
		t.Errorf("%+v", v.Damage)
	}
	for _, o := range []Options{o, p.options(newer)} {
		if _, err := PlanRepair(context.Background(), o, RepairOptions{TruncateAtDamage: true}); !errors.Is(err, ErrForeign) && !errors.Is(err, ErrNewer) {
			t.Errorf("repair: %v", err)
		}
	}
}

// The end of the context ends a verification.
func TestVerifyCanBeInterrupted(t *testing.T) {
	p := surgeonPatient(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Verify(ctx, p.options(restoreDir(t, p.files)), func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A file without a header in front of the oldest segment was the head of the log, or may have been: a
// start refuses it, and so it is damage here, of its header.
func TestVerifyFindsALostHead(t *testing.T) { // LOG-5
	p := surgeonPatient(t)
	o := p.options(restoreDir(t, p.cutInto(func(f map[string][]byte) { clear(f[segmentName(0)]) })))
	v := verify(t, o)
	if v.Refused == nil || v.Damages != 1 || v.Damage[0].Kind != DamageHeader || v.Damage[0].Segment != 0 {
		t.Fatalf("refused: %v, %+v", v.Refused, v.Damage)
	}
	if _, err := MakePlan(o); err == nil {
		t.Error("a start takes it")
	}
}

// Memory does not grow with the number of segments beyond a little for each.
func TestVerifyOfTenThousandSegmentsIsBounded(t *testing.T) {
	const n = 10_000
	fs := restoreDir(t, nil)
	o := testOptions(fs)
	body := make([]byte, 0, 2*blockBytes)
	for i := range uint64(n) {
		h := segmentHeader{id: i, base: i, epoch: 1, nonce: i + 1, catalogue: o.CatalogueID, shard: o.Shard}
		body = append(body[:0], h.encode()...)
		section := entryOf(recordsAt(i, 1, 8)).Section
		e := entryHeader{version: entryVersion, kind: KindRecords, flags: flagCommit, count: 1, base: i, epoch: 1, micros: i,
			nonce: i + 1, group: blockBytes / unitBytes, section: uint32(len(section)), length: uint32(entrySize(0, int64(len(section))))}
		body = appendEntryHeader(body, &e)
		at := len(body) - entrySumBytes // a body's checksum begins with that of its header
		body = append(body, section...)
		body = append(body, make([]byte, int(e.length)-entryHeaderBytes-len(section)-entrySumBytes)...)
		body = binary.BigEndian.AppendUint32(body, crc32.Checksum(body[at:], castagnoli))
		writeFile(t, fs, testDir+"/"+segmentName(i), body)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, most, calls := heap(), uint64(0), 0
	v, err := Verify(context.Background(), o, func(int64) {
		if calls++; calls%5000 == 0 {
			runtime.GC()
			most = max(most, heap())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// 2 KiB for each: names, plan, findings.
	if grown := int64(most) - int64(before); calls < n || grown > 2048*n {
		t.Errorf("%d reads, %d bytes more in the heap", calls, grown)
	}
	if v.Damages != 0 || v.Records != n || v.Segments != n || len(v.Notes) != findingsMax || v.Noted < n {
		t.Errorf("%+v: %d damages, %d records, %d segments, %d of %d notes", v.Damage[:min(2, len(v.Damage))], v.Damages, v.Records, v.Segments, len(v.Notes), v.Noted)
	}
	in, err := Inspect(context.Background(), o)
	if err != nil || len(in.Segments) != n || in.Next != n {
		t.Errorf("inspect: %v, %d segments", err, len(in.Segments))
	}
}

// The entries around an offset, with an index and without, past a damaged body and up to a damaged header.
func TestEntriesAroundAnOffset(t *testing.T) {
	p := surgeonPatient(t)
	for _, indexed := range []bool{true, false} {
		fs := restoreDir(t, p.cutInto(func(f map[string][]byte) {
			if !indexed {
				delete(f, indexName(2))
			}
			f[segmentName(2)][at(3)+200] ^= 1
			f[segmentName(2)][at(6)+1] ^= 1
		}))
		got, err := EntriesAround(context.Background(), p.options(fs), p.base(2)+3, 2, 5)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Entries) != 5 || got.Stop == "" || got.StopPos != at(6) {
			t.Fatalf("index %v: %+v", indexed, got)
		}
		for i, e := range got.Entries {
			if e.Segment != 2 || e.Pos != at(i+1) || e.Length != surgeonEntry || e.Offset != p.base(2)+uint64(i+1) || e.Count != 1 ||
				e.Kind != KindRecords || !e.OnCommit || e.GroupPos != e.Pos || e.BodyHolds != (i != 2) {
				t.Errorf("index %v, entry %d: %+v", indexed, i, e)
			}
		}
	}
	none, err := EntriesAround(context.Background(), testOptions(crashfs.New()), 4, 1, 1)
	if err != nil || len(none.Entries) != 0 {
		t.Errorf("of no log: %+v, %v", none, err)
	}
}

// An inspection shows what is there and what the next start does, and changes nothing.
func TestInspectShowsWhatIsThere(t *testing.T) {
	p := surgeonPatient(t)
	files := p.cutInto(func(f map[string][]byte) { delete(f, indexName(1)); f["readme"] = []byte("x") })
	fs := restoreDir(t, files)
	in, err := Inspect(context.Background(), p.options(fs))
	if err != nil {
		t.Fatal(err)
	}
	if in.Next != p.next || len(in.Segments) != 6 || in.Plan == nil || !in.Plan.Changes() || in.Mark == nil || in.Mark.Segment != 5 ||
		fmt.Sprint(in.Others) != "[readme]" {
		t.Errorf("%+v", in)
	}
	for i, s := range in.Segments {
		if s.ID != uint64(i) || s.Base != p.base(s.ID) || s.Records != p.entries(s.ID) || s.Next != s.Base+s.Records ||
			s.Bytes != int64(len(files[segmentName(s.ID)])) || s.Nonce == 0 || !s.OnCommit || !s.Stays || s.IndexFileFound != (i != 1) {
			t.Errorf("%+v", s)
		}
	}
	id, shard, found, err := Identify(p.options(fs))
	if err != nil || !found || id != 0xC0FFEE || shard != 3 {
		t.Errorf("identified as %x %d %v %v", id, shard, found, err)
	}
	clear(files[segmentName(0)][:64])
	damaged := restoreDir(t, files)
	if in, err = Inspect(context.Background(), p.options(damaged)); err != nil || in.Refused == nil || in.Plan != nil || len(in.Segments) != 6 {
		t.Errorf("damaged: %+v, %v", in, err)
	}
	if !reflect.DeepEqual(snapshotDir(t, damaged, testDir), files) {
		t.Error("changed")
	}
}
