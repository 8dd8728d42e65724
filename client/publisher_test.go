package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// inBubble runs f with a fake broker and a client of it, in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client), opts ...Option) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		c := newFakeClient(t, b, opts...)
		defer b.close()
		defer c.Close() //nolint:errcheck // always nil
		f(t, bounded(t), b, c)
	})
}

func mustPublisher(t testing.TB, ctx context.Context, c *Client, opts ...PublisherOption) *Publisher {
	t.Helper()
	p, err := c.Publisher(ctx, "orders", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// An answered publish says where its record is, also when many share a frame.
func TestAckCarriesTheOffsetOfEachRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		p := mustPublisher(t, ctx, c)
		hold := make(chan struct{})
		b.onPublish = func(n int, _ *wire.BinaryPublish) reaction { return reaction{wait: hold} }
		var mu sync.Mutex
		got := map[string]uint64{}
		for i := range 500 {
			name := fmt.Sprint("r", i)
			err := p.PublishAsync(ctx, Record{Value: []byte(name)}, func(a Ack, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil || !a.HasOffset {
					t.Errorf("%s: %v %v", name, a, err)
				}
				got[name] = a.Offset
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		close(hold)
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		log := b.log(0)
		if len(log) != 500 || len(got) != 500 {
			t.Fatalf("%d records in the log, %d answers", len(log), len(got))
		}
		for name, at := range got {
			if log[at] != name {
				t.Errorf("%s answered at %d, where %s is", name, at, log[at])
			}
		}
		if b.published > 40 {
			t.Errorf("%d frames for 500 records that could be joined", b.published)
		}
		if a, err := p.Publish(ctx, Record{}); !errors.Is(err, ErrClosed) {
			t.Errorf("publish after close: %v %v", a, err)
		}
	})
}

// Every class of refusal is handled as wire.md 6.1 says: what was not applied is sent again, what
// is fatal or unknown is reported as it came.
func TestRefusedPublishIsRetriedByClass(t *testing.T) {
	cases := []struct {
		name    string
		err     *wire.Error
		opts    []PublisherOption
		applied bool // the broker applied the refused one
		want    *wire.Error
		log     []string
	}{
		{name: "retry", err: wire.ErrUnavailable, log: []string{"x"}},
		{name: "retry_after", err: wire.ErrOverloaded.WithReason("publish_queue_full", 700), log: []string{"x"}},
		{name: "redirect", err: wire.ErrNotLeader, log: []string{"x"}},
		{name: "draining", err: wire.ErrDraining, log: []string{"x"}},
		{name: "fatal", err: wire.ErrForbidden, want: wire.ErrForbidden},
		{name: "not_found is the caller's", err: wire.ErrNotFound, want: wire.ErrNotFound},
		{name: "outcome_unknown is not resent", err: wire.ErrStorage, applied: true, want: wire.ErrStorage, log: []string{"x"}},
		{name: "outcome_unknown at least once", err: wire.ErrStorage, applied: true, opts: []PublisherOption{WithAtLeastOnce()}, log: []string{"x", "x"}},
		{name: "outcome_unknown idempotent", err: wire.ErrStorage, applied: true, opts: []PublisherOption{WithIdempotence()}, log: []string{"x"}},
		{name: "no class", err: &wire.Error{Message: "no"}, want: &wire.Error{}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				b.onPublish = func(n int, _ *wire.BinaryPublish) reaction {
					if n == 0 {
						return reaction{skip: !tc.applied, err: tc.err}
					}
					return reaction{}
				}
				p := mustPublisher(t, ctx, c, tc.opts...)
				began := time.Now()
				ack, err := p.Publish(ctx, Record{Value: []byte("x")})
				if tc.want == nil && (err != nil || !ack.HasOffset) || tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("got %v, %v; want %v", ack, err, tc.want)
				}
				if asked := time.Duration(tc.err.RetryAfterMS) * time.Millisecond; err == nil && time.Since(began) < asked {
					t.Errorf("sent again after %s, asked to wait %s", time.Since(began), asked)
				}
				if log := b.log(0); !slices.Equal(log, tc.log) {
					t.Errorf("log %q, want %q", log, tc.log)
				}
			})
		})
	}
}

// A lost connection leaves a plain publish unknown; it is never sent again behind the caller's back.
func TestLostConnectionIsUnknownAndNotResent(t *testing.T) {
	for _, applied := range []bool{true, false} {
		inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
			b.onPublish = func(n int, _ *wire.BinaryPublish) reaction {
				return reaction{skip: n == 0 && !applied, lose: n == 0}
			}
			p := mustPublisher(t, ctx, c)
			_, err := p.Publish(ctx, Record{Value: []byte("a")})
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Retry != wire.RetryUnknown || !errors.Is(err, wire.ErrUnacknowledged) {
				t.Errorf("got %v", err)
			}
			if _, err := p.Publish(ctx, Record{Value: []byte("b")}); err != nil {
				t.Errorf("after the loss: %v", err)
			}
			want := []string{"b"}
			if applied {
				want = []string{"a", "b"}
			}
			if log := b.log(0); !slices.Equal(log, want) {
				t.Errorf("log %q, want %q", log, want)
			}
		})
	}
}

