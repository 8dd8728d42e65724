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
)

// image is a log directory with one segment and where its entries start and end.
type image struct {
	files map[string][]byte
	ends  []int // ends[0] is where the first entry starts, ends[i+1] where entry i ends
	next  []uint64
}

// makeImage writes five entries, grouped as given, and leaves them as a killed process would:
// nothing is closed, except that the zeros behind the last entry are left away. So is the mark.
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
	seg := img.segment()
	if end := img.ends[len(img.ends)-1]; !allZero(seg[end:]) || len(seg)%blockBytes != 0 {
		t.Fatalf("a segment of %d bytes does not end with zeros behind byte %d", len(seg), end)
	} else {
		img.files[segmentName(0)] = seg[:end:end]
	}
	return img
}

// putHeader replaces the header of the entry at a position, and has the body belong to it.
func putHeader(seg []byte, at int, h *entryHeader) {
	copy(seg[at:], appendEntryHeader(nil, h))
	if end := at + int(h.length) - entrySumBytes; end > at && end+entrySumBytes <= len(seg) {
		binary.BigEndian.PutUint32(seg[end:], crc32.Checksum(seg[at+60:end], castagnoli))
	}
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
			putHeader(old, at, &h)
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
			putHeader(seg, at, &h)
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
		putHeader(seg, at, &h)
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
		putHeader(seg, at, &h)
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
