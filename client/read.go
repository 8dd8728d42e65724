package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// ReadOption adjusts a ReadStream.
type ReadOption interface{ applyRead(*readConfig) }

type readOption func(*readConfig)

func (f readOption) applyRead(c *readConfig) { f(c) }

type readConfig struct {
	namespace  string
	end        *uint64
	maxRecords uint32
	maxBytes   uint64
}

// ReadEnd ends the page before an offset. Default: the tail.
func ReadEnd(offset uint64) ReadOption {
	return readOption(func(c *readConfig) { c.end = &offset })
}

// ReadLimit bounds the page in records and bytes of payload; 0 is the broker's bound (10,000 records
// and 4 MiB, usually), which is also the most. One record larger than the bound comes alone.
func ReadLimit(records uint32, bytes uint64) ReadOption {
	return readOption(func(c *readConfig) { c.maxRecords, c.maxBytes = records, bytes })
}

// Page is a piece of a stream's history.
type Page struct {
	// Records are in order. Their memory is the caller's.
	Records []StoredRecord
	// Next is the offset to go on from. At the tail it is the offset that was asked for.
	Next uint64
}

// StoredRecord is one record of a Page.
type StoredRecord struct {
	Offset    uint64
	Payload   []byte
	Publisher string    // "" where the broker recorded none
	Time      time.Time // when it was appended, by the broker's clock
}

// ReadStream reads a page of one shard of a stream with a log, from an offset on, and waits for
// nothing that is still to be published. An offset that the broker does not have, too old or beyond
// the tail, is a *GapError with the one that it has.
func (c *Client) ReadStream(ctx context.Context, stream string, shard uint32, from uint64, opts ...ReadOption) (*Page, error) {
	cfg := readConfig{namespace: c.cfg.namespace}
	for _, o := range opts {
		o.applyRead(&cfg)
	}
	if err := checkName("namespace", cfg.namespace); err != nil {
		return nil, fmt.Errorf("client: read: %w", err)
	}
	if err := checkName("stream", stream); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	m, err := c.call(ctx, wire.FeatureStreamRead, "stream_read", &wire.StreamRead{
		TenantID: c.cfg.tenant, Namespace: cfg.namespace, Stream: stream, Shard: shard,
		From: from, End: cfg.end, MaxRecords: cfg.maxRecords, MaxBytes: cfg.maxBytes, RequestID: 1,
	}, true)
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *wire.StreamRecords:
		return readPage(m, from)
	case *wire.SubscribeCursorError:
		return nil, &GapError{Stream: stream, Shard: shard, From: m.Requested, Next: m.Available, Reason: m.Reason.String()}
	}
	return nil, protocolError("answer to stream_read is "+m.Type(), nil)
}

// readPage checks that a page goes forward from where it was asked for.
func readPage(m *wire.StreamRecords, from uint64) (*Page, error) {
	p := &Page{Next: m.NextOffset, Records: make([]StoredRecord, len(m.Records))}
	at := from
	for i, r := range m.Records {
		if r.Offset < at || r.Offset == math.MaxUint64 {
			return nil, protocolError(fmt.Sprintf("page with offset %d where %d or more belongs", r.Offset, at), nil)
		}
		at = r.Offset + 1
		p.Records[i] = StoredRecord{Offset: r.Offset, Payload: r.Payload, Publisher: r.Publisher, Time: time.UnixMicro(int64(r.TimestampMicros))}
	}
	if p.Next < at {
		return nil, protocolError(fmt.Sprintf("page that ends at %d goes on at %d", at, p.Next), nil)
	}
	return p, nil
}

// OffsetForTime returns the first offset of a shard that was appended at or after t, by the broker's
// clock, of those that are kept; ok is false when there is none yet.
func (c *Client) OffsetForTime(ctx context.Context, stream string, shard uint32, t time.Time) (offset uint64, ok bool, err error) {
	return c.offsetForTime(ctx, c.cfg.namespace, stream, shard, t)
}

func (c *Client) offsetForTime(ctx context.Context, namespace, stream string, shard uint32, t time.Time) (uint64, bool, error) {
	if err := checkName("stream", stream); err != nil {
		return 0, false, fmt.Errorf("client: %w", err)
	}
	m, err := c.call(ctx, wire.FeatureRecordTimestamps, "offset_for_time", &wire.OffsetForTime{
		TenantID: c.cfg.tenant, Namespace: namespace, Stream: stream, Shard: shard,
		AtMicros: uint64(max(0, t.UnixMicro())), RequestID: 1,
	}, true)
	if err != nil {
		return 0, false, err
	}
	v, ok := m.(*wire.OffsetValue)
	switch {
	case !ok:
		return 0, false, protocolError("answer to offset_for_time is "+m.Type(), nil)
	case v.Offset == nil:
		return 0, false, nil
	}
	return *v.Offset, true, nil
}

// startAt turns a time into the offset to subscribe from. Where nothing is that recent it is the tail,
// named by its offset: what is published between this look and the subscribe must not be skipped.
func (c *Client) startAt(ctx context.Context, namespace, stream string, shard uint32, t time.Time) (wire.Start, error) {
	offset, ok, err := c.offsetForTime(ctx, namespace, stream, shard, t)
	if err == nil && !ok {
		// The tail first and then the time again: what is older than the second look is below it.
		if offset, err = c.tail(ctx, namespace, stream, shard); err == nil {
			var found uint64
			if found, ok, err = c.offsetForTime(ctx, namespace, stream, shard, t); ok {
				offset = found
			}
		}
	}
	return wire.Start{Kind: wire.StartOffset, Offset: offset}, err
}

// tail is the offset that the next record of a shard gets.
func (c *Client) tail(ctx context.Context, namespace, stream string, shard uint32) (uint64, error) {
	page, err := c.ReadStream(ctx, stream, shard, math.MaxUint64, WithNamespace(namespace))
	if gap, ok := errors.AsType[*GapError](err); ok && gap.Reason == wire.CursorInFuture.String() {
		return gap.Next, nil
	}
	if err != nil {
		return 0, err
	}
	return page.Next, nil
}
