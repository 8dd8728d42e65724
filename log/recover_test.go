package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"reflect"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring"
)

// image is a log directory with one segment and where its entries start and end.
type image struct {
	files map[string][]byte
	ends  []int // ends[0] is where the first entry starts, ends[i+1] where entry i ends
	next  []uint64
}

// makeImage writes five entries, grouped as given, and leaves them as a killed process would:
// nothing is closed. The mark is taken away.
func makeImage(t testing.TB, mode FsyncMode, groups ...int) image {
	t.Helper()
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, withMode(mode)))
	img := image{ends: []int{blockBytes}, next: []uint64{0}}
	for i, n := range groups {
		for j := range n {
			e := entryOf(recordsAt(l.Next(), 1+j, 40+50*i))
			if (i+j)%2 == 0 {
				e.HasProducer, e.ProducerID, e.Sequence = true, uint64(i+1), uint64(j/2)
			} else {
				e.Publisher = "somebody"
			}
			if _, err := l.Append(e, 10); err != nil {
				t.Fatal(err)
			}
			img.ends = append(img.ends, int(l.cur.pos))
			img.next = append(img.next, l.Next())
		}
		pump(l)
	}
	img.files = snapshotDir(t, fs, testDir)
	delete(img.files, markName)
	return img
}

func (m image) segment() []byte { return m.files[segmentName(0)] }

// with returns the files with the segment replaced and, if markBytes is not 0, a mark.
func (m image) with(segment []byte, bytes int) map[string][]byte {
	files := maps.Clone(m.files)
	files[segmentName(0)] = segment
	if bytes != 0 {
		files[markName] = appendMark(nil, Mark{Segment: 0, Bytes: int64(bytes)})
	}
	return files
}

// verdict is what recovery is expected to make of an image.
type verdict struct {
	entries int   // that stay
	pos     int64 // of the damage; 0 = it opens
}

