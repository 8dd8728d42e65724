package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringcast/ringcast/wire"
)

func records(values ...string) (out [][]byte) {
	for _, v := range values {
		out = append(out, []byte(v))
	}
	return out
}

// A conditional publish is written at the offset that was expected, or not at all; then the error says
// where the shard is. Key and shard are sent as given.
func TestPublishIfWritesAtTheExpectedOffsetOrNotAtAll(t *testing.T) { // PUB-25
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.shards = 4
		if at, err := c.PublishIf(ctx, "orders", 0, records("a", "b")); err != nil || at != 0 {
			t.Fatal(at, err)
		}
		_, err := c.PublishIf(ctx, "orders", 0, records("c"))
		if m, ok := errors.AsType[*OffsetMismatchError](err); !ok || *m != (OffsetMismatchError{"orders", 0, 2}) {
			t.Fatalf("%v", err)
		}
		if at, err := c.PublishIf(ctx, "orders", 2, records("c"), WithNamespace("other")); err != nil || at != 2 {
			t.Fatal(at, err)
		}
		if _, err := c.PublishIf(ctx, "orders", 0, records("named"), WithKey([]byte("k")), WithShard(3)); err != nil {
			t.Fatal(err)
		}
		for _, key := range [][]byte{[]byte("k1"), {}} {
			shard := wire.ShardOf(key, true, 4, wire.RoutingModulo)
			if _, err := c.PublishIf(ctx, "orders", uint64(len(b.log(shard))), records("keyed"), WithKey(key)); err != nil {
				t.Fatal(err)
			}
			if log := b.log(shard); log[len(log)-1] != "keyed" {
				t.Errorf("shard %d: %q", shard, log)
			}
		}
		if log := b.log(0); !slices.Equal(log[:3], []string{"a", "b", "c"}) || b.log(3)[0] != "named" {
			t.Errorf("logs %q, %q", log, b.log(3))
		}
	})
}

// A commit returns the offset that the state names as version; what a key holds, that it holds nothing, and
// that it holds the empty value are told apart.
func TestCommitAndItsState(t *testing.T) { // COM-1
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add("before")
		want := func(key string, want State, opts ...StateOption) {
			t.Helper()
			s, err := c.StateGet(ctx, "orders", []byte("ann"), key, opts...)
			if err != nil || string(s.Value) != string(want.Value) || (s.Value == nil) != (want.Value == nil) ||
				s.Version != want.Version || s.AsOf != want.AsOf || s.HasAsOf != want.HasAsOf {
				t.Errorf("%q: %+v, %v", key, s, err)
			}
		}
		want("k", State{})
		at, err := c.Commit(ctx, "orders", []byte("ann"), []byte("event"), []Change{Put("k", []byte("v")), Put("empty", nil), Put("gone", nil), Delete("gone")})
		if err != nil || at != 1 {
			t.Fatal(at, err)
		}
		want("k", State{Value: []byte("v"), Version: 1, AsOf: 1, HasAsOf: true})
		want("empty", State{Value: []byte{}, Version: 1, AsOf: 1, HasAsOf: true}, WithShard(0))
		want("gone", State{AsOf: 1, HasAsOf: true}, WithNamespace("other"))
		_, err = c.Commit(ctx, "orders", nil, nil, nil, IfOffset(1))
		if m, ok := errors.AsType[*OffsetMismatchError](err); !ok || *m != (OffsetMismatchError{"orders", 1, 2}) {
			t.Errorf("%v", err)
		}
		if at, err := c.Commit(ctx, "orders", nil, nil, nil, IfOffset(2), WithShard(0), WithNamespace("other")); err != nil || at != 2 {
			t.Error(at, err)
		}
		if log := b.log(0); !slices.Equal(log, []string{"before", "event", ""}) {
			t.Errorf("log %q", log)
		}
	})
}

// What a refusal says was not applied is sent again, as long as it says so; what may have been applied is
// not, and a missing permission is final.
func TestCommitIsSentAgainOnlyWhenItWasNotApplied(t *testing.T) {
	notReady := wire.NewError(wire.CodeShardUnavailable, "reading").WithReason("not_ready", 100)
	const all = ^wire.Features(0)
	for _, row := range []struct {
		name  string
		react callReaction // to the first attempt
		want  error
		calls int
	}{
		{"not ready", callReaction{answer: wire.NewErrorMessage(notReady, all)}, nil, 2},
		{"overloaded", callReaction{answer: wire.NewErrorMessage(wire.ErrOverloaded, all)}, nil, 2},
		{"forbidden", callReaction{answer: wire.NewPublishError(1, wire.ErrForbidden, all)}, wire.ErrForbidden, 1},
		{"not found", callReaction{answer: wire.NewErrorMessage(wire.ErrNotFound, all)}, wire.ErrNotFound, 1},
		{"in memory", callReaction{answer: wire.NewErrorMessage(wire.ErrInvalidRequest, all)}, wire.ErrInvalidRequest, 1},
		{"unknown", callReaction{answer: wire.NewErrorMessage(wire.ErrUnacknowledged, all)}, wire.ErrUnacknowledged, 1},
		{"lost", callReaction{lose: true}, wire.ErrUnacknowledged, 1},
	} {
		for what, call := range map[string]func(context.Context, *Client) error{
			"commit": func(ctx context.Context, c *Client) error {
				_, err := c.Commit(ctx, "orders", nil, []byte("x"), nil)
				return err
			},
			"publish_if": func(ctx context.Context, c *Client) error {
				_, err := c.PublishIf(ctx, "orders", 0, records("x"))
				return err
			},
		} {
			t.Run(row.name+"/"+what, func(t *testing.T) {
				inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
					b.onCall = func(n int, _ wire.Message) callReaction {
						if n == 0 {
							return row.react
						}
						return callReaction{}
					}
					err := call(ctx, c)
					if !errors.Is(err, row.want) || row.want == nil && err != nil {
						t.Errorf("%v, want %v", err, row.want)
					}
					if b.calls != row.calls {
						t.Errorf("sent %d times, want %d", b.calls, row.calls)
					}
					written := 1
					if row.want != nil && !row.react.lose {
						written = 0
					}
					if log := b.log(0); len(log) != written {
						t.Errorf("log %q", log)
					}
				})
			})
		}
	}
	// A read is repeated whatever became of it.
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.onCall = func(n int, _ wire.Message) callReaction { return callReaction{lose: n == 0} }
		if _, err := c.StateGet(ctx, "orders", nil, "k"); err != nil || b.calls != 2 {
			t.Errorf("%v after %d attempts", err, b.calls)
		}
	})
}

