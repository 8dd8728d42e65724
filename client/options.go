package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// Defaults and bounds of the package.
const (
	dialTimeoutDefault = 10 * time.Second       // one attempt, handshake and first auth together
	answerTimeout      = 30 * time.Second       // of a publish in flight, and of a call without a deadline
	helloTimeout       = 10 * time.Second       // of the first frame on an event stream
	helloGrace         = 200 * time.Millisecond // once some event stream failed before its hello
	closeTimeout       = 5 * time.Second        // of the end of a publish stream (HZ-34)
	backoffBaseDefault = 20 * time.Millisecond
	backoffMaxDefault  = time.Second
	notFoundPatience   = 5 * time.Second // of a resuming subscription; a restarting broker may still open its streams

	callStreamsMax     = 32       // authenticated request streams of one connection
	callStreamsIdleMax = 8        // of those, kept while unused
	poolBytesMax       = 16 << 20 // frame memory kept for reuse

	batchBytesDefault      = 256 << 10 // frames up to here cost the broker one move of 64 KiB
	batchRecordsDefault    = 4096
	recordBytesMax         = wire.MaxFrameBytes - 4096 // names and ids of a frame take less than the rest
	keyBytesMax            = 1<<16 - 1
	shardsMax              = 1 << 16 // of a stream, as far as this client believes a broker
	budgetBytesDefault     = 32 << 20
	inFlightDefault        = 16 // few, so that small records queue up and travel together
	inFlightIdempotentMax  = 64 // what a broker remembers of a producer
	deliveryTimeoutDefault = 60 * time.Second

	receiveFramesDefault = 256
	receiveBytesDefault  = 4 << 20
)

// Option configures a Client.
type Option interface{ applyClient(*config) }

// PublisherOption configures one Publisher.
type PublisherOption interface{ applyPublisher(*publisherConfig) }

// SubscribeOption configures one Subscription.
type SubscribeOption interface{ applySubscribe(*subscribeConfig) }

// CacheOption configures one Cache handle.
type CacheOption interface{ applyCache(*cacheConfig) }

// NamespaceOption may be given in every role: to the client as the default, to the others as the
// namespace of that publisher, subscription or cache.
type NamespaceOption interface {
	Option
	PublisherOption
	SubscribeOption
	CacheOption
}

type (
	clientOption    func(*config)
	publisherOption func(*publisherConfig)
	subscribeOption func(*subscribeConfig)
	namespaceOption string
)

func (f clientOption) applyClient(c *config)                { f(c) }
func (f publisherOption) applyPublisher(c *publisherConfig) { f(c) }
func (f subscribeOption) applySubscribe(c *subscribeConfig) { f(c) }

func (n namespaceOption) applyClient(c *config)             { c.namespace = string(n) }
func (n namespaceOption) applyPublisher(c *publisherConfig) { c.namespace = string(n) }
func (n namespaceOption) applySubscribe(c *subscribeConfig) { c.namespace = string(n) }
func (n namespaceOption) applyCache(c *cacheConfig)         { c.namespace = string(n) }

// WithNamespace names the namespace. Default: "default".
func WithNamespace(name string) NamespaceOption { return namespaceOption(name) }

// config is the client's. It does not change after New.
type config struct {
	tenant, namespace string
	token             func(context.Context) (string, error)
	dial              netio.DialOptions
	dialTimeout       time.Duration
	backoffBase       time.Duration
	backoffMax        time.Duration
	log               *slog.Logger
	errs              []error // of options that could not be applied

	// connect makes the connection; tests put theirs here.
	connect func(ctx context.Context, addr string, o netio.DialOptions) (netio.Conn, error)
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		tenant: "default", namespace: "default",
		dial:        netio.DialOptions{OfferALPN: true},
		dialTimeout: dialTimeoutDefault, backoffBase: backoffBaseDefault, backoffMax: backoffMaxDefault,
		log: slog.New(slog.DiscardHandler), connect: netio.Dial,
	}
	for _, o := range opts {
		o.applyClient(c)
	}
	if c.token == nil {
		c.errs = append(c.errs, errors.New("no token: give WithToken"))
	}
	c.errs = append(c.errs, checkName("tenant", c.tenant), checkName("namespace", c.namespace), c.dial.Validate())
	if err := errors.Join(c.errs...); err != nil {
		return nil, fmt.Errorf("client: options: %w", err)
	}
	return c, nil
}