// check opens an image and compares. An image that is refused must not be changed; one that opens
// holds exactly the first entries, takes new ones, and is found unchanged by a second recovery.
func (m image) check(t testing.TB, mode FsyncMode, what string, files map[string][]byte, want verdict) {
	t.Helper()
	fs := restoreDir(t, files)
	o := testOptions(fs, withMode(mode))
	l, err := Open(o)
	if want.pos != 0 || want.entries < 0 {
		var c *CorruptError
		if !errors.As(err, &c) {
			t.Fatalf("%s: opens (%v), want damage at byte %d", what, err, want.pos)
		}
		if c.Segment != 0 || c.Pos != want.pos || c.Shard != o.Shard || c.Dir != o.Dir || c.What == "" {
			t.Fatalf("%s: %v, want byte %d", what, c, want.pos)
		}
		if after := snapshotDir(t, fs, testDir); !reflect.DeepEqual(after, files) {
			t.Fatalf("%s: refused, but changed", what)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v, want %d entries", what, err, want.entries)
	}
	next := m.next[want.entries]
	checkRecords(t, l, 0, next)
	after := snapshotDir(t, fs, testDir)
	plan, err := MakePlan(o) // the process is killed here: nothing is closed
	if err != nil || plan.Changes() {
		t.Fatalf("%s: a second recovery would do more: %v %v", what, plan, err)
	}
	l2 := mustOpen(t, o)
	if again := snapshotDir(t, fs, testDir); !reflect.DeepEqual(after, again) {
		t.Fatalf("%s: a second recovery changed something", what)
	}
	checkRecords(t, l2, 0, next)
	commitOne(t, l2, 2, 30)
	checkRecords(t, l2, 0, next+2)
	if err := l2.Close(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	l.letGo()
}

// flips lists the bits to flip in [from, to): all of the headers and option parts, some of the rest.
func flips(m image) []int {
	var bits []int
	for b := range blockBytes * 8 {
		if b < 64*8 || b%509 == 0 {
			bits = append(bits, b)
		}
	}
	for i := range len(m.ends) - 1 {
		for b := m.ends[i] * 8; b < m.ends[i+1]*8; b++ {
			if b < (m.ends[i]+64+33)*8 || b >= (m.ends[i+1]-4)*8 || b%13 == 0 {
				bits = append(bits, b)
			}
		}
	}
	return bits
}

// Every single-bit error is either refused with its place, or lies in the last group, which nobody
// was told of as far as the disk can prove. Acknowledged records are never silently fewer.
func TestEveryBitFlipIsFoundWhereItIs(t *testing.T) { // LOG-5, LOG-6, HZ-6
	cases := []struct {
		name   string
		mode   FsyncMode
		groups []int
		marked int // entries below the mark, -1 none
		// cut says whether damage to entry i is taken for the end of the data.
		cut func(i int) bool
	}{
		{"on_commit, no mark", FsyncOnCommit, []int{1, 1, 1, 1, 1}, -1, func(i int) bool { return i == 4 }},
		{"on_commit, mark at the end", FsyncOnCommit, []int{1, 1, 1, 1, 1}, 5, func(i int) bool { return false }},
		{"on_commit, mark behind", FsyncOnCommit, []int{1, 1, 1, 1, 1}, 2, func(i int) bool { return i == 4 }},
		{"on_commit, one group", FsyncOnCommit, []int{5}, -1, func(i int) bool { return true }},
		{"on_commit, one group marked", FsyncOnCommit, []int{5}, 5, func(i int) bool { return false }},
		{"on_commit, groups of 2 and 3", FsyncOnCommit, []int{2, 3}, -1, func(i int) bool { return i >= 2 }},
		{"periodic, no mark", FsyncPeriodic, []int{1, 1, 1, 1, 1}, -1, func(i int) bool { return true }},
		{"periodic, mark at 3", FsyncPeriodic, []int{1, 1, 1, 1, 1}, 3, func(i int) bool { return i >= 3 }},
	}
	for ci, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := makeImage(t, c.mode, c.groups...)
			mark := 0
			if c.marked >= 0 {
				mark = m.ends[c.marked]
			}
			stride := 1
			if ci > 0 {
				stride = 7 // the other cases differ in the verdict, not in the bits
			}
			if invariants.Enabled {
				stride *= 11 // race builds are slow
			}
			for i, bit := range flips(m) {
				if i%stride != 0 {
					continue
				}
				seg := append([]byte(nil), m.segment()...)
				seg[bit/8] ^= 1 << (bit % 8)
				want := verdict{entries: -1}
				for i := range 5 {
					if bit/8 >= m.ends[i] && bit/8 < m.ends[i+1] {
						if want.entries = i; !c.cut(i) {
							want.pos = int64(m.ends[i])
						}
					}
				}
				m.check(t, c.mode, fmt.Sprintf("bit %d of byte %d", bit%8, bit/8), m.with(seg, mark), want)
			}
		})
	}
}

// A file cut anywhere is a torn end, unless the mark knows better.
func TestEveryCutIsATornEnd(t *testing.T) { // LOG-4, HZ-6, HZ-7
	m := makeImage(t, FsyncOnCommit, 1, 2, 1, 1)
	whole := len(m.segment())
	for _, marked := range []int{0, 2, 5} {
		mark := 0
		if marked > 0 {
			mark = m.ends[marked]
		}
		for n := range whole + 1 {
			if n > 0 && n < blockBytes-8 && n%97 != 0 {
				continue
			}
			want := verdict{}
			for i := range 6 {
				if n >= m.ends[i] {
					want.entries = i
				}
			}
			switch {
			case n == 0 && mark != 0:
				want = verdict{entries: -1, pos: int64(mark)} // the mark covers a segment without a header
			case n > 0 && n < blockBytes:
				want = verdict{entries: -1}
			case n < mark:
				want.pos = int64(m.ends[want.entries])
			}
			m.check(t, FsyncOnCommit, fmt.Sprintf("cut at byte %d, mark %d", n, mark), m.with(m.segment()[:n], mark), want)
		}
	}
}

