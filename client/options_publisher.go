package client

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// publisherConfig is one publisher's.
type publisherConfig struct {
	namespace   string
	shard       *uint32 // nil = by key
	recordMax   int     // largest record that a frame can hold
	limits      outboxLimits
	budget      int64
	failFull    bool
	queuedAcks  bool
	atLeastOnce bool
}

// WithAcks says whether publishes are answered. Default: wire.AckPerBatch. With wire.AckNone a
// record counts as published when it was written to the connection; nothing more is known of it.
func WithAcks(mode wire.AckMode) PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.limits.acked = mode != wire.AckNone })
}

// WithIdempotence makes the broker take each batch once: what is lost with a connection is sent
// again and never applied twice, and records of a shard keep their order. It implies acks.
func WithIdempotence() PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.limits.idempotent = true })
}

// WithAtLeastOnce sends batches of unknown outcome again, at the risk that they are applied twice.
// Default: they fail with wire.ErrUnacknowledged. WithIdempotence is the safe way.
func WithAtLeastOnce() PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.atLeastOnce = true })
}

// WithQueuedAcks lets a broker that is configured so answer when a batch is queued. Default: the
// answer is asked for after the write.
func WithQueuedAcks() PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.queuedAcks = true })
}

// WithBatchBytes sends a batch at the latest when its frame has grown to n bytes. Default: 256 KiB.
// A larger record travels alone.
func WithBatchBytes(n int) PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.limits.batchBytes = n })
}

// WithBatchRecords sends a batch at the latest when it holds n records. Default: 4096.
func WithBatchRecords(n int) PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.limits.batchRecords = uint32(max(0, min(n, math.MaxInt32))) })
}

// WithLinger makes a batch wait so long for company. Default: 0, a batch grows only while it
// cannot be sent anyway.
func WithLinger(d time.Duration) PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.limits.linger = int64(d) })
}

// WithInFlight bounds the unanswered batches of a shard; the window that the broker grants bounds
// them too. Default: 16. Fewer makes larger batches, more hides a longer way to the broker.
func WithInFlight(n int) PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.limits.flight = n })
}

// WithBudgetBytes bounds the bytes of records that were accepted and not yet answered. Default:
// 32 MiB. At the bound Publish waits.
func WithBudgetBytes(n int64) PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.budget = n })
}

// WithFailWhenFull makes publishing fail with ErrBudgetFull at the budget instead of waiting.
func WithFailWhenFull() PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.failFull = true })
}

// WithDeliveryTimeout gives up a record that could not be delivered for so long, retries and
// reconnects included. Default: 60 s; 0 = never.
func WithDeliveryTimeout(d time.Duration) PublisherOption {
	return publisherOption(func(c *publisherConfig) { c.limits.delivery = int64(d) })
}

func newPublisherConfig(namespace string, opts []PublisherOption) (*publisherConfig, error) {
	c := &publisherConfig{
		namespace: namespace, budget: budgetBytesDefault, recordMax: recordBytesMax,
		limits: outboxLimits{
			batchBytes: batchBytesDefault, batchRecords: batchRecordsDefault, flight: inFlightDefault,
			delivery: int64(deliveryTimeoutDefault), answer: int64(answerTimeout), acked: true,
		},
	}
	for _, o := range opts {
		o.applyPublisher(c)
	}
	l := &c.limits
	var errs []error
	if !l.acked && (l.idempotent || c.atLeastOnce) {
		errs = append(errs, errors.New("idempotence and at-least-once need acks"))
	}
	if l.idempotent {
		l.flight = min(l.flight, inFlightIdempotentMax)
	}
	l.repeatable = l.idempotent || c.atLeastOnce
	if l.flight < 1 || l.batchBytes < 1 || l.batchRecords < 1 || c.budget < 1 || l.linger < 0 || l.delivery < 0 {
		errs = append(errs, errors.New("a bound is not positive"))
	}
	l.batchBytes = min(l.batchBytes, wire.MaxFrameBytes)
	if c.shard != nil {
		l.batchBytes, c.recordMax = min(l.batchBytes, jsonBytesMax/2), jsonBytesMax
		if *c.shard >= shardsMax {
			errs = append(errs, fmt.Errorf("shard %d: the most is %d", *c.shard, shardsMax-1))
		}
	}
	if err := errors.Join(append(errs, checkName("namespace", c.namespace))...); err != nil {
		return nil, fmt.Errorf("client: publisher options: %w", err)
	}
	return c, nil
}
