package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Publisher makes a publisher for one stream. It connects, to learn how many shards the stream
// has.
func (c *Client) Publisher(ctx context.Context, stream string, opts ...PublisherOption) (*Publisher, error) {
	cfg, err := newPublisherConfig(c.cfg.namespace, opts)
	if err != nil {
		return nil, err
	}
	if err := checkName("stream", stream); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.limits.idempotent && !s.peer.features.Has(wire.FeatureIdempotentProducer) {
		return nil, &UnsupportedError{What: "idempotent publishing"}
	}
	named := uint32(0)
	if cfg.shard != nil && *cfg.shard != 0 { // shard 0 is where records without a key go anyway
		if !s.peer.features.Has(wire.FeatureExplicitShard) {
			return nil, errNamedShard
		}
		named = *cfg.shard
	}
	width, routing, err := c.streamShards(ctx, cfg.namespace, stream)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		client: c, stream: stream, cfg: cfg, epoch: time.Now(), done: make(chan struct{}),
		budget: budget{size: cfg.budget}, width: width, routing: routing,
		senders: make([]*sender, max(width, named+1)),
	}
	life, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.waiters.New = newWaiter
	p.start = func(s *sender) { p.wg.Go(func() { s.run(life) }) }
	if err := c.adopt(p); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

var errNamedShard = &UnsupportedError{What: "naming a shard"}

// relearn asks how many shards the stream has. When that has changed, keyed records that were
// routed by the old count and not sent yet fail.
func (p *Publisher) relearn(ctx context.Context) error {
	width, routing, err := p.client.streamShards(ctx, p.cfg.namespace, p.stream)
	if err != nil {
		return err
	}
	p.mu.Lock()
	changed := max(width, 1) != max(p.width, 1) || width > 1 && routing != p.routing
	p.width, p.routing = width, routing
	for uint32(len(p.senders)) < width {
		p.senders = append(p.senders, nil)
	}
	var failed []func()
	if changed {
		for _, s := range p.senders {
			if s != nil {
				s.box.reroute(ErrShardsChanged)
				list := s.box.takeDone()
				failed = append(failed, func() { p.deliver(s, list) })
			}
		}
	}
	p.mu.Unlock()
	for _, tell := range failed {
		tell()
	}
	return nil
}

// Stats sums up all shards.
func (p *Publisher) Stats() PublisherStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := PublisherStats{BudgetUsed: p.budget.used}
	for _, s := range p.senders {
		if s != nil {
			st.Batches += s.box.sum.Batches
			st.Records += s.box.sum.Records
			st.Resent += s.box.sum.Resent
			st.Failed += s.box.sum.Failed
		}
	}
	return st
}

// PublisherStats counts since the publisher was made.
type PublisherStats struct {
	Batches, Records uint64 // answered with success
	Resent           uint64 // batches sent again
	Failed           uint64 // records that failed
	BudgetUsed       int64  // bytes accepted and unanswered now
}

// Close accepts nothing more, waits for the outcome of everything that was accepted, and ends the
// streams in order. When ctx ends first the rest fails with ErrClosed. It returns what Flush
// would. A second Close waits for the first.
func (p *Publisher) Close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, p.cancel)
	defer stop()
	p.mu.Lock()
	first := !p.closing
	p.closing = true
	if p.ended == nil {
		p.ended = ErrClosed
	}
	p.mu.Unlock()
	if !first {
		<-p.done
		return nil
	}
	err := p.Flush(context.WithoutCancel(ctx)) // ctx ends it through cancel: then all outcomes are there
	p.mu.Lock()
	p.finish = true
	for _, s := range p.senders {
		if s != nil {
			p.wakeLocked(s)
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.cancel()
	close(p.done)
	p.client.release(p)
	return errors.Join(ctx.Err(), err)
}

// abort is Close for a client that ends: nothing is waited for.
func (p *Publisher) abort() {
	p.cancel()
	_ = p.Close(context.Background())
}