// Zeros to the end are repaired; zeros in front of data are not.
func TestZeroTailIsCutZerosBeforeDataAreDamage(t *testing.T) { // LOG-7
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	for i := range 6 {
		for _, grow := range []int{0, 1, 64, 5000, 3 << 20} {
			seg := append([]byte(nil), m.segment()[:m.ends[i]]...)
			seg = append(seg, make([]byte, max(grow, len(m.segment())-m.ends[i]))...)
			m.check(t, FsyncOnCommit, fmt.Sprintf("zeros from entry %d, %d", i, grow), m.with(seg, 0), verdict{entries: i})
			if i > 0 {
				m.check(t, FsyncOnCommit, "marked zeros", m.with(seg, m.ends[i]+1), verdict{entries: i, pos: int64(m.ends[i])})
			}
		}
		if i < 4 {
			seg := append([]byte(nil), m.segment()...)
			clear(seg[m.ends[i]:m.ends[i+1]])
			m.check(t, FsyncOnCommit, fmt.Sprintf("entry %d zeroed", i), m.with(seg, 0), verdict{entries: i, pos: int64(m.ends[i])})
		}
	}
}

// Behind the end of the data a recycled file has whatever its last use left there. It has another
// nonce, so it is no continuation and no proof, whatever offsets and flags it carries.
func TestOldBytesOfARecycledFileAreTheEnd(t *testing.T) {
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	old := append([]byte(nil), m.segment()...)
	for at := 0; at+64 <= len(old); at += 64 { // the same entries under another nonce
		var h entryHeader
		if decodeEntryHeader(old[at:], &h) {
			h.nonce ^= 0xFF00
			copy(old[at:], appendEntryHeader(nil, &h))
		}
	}
	for i := range 6 {
		seg := append(append([]byte(nil), m.segment()[:m.ends[i]]...), old[m.ends[i]:]...)
		seg = append(seg, old[blockBytes:]...) // longer than its data, too
		m.check(t, FsyncOnCommit, fmt.Sprintf("old bytes from entry %d", i), m.with(seg, 0), verdict{entries: i})
		if i > 0 {
			m.check(t, FsyncOnCommit, fmt.Sprintf("old bytes below the mark at entry %d", i), m.with(seg, m.ends[i]+64), verdict{entries: i, pos: int64(m.ends[i])})
		}
	}
	// A torn group in front of old bytes.
	seg := append(append([]byte(nil), m.segment()[:m.ends[4]+64]...), old[m.ends[3]:]...)
	m.check(t, FsyncOnCommit, "torn entry before old bytes", m.with(seg, 0), verdict{entries: 4})
}

// A later entry proves the place in front of it to be damage only if its group starts above the
// place, it was written under on_commit, and it is of this nonce.
func TestOnlyALaterGroupProvesDamage(t *testing.T) { // design 5.1, end of data
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	hole := m.ends[2]
	edit := func(change func(h *entryHeader)) []byte {
		seg := append([]byte(nil), m.segment()...)
		clear(seg[hole:m.ends[3]])
		for _, at := range []int{m.ends[3], m.ends[4]} {
			var h entryHeader
			if !decodeEntryHeader(seg[at:], &h) {
				t.Fatal("no header")
			}
			change(&h)
			copy(seg[at:], appendEntryHeader(nil, &h))
		}
		return seg
	}
	end := verdict{entries: 2}
	damage := verdict{entries: 2, pos: int64(hole)}
	for _, c := range []struct {
		name   string
		change func(h *entryHeader)
		want   verdict
	}{
		{"as written", func(h *entryHeader) {}, damage},
		{"group starts one unit above", func(h *entryHeader) { h.group = uint32(hole/64) + 1 }, damage},
		{"group starts at the place", func(h *entryHeader) { h.group = uint32(hole / 64) }, end},
		{"group starts below", func(h *entryHeader) { h.group = blockBytes / 64 }, end},
		{"not under on_commit", func(h *entryHeader) { h.flags &^= flagCommit }, end},
		{"other nonce", func(h *entryHeader) { h.nonce++ }, end},
		{"group starts above the entry", func(h *entryHeader) { h.group = 1 << 30 }, end},
	} {
		m.check(t, FsyncOnCommit, c.name, m.with(edit(c.change), 0), c.want)
	}
	// A copy of an earlier entry inside a record is no proof: its group starts below.
	seg := append([]byte(nil), m.segment()[:hole+64]...)
	seg = append(seg, m.segment()[m.ends[1]:m.ends[2]]...)
	m.check(t, FsyncOnCommit, "copy of an earlier entry", m.with(seg, 0), end)
}

