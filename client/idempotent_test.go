package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ringcast/ringcast/wire"
)

// Idempotent publishing: whatever is lost, refused or answered with an unknown outcome, at any
// place of the sequence, each record is in the log once and in order.
func TestIdempotentRecordsAreAppliedExactlyOnceAndInOrder(t *testing.T) {
	const records = 300
	for _, every := range []int{1, 2, 3, 5, 7, 16} {
		t.Run(fmt.Sprint("fault every ", every), func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				rng := uint32(every)
				b.onPublish = func(n int, _ *wire.BinaryPublish) reaction {
					if n%every != 0 || n > 400 {
						return reaction{}
					}
					rng = rng*1664525 + 1013904223
					switch rng >> 16 % 6 {
					case 0:
						return reaction{lose: true} // applied, answer lost
					case 1:
						return reaction{skip: true, lose: true}
					case 2:
						return reaction{skip: true, err: wire.ErrOverloaded.WithReason("publish_queue_full", 10)}
					case 3:
						return reaction{err: wire.ErrStorage} // applied
					case 4:
						return reaction{skip: true, err: wire.ErrStorage}
					}
					return reaction{skip: true, err: wire.ErrUnavailable}
				}
				p := mustPublisher(t, ctx, c, WithIdempotence(), WithBatchRecords(3), WithDeliveryTimeout(0))
				for i := range records {
					err := p.PublishAsync(ctx, Record{Value: fmt.Append(nil, i)}, func(a Ack, err error) {
						if err != nil {
							t.Errorf("record %d: %v", i, err)
						}
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := p.Close(ctx); err != nil {
					t.Fatal(err)
				}
				if log := b.log(0); !slices.Equal(log, numbered("", 0, records)) {
					t.Errorf("log differs: %d records", len(log))
				}
			})
		})
	}
}

// A fatal refusal in the middle breaks the sequence; what follows is numbered anew and still
// arrives once.
func TestFatalRefusalDoesNotStallAnIdempotentPublisher(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.onPublish = func(n int, p *wire.BinaryPublish) reaction {
			if n == 2 {
				return reaction{skip: true, err: wire.ErrLimitExceeded}
			}
			return reaction{}
		}
		p := mustPublisher(t, ctx, c, WithIdempotence(), WithBatchRecords(1))
		var failed atomic.Int32
		for i := range 20 {
			_ = p.PublishAsync(ctx, Record{Value: fmt.Append(nil, i)}, func(_ Ack, err error) {
				if err != nil {
					failed.Add(1)
					if !errors.Is(err, wire.ErrLimitExceeded) {
						t.Error(err)
					}
				}
			})
		}
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		want := slices.Delete(numbered("", 0, 20), 2, 3)
		if log := b.log(0); !slices.Equal(log, want) || failed.Load() != 1 {
			t.Errorf("log %q, %d failures", log, failed.Load())
		}
	})
}

// A broker that has forgotten the producer (or what it acknowledged) is given a new one.
func TestForgottenProducerIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		p := mustPublisher(t, ctx, c, WithIdempotence())
		for i := range 3 {
			if _, err := p.Publish(ctx, Record{Value: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
		}
		b.mu.Lock()
		clear(b.producers)
		b.mu.Unlock()
		if _, err := p.Publish(ctx, Record{Value: []byte("3")}); err != nil {
			t.Fatal(err)
		}
		if log := b.log(0); !slices.Equal(log, numbered("", 0, 4)) {
			t.Errorf("log %q", log)
		}
	})
}
