package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// The byte budget is a bound: publishers wait at it, or fail if they asked to, and a record larger
// than it is admitted alone.
func TestByteBudgetBoundsWhatIsUnanswered(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		hold := make(chan struct{})
		b.onPublish = func(int, *wire.BinaryPublish) reaction { return reaction{wait: hold} }
		p := mustPublisher(t, ctx, c, WithBudgetBytes(10_000))
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					if err := p.PublishAsync(ctx, Record{Value: make([]byte, 996)}, nil); err != nil {
						t.Error(err)
					}
					accepted.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := accepted.Load(); n != 10 {
			t.Errorf("%d records of 1000 bytes accepted under a budget of 10000", n)
		}
		if used := p.Stats().BudgetUsed; used != 10_000 {
			t.Errorf("%d bytes used", used)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := p.PublishAsync(short, Record{Value: []byte("late")}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for room: %v", err)
		}
		close(hold)
		wg.Wait()
		if err := p.Flush(ctx); err != nil {
			t.Error(err)
		}
		if used := p.Stats().BudgetUsed; used != 0 {
			t.Errorf("%d bytes still used", used)
		}
		if _, err := p.Publish(ctx, Record{Value: make([]byte, 50_000)}); err != nil {
			t.Errorf("record larger than the budget: %v", err)
		}
	})
}

func TestFullBudgetFailsTypedWhenAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		hold := make(chan struct{})
		b.onPublish = func(int, *wire.BinaryPublish) reaction { return reaction{wait: hold} }
		p := mustPublisher(t, ctx, c, WithBudgetBytes(1000), WithFailWhenFull())
		if err := p.PublishAsync(ctx, Record{Value: make([]byte, 996)}, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.PublishAsync(ctx, Record{Value: nil}, nil); !errors.Is(err, ErrBudgetFull) {
			t.Errorf("got %v", err)
		}
		close(hold)
	})
}