// An entry continues the log only in its place: next offset, and epoch, time and group start that
// do not fall. Whatever else stands there, whole as it may be, is the end.
func TestOnlyWhatContinuesTheLogIsRead(t *testing.T) { // design 5.1, end of data
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	at := m.ends[4]
	edit := func(change func(h *entryHeader)) []byte {
		seg := append([]byte(nil), m.segment()...)
		var h entryHeader
		decodeEntryHeader(seg[at:], &h)
		change(&h)
		copy(seg[at:], appendEntryHeader(nil, &h))
		return m.with(seg, 0)[segmentName(0)]
	}
	for name, change := range map[string]func(h *entryHeader){
		"offset above":      func(h *entryHeader) { h.base++ },
		"offset below":      func(h *entryHeader) { h.base-- },
		"epoch falls":       func(h *entryHeader) { h.epoch-- },
		"time falls":        func(h *entryHeader) { h.micros-- },
		"group start falls": func(h *entryHeader) { h.group = uint32(m.ends[3]/64) - 1 },
		"group start ahead": func(h *entryHeader) { h.group = uint32(at/64) + 1 },
		"other nonce":       func(h *entryHeader) { h.nonce-- },
	} {
		m.check(t, FsyncOnCommit, name, m.with(edit(change), 0), verdict{entries: 4})
	}
	seg := edit(func(h *entryHeader) { h.epoch++; h.micros++; h.group = uint32(m.ends[3] / 64) })
	m.check(t, FsyncOnCommit, "all of them rise", m.with(seg, 0), verdict{entries: 5})
}

// makePair writes two segments and stops while the first is not sealed. It returns the files, how
// many records the first holds, and where its last entry starts.
func makePair(t *testing.T, mode FsyncMode) (fs *crashfs.FS, l *Log, first uint64, last int64) {
	t.Helper()
	fs = crashfs.New()
	l = mustOpen(t, testOptions(fs, withMode(mode), withSegment(8<<10)))
	for l.Stats().Segments < 2 || l.Committed() < first+3 {
		if _, err := l.Append(entryOf(recordsAt(l.Next(), 1, 900)), 10); err != nil {
			t.Fatal(err)
		}
		if l.Stats().Segments == 1 && len(l.retired) == 0 {
			last, first = l.cur.pos-entrySize(0, 908), l.Next()
		}
		for j := l.TakeJob(); j != nil; j = l.TakeJob() {
			if j.kind == jobSeal || j.kind == jobMark {
				// Never ends: the process is killed first.
				l.jobOut = false
				break
			}
			j.Run()
			l.JobDone(j)
		}
		if op := l.NextOp(); op != nil {
			runHere(op)
			l.OpDone(op)
		}
	}
	return fs, l, first, last
}

