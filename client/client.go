package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Client is a connection to one broker, made again whenever it is lost and needed. All methods may
// be called from any goroutine.
type Client struct {
	addr    string
	cfg     *config
	pool    *wire.Pool
	manager *manager
	cancel  context.CancelFunc
	closed  chan struct{} // closed when Close begins
	wg      sync.WaitGroup

	mu     sync.Mutex // guards users and ended
	users  map[user]struct{}
	ended  bool
	finish chan struct{} // closed when Close is done
}

// user is what a client ends when it is closed.
type user interface{ abort() }

// New makes a client of the broker at addr (host:port) that connects when it is first used.
func New(addr string, opts ...Option) (*Client, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	pool := wire.NewPool(poolBytesMax)
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		addr: addr, cfg: cfg, pool: pool, manager: newManager(addr, cfg, pool), cancel: cancel,
		closed: make(chan struct{}), finish: make(chan struct{}), users: make(map[user]struct{}),
	}
	c.wg.Go(func() { c.manager.run(ctx) })
	return c, nil
}

// Dial makes a client and connects it: a wrong address, certificate or token shows here. It tries
// until ctx ends, unless what is wrong will not change by itself.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	c, err := New(addr, opts...)
	if err != nil {
		return nil, err
	}
	if _, err := c.session(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Addr is the address the client was made for.
func (c *Client) Addr() string { return c.addr }

// Close ends the connection and everything that uses it, at once: records without an outcome fail
// with ErrClosed. Close a Publisher first to have its records delivered. It returns when all
// goroutines of the client have ended.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		<-c.finish
		return nil
	}
	c.ended = true
	users := make([]user, 0, len(c.users))
	for u := range c.users {
		users = append(users, u)
	}
	c.mu.Unlock()
	close(c.closed)
	for _, u := range users {
		u.abort()
	}
	c.cancel()
	c.wg.Wait()
	close(c.finish)
	return nil
}

// adopt makes Close end u.
func (c *Client) adopt(u user) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return ErrClosed
	}
	c.users[u] = struct{}{}
	return nil
}

// release undoes adopt: u has ended by itself.
func (c *Client) release(u user) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.users, u)
}

// session returns the live session, or waits for one.
func (c *Client) session(ctx context.Context) (*session, error) {
	return c.manager.session(ctx, c.closed)
}

// attemptsMax is how often a call is sent before its refusal is the caller's.
const attemptsMax = 5

// call sends a request and returns its answer; it is sent again by retry class. A request that
// changes nothing is repeatable and also survives a lost connection.
func (c *Client) call(ctx context.Context, need wire.Features, what string, req wire.Message, repeatable bool) (wire.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	wait := newBackoff(c.cfg.backoffBase, c.cfg.backoffMax)
	for attempt := 1; ; attempt++ {
		s, err := c.session(ctx)
		if err != nil {
			return nil, err
		}
		if !s.peer.features.Has(need) {
			return nil, &UnsupportedError{What: what}
		}
		m, sent, err := s.call(ctx, req)
		if err == nil {
			return m, nil
		}
		switch v := decideError(err, repeatable || !sent); {
		case v == verdictFail && sent && !repeatable && (lost(err) || ctx.Err() != nil):
			return nil, unknown(err)
		case v == verdictFail, attempt == attemptsMax, isNotFound(err):
			return nil, err
		}
		if err := sleep(ctx, wait.next(askedWait(err))); err != nil {
			return nil, err
		}
	}
}

// StreamShards returns how many shards a stream has, 0 if the broker does not know it.
func (c *Client) StreamShards(ctx context.Context, stream string) (uint32, error) {
	n, _, err := c.streamShards(ctx, c.cfg.namespace, stream)
	return n, err
}

func (c *Client) streamShards(ctx context.Context, namespace, stream string) (uint32, wire.Routing, error) {
	m, err := c.call(ctx, wire.FeatureStreamShards, "stream_shards", &wire.StreamShards{
		TenantID: c.cfg.tenant, Namespace: namespace, Stream: stream, RequestID: 1,
	}, true)
	if err != nil {
		return 0, 0, err
	}
	view, ok := m.(*wire.StreamShardsView)
	if !ok {
		return 0, 0, protocolError("answer to stream_shards is "+m.Type(), nil)
	}
	if view.Shards > shardsMax {
		return 0, 0, protocolError(fmt.Sprintf("stream of %d shards", view.Shards), nil)
	}
	return view.Shards, view.Routing, nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
