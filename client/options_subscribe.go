package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// subscribeConfig is one subscription's.
type subscribeConfig struct {
	namespace     string
	start         wire.Start
	since         *time.Time // start is where this time is
	shard         uint32
	queueCapacity *uint32
	framesMax     int
	bytesMax      int64
	times         bool
	publisher     bool
	afterGap      bool
}

// FromLatest starts behind the newest record. It is the default.
func FromLatest() SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.start, c.since = wire.Start{Kind: wire.StartLatest}, nil })
}

// FromEarliest starts at the oldest record that the broker still has.
func FromEarliest() SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.start, c.since = wire.Start{Kind: wire.StartEarliest}, nil })
}

// FromOffset starts at a record. One that the broker does not have any more is a GapError.
func FromOffset(offset uint64) SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) {
		c.start, c.since = wire.Start{Kind: wire.StartOffset, Offset: offset}, nil
	})
}

// FromTime starts at the first record that was appended at or after t, by the broker's clock, of those
// that it still has; where nothing is that recent, at what comes next. The stream must have a log.
func FromTime(t time.Time) SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.since = &t })
}

// WithQueueCapacity asks the broker for a queue of n published batches. Default: the broker's.
func WithQueueCapacity(n uint32) SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.queueCapacity = &n })
}

// WithReceiveBuffer bounds what was received and not yet read, in frames and bytes. Default: 256,
// 4 MiB. At the bound the connection's flow control stops the broker; nothing is dropped here.
func WithReceiveBuffer(frames int, bytes int64) SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.framesMax, c.bytesMax = frames, bytes })
}

// WithEventTimes asks for the append time of each event. It costs eight bytes per event.
func WithEventTimes() SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.times = true })
}

// WithEventPublisher asks for the principal that published each event.
func WithEventPublisher() SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.publisher = true })
}

// WithContinueAfterGap makes a GapError one item of the iteration instead of its end: the reader
// is told what is missing and the subscription goes on behind it.
func WithContinueAfterGap() SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.afterGap = true })
}

func newSubscribeConfig(namespace string, opts []SubscribeOption) (*subscribeConfig, error) {
	c := &subscribeConfig{
		namespace: namespace, start: wire.Start{Kind: wire.StartLatest},
		framesMax: receiveFramesDefault, bytesMax: receiveBytesDefault,
	}
	for _, o := range opts {
		o.applySubscribe(c)
	}
	if err := checkName("namespace", c.namespace); err != nil {
		return nil, fmt.Errorf("client: subscribe options: %w", err)
	}
	if c.framesMax < 1 || c.bytesMax < 1 {
		return nil, errors.New("client: subscribe options: the receive buffer is not positive")
	}
	return c, nil
}

// cacheConfig is one cache handle's.
type cacheConfig struct{ namespace string }