// An answer to a request that is not in flight ends the stream; nothing that waits on it is
// settled by it.
func TestAnswerOutOfTheWindowIsNotBelieved(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.onPublish = func(n int, _ *wire.BinaryPublish) reaction {
			if n == 0 {
				return reaction{asID: 999}
			}
			return reaction{}
		}
		p := mustPublisher(t, ctx, c)
		_, err := p.Publish(ctx, Record{Value: []byte("a")})
		if _, ok := errors.AsType[*ProtocolError](err); !ok || !errors.Is(err, wire.ErrUnacknowledged) {
			t.Errorf("got %v", err)
		}
		if _, err := p.Publish(ctx, Record{Value: []byte("b")}); err != nil {
			t.Error(err)
		}
	})
}

// The window of auth_ok bounds the unanswered publishes, and the publisher's own bound does too.
func TestUnansweredPublishesStayWithinTheWindow(t *testing.T) {
	for _, tc := range []struct{ granted, own, want int }{{4, 16, 4}, {256, 3, 3}, {0, 5, 5}} {
		inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
			b.window = uint32(tc.granted)
			hold := make(chan struct{})
			b.onPublish = func(int, *wire.BinaryPublish) reaction { return reaction{wait: hold} }
			p := mustPublisher(t, ctx, c, WithBatchRecords(1), WithInFlight(tc.own))
			for range 50 {
				if err := p.PublishAsync(ctx, Record{Value: []byte("x")}, nil); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			b.mu.Lock()
			if b.inFlight != tc.want {
				t.Errorf("%+v: %d in flight", tc, b.inFlight)
			}
			b.mu.Unlock()
			close(hold)
			if err := p.Flush(ctx); err != nil {
				t.Error(err)
			}
			b.mu.Lock()
			if b.flightMax != tc.want {
				t.Errorf("%+v: %d in flight at most", tc, b.flightMax)
			}
			b.mu.Unlock()
		})
	}
}

// What cannot be delivered in time is given up: certainly not applied if it was never sent, else
// unknown.
func TestDeliveryTimeoutSaysWhetherARecordMayBeThere(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		p := mustPublisher(t, ctx, c, WithDeliveryTimeout(3*time.Second))
		b.onPublish = func(int, *wire.BinaryPublish) reaction {
			return reaction{skip: true, err: wire.ErrUnavailable}
		}
		_, err := p.Publish(ctx, Record{Value: []byte("x")})
		if !errors.Is(err, ErrDeliveryTimeout) || errors.Is(err, wire.ErrUnacknowledged) || !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("refused all the time: %v", err)
		}
		b.onPublish = func(int, *wire.BinaryPublish) reaction { return reaction{lose: true} }
		q := mustPublisher(t, ctx, c, WithDeliveryTimeout(3*time.Second), WithIdempotence())
		if _, err = q.Publish(ctx, Record{Value: []byte("y")}); !errors.Is(err, ErrDeliveryTimeout) || !errors.Is(err, wire.ErrUnacknowledged) {
			t.Errorf("lost all the time: %v", err)
		}
	})
}

// A broker that never answers ends as unknown after the answer timeout, and a write that flow
// control blocks for ever ends too (HZ-33).
func TestSilentBrokerIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, blocked := range []bool{false, true} {
			b := newFakeBroker()
			stuck := make(chan struct{})
			b.onPublish = func(int, *wire.BinaryPublish) reaction {
				return reaction{mute: true, before: func() {
					if blocked {
						<-stuck
					}
				}}
			}
			c := newFakeClient(t, b, withConnect(b.connect(4096)))
			p := mustPublisher(t, bounded(t), c)
			began := time.Now()
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if _, err := p.Publish(bounded(t), Record{Value: make([]byte, 10_000)}); !errors.Is(err, wire.ErrUnacknowledged) {
						t.Errorf("got %v", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(began); took < answerTimeout/3 || took > 2*answerTimeout+time.Second {
				t.Errorf("gave up after %s", took)
			}
			close(stuck)
			_ = c.Close()
			b.close()
		}
	})
}

