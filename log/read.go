package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/ringcast/ringcast/wire"
)

// Page is what Read returns: entries, in order and without a gap, in memory of the page.
type Page struct {
	Entries []PageEntry
	// Next is the offset to go on from.
	Next uint64

	buf    *wire.Buf
	log    *Log
	header [entryHeaderBytes]byte // scratch of the reader
}

// PageEntry is one entry of a page, or its end where a read began inside it. Entries of every kind
// are returned; KindEpoch is not for subscribers.
type PageEntry struct {
	Base       uint64
	Count      uint32
	Kind       Kind
	TimeMicros uint64
	Publisher  []byte // a view; empty when the entry has none
	// Records are the records without the count word: u32 length, bytes, and so on.
	Records []byte
	// Buf holds the page. Records start at Buf.Bytes()[Pos] and the count word, always that of
	// this PageEntry, at Pos-4. The bytes in front of Records back to the end of the entry before
	// may be overwritten by whoever holds the page: Publisher lies there.
	Buf *wire.Buf
	Pos int
}

// Release gives the page back. Whoever keeps a Buf has retained it before.
func (p *Page) Release() {
	if p.buf != nil {
		p.buf.Release()
		p.buf = nil
	}
	clear(p.Entries)
	p.Entries = p.Entries[:0]
	p.log.pages.Put(p)
}

// Read returns committed entries from the one that holds offset from: about maxBytes of payload
// and 10 000 records at the most, but at least one entry, and at or past Committed none. Below
// Base it is a *TrimmedError. Every entry is verified; damage is a *CorruptError, after the
// entries before it have been read. Any goroutine.
func (l *Log) Read(from uint64, maxBytes int) (*Page, error) {
	return l.ReadUntil(from, math.MaxUint64, maxBytes)
}

// ReadUntil is Read without the entries that begin at or behind offset until.
func (l *Log) ReadUntil(from, until uint64, maxBytes int) (*Page, error) {
	committed := l.committed.Load() // before the view, which covers it then
	v := l.view.Load()
	for v.base > committed { // the log has moved on by more than all it held
		committed, v = l.committed.Load(), l.view.Load()
	}
	if from < v.base {
		return nil, &TrimmedError{Requested: from, Oldest: v.base}
	}
	page := l.pages.Get().(*Page)
	page.Next, page.log = from, l
	until = min(until, committed)
	if from >= until {
		return page, nil
	}
	s := v.find(from)
	h, err := l.files.get(s)
	if err != nil {
		page.Release()
		if errors.Is(err, errGone) {
			return nil, &TrimmedError{Requested: from, Oldest: l.Base()}
		}
		return nil, err
	}
	r := reader{log: l, seg: s, file: h.file, from: from, until: until, limit: s.end.Load(), bytes: maxBytes, page: page}
	err = r.read(h.index())
	h.done()
	if err != nil && len(page.Entries) == 0 {
		page.Release()
		return nil, err
	}
	return page, nil
}

// reader fills one page from one segment.
type reader struct {
	log   *Log
	seg   *segment
	file  readerAt
	from  uint64
	until uint64 // no entry from here on
	limit int64  // end of data in the file
	bytes int    // of payload, at the most
	page  *Page

	pos     int64  // of the next entry
	next    uint64 // its first offset
	records uint64
	payload int
}

type readerAt interface {
	ReadAt(p []byte, off int64) (int, error)
}

// read starts where the index says. What an index says is not believed: when there is no such
// entry there, the segment is walked from its start.
func (r *reader) read(x index) error {
	r.pos, r.next = blockBytes, r.seg.base
	if x == nil {
		return r.fill()
	}
	hint, ok := seek(x, r.from)
	if !ok || hint.pos == r.pos {
		return r.fill()
	}
	if !r.entryAt(hint) {
		return r.fill()
	}
	r.pos, r.next = hint.pos, hint.base
	return r.fill()
}

// entryAt says whether the segment has an entry at the position and with the offset of a hint.
func (r *reader) entryAt(hint indexEntry) bool {
	if hint.pos < blockBytes || hint.pos%unitBytes != 0 || hint.pos+entryHeaderBytes > r.limit {
		return false
	}
	b := r.page.header[:]
	var h entryHeader
	n, err := readFull(r.file, b, hint.pos)
	return err == nil && n == len(b) && decodeEntryHeader(b, &h) && h.nonce == r.seg.nonce && h.base == hint.base
}

