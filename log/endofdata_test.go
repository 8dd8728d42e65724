package log

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/wire"
)

// attack is the history of one segment and an image of its file that this history can have left. It knows
// what was written, by bytes, and decides from that alone; no checksum is computed to judge.
type attack struct {
	rng     *rand.Rand
	mode    FsyncMode
	nonce   uint64
	disk    []byte // the file
	written []byte // what it would be with every write whole
	entries []attacked
	synced  int // end of what was synced, and under on_commit acknowledged
	mark    int // what durable.mark says; 0 = none
	flipped bool
	alike   int // size of every record, of this use of the file and of older ones; 0 = any
	story   string
}

// attacked is an entry as it was written.
type attacked struct {
	at, end, group int
	next           uint64
}

// encode returns an entry by the words of the format.
func (a *attack) encode(nonce, base, micros uint64, group int, flags uint16, recs [][]byte) []byte {
	section := wire.AppendSection(nil, recs...)
	size := (64 + len(section) + 4 + 63) &^ 63
	b := make([]byte, 0, size)
	b = binary.BigEndian.AppendUint32(b, 0x5243454E)
	b = append(b, 1, 1)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint32(b, uint32(len(recs)))
	for _, v := range []uint64{base, 1, micros, nonce} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(group/64))
	b = binary.BigEndian.AppendUint32(b, uint32(len(section)))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	b = append(b, section...)
	b = append(b, make([]byte, size-4-len(b))...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[60:], crc32.MakeTable(crc32.Castagnoli)))
}

func (a *attack) flags() uint16 {
	if a.mode == FsyncOnCommit {
		return 4
	}
	return 0
}

// records makes those of an entry. Some hold a copy of what the segment holds by now, at a multiple of
// 64, as when somebody publishes a copy of the log: of its first n entries.
func (a *attack) records(base uint64, n int) [][]byte {
	if a.alike > 0 {
		return recordsAt(base, 1, a.alike)
	}
	recs := recordsAt(base, 1+a.rng.IntN(3), 8+a.rng.IntN(1500)*a.rng.IntN(4))
	if n > 0 && a.rng.IntN(4) == 0 {
		e := a.entries[a.rng.IntN(n)]
		b := make([]byte, 56, 56+e.end-e.at)
		copy(b, recs[0])
		recs[0] = append(b, a.written[e.at:e.end]...)
	}
	return recs
}

// newAttack makes a file as it is before the first group: pre-written, or recycled and full of the
// entries of older uses, one after the other, at lower offsets or at those that come next.
func newAttack(seed uint64) *attack {
	a := &attack{rng: rand.New(rand.NewPCG(seed, 1)), nonce: 0xABCD}
	a.mode = FsyncMode(a.rng.IntN(3))
	a.disk = make([]byte, blockBytes*(3+a.rng.IntN(14)))
	h := segmentHeader{nonce: a.nonce, catalogue: 0xC0FFEE, shard: 3, epoch: 1}
	copy(a.disk, h.encode())
	if a.rng.IntN(3) == 0 {
		a.alike = 8 + a.rng.IntN(4000) // old entries lie at the places of new ones
	}
	if a.rng.IntN(3) > 0 {
		a.story = "recycled, "
		old := uint64(0xABCC - a.rng.IntN(3))
		for at := blockBytes; ; {
			base := uint64(a.rng.IntN(12))
			e := a.encode(old, base, uint64(a.rng.IntN(90)), at-64*a.rng.IntN(3)*a.rng.IntN(2), 4*uint16(a.rng.IntN(2)), recordsAt(1000+base, 1, cmp.Or(a.alike, 8+a.rng.IntN(300))))
			if at+len(e) > len(a.disk) {
				break
			}
			at += copy(a.disk[at:], e)
		}
	}
	a.written = bytes.Clone(a.disk)
	a.synced = blockBytes
	return a
}

