package core

import (
	"errors"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// Bounds of a page of ReadPage (broker.md 2.8).
const (
	ReadRecordsMax = 10_000
	ReadBytesMax   = 4 << 20
)

// ReadRequest asks for a page of the committed records of one shard.
type ReadRequest struct {
	Stream *Stream
	Shard  uint32
	From   uint64
	// End is the first offset that is not wanted any more; nil = the tail.
	End *uint64
	// MaxRecords and MaxBytes (of payload) bound the page; 0 = ReadRecordsMax and ReadBytesMax, which
	// are also the most.
	MaxRecords uint32
	MaxBytes   uint64
}

// ReadRecord is one record of a page.
type ReadRecord struct {
	Offset     uint64
	Payload    []byte // the page's memory
	Publisher  string
	TimeMicros uint64
}

// ReadPage is what ReadPage returns. Release it when the records are not needed any more.
type ReadPage struct {
	Records []ReadRecord
	// Next is the offset to go on from: behind the last record, and behind what is never delivered.
	Next uint64

	pages []*log.Page
}

// Release gives the memory of the records back.
func (p *ReadPage) Release() {
	for _, page := range p.pages {
		page.Release()
	}
	p.pages, p.Records = nil, nil
}

// FindStream returns the handle of a stream that exists; it never makes one.
func (b *Broker) FindStream(tenant, namespace, stream string) (*Stream, error) {
	if st, ok := b.streams.get(appendKey(nil, tenant, namespace, stream)); ok {
		return st, nil
	}
	return nil, wire.NewError(wire.CodeNotFound, "stream not found: %s/%s/%s", tenant, namespace, stream)
}

// ReadPage returns committed records from an offset on, at least one where there is one, and waits
// for nothing but the disk: never call it on an executor. It returns a *CursorError when the offset
// is outside what is kept, else a *wire.Error.
func (b *Broker) ReadPage(r *ReadRequest) (*ReadPage, error) {
	sh, err := b.readable(r.Stream, r.Shard)
	if err != nil {
		return nil, err
	}
	l := sh.log
	tail := sh.visible.Load() // first: retention may move the base up to it
	base := l.Base()
	switch {
	case r.From < base:
		return nil, &CursorError{TooOld: true, Requested: r.From, Available: base}
	case r.From > tail:
		return nil, &CursorError{Requested: r.From, Available: tail}
	}
	w := pageWriter{page: &ReadPage{Next: r.From}, end: tail, records: ReadRecordsMax, bytes: ReadBytesMax}
	if r.End != nil {
		w.end = min(w.end, *r.End)
	}
	if r.MaxRecords != 0 {
		w.records = int(min(r.MaxRecords, ReadRecordsMax))
	}
	if r.MaxBytes != 0 {
		w.bytes = int(min(r.MaxBytes, ReadBytesMax))
	}
	for w.more() {
		page, err := l.ReadUntil(w.page.Next, w.end, w.bytes)
		if err != nil {
			if len(w.page.Records) > 0 {
				break // what was read is right; the next page says what is wrong
			}
			w.page.Release()
			return nil, readError(err)
		}
		kept := len(w.page.Records)
		more := w.take(page)
		if len(w.page.Records) > kept {
			w.page.pages = append(w.page.pages, page)
		} else {
			page.Release()
		}
		if !more {
			break
		}
	}
	if w.err != nil && len(w.page.Records) == 0 {
		w.page.Release()
		return nil, readError(w.err)
	}
	return w.page, nil
}

// OffsetForTime returns the first kept offset that was appended at or after a time in microseconds
// since the epoch; ok is false when there is none yet. It reads files: never call it on an executor.
func (b *Broker) OffsetForTime(st *Stream, shard uint32, micros uint64) (offset uint64, ok bool, err error) {
	sh, err := b.readable(st, shard)
	if err != nil {
		return 0, false, err
	}
	end := sh.visible.Load()
	offset, ok, err = sh.log.OffsetForTime(micros)
	if err != nil {
		return 0, false, readError(err)
	}
	if !ok || offset >= end {
		return 0, false, nil
	}
	return offset, true, nil
}

// readable is a shard with a log. What may be read of that ends at visible.
func (b *Broker) readable(st *Stream, shard uint32) (*shard, error) {
	sh, err := st.shard(shard)
	switch {
	case err != nil:
		return nil, err
	case sh.log == nil:
		return nil, errNoLog
	}
	if e := sh.fence.Load(); e != nil {
		return nil, e
	}
	return sh, nil
}

// readError maps an error of reading a log; reading again may work.
func readError(err error) error {
	if trimmed, ok := errors.AsType[*log.TrimmedError](err); ok {
		return &CursorError{TooOld: true, Requested: trimmed.Requested, Available: trimmed.Oldest}
	}
	if errors.Is(err, log.ErrClosed) {
		return errNoStream // deleted, or the broker stops
	}
	return wire.NewError(wire.CodeStorage, "reading the shard's log failed").WithRetry(wire.RetryNow).WithCause(err)
}

var errNoLog = wire.NewError(wire.CodeInvalidRequest, "the stream is in memory: it has no log to read")

// pageWriter fills a ReadPage from pages of the log.
type pageWriter struct {
	page    *ReadPage
	end     uint64
	records int // that still fit
	bytes   int
	err     error // an entry that is not what it should be
}

func (w *pageWriter) more() bool { return w.page.Next < w.end && w.records > 0 && w.bytes > 0 }

// take adds the records of a page that fit, and says whether to go on.
func (w *pageWriter) take(p *log.Page) bool {
	for i := range p.Entries {
		e := &p.Entries[i]
		switch e.Kind {
		case log.KindEpoch:
			if e.Base < w.end {
				w.page.Next = e.Base + uint64(e.Count)
			}
			continue
		case log.KindCommit:
			if w.err = eventOf(e); w.err != nil {
				return false
			}
		}
		if !w.entry(e) {
			return false
		}
	}
	return len(p.Entries) > 0
}

// entry adds the records of an entry until one does not fit. The first of a page always does.
func (w *pageWriter) entry(e *log.PageEntry) bool {
	publisher := string(e.Publisher)
	rest := e.Records
	for offset := e.Base; offset < e.Base+uint64(e.Count); offset++ {
		record, after, ok := wire.NextRecord(rest)
		first := len(w.page.Records) == 0
		if !ok || offset >= w.end || w.records == 0 || len(record) > w.bytes && !first {
			return false
		}
		rest = after
		w.page.Records = append(w.page.Records, ReadRecord{
			Offset: offset, Payload: record, Publisher: publisher, TimeMicros: e.TimeMicros,
		})
		w.page.Next = offset + 1
		w.records--
		w.bytes = max(0, w.bytes-len(record))
	}
	return true
}