// checkName bounds what goes into binary frames; what a name may contain is the broker's business.
func checkName(what, name string) error {
	if name == "" || len(name) > 255 {
		return fmt.Errorf("%s name of %d bytes, want 1 to 255", what, len(name))
	}
	return nil
}

// WithTenant names the tenant that the token is for. Default: "default".
func WithTenant(name string) Option { return clientOption(func(c *config) { c.tenant = name }) }

// WithToken gives the token that every stream authenticates with. Required, unless WithTokenSource is given.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource asks source for the token each time a stream is opened, so that one which
// expires can be renewed. It is called from several goroutines.
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return clientOption(func(c *config) { c.token = source })
}

// WithCAFile verifies the broker against the certificates in a PEM file instead of the platform's.
func WithCAFile(path string) Option {
	return clientOption(func(c *config) {
		pool, err := netio.LoadCertPool(path)
		if err != nil {
			c.errs = append(c.errs, err)
			return
		}
		c.dial.RootCAs = pool
	})
}

// WithRootCAs verifies the broker against pool instead of the platform's certificates.
func WithRootCAs(pool *x509.CertPool) Option {
	return clientOption(func(c *config) { c.dial.RootCAs = pool })
}

// WithServerName is the name that the broker's certificate must have. Default: "localhost".
func WithServerName(name string) Option {
	return clientOption(func(c *config) { c.dial.ServerName = name })
}

// WithALPN says whether the protocol is named in the TLS handshake. Default: it is.
func WithALPN(offer bool) Option { return clientOption(func(c *config) { c.dial.OfferALPN = offer }) }

// WithIdleTimeout ends a connection from which nothing was heard for so long; a ping is sent after
// a third of it. Default: 6 s.
func WithIdleTimeout(d time.Duration) Option {
	return clientOption(func(c *config) { c.dial.IdleTimeout = d })
}

// WithDialTimeout bounds one attempt to connect, with the first auth. Default: 10 s.
func WithDialTimeout(d time.Duration) Option {
	return clientOption(func(c *config) { c.dialTimeout = d })
}

// WithBackoff sets the waits between attempts: a random time below base, 2 base, 4 base, ... at
// most max. Default: 20 ms, 1 s.
func WithBackoff(base, max time.Duration) Option {
	return clientOption(func(c *config) { c.backoffBase, c.backoffMax = base, max })
}

// WithLogger gets what happens to connections. Default: nothing is logged.
func WithLogger(l *slog.Logger) Option { return clientOption(func(c *config) { c.log = l }) }

// publisherConfig is one publisher's.
type publisherConfig struct {
	namespace   string
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
	return publisherOption(func(c *publisherConfig) { c.limits.batchRecords = uint32(n) })
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
		namespace: namespace, budget: budgetBytesDefault,
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
	if err := errors.Join(append(errs, checkName("namespace", c.namespace))...); err != nil {
		return nil, fmt.Errorf("client: publisher options: %w", err)
	}
	return c, nil
}

// subscribeConfig is one subscription's.
type subscribeConfig struct {
	namespace     string
	start         wire.Start
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
	return subscribeOption(func(c *subscribeConfig) { c.start = wire.Start{Kind: wire.StartLatest} })
}

// FromEarliest starts at the oldest record that the broker still has.
func FromEarliest() SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.start = wire.Start{Kind: wire.StartEarliest} })
}

// FromOffset starts at a record. One that the broker does not have any more is a GapError.
func FromOffset(offset uint64) SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) {
		c.start = wire.Start{Kind: wire.StartOffset, Offset: offset}
	})
}

// WithShard names the shard to read. Default: 0.
func WithShard(shard uint32) SubscribeOption {
	return subscribeOption(func(c *subscribeConfig) { c.shard = shard })
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