// group writes entries as the log does: zeros to the end of the block, and in a direct write the start of
// the first block once more. It returns the place and the bytes of the write.
func (a *attack) group(direct bool) (pos int, b []byte) {
	start, next, micros := blockBytes, uint64(0), uint64(100)
	if n := len(a.entries); n > 0 {
		start, next = a.entries[n-1].end, a.entries[n-1].next
	}
	at, before := start, len(a.entries)
	for range 1 + a.rng.IntN(4) {
		recs := a.records(next, before)
		e := a.encode(a.nonce, next, micros+next, start, a.flags(), recs)
		next += uint64(len(recs))
		b = append(b, e...)
		a.entries = append(a.entries, attacked{at: at, end: at + len(e), group: start, next: next})
		at += len(e)
	}
	b = append(b, make([]byte, (blockBytes-at%blockBytes)%blockBytes)...)
	if pos = start; direct {
		pos -= start % blockBytes
		b = append(bytes.Clone(a.written[pos:start]), b...)
	}
	if grow := pos + len(b) - len(a.written); grow > 0 {
		a.written = append(a.written, make([]byte, grow)...)
	}
	copy(a.written[pos:], b)
	return pos, b
}

// apply puts the sectors of a write on the disk that keep takes.
func (a *attack) apply(pos int, b []byte, keep func() bool) {
	for at := pos; at < pos+len(b); {
		end := min(pos+len(b), at-at%512+512)
		if keep() {
			if grow := end - len(a.disk); grow > 0 {
				a.disk = append(a.disk, make([]byte, grow)...)
			}
			copy(a.disk[at:end], b[at-pos:end-pos])
		}
		at = end
	}
}

// live writes groups until the power fails. Under on_commit only the last one can be unfinished: the next
// is written when it is synced. In the other modes any that came after the last sync can be, each sector
// with what any of the writes to it left.
func (a *attack) live() {
	direct := a.mode == FsyncOnCommit && a.rng.IntN(2) == 0
	groups := 1 + a.rng.IntN(6)
	unsynced := a.rng.IntN(2)
	if a.mode != FsyncOnCommit {
		unsynced = a.rng.IntN(groups + 1)
	}
	bounds := []int{0}
	for g := range groups {
		pos, b := a.group(direct)
		end := a.entries[len(a.entries)-1].end
		switch {
		case g < groups-unsynced:
			a.apply(pos, b, func() bool { return true })
			a.synced = end
			bounds = append(bounds, end)
		case a.mode == FsyncOnCommit && a.rng.IntN(3) == 0:
			// The write failed half way, and the cut that follows was not durable when the power failed.
			n := a.rng.IntN(len(b))
			a.apply(pos, b[:n], func() bool { return true })
			a.story += "failed write, "
		default:
			share := a.rng.IntN(5)
			a.apply(pos, b, func() bool { return a.rng.IntN(4) < share })
		}
	}
	a.mark = bounds[a.rng.IntN(len(bounds))]
	a.story += fmt.Sprintf("%v, direct %v, %d groups, %d not synced, mark %d of %d", a.mode, direct, groups, unsynced, a.mark, a.synced)
}

// flip damages one bit of what was written.
func (a *attack) flip() {
	end := min(len(a.disk), a.entries[len(a.entries)-1].end)
	if end <= blockBytes {
		return
	}
	at := blockBytes + a.rng.IntN(end-blockBytes)
	if a.rng.IntN(2) == 0 { // in a header, where it is worst
		e := a.entries[a.rng.IntN(len(a.entries))]
		if at = e.at + a.rng.IntN(64); at >= len(a.disk) {
			return
		}
	}
	a.disk[at] ^= 1 << a.rng.IntN(8)
	a.flipped = true
	a.story += fmt.Sprintf(", byte %d flipped", at)
}

func (a *attack) intact(from, to int) bool {
	return to <= len(a.disk) && bytes.Equal(a.disk[from:to], a.written[from:to])
}