// Under periodic and none a newer segment may reach the disk before the end of the one before. The
// log then ends in the older one; records are never missing in the middle.
func TestNewerSegmentMayOvertakeTheOlder(t *testing.T) { // LOG-3
	for _, mode := range []FsyncMode{FsyncPeriodic, FsyncNone} {
		fs, l, first, _ := makePair(t, mode)
		overtaken, met := 0, 0
		for seed := range uint64(300) {
			after := fs.Crash(seed)
			o := testOptions(after, withMode(mode), withSegment(8<<10))
			p, err := MakePlan(o)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", mode, seed, err)
			}
			l := mustOpen(t, o)
			checkRecords(t, l, 0, l.Committed())
			switch next := l.Committed(); {
			case next > first:
				met++
			case next < first && p.Report.Removed > 0:
				overtaken++
			}
			commitOne(t, l, 1, 10)
		}
		if overtaken == 0 || met == 0 {
			t.Errorf("%s: %d images where the newer one overtook, %d where they met", mode, overtaken, met)
		}
		l.letGo()
	}
}

// What proves that the older segment was synced before the newer one was written makes a missing
// end of it damage: an entry under on_commit, or the mark.
func TestProvenSegmentMustBeWhole(t *testing.T) { // HZ-6, HZ-8
	for _, c := range []struct {
		name   string
		mode   FsyncMode
		mark   *Mark
		damage bool
	}{
		{"on_commit", FsyncOnCommit, nil, true},
		{"periodic, mark in the newer", FsyncPeriodic, &Mark{Segment: 1, Bytes: blockBytes + 64}, true},
		{"periodic, mark below", FsyncPeriodic, &Mark{Segment: 0, Bytes: blockBytes + 64}, false},
		{"periodic, no mark", FsyncPeriodic, nil, false},
	} {
		fs, _, first, last := makePair(t, c.mode)
		files := snapshotDir(t, fs, testDir)
		delete(files, markName)
		if c.mark != nil {
			files[markName] = appendMark(nil, *c.mark)
		}
		for _, cut := range []bool{false, true} {
			seg := append([]byte(nil), files[segmentName(0)]...)
			if cut {
				seg = seg[:last]
			} else {
				seg[last+20] ^= 4
			}
			damaged := maps.Clone(files)
			damaged[segmentName(0)] = seg
			l, err := Open(testOptions(restoreDir(t, damaged), withMode(c.mode), withSegment(8<<10)))
			var bad *CorruptError
			switch {
			case c.damage && (!errors.As(err, &bad) || bad.Segment != 0 || bad.Pos != last):
				t.Errorf("%s, cut %v: %v, want damage at byte %d", c.name, cut, err, last)
			case !c.damage && err != nil:
				t.Errorf("%s, cut %v: %v", c.name, cut, err)
			case !c.damage:
				checkRecords(t, l, 0, first-1)
			}
		}
	}
}

// Two segments that hold the same offsets, or a mark beyond a segment that is followed by another,
// are nothing that a crash makes.
func TestSegmentsThatCannotBothBeRightAreRefused(t *testing.T) { // HZ-6
	fs, _, first, _ := makePair(t, FsyncPeriodic)
	files := snapshotDir(t, fs, testDir)
	delete(files, markName)
	open := func(files map[string][]byte) *CorruptError {
		var bad *CorruptError
		_, err := Open(testOptions(restoreDir(t, files), withMode(FsyncPeriodic), withSegment(8<<10)))
		if err != nil && !errors.As(err, &bad) {
			t.Fatal(err)
		}
		return bad
	}
	if bad := open(files); bad != nil {
		t.Fatalf("as written: %v", bad)
	}
	marked := maps.Clone(files)
	marked[markName] = appendMark(nil, Mark{Segment: 0, Bytes: int64(len(files[segmentName(0)])) + 64})
	if bad := open(marked); bad == nil || bad.Segment != 0 || bad.Pos != int64(len(files[segmentName(0)])) {
		t.Errorf("mark beyond the segment: %v", bad)
	}
	// The newer one begins one record too early.
	seg := append([]byte(nil), files[segmentName(1)]...)
	binary.BigEndian.PutUint64(seg[16:], first-1)
	binary.BigEndian.PutUint32(seg[60:], crc32.Checksum(seg[:60], castagnoli))
	var h entryHeader
	for at := blockBytes; at < len(seg); at += int(h.length) {
		if !decodeEntryHeader(seg[at:], &h) {
			t.Fatal("no header")
		}
		h.base--
		copy(seg[at:], appendEntryHeader(nil, &h))
	}
	overlap := maps.Clone(files)
	overlap[segmentName(1)] = seg
	if bad := open(overlap); bad == nil || bad.Segment != 0 {
		t.Errorf("overlapping segments: %v", bad)
	}
}