// A broker that would not look at a condition, a commit or a named shard is not asked, and neither is any
// for what cannot be sent.
func TestConditionsNeedTheirFeature(t *testing.T) {
	large := make([]byte, jsonBytesMax)
	for name, missing := range map[string]wire.Features{
		"conditional": wire.FeaturePublishConditional, "commit": wire.FeatureAtomicCommit, "shard": wire.FeatureExplicitShard,
	} {
		inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
			b.features &^= missing
			try := func(what string, needs wire.Features, err error) {
				t.Helper()
				_, unsupported := errors.AsType[*UnsupportedError](err)
				if unsupported != (needs&missing != 0) || !unsupported && err != nil {
					t.Errorf("without %s, %s: %v", name, what, err)
				}
			}
			_, err := c.PublishIf(ctx, "orders", 0, records("x"))
			try("publish_if", wire.FeaturePublishConditional, err)
			_, err = c.PublishIf(ctx, "orders", uint64(len(b.log(0))), records("x"), WithShard(0))
			try("publish_if to a shard", wire.FeaturePublishConditional|wire.FeatureExplicitShard, err)
			_, err = c.Commit(ctx, "orders", nil, nil, nil)
			try("commit", wire.FeatureAtomicCommit, err)
			_, err = c.Commit(ctx, "orders", nil, nil, nil, IfOffset(uint64(len(b.log(0)))))
			try("conditional commit", wire.FeatureAtomicCommit|wire.FeaturePublishConditional, err)
			_, err = c.StateGet(ctx, "orders", nil, "k", WithShard(0))
			try("state of a shard", wire.FeatureAtomicCommit|wire.FeatureExplicitShard, err)
			_, err = c.Publisher(ctx, "orders", WithShard(1))
			try("publisher", wire.FeatureExplicitShard, err)
			_, err = c.Publisher(ctx, "orders", WithShard(0))
			try("publisher to shard 0", 0, err)
		})
	}
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		_, large1 := c.PublishIf(ctx, "orders", 0, [][]byte{large})
		_, large2 := c.Commit(ctx, "orders", nil, nil, []Change{Put("k", large)})
		_, large3 := c.Commit(ctx, "orders", large, nil, nil)
		for i, err := range []error{large1, large2, large3} {
			if !errors.Is(err, ErrRecordTooLarge) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if _, err := c.Commit(ctx, "", nil, nil, nil); err == nil || b.calls != 0 {
			t.Errorf("%v, %d calls", err, b.calls)
		}
	})
}

// A publisher of a named shard writes every record there, whatever its key, in every form that it has; one
// that the broker refuses fails its records.
func TestPublisherOfANamedShard(t *testing.T) {
	for _, opts := range [][]PublisherOption{nil, {WithIdempotence()}, {WithAcks(wire.AckNone)}} {
		for _, shard := range []uint32{0, 2} {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				b.shards = 4
				p := mustPublisher(t, ctx, c, append([]PublisherOption{WithShard(shard)}, opts...)...)
				var want []string
				for i := range 20 {
					rec := Record{Value: fmt.Append(nil, i)}
					if i%2 == 0 {
						rec.Key = b.keyOf(uint32(i) % 4)
					}
					a, err := p.Publish(ctx, rec)
					if err != nil || a.HasOffset && (a.Shard != shard || a.Offset != uint64(i)) {
						t.Fatalf("%+v, %v", a, err)
					}
					want = append(want, fmt.Sprint(i))
				}
				if err := p.Close(ctx); err != nil {
					t.Fatal(err)
				}
				for n := range uint32(4) {
					if log := b.log(n); n == shard && !slices.Equal(log, want) || n != shard && len(log) != 0 {
						t.Errorf("shard %d: %q", n, log)
					}
				}
			})
		}
	}
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.onPublish = func(int, *wire.BinaryPublish) reaction {
			return reaction{skip: true, err: wire.NewError(wire.CodeInvalidRequest, "no such shard")}
		}
		p := mustPublisher(t, ctx, c, WithShard(7)) // of a stream with one
		if _, err := p.Publish(ctx, Record{Value: []byte("x")}); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("%v", err)
		}
		if _, err := p.Publish(ctx, Record{Value: make([]byte, jsonBytesMax+1)}); !errors.Is(err, ErrRecordTooLarge) {
			t.Errorf("%v", err)
		}
		if _, err := c.Publisher(ctx, "orders", WithShard(shardsMax)); err == nil {
			t.Error("a shard that no stream has was taken")
		}
	})
}