// fill loads windows until one gave an entry, and takes from that one what fits. Windows before it
// are passed over: those of a walk.
func (r *reader) fill() error {
	size := min(max(int64(r.bytes), pageBytesMin), pageBytesMax)
	for {
		size = min(size, r.limit-r.pos)
		if size < entryHeaderBytes {
			return r.corrupt(r.pos, "the data ends before offset %d", r.next)
		}
		if err := r.load(int(size)); err != nil {
			return err
		}
		need, err := r.take()
		switch {
		case err != nil || len(r.page.Entries) > 0:
			return err
		case r.next >= r.until:
			return r.corrupt(r.pos, "the entries end before offset %d", r.from)
		case need > size:
			size = need // an entry larger than the window
		default:
			size = min(max(int64(r.bytes), pageBytesMin), pageBytesMax)
		}
	}
}

// load reads size bytes at pos into memory of the page.
func (r *reader) load(size int) error {
	p := r.page
	if p.buf != nil && p.buf.Cap() < size {
		p.buf.Release()
		p.buf = nil
	}
	if p.buf == nil {
		p.buf = r.log.o.Pool.Get(size)
	}
	p.buf.SetLen(size)
	n, err := readFull(r.file, p.buf.Bytes(), r.pos)
	if err != nil {
		return err
	}
	if n < size {
		return r.corrupt(r.pos+int64(n), "the file ends before its data")
	}
	return nil
}

// take parses the window that starts at pos. It moves pos past what it took or passed over, and
// returns how many bytes the entry at pos needs when the window has too few.
func (r *reader) take() (need int64, err error) {
	window := r.page.buf.Bytes()
	at := 0
	defer func() { r.pos += int64(at) }()
	var h entryHeader
	for r.next < r.until {
		b := window[at:]
		if len(b) < entryHeaderBytes {
			return 0, nil
		}
		if what := r.header(b, &h); what != "" {
			return 0, r.corrupt(r.pos+int64(at), "%s", what)
		}
		size := int64(h.length)
		if r.pos+int64(at)+size > r.limit {
			return 0, r.corrupt(r.pos+int64(at), "entry longer than the data")
		}
		if h.next() <= r.from {
			r.next = h.next()
			if size > int64(len(b)) {
				at = len(window)
				r.pos += size - int64(len(b)) // passed over without reading it
				return 0, nil
			}
			at += int(size)
			continue
		}
		if size > int64(len(b)) {
			return size, nil
		}
		payload := int(h.section) - 4 - 4*int(h.count)
		if len(r.page.Entries) > 0 && (r.payload+payload > r.bytes || r.records+uint64(h.count) > pageRecordsMax) {
			return 0, nil
		}
		if what := r.add(b[:size], at, &h); what != "" {
			return 0, r.corrupt(r.pos+int64(at), "%s", what)
		}
		r.payload += payload
		r.records += uint64(h.count)
		r.next = h.next()
		r.page.Next = r.next
		at += int(size)
	}
	return 0, nil
}

// header decodes and checks the header of the next entry.
func (r *reader) header(b []byte, h *entryHeader) string {
	switch {
	case !decodeEntryHeader(b, h):
		return "no entry header, or one whose checksum fails"
	case h.nonce != r.seg.nonce:
		return "entry of another use of the file"
	case h.base != r.next:
		return "entry out of order"
	}
	return h.check()
}

// add verifies an entry's body and appends it to the page. at is where b lies in the page.
func (r *reader) add(b []byte, at int, h *entryHeader) string {
	sumPos := len(b) - entrySumBytes
	if crc32.Checksum(b[entryHeaderBytes-entrySumBytes:sumPos], castagnoli) != binary.BigEndian.Uint32(b[sumPos:]) {
		return "entry whose body checksum fails"
	}
	pos := int(h.sectionPos())
	_, publisher, ok := optionParts(h.flags, b[entryHeaderBytes:pos])
	section := b[pos : pos+int(h.section)]
	if !ok || binary.BigEndian.Uint32(section) != h.count {
		return "entry whose parts do not match its header"
	}
	e := PageEntry{
		Base: h.base, Count: h.count, Kind: h.kind, TimeMicros: h.micros, Publisher: publisher,
		Records: section[4:len(section):len(section)], Buf: r.page.buf, Pos: at + pos + 4,
	}
	if e.Base < r.from && !e.cut(r.from) {
		return "entry whose records do not match its count"
	}
	r.page.Entries = append(r.page.Entries, e)
	return ""
}

// cut drops the records before offset from, and puts a count word in front of the others.
func (e *PageEntry) cut(from uint64) bool {
	rest := e.Records
	for range from - e.Base {
		var ok bool
		if _, rest, ok = wire.NextRecord(rest); !ok {
			return false
		}
	}
	e.Pos += len(e.Records) - len(rest)
	e.Count -= uint32(from - e.Base)
	e.Base, e.Records = from, rest
	binary.BigEndian.PutUint32(e.Buf.Bytes()[e.Pos-4:], e.Count)
	return true
}

func (r *reader) corrupt(pos int64, format string, args ...any) error {
	return r.log.corrupt(r.seg.id, pos, format, args...)
}
