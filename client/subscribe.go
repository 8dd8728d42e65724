package client

import (
	"context"
	"fmt"
)

// Subscribe starts a subscription and returns once the broker has granted it. Refusals of a class
// that may pass are retried until ctx ends; an unknown stream is not.
func (c *Client) Subscribe(ctx context.Context, stream string, opts ...SubscribeOption) (*Subscription, error) {
	cfg, err := newSubscribeConfig(c.cfg.namespace, opts)
	if err != nil {
		return nil, err
	}
	if err := checkName("stream", stream); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if cfg.since != nil {
		if cfg.start, err = c.startAt(ctx, cfg.namespace, stream, cfg.shard, *cfg.since); err != nil {
			return nil, err
		}
	}
	life, cancel := context.WithCancel(context.Background())
	s := &Subscription{
		client: c, stream: stream, cfg: cfg, cancel: cancel, done: make(chan struct{}),
		queue: newFrameQueue(cfg.framesMax, cfg.bytesMax),
	}
	r := newReceiver(s)
	es, err := r.open(ctx, true)
	if err != nil {
		cancel()
		return nil, err
	}
	if err := c.adopt(s); err != nil {
		cancel()
		es.stop()
		return nil, err
	}
	go func() { // waited for by Close
		defer close(s.done)
		r.run(life, es)
	}()
	return s, nil
}