// A whole header of this segment that says something unknown is refused, not cut: a newer version
// may have written it.
func TestUnknownEntryIsRefused(t *testing.T) {
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	at := m.ends[4]
	for name, change := range map[string]func(h *entryHeader){
		"version": func(h *entryHeader) { h.version = 2 },
		"kind":    func(h *entryHeader) { h.kind = 9 },
		"flags":   func(h *entryHeader) { h.flags |= 8 },
		"length":  func(h *entryHeader) { h.length += 64 },
		"count":   func(h *entryHeader) { h.count = 0 },
		"option":  func(h *entryHeader) { h.option = 7 },
	} {
		seg := append([]byte(nil), m.segment()...)
		var h entryHeader
		decodeEntryHeader(seg[at:], &h)
		change(&h)
		copy(seg[at:], appendEntryHeader(nil, &h))
		m.check(t, FsyncOnCommit, name, m.with(seg, 0), verdict{entries: 4, pos: int64(at)})
	}
}

// A header that does not belong is refused: version, flags, identity, bytes behind it.
func TestSegmentHeaderDamageIsRefused(t *testing.T) {
	m := makeImage(t, FsyncOnCommit, 5)
	for name, c := range map[string]struct {
		at   int
		bits byte
		pos  int64
	}{
		"version": {5, 3, 0}, "flags": {7, 1, 0}, "id": {15, 1, 8}, "catalogue": {55, 1, 48}, "shard": {59, 1, 48},
	} {
		seg := append([]byte(nil), m.segment()...)
		seg[c.at] ^= c.bits
		binary.BigEndian.PutUint32(seg[60:], crc32.Checksum(seg[:60], castagnoli))
		m.check(t, FsyncOnCommit, name, m.with(seg, 0), verdict{entries: -1, pos: c.pos})
	}
	// A header that was lost as a whole is not a prepared file when there are entries behind it.
	seg := append([]byte(nil), m.segment()...)
	clear(seg[:blockBytes])
	m.check(t, FsyncOnCommit, "blank header, entries behind", m.with(seg, 0), verdict{entries: -1})
	clear(seg)
	m.check(t, FsyncOnCommit, "blank file", m.with(seg, 0), verdict{entries: 0})
}

// What is left behind a torn end can never be read as a continuation: the log goes on in another
// segment, with another nonce; a segment without entries gets another nonce itself.
func TestTornEndStartsANewSegment(t *testing.T) { // HZ-7
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	for _, entries := range []int{0, 4} {
		fs := restoreDir(t, m.with(m.segment()[:m.ends[entries]+100], 0))
		o := testOptions(fs)
		o.nonce = func() uint64 { return 77 }
		l := mustOpen(t, o)
		commitOne(t, l, 1, 10)
		next := l.Committed()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		id := uint64(1)
		if entries == 0 {
			id = 0
		}
		h, what := decodeSegmentHeader(readFile(t, fs, testDir+"/"+segmentName(id)))
		if what != "" || h.nonce != 77 || h.base != m.next[entries] {
			t.Errorf("torn after %d entries: segment %d: %s %+v", entries, id, what, h)
		}
		if entries > 0 {
			mustEqual(t, "the torn segment", readFile(t, fs, testDir+"/"+segmentName(0)), m.segment()[:m.ends[entries]])
		}
		checkRecords(t, mustOpen(t, o), 0, next)
	}
}