// verdict is what has to come of it: how many entries are served, or where the damage is.
func (a *attack) verdict() (entries, damage int) {
	first := len(a.entries)
	for i, e := range a.entries {
		if !a.intact(e.at, e.end) {
			first = i
			break
		}
	}
	if first == len(a.entries) {
		return first, 0
	}
	place := a.entries[first].at
	if place < a.mark {
		return first, place
	}
	for _, e := range a.entries[first:] {
		if a.mode == FsyncOnCommit && e.group > place && a.intact(e.at, e.at+64) {
			return first, place
		}
	}
	return first, 0
}

// The rule of the end of the data against what disks, crashes and recycled files leave, and against
// damage on top of that. What a crash alone can leave is never refused and loses nothing that was
// synced; what was synced and is damaged is refused at its place, but where the rule says that nothing
// can tell; nothing is ever served that was not written; and the log goes on afterwards.
func TestEndOfDataUnderAttack(t *testing.T) { // LOG-4, LOG-5, LOG-6, LOG-7, HZ-6, HZ-7
	seeds := uint64(6000)
	if invariants.Enabled {
		seeds /= 10
	}
	var refused, cut, silent, whole int
	for seed := range seeds {
		a := newAttack(seed)
		a.live()
		if seed%2 == 1 {
			a.flip()
		}
		entries, damage := a.verdict()
		what := fmt.Sprintf("seed %d (%s)", seed, a.story)

		// The rule itself.
		lost := entries < len(a.entries) && a.entries[entries].at < a.synced
		switch {
		case !a.flipped && (damage != 0 || lost):
			t.Fatalf("%s: the rule takes a crash for damage at %d, or loses what was synced", what, damage)
		case lost && damage == 0:
			silent++
			e := a.entries[entries]
			if e.at < a.mark {
				t.Fatalf("%s: lost below the mark", what)
			}
			if later := a.entries[len(a.entries)-1].group; a.mode == FsyncOnCommit && later > e.group && later < a.synced {
				t.Fatalf("%s: the rule loses the entry at %d, which was acknowledged, and a group behind it was, too", what, e.at)
			}
		}

		// The code.
		files := map[string][]byte{segmentName(0): a.disk}
		if a.mark != 0 {
			files[markName] = appendMark(nil, Mark{Bytes: int64(a.mark)})
		}
		o := testOptions(restoreDir(t, files), withMode(a.mode))
		l, err := Open(o)
		if damage != 0 {
			refused++
			var c *CorruptError
			if !errors.As(err, &c) || c.Pos != int64(damage) || c.Segment != 0 {
				t.Fatalf("%s: %v, want damage at %d", what, err, damage)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v, want %d of %d entries", what, err, entries, len(a.entries))
		}
		next, end := uint64(0), blockBytes
		if entries > 0 {
			next, end = a.entries[entries-1].next, a.entries[entries-1].end
		}
		if entries < len(a.entries) {
			cut++
		} else {
			whole++
		}
		if l.Committed() != next {
			t.Fatalf("%s: %d records, want %d", what, l.Committed(), next)
		}
		got := readFile(t, o.FS, testDir+"/"+segmentName(0))
		if !bytes.Equal(got[blockBytes:end], a.written[blockBytes:end]) {
			t.Fatalf("%s: what is served is not what was written", what)
		}
		if _, err := readRecords(l, 0, 1<<20); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		commitOne(t, l, 2, 30)
		l.letGo()
		o.FS = o.FS.(*crashfs.FS).Crash(crashfs.SeedKeepAll)
		if l, err = Open(o); err != nil || l.Committed() != next+2 {
			t.Fatalf("%s: after two more records: %v", what, err)
		}
		l.letGo()
	}
	t.Logf("%d refused, %d cut (%d of them lose what only the mark could have proven), %d whole", refused, cut, silent, whole)
	if refused < int(seeds/20) || cut < int(seeds/20) || whole < int(seeds/20) || silent == 0 {
		t.Error("the attacks do not reach every verdict")
	}
}