// Keyed records go to the shard of their key and nowhere else; each shard has its own order.
func TestKeyedRecordsReachTheirShardInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.shards = 4
		p := mustPublisher(t, ctx, c)
		want := map[uint32][]string{}
		for i := range 200 {
			key := fmt.Append(nil, "user-", i%13)
			v := fmt.Sprint(i)
			shard := wire.ShardOf(key, true, 4, wire.RoutingModulo)
			want[shard] = append(want[shard], v)
			err := p.PublishAsync(ctx, Record{Key: key, Value: []byte(v)}, func(a Ack, err error) {
				if err != nil || a.Shard != shard {
					t.Errorf("record %d: %v %v", i, a, err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for shard := range uint32(4) {
			if got := b.log(shard); !slices.Equal(got, want[shard]) {
				t.Errorf("shard %d: %q, want %q", shard, got, want[shard])
			}
		}
	})
}

// When the stream comes back with another width, keyed records routed by the old one are not sent
// to the wrong shard.
func TestChangedShardCountFailsWhatWasRoutedByTheOld(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.shards = 2
		b.onPublish = func(n int, _ *wire.BinaryPublish) reaction {
			if n != 0 {
				return reaction{}
			}
			return reaction{skip: true, lose: true, before: func() {
				b.mu.Lock()
				b.shards = 8
				b.mu.Unlock()
			}}
		}
		p := mustPublisher(t, ctx, c, WithBatchRecords(1), WithInFlight(1))
		var changed atomic.Int32
		for range 5 {
			_ = p.PublishAsync(ctx, Record{Key: []byte("k1"), Value: []byte("x")}, func(_ Ack, err error) {
				if errors.Is(err, ErrShardsChanged) {
					changed.Add(1)
				} else if !errors.Is(err, wire.ErrUnacknowledged) {
					t.Error(err)
				}
			})
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if changed.Load() != 4 {
			t.Errorf("%d of 4 failed for the changed width", changed.Load())
		}
		a, err := p.Publish(ctx, Record{Key: []byte("k1"), Value: []byte("y")})
		if err != nil || a.Shard != wire.ShardOf([]byte("k1"), true, 8, wire.RoutingModulo) {
			t.Errorf("%v %v", a, err)
		}
	})
}

// A broker that lacks the binary forms is served in JSON (wire.md 3.3).
func TestOldBrokersArePublishedToInJSON(t *testing.T) {
	for _, flags := range []wire.Flags{wire.FlagsOriginal, wire.FlagsKnown &^ wire.FlagKeyed, wire.FlagsKnown &^ wire.FlagIdempotent} {
		for _, opts := range [][]PublisherOption{nil, {WithIdempotence()}} {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				b.flags = flags
				p := mustPublisher(t, ctx, c, opts...)
				a, err := p.Publish(ctx, Record{Key: []byte("k"), Value: []byte("x")})
				if err != nil || !a.HasOffset {
					t.Errorf("%v: %v %v", flags, a, err)
				}
				if _, err := p.Publish(ctx, Record{Value: []byte{0, 255}}); err != nil {
					t.Error(err)
				}
				if log := b.log(0); !slices.Equal(log, []string{"x", "\x00\xff"}) {
					t.Errorf("log %q", log)
				}
			})
		}
	}
}

// Without acks Close still waits until the broker has read everything (HZ-34).
func TestUnackedRecordsAreReadBeforeCloseReturns(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		p := mustPublisher(t, ctx, c, WithAcks(wire.AckNone))
		for i := range 1000 {
			if err := p.PublishAsync(ctx, Record{Value: fmt.Append(nil, i)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if log := b.log(0); !slices.Equal(log, numbered("", 0, 1000)) {
			t.Errorf("%d records", len(log))
		}
	})
}

// The first failure that nobody asked for is told by Flush, once.
func TestFlushTellsFailuresWithoutCallback(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.onPublish = func(int, *wire.BinaryPublish) reaction { return reaction{skip: true, err: wire.ErrForbidden} }
		p := mustPublisher(t, ctx, c)
		if err := p.PublishAsync(ctx, Record{Value: []byte("x")}, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(ctx); !errors.Is(err, wire.ErrForbidden) {
			t.Errorf("flush: %v", err)
		}
		if err := p.Flush(ctx); err != nil {
			t.Errorf("second flush: %v", err)
		}
	})
}

// Lingering records travel together, and Flush does not wait for the linger.
func TestLingerJoinsAndFlushEndsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		p := mustPublisher(t, ctx, c, WithLinger(10*time.Second))
		for range 10 {
			_ = p.PublishAsync(ctx, Record{Value: []byte("x")}, nil)
		}
		synctest.Wait()
		if b.published != 0 {
			t.Fatal("did not linger")
		}
		began := time.Now()
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if b.published != 1 || time.Since(began) > time.Second {
			t.Errorf("%d frames after %s", b.published, time.Since(began))
		}
		_ = p.PublishAsync(ctx, Record{Value: []byte("y")}, nil)
		<-time.After(11 * time.Second) // virtual
		synctest.Wait()
		if b.published != 2 {
			t.Errorf("%d frames", b.published)
		}
	})
}

// Closing the client ends a publisher at once: everything accepted has an outcome.
func TestClientCloseSettlesEveryRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.onPublish = func(int, *wire.BinaryPublish) reaction { return reaction{mute: true} }
		p := mustPublisher(t, ctx, c, WithBatchRecords(1), WithInFlight(2))
		var unknown, unsent int
		for range 10 {
			_ = p.PublishAsync(ctx, Record{Value: []byte("x")}, func(_ Ack, err error) {
				switch {
				case errors.Is(err, wire.ErrUnacknowledged):
					unknown++
				case errors.Is(err, ErrClosed):
					unsent++
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		_ = c.Close()
		if unknown != 2 || unsent != 8 {
			t.Errorf("%d unknown, %d unsent", unknown, unsent)
		}
		if err := p.PublishAsync(ctx, Record{}, nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
