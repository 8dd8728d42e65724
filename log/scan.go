package log

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// scanner walks the entries of one segment file from the front, by their lengths. It holds one
// window of the file and never more, whatever the bytes say. It judges nothing: it stops at the
// first place that does not continue the log, and the plan decides what that place is.
type scanner struct {
	file   io.ReaderAt
	size   int64 // of the file
	bodies bool  // verify body checksums too

	// Where the walk stands: everything below pos holds.
	pos    int64
	next   uint64 // offset that the next entry must have
	nonce  uint64
	epoch  uint64 // these three do not fall
	micros uint64
	group  uint32

	window    []byte // bytes of the file from windowPos
	windowBuf []byte
	windowPos int64
	optionBuf [optionMax]byte
	scanned   int64                  // bytes read
	interrupt func(read int64) error // asked after each read; may be nil
}

// scannedEntry is an entry that the scanner accepted.
type scannedEntry struct {
	pos    int64
	header entryHeader
	option []byte // valid until the next step
}

// stop says why the walk does not go on.
type stop struct {
	what string // "" = at the exact end of the file
	// refuse: the header is whole and of this segment, but nobody here understands it. That is no
	// end of the data, wherever it is found.
	refuse bool
}

func newScanner(file io.ReaderAt, size int64, h *segmentHeader, bodies bool, buf []byte) *scanner {
	return &scanner{
		file: file, size: size, bodies: bodies,
		pos: blockBytes, next: h.base, nonce: h.nonce, epoch: h.epoch, group: blockBytes / unitBytes,
		windowBuf: buf,
	}
}

// step reads the entry at pos into e and moves past it. more is false at the end of the walk, with
// the reason; err is a failure to read the file, which says nothing about what it holds.
func (s *scanner) step(e *scannedEntry) (more bool, why stop, err error) {
	if s.pos >= s.size {
		return false, stop{}, nil
	}
	b, err := s.view(s.pos, entryHeaderBytes)
	if err != nil {
		return false, stop{}, err
	}
	if len(b) < entryHeaderBytes {
		return false, stop{what: "entry header cut short by the end of the file"}, nil
	}
	h := &e.header
	if !decodeEntryHeader(b, h) {
		if allZero(b) {
			return false, stop{what: "zeros"}, nil
		}
		return false, stop{what: "no entry header, or one whose checksum fails"}, nil
	}
	if h.nonce != s.nonce {
		return false, stop{what: "entry of another use of the file"}, nil
	}
	if what := h.check(); what != "" {
		return false, stop{what: what, refuse: true}, nil
	}
	if what := s.continues(h); what != "" {
		return false, stop{what: what}, nil
	}
	if s.pos+int64(h.length) > s.size {
		return false, stop{what: "entry cut short by the end of the file"}, nil
	}
	if b, err = s.view(s.pos, entryHeaderBytes+int(h.option)); err != nil {
		return false, stop{}, err
	}
	if len(b) < entryHeaderBytes+int(h.option) {
		return false, stop{what: "entry cut short by the end of the file"}, nil
	}
	// Copied, because the window may move on before the option part is used.
	e.pos, e.option = s.pos, s.optionBuf[:copy(s.optionBuf[:], b[entryHeaderBytes:])]
	if s.bodies {
		ok, err := s.bodyHolds(h)
		if err != nil {
			return false, stop{}, err
		}
		if !ok {
			return false, stop{what: "entry whose body checksum fails"}, nil
		}
		if _, _, ok := optionParts(h.flags, e.option); !ok {
			return false, stop{what: "entry whose publisher length is not that of its option part", refuse: true}, nil
		}
	}
	s.pos += int64(h.length)
	s.next, s.epoch, s.micros, s.group = h.next(), h.epoch, h.micros, h.group
	return true, stop{}, nil
}

