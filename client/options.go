package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringcast/ringcast/netio"
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
	ReadOption
	PublishIfOption
	CommitOption
	StateOption
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
func (n namespaceOption) applyRead(c *readConfig)           { c.namespace = string(n) }
func (n namespaceOption) applyPublishIf(c *conditionConfig) { c.namespace = string(n) }
func (n namespaceOption) applyCommit(c *conditionConfig)    { c.namespace = string(n) }
func (n namespaceOption) applyState(c *conditionConfig)     { c.namespace = string(n) }

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
	spread            bool
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
		spread: true, log: slog.New(slog.DiscardHandler), connect: netio.Dial,
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

// WithListenerSpread says whether the client moves to one of the other ports that a broker with
// several listeners announces, so that the clients of a broker spread over them. Default: it does, and
// stays where it is when that port does not answer. Say false behind something that maps ports.
func WithListenerSpread(spread bool) Option {
	return clientOption(func(c *config) { c.spread = spread })
}

// WithLogger gets what happens to connections. Default: nothing is logged.
func WithLogger(l *slog.Logger) Option { return clientOption(func(c *config) { c.log = l }) }
