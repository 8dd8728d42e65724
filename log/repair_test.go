package log

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

const testBackup = testDir + "/repair-1"

var truncateAtDamage = RepairOptions{TruncateAtDamage: true}

func planRepair(t testing.TB, o Options, ro RepairOptions) *Repair {
	t.Helper()
	r, err := PlanRepair(context.Background(), o, ro)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkRepaired fails unless the log is clean, holds exactly [base, next), and goes on.
func checkRepaired(t testing.TB, what string, o Options, base, next uint64) {
	t.Helper()
	if r := planRepair(t, o, truncateAtDamage); r.Changes() || r.Damage != nil {
		t.Fatalf("%s: repairing twice would do more: %v", what, r.Steps)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	checkRecords(t, l, base, next)
	for range 9 {
		commitOne(t, l, 1, surgeonRecord)
	}
	checkRecords(t, l, base, next+9)
	if err := l.Close(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	again := mustOpen(t, o)
	checkRecords(t, again, base, next+9)
	if err := again.Close(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// For every kind of damage: planning changes nothing, the plain repair refuses with the place (or has
// nothing to do with bodies that no start reads), the truncation keeps everything before the damage,
// saves what it drops, and is done when it is done.
func TestRepairKeepsEverythingBeforeTheDamage(t *testing.T) { // LOG-5, LOG-6, HZ-6, HZ-7
	p := surgeonPatient(t)
	for _, op := range p.operations() {
		files := p.cutInto(op.operate)
		fs := restoreDir(t, files)
		o := p.options(fs)
		plain, err := PlanRepair(context.Background(), o, RepairOptions{})
		refused, _ := errors.AsType[*CorruptError](err)
		if op.opens != (err == nil && !plain.Changes()) || !op.opens && refused == nil {
			t.Fatalf("%s: plain repair: %+v, %v", op.name, plain, err)
		}
		r := planRepair(t, o, truncateAtDamage)
		if !reflect.DeepEqual(snapshotDir(t, fs, testDir), files) {
			t.Fatalf("%s: planning changed something", op.name)
		}
		if r.Damage == nil || r.Damage.Segment != op.segment || r.Loss == nil || r.Loss.First != op.next || r.Loss.Next < r.Loss.First || r.Loss.Next > p.next {
			t.Fatalf("%s: damage %+v, loss %+v, want offset %d", op.name, r.Damage, r.Loss, op.next)
		}
		done, err := r.Apply(context.Background(), o, testBackup, nil)
		if err != nil {
			t.Fatalf("%s: %v", op.name, err)
		}
		if done.Plan == nil || done.Plan.Next != op.next || done.Backup != testBackup {
			t.Fatalf("%s: %+v", op.name, done)
		}
		saved := snapshotDir(t, fs, testBackup)
		if !strings.Contains(string(saved[backupNote]), "segment") || len(saved) != len(r.Saved)+1 {
			t.Errorf("%s: saved %d files and %q", op.name, len(saved), saved[backupNote])
		}
		after := snapshotDirFiles(t, fs)
		for name, was := range files {
			if now, there := after[name]; strings.HasSuffix(name, ".seg") && (!there || len(now) < len(was)) && !bytes.Equal(saved[name], was) {
				t.Errorf("%s: %s lost bytes and was not saved", op.name, name)
			}
		}
		checkRepaired(t, op.name, o, 0, op.next)
	}
}

// snapshotDirFiles is snapshotDir of the log's directory without the backup in it.
func snapshotDirFiles(t testing.TB, fs ring.FS) map[string][]byte {
	t.Helper()
	names, err := fs.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for _, name := range names {
		if !strings.HasPrefix(name, "repair-") {
			out[name] = readFile(t, fs, testDir+"/"+name)
		}
	}
	return out
}

// What is said to be lost and to be whole behind the damage is what is.
func TestLossIsCounted(t *testing.T) {
	p := surgeonPatient(t)
	fs := restoreDir(t, p.cutInto(func(f map[string][]byte) { f[segmentName(3)][at(2)+9] ^= 1 }))
	r := planRepair(t, p.options(fs), truncateAtDamage)
	want := Loss{First: p.base(3) + 2, Next: p.next, Segments: 2, Intact: p.next - p.base(3) - 3,
		Bytes: int64(len(p.files[segmentName(3)])) - at(2) + int64(len(p.files[segmentName(4)])+len(p.files[segmentName(5)]))}
	if *r.Loss != want {
		t.Errorf("%+v, want %+v", *r.Loss, want)
	}
}

// A log whose oldest records were trimmed keeps its offsets, also when nothing of it is left.
func TestRepairKeepsTheOffsetsOfAnEmptiedSegment(t *testing.T) {
	p := surgeonPatient(t)
	fs := restoreDir(t, p.cutInto(func(f map[string][]byte) {
		for id := range uint64(5) {
			delete(f, segmentName(id))
			delete(f, indexName(id))
		}
		f[segmentName(5)][at(0)+1] ^= 1
	}))
	o := p.options(fs)
	r := planRepair(t, o, truncateAtDamage)
	if _, err := r.Apply(context.Background(), o, "", nil); err != nil {
		t.Fatal(err)
	}
	checkRepaired(t, "emptied", o, p.base(5), p.base(5))
}

// The plain repair is what a start does: torn ends, indexes, mark, prepared files.
func TestPlainRepairIsARecovery(t *testing.T) { // LOG-4, LOG-14, HZ-7
	p := makePatient(t, FsyncOnCommit, 17, false)
	files := p.cutInto(func(f map[string][]byte) {
		f[segmentName(2)] = append(f[segmentName(2)], f[segmentName(2)][at(2):at(2)+100]...)
		delete(f, indexName(0))
		f[segmentName(3)] = make([]byte, blockBytes)
		f[freeName(9)] = []byte("of a deleted segment")
	})
	fs := restoreDir(t, files)
	o := p.options(fs)
	r := planRepair(t, o, RepairOptions{})
	if !r.Changes() || r.Loss != nil || !reflect.DeepEqual(r.Saved, []string{segmentName(2)}) {
		t.Fatalf("%+v", r)
	}
	if _, err := r.Apply(context.Background(), o, testBackup, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(readFile(t, fs, testBackup+"/"+segmentName(2)), files[segmentName(2)]) {
		t.Error("the torn end was not saved")
	}
	checkRepaired(t, "plain", o, 0, 17)
}

// A repair that loses power anywhere is done again and comes to the same end.
func TestRepairSurvivesAPowerCutAnywhere(t *testing.T) { // LOG-13, HZ-7
	p := surgeonPatient(t)
	for _, op := range p.operations() {
		files := p.cutInto(op.operate)
		ended, every := false, 1
		if invariants.Enabled {
			every = 7
		}
		for n := 1; !ended; n += every {
			fs := restoreSynced(t, files)
			o := p.options(fs)
			r := planRepair(t, o, truncateAtDamage)
			fs.CutAt(fs.Ops() + n)
			_, err := r.Apply(context.Background(), o, testBackup, nil)
			ended = err == nil
			for _, seed := range []uint64{crashfs.SeedLoseAll, uint64(n)} {
				after := p.options(fs.Crash(seed))
				again := planRepair(t, after, truncateAtDamage)
				if _, err := again.Apply(context.Background(), after, testDir+"/repair-2", nil); err != nil {
					t.Fatalf("%s: cut at operation %d, seed %d: %v", op.name, n, seed, err)
				}
				if n%8 == 0 || ended {
					checkRepaired(t, op.name, after, 0, op.next)
					continue
				}
				l := mustOpen(t, after)
				checkRecords(t, l, 0, op.next)
				l.letGo()
			}
		}
	}
}

// An interrupt before the first change leaves the log as it was, and no half backup.
func TestInterruptedRepairChangesNothing(t *testing.T) {
	p := surgeonPatient(t)
	files := p.cutInto(p.operations()[1].operate)
	fs := restoreDir(t, files)
	o := p.options(fs)
	r := planRepair(t, o, truncateAtDamage)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := r.Apply(ctx, o, testBackup, func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(snapshotDir(t, fs, testDir), files) {
		t.Error("the directory is not as it was")
	}
}

// Without room for the backup nothing is changed.
func TestRepairWithoutRoomForTheBackupChangesNothing(t *testing.T) { // HZ-10
	p := surgeonPatient(t)
	files := p.cutInto(p.operations()[1].operate)
	inner := restoreDir(t, files)
	fs := ringtest.NewFS(inner)
	o := p.options(inner)
	o.FS = fs
	r := planRepair(t, o, truncateAtDamage)
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: "repair-1", Nth: 2, Err: syscall.ENOSPC})
	if _, err := r.Apply(context.Background(), o, testBackup, nil); !errors.Is(err, ring.ErrNoSpace) {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(snapshotDir(t, inner, testDir), files) {
		t.Error("the directory is not as it was")
	}
	done, err := r.Apply(context.Background(), o, "", nil)
	if err != nil || done.Backup != "" {
		t.Fatalf("%+v, %v", done, err)
	}
}

// RepairChecksumTail cuts what durable.mark covers at the end of the newest segment, and nothing else; the
// log then opens without it, wherever the power fails.
func TestRepairChecksumTailCutsTheEndOnly(t *testing.T) { // LOG-5, HZ-6, HZ-7
	p := surgeonPatient(t)
	for _, op := range p.operations() {
		files := p.cutInto(op.operate)
		fs := restoreDir(t, files)
		o := p.options(fs)
		o.RepairChecksumTail, o.walkAll = true, true
		_, err := MakePlan(o)
		atEnd := op.name == "bit in the last entry" || op.name == "the newest segment cut below the mark"
		if atEnd != (err == nil && !op.opens) && !op.opens {
			t.Fatalf("%s: %v", op.name, err)
		}
		if !atEnd {
			continue
		}
		ended := false
		for n := 1; !ended; n++ {
			fs := restoreSynced(t, files)
			o.FS = fs
			fs.CutAt(fs.Ops() + n)
			l, err := Open(o)
			if ended = err == nil; ended {
				if rep := l.Recovery(); rep.Repaired <= 0 {
					t.Errorf("%s: %+v", op.name, rep)
				}
				l.letGo()
			}
			without := p.options(fs.Crash(crashfs.SeedLoseAll))
			l, err = Open(without)
			if _, refused := errors.AsType[*CorruptError](err); refused && !ended {
				continue // it had not begun
			}
			if err != nil {
				t.Fatalf("%s: cut at operation %d: %v", op.name, n, err)
			}
			l.letGo()
			checkRepaired(t, op.name, without, 0, op.next)
		}
	}
	// With a whole entry behind the damage the end is no end.
	fs := restoreDir(t, p.cutInto(func(f map[string][]byte) { f[segmentName(5)][at(1)+300] ^= 1 }))
	o := p.options(fs)
	o.RepairChecksumTail = true
	if _, err := MakePlan(o); err == nil {
		t.Error("cut with a whole entry behind the damage")
	}
	// So it is under periodic, where a later group is no proof of its own.
	q := makePatient(t, FsyncPeriodic, 5, true)
	for i := range 5 {
		fs := restoreDir(t, q.cutInto(func(f map[string][]byte) { f[segmentName(0)][at(i)+300] ^= 1 }))
		o := q.options(fs)
		o.RepairChecksumTail = true
		if _, err := MakePlan(o); (err == nil) != (i == 4) {
			t.Errorf("periodic, entry %d: %v", i, err)
		}
	}
}
