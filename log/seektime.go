package log

import (
	"errors"
	"fmt"
	"sort"
)

// OffsetForTime returns the first offset that was appended at or after micros, of those that are
// kept; false when there is none yet. Append times never fall, so segments are found by their times,
// then the place in one by its index, then the entry by walking. Any goroutine.
func (l *Log) OffsetForTime(micros uint64) (uint64, bool, error) {
	for {
		committed := l.committed.Load() // before the view, which covers it then
		v := l.view.Load()
		if v.base > committed {
			continue // the log has moved on by more than all it held
		}
		offset, ok, err := l.seekTime(v, micros, committed)
		if !errors.Is(err, errGone) {
			return offset, ok, err
		}
	}
}

// seekTime is OffsetForTime in one view.
func (l *Log) seekTime(v *view, micros, committed uint64) (uint64, bool, error) {
	i := sort.Search(len(v.segs), func(i int) bool { return v.segs[i].lastMicros.Load() >= micros })
	if i == len(v.segs) {
		return 0, false, nil
	}
	s := v.segs[i]
	if s.base >= committed {
		return 0, false, nil
	}
	if s.firstMicros.Load() >= micros {
		return s.base, true, nil
	}
	h, err := l.files.get(s)
	if err != nil {
		return 0, false, err
	}
	defer h.done()
	limit := s.end.Load()
	sc := newScanner(h.file, limit, s.header(), false, make([]byte, walkWindowBytes))
	if x := h.index(); x != nil {
		sc.startBefore(x, micros)
	}
	var e scannedEntry
	for {
		more, why, err := sc.step(&e)
		switch {
		case err != nil:
			return 0, false, fmt.Errorf("log: find time: %w", err)
		case !more && why.what != "":
			return 0, false, l.corrupt(s.id, sc.pos, "%s", why.what)
		case !more || e.header.base >= committed:
			return 0, false, nil
		case e.header.micros >= micros:
			return e.header.base, true, nil
		}
	}
}

// startBefore moves the scanner to the last indexed entry that is older than micros. An index
// entry without an entry of the segment behind it leaves it where it is.
func (s *scanner) startBefore(x index, micros uint64) {
	var h entryHeader
	failed := false
	header := func(i int) bool {
		e, err := x.at(i)
		if err != nil || e.pos < blockBytes || e.pos%unitBytes != 0 || e.pos >= s.size {
			return false
		}
		var b [entryHeaderBytes]byte
		n, err := readFull(s.file, b[:], e.pos)
		return err == nil && n == len(b) && decodeEntryHeader(b[:], &h) && h.nonce == s.nonce && h.base == e.base
	}
	i := sort.Search(x.len(), func(i int) bool {
		if !header(i) {
			failed = true
		}
		return h.micros >= micros
	})
	if i == 0 || failed || !header(i-1) {
		return
	}
	e, err := x.at(i - 1)
	if err != nil {
		return
	}
	s.pos, s.next = e.pos, e.base
	s.epoch, s.micros, s.group = 0, 0, blockBytes/unitBytes
}

func (l *Log) corrupt(id uint64, pos int64, format string, args ...any) error {
	return &CorruptError{Dir: l.dir, Shard: l.o.Shard, Segment: id, Pos: pos, What: fmt.Sprintf(format, args...)}
}
