package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ringcast/ringcast/wire"
)

func fakeAt(offset int64) time.Time { return time.UnixMicro(fakeEpoch + offset) }

// A page holds what was asked for; what the broker does not have is a GapError that names what it has.
func TestReadStreamReadsPages(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add(numbered("", 0, 10)...)
		b.base = 3
		for _, row := range []struct {
			from, to uint64
			opts     []ReadOption
		}{
			{3, 10, nil}, {5, 7, []ReadOption{ReadEnd(7)}}, {5, 8, []ReadOption{ReadLimit(3, 0), WithNamespace("other")}},
			{10, 10, nil}, {5, 5, []ReadOption{ReadEnd(1)}},
		} {
			p, err := c.ReadStream(ctx, "orders", 0, row.from, row.opts...)
			if err != nil || p.Next != row.to || uint64(len(p.Records)) != row.to-row.from {
				t.Fatalf("page at %d: %+v, %v", row.from, p, err)
			}
			for i, r := range p.Records {
				at := row.from + uint64(i)
				if r.Offset != at || string(r.Payload) != numbered("", int(at), int(at)+1)[0] || r.Publisher != "somebody" || !r.Time.Equal(fakeAt(int64(at))) {
					t.Errorf("record %d: %+v", at, r)
				}
			}
		}
		for from, want := range map[uint64]GapError{
			2: {Reason: "too_old", From: 2, Next: 3}, 11: {Reason: "in_future", From: 11, Next: 10},
			math.MaxUint64: {Reason: "in_future", From: math.MaxUint64, Next: 10},
		} {
			want.Stream = "orders"
			_, err := c.ReadStream(ctx, "orders", 0, from)
			if gap, ok := errors.AsType[*GapError](err); !ok || *gap != want {
				t.Errorf("page at %d: %v", from, err)
			}
		}
		if _, err := c.ReadStream(ctx, "a/b", 0, 0); err == nil {
			t.Error("a name that no stream can have was sent")
		}
	})
}

// Pages that go backwards, skip their own records or stand still behind them are a broken protocol:
// a reader that believed them would read for ever, or twice.
func TestPagesThatGoBackwardsAreRefused(t *testing.T) {
	record := func(offset uint64) wire.StreamRecord { return wire.StreamRecord{Offset: offset} }
	for i, m := range []*wire.StreamRecords{
		{NextOffset: 4}, {Records: []wire.StreamRecord{record(4)}, NextOffset: 9},
		{Records: []wire.StreamRecord{record(5), record(5)}, NextOffset: 9},
		{Records: []wire.StreamRecord{record(5), record(6)}, NextOffset: 6},
		{Records: []wire.StreamRecord{record(math.MaxUint64)}, NextOffset: 0},
	} {
		if _, err := readPage(m, 5); err == nil {
			t.Errorf("page %d was believed", i)
		} else if _, ok := errors.AsType[*ProtocolError](err); !ok {
			t.Errorf("page %d: %v", i, err)
		}
	}
	if p, err := readPage(&wire.StreamRecords{Records: []wire.StreamRecord{record(6), record(9)}, NextOffset: 11}, 5); err != nil || p.Next != 11 {
		t.Errorf("offsets that are no records: %v", err)
	}
}

func TestOffsetForTime(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add(numbered("", 0, 10)...)
		b.base = 3
		for at, want := range map[time.Time]string{
			{}: "3 true", fakeAt(-5): "3 true", fakeAt(3): "3 true", fakeAt(7): "7 true", fakeAt(9): "9 true", fakeAt(10): "0 false",
		} {
			offset, ok, err := c.OffsetForTime(ctx, "orders", 0, at)
			if got := fmt.Sprint(offset, ok); err != nil || got != want {
				t.Errorf("%v: %s, want %s; %v", at, got, want, err)
			}
		}
	})
}

// A broker without the features is not asked.
func TestReadsNeedTheirFeature(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.features &^= wire.FeatureStreamRead | wire.FeatureRecordTimestamps
		_, err := c.ReadStream(ctx, "orders", 0, 0)
		_, _, terr := c.OffsetForTime(ctx, "orders", 0, fakeAt(0))
		_, serr := c.Subscribe(ctx, "orders", FromTime(fakeAt(0)))
		for _, err := range []error{err, terr, serr} {
			if _, ok := errors.AsType[*UnsupportedError](err); !ok {
				t.Errorf("%v", err)
			}
		}
	})
}

// A subscription from a time begins at the first record that is recent enough, and where there is
// none at the tail as it was before that was known: what is published meanwhile is not skipped.
func TestSubscriptionFromATime(t *testing.T) {
	for _, row := range []struct {
		name  string
		at    time.Time
		while int // published before the answer to which look-up of the time; -1 = never
		first uint64
	}{
		{"in the middle", fakeAt(7), -1, 7},
		{"before what is kept", fakeAt(1), -1, 3},
		{"after the last", fakeAt(10), -1, 10},
		{"after the last, one comes during the first look", fakeAt(10), 0, 10},
		{"after the last, one comes during the second look", fakeAt(10), 1, 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				b.add(numbered("", 0, 10)...)
				b.base = 3
				b.onTime = func(n int) {
					if n == row.while {
						b.add("10")
					}
				}
				s := mustSubscribe(t, ctx, c, FromLatest(), FromTime(row.at))
				defer s.Close()
				if row.while < 0 {
					b.add("10")
				}
				got := take(t, ctx, s, row.first, int(11-row.first))
				if want := append(numbered("", int(row.first), 10), "10"); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add("0")
		s := mustSubscribe(t, ctx, c, FromTime(fakeAt(0)), FromLatest()) // the last one counts
		defer s.Close()
		b.add("1")
		take(t, ctx, s, 1, 1)
	})
}

// Who asked for the oldest record, and is told before the first one that retention was faster, asks
// for the oldest again; who has got a record already is told what is missing.
func TestLaggedBeforeTheOldestRecord(t *testing.T) { // SUB-12, HZ-15
	for _, began := range []bool{false, true} {
		c := cursor{start: wire.Start{Kind: wire.StartEarliest}}
		start := uint64(5)
		c.subscribed(&start)
		want := wire.Start{Kind: wire.StartEarliest}
		if began {
			c.frame(true, 5, 0, 2)
			want = wire.Start{Kind: wire.StartOffset, Offset: 7}
		}
		c.lagged(30)
		if got := c.request(); got != want {
			t.Errorf("began %v: resumes at %+v, want %+v", began, got, want)
		}
	}
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add(numbered("", 0, 10)...)
		b.onFrame = func(sub, frame int, _ *eventFrame) frameAction {
			if sub > 0 || frame > 0 {
				return frameSend
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.base = 4
			return frameLag
		}
		s := mustSubscribe(t, ctx, c, FromEarliest())
		defer s.Close()
		take(t, ctx, s, 4, 6)
	})
	c := cursor{start: wire.Start{Kind: wire.StartOffset, Offset: 5}}
	start := uint64(5)
	c.subscribed(&start)
	c.lagged(30)
	if got := c.request(); got != (wire.Start{Kind: wire.StartOffset, Offset: 5}) {
		t.Errorf("an offset that was asked for: resumes at %+v", got)
	}
}