// A bad mark is no mark; one that speaks of a segment that is gone is damage.
func TestMarkIsDerivedButBinding(t *testing.T) {
	m := makeImage(t, FsyncOnCommit, 1, 1, 1, 1, 1)
	torn := m.segment()[:m.ends[4]+10]
	for name, mark := range map[string][]byte{
		"empty": {}, "short": make([]byte, 31), "zeros": make([]byte, 32),
		"long": append(appendMark(nil, Mark{0, int64(m.ends[5])}), 0),
	} {
		files := m.with(torn, 0)
		files[markName] = mark
		m.check(t, FsyncOnCommit, name, files, verdict{entries: 4})
	}
	files := m.with(m.segment(), 0)
	files[markName] = appendMark(nil, Mark{Segment: 1, Bytes: 5000})
	fs := restoreDir(t, files)
	var c *CorruptError
	if _, err := Open(testOptions(fs)); !errors.As(err, &c) || c.Segment != 1 {
		t.Errorf("mark of a missing segment: %v", err)
	}
}

// The mark never leads: after every single operation of a script, what it says is on the disk.
func TestMarkNeverLeads(t *testing.T) {
	for mode := FsyncOnCommit; mode <= FsyncNone; mode++ {
		fs := crashfs.New()
		seen := 0
		fs.OnOp(func(n int, op, path string) {
			after := fs.Crash(crashfs.SeedLoseAll)
			kept := fs.Crash(crashfs.SeedKeepAll) // the mark as the process sees it
			f, err := kept.Open(testDir+"/"+markName, 0, 0)
			if err != nil {
				return
			}
			b := make([]byte, 40)
			k, _ := readFull(f, b, 0)
			mark, ok := decodeMark(b[:k])
			if !ok {
				return
			}
			seen++
			size := -1
			if g, err := after.Open(testDir+"/"+segmentName(mark.Segment), 0, 0); err == nil {
				n, _ := g.Size()
				size = int(n)
			}
			if int64(size) < mark.Bytes {
				t.Fatalf("%s: before operation %d (%s %s) the mark says segment %d, %d bytes; %d are on the disk", mode, n, op, path, mark.Segment, mark.Bytes, size)
			}
		})
		o := testOptions(fs, withMode(mode), withSegment(16<<10))
		l := mustOpen(t, o)
		for i := range 60 {
			commitOne(t, l, 2, 700)
			if op := l.Tick(); op != nil && i%3 == 0 {
				runHere(op)
				l.OpDone(op)
				pump(l)
			} else if op != nil {
				op.Err = nil
				runHere(op)
				l.OpDone(op)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if seen == 0 {
			t.Errorf("%s: no mark was ever written", mode)
		}
		want := Mark{Segment: l.newest.Segment, Bytes: l.newest.Bytes}
		if got, ok := decodeMark(readFile(t, fs, testDir+"/"+markName)); !ok || got != want {
			t.Errorf("%s: mark after Close %+v, want %+v", mode, got, want)
		}
	}
}

// An index that is missing, short, stale or wrong is rebuilt as it was written.
func TestIndexIsRebuiltByteIdentical(t *testing.T) { // LOG-14
	fs := crashfs.New()
	o := testOptions(fs, withSegment(32<<10))
	l := mustOpen(t, o)
	for i := range 150 {
		commitOne(t, l, 1+i%3, 150+i*7%500)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next := l.Next()
	files := snapshotDir(t, fs, testDir)
	for name, b := range files { // by the words of the format, not by its code
		id, ok := parseName(name, ".seg")
		if !ok {
			continue
		}
		want := appendIndexHeader(nil, binary.BigEndian.Uint64(b[16:]))
		last := -o.IndexSpacing
		for at := int64(blockBytes); at < int64(len(b)); at += int64(be32(b[at+8:])) {
			if at-last >= o.IndexSpacing {
				want = append(want, b[at+16:at+24]...)
				want = binary.BigEndian.AppendUint64(want, uint64(at))
				last = at
			}
		}
		mustEqual(t, "index of "+name, files[indexName(id)], want)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"missing":     nil,
		"empty":       func(b []byte) []byte { return nil },
		"torn":        func(b []byte) []byte { return b[:len(b)-5] },
		"stale":       func(b []byte) []byte { return b[:len(b)-32] },
		"longer":      func(b []byte) []byte { return append(b, make([]byte, 16)...) },
		"other magic": func(b []byte) []byte { b[0]++; return b },
		"wrong entry": func(b []byte) []byte { b[len(b)-1] ^= 0x40; return b },
	} {
		damaged := maps.Clone(files)
		count := 0
		for file, b := range files {
			if _, ok := parseName(file, ".idx"); !ok {
				continue
			}
			count++
			if delete(damaged, file); change != nil {
				damaged[file] = change(append([]byte(nil), b...))
			}
		}
		fs := restoreDir(t, damaged)
		l := mustOpen(t, testOptions(fs, withSegment(32<<10)))
		if r := l.Recovery(); r.RebuiltIndexes != count {
			t.Errorf("%s: %d of %d indexes rebuilt", name, r.RebuiltIndexes, count)
		}
		if after := snapshotDir(t, fs, testDir); !reflect.DeepEqual(after, files) {
			t.Errorf("%s: the directory is not what it was", name)
		}
		checkRecords(t, l, 0, next)
		l.letGo()
	}
}

// An index is never believed: with one that lies, reading still gives the right records.
func TestLyingIndexDoesNotMislead(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, withSegment(16<<10))
	l := mustOpen(t, o)
	for range 100 {
		commitOne(t, l, 1, 300)
	}
	next := l.Next()
	for _, s := range l.view.Load().segs[:3] { // behind the back of the running log
		b := readFile(t, fs, testDir+"/"+indexName(s.id))
		for i := indexHeaderBytes; i+16 <= len(b); i += 16 {
			binary.BigEndian.PutUint64(b[i+8:], 4096+uint64(i)*64)
		}
		writeFile(t, fs, testDir+"/"+indexName(s.id), b)
		l.files.unpin(s)
	}
	for from := range next {
		if got, err := readRecords(l, from, 500); err != nil || uint64(len(got)) != next-from {
			t.Fatalf("from %d: %d records, %v", from, len(got), err)
		}
	}
	for _, s := range l.view.Load().segs {
		if s.open == nil {
			fs.Remove(testDir + "/" + indexName(s.id))
		}
	}
	checkRecords(t, l, 0, next)
}

// Damage in a sealed segment's body is found when it is read, and told with its place.
func TestReadFindsDamage(t *testing.T) {
	fs := crashfs.New()
	o := testOptions(fs, withSegment(16<<10))
	l := mustOpen(t, o)
	for range 60 {
		commitOne(t, l, 1, 300)
	}
	name := testDir + "/" + segmentName(1)
	b := readFile(t, fs, name)
	b[blockBytes+3*448+200] ^= 1
	writeFile(t, fs, name, b)
	first := l.view.Load().segs[1].base
	got, err := readRecords(l, 0, 4000)
	var c *CorruptError
	if !errors.As(err, &c) || c.Segment != 1 || c.Pos%64 != 0 || c.Pos < blockBytes {
		t.Fatalf("%v", err)
	}
	if uint64(len(got)) < first || uint64(len(got)) > first+4 {
		t.Errorf("%d records before the damage, the segment begins at %d", len(got), first)
	}
	if errors.Is(err, ring.ErrIO) {
		t.Error("damage is not an input/output error")
	}
}