// continues returns why a whole header of this segment does not continue the log, "" when it does.
func (s *scanner) continues(h *entryHeader) string {
	switch {
	case h.base != s.next:
		return "entry out of order"
	case h.epoch < s.epoch:
		return "entry whose epoch falls"
	case h.micros < s.micros:
		return "entry whose time falls"
	case h.group < s.group || h.groupPos() > s.pos:
		return "entry with an impossible group start"
	}
	return ""
}

// bodyHolds verifies the checksum behind the header at pos, window by window, and that the section
// holds as many records as the header says.
func (s *scanner) bodyHolds(h *entryHeader) (bool, error) {
	var sum uint32
	countPos := s.pos + h.sectionPos()
	b, err := s.view(countPos, 4)
	if err != nil || len(b) < 4 || binary.BigEndian.Uint32(b) != h.count {
		return false, err
	}
	pos, end := s.pos+entryHeaderBytes-entrySumBytes, s.pos+int64(h.length)-entrySumBytes
	for pos < end {
		if b, err = s.some(pos); err != nil || len(b) == 0 {
			return false, err
		}
		b = b[:min(int64(len(b)), end-pos)]
		sum = crc32.Update(sum, castagnoli, b)
		pos += int64(len(b))
	}
	if b, err = s.view(end, entrySumBytes); err != nil || len(b) < entrySumBytes {
		return false, err
	}
	return binary.BigEndian.Uint32(b) == sum, nil
}

// view returns n bytes at pos (at most the window), fewer at the end of the file.
func (s *scanner) view(pos int64, n int) ([]byte, error) {
	if i := pos - s.windowPos; i >= 0 && i+int64(n) <= int64(len(s.window)) {
		return s.window[i : i+int64(n)], nil
	}
	if err := s.load(pos); err != nil {
		return nil, err
	}
	return s.window[:min(n, len(s.window))], nil
}

// some returns what the window holds from pos on, loading it when that is nothing.
func (s *scanner) some(pos int64) ([]byte, error) {
	if i := pos - s.windowPos; i >= 0 && i < int64(len(s.window)) {
		return s.window[i:], nil
	}
	if err := s.load(pos); err != nil {
		return nil, err
	}
	return s.window, nil
}

func (s *scanner) load(pos int64) error {
	want := min(int64(len(s.windowBuf)), max(0, s.size-pos))
	n, err := readFull(s.file, s.windowBuf[:want], pos)
	s.window, s.windowPos = s.windowBuf[:n], pos
	s.scanned += int64(n)
	if err == nil && s.interrupt != nil {
		err = s.interrupt(int64(n))
	}
	return err
}

// laterGroup looks behind a place where the data seems to end for an entry of this segment that
// proves the opposite: written under on_commit, in a group that starts above the place. What lies
// below the start of such a group was on disk before the group was written, so the place is damage
// and not the end. It returns the position of the entry, or 0.
func (s *scanner) laterGroup() (int64, error) {
	return s.find(s.pos+unitBytes, func(h *entryHeader, pos int64) bool {
		return h.nonce == s.nonce && h.flags&flagCommit != 0 && h.groupPos() > s.pos && h.groupPos() <= pos
	})
}

// find returns the position of the first whole entry header at or above from, at a multiple of
// the unit, that match takes; 0 when there is none.
func (s *scanner) find(from int64, match func(h *entryHeader, pos int64) bool) (int64, error) {
	var h entryHeader
	for pos := from; pos+entryHeaderBytes <= s.size; {
		b, err := s.some(pos)
		if err != nil {
			return 0, err
		}
		if len(b) < entryHeaderBytes {
			if b, err = s.view(pos, entryHeaderBytes); err != nil || len(b) < entryHeaderBytes {
				return 0, err
			}
		}
		for ; len(b) >= entryHeaderBytes; b = b[unitBytes:] {
			if binary.BigEndian.Uint32(b) == entryMagic && decodeEntryHeader(b, &h) && match(&h, pos) {
				return pos, nil
			}
			pos += unitBytes
		}
	}
	return 0, nil
}
