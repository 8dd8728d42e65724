package serve

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// conn is one client connection: its streams, its identities and its subscriptions.
type conn struct {
	srv *Server
	nc  netio.Conn
	id  uint64
	// account is the byte budget of all its identities together.
	account *core.Account
	wg      sync.WaitGroup // streams and subscriptions

	// preauth holds one entry per unauthenticated stream that is being read.
	preauth chan struct{}
	// reads holds one entry per page of history that is not written yet.
	reads chan struct{}
	// authenticated is set by the first stream that authenticates.
	authenticated atomic.Bool

	mu       sync.Mutex // guards what follows; cold: streams, identities and subscriptions come and go
	sessions map[*session]struct{}
	oneWay   map[*oneWay]struct{}
	who      map[identityKey]*principal
	subs     int
}

type identityKey struct{ tenant, subject string }

// principal is one identity on one connection: what its streams share.
type principal struct {
	key     identityKey
	account *core.Account
	streams int // guarded by conn.mu
	subs    int // guarded by conn.mu
}

// run serves the connection until it has ended and everything that it started has, too.
func (c *conn) run() {
	if t := c.srv.o.AuthTimeout; t > 0 {
		timer := time.AfterFunc(t, c.expire)
		defer timer.Stop()
	}
	c.wg.Go(c.acceptOneWay)
	for {
		st, err := c.nc.AcceptStream(c.nc.Context())
		if err != nil || !c.enterPreauth() {
			break
		}
		c.wg.Go(newSession(c, st).run)
	}
	c.wg.Wait()
}

func (c *conn) acceptOneWay() {
	for {
		st, err := c.nc.AcceptUniStream(c.nc.Context())
		if err != nil || !c.enterPreauth() {
			return
		}
		c.wg.Go(newOneWay(c, st).run)
	}
}

// enterPreauth takes a place among the unauthenticated streams that are read. While all are taken
// the accepting loop waits: later streams stay in the transport. Each place comes back within the
// authentication timeout.
func (c *conn) enterPreauth() bool {
	select {
	case c.preauth <- struct{}{}:
		return true
	case <-c.nc.Context().Done():
		return false
	}
}

// expire closes a connection on which nobody authenticated in time.
func (c *conn) expire() {
	if c.authenticated.Load() {
		return
	}
	c.srv.count.authTimeouts.Add(1)
	c.close(netio.CloseAuthTimeout, "authentication timeout")
}

func (c *conn) close(code uint64, reason string) {
	// It fails only when the connection is gone already.
	_ = c.nc.CloseWithError(code, reason)
}

func (c *conn) add(s *session) {
	c.srv.count.streams.Add(1)
	c.srv.count.streamsOpen.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[s] = struct{}{}
}

func (c *conn) remove(s *session) {
	c.srv.count.streamsOpen.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
	c.leave(s.who)
}

func (c *conn) addOneWay(u *oneWay) {
	c.srv.count.streams.Add(1)
	c.srv.count.streamsOpen.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oneWay[u] = struct{}{}
}

func (c *conn) removeOneWay(u *oneWay) {
	c.srv.count.streamsOpen.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.oneWay, u)
	c.leave(u.who)
}

// enter returns the principal of an identity and counts one more stream of it.
func (c *conn) enter(id *auth.Identity) *principal {
	key := identityKey{id.Tenant, id.Subject}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.who[key]
	if p == nil {
		p = &principal{key: key, account: c.srv.o.Broker.NewIdentity(c.account)}
		c.who[key] = p
	}
	p.streams++
	c.authenticated.Store(true)
	return p
}

// leave forgets a principal that nothing refers to any more. c.mu is held.
func (c *conn) leave(p *principal) {
	if p == nil {
		return
	}
	p.streams--
	c.forget(p)
}

func (c *conn) forget(p *principal) {
	if p.streams == 0 && p.subs == 0 {
		delete(c.who, p.key)
	}
}

// addSub counts a subscription of p, or says which limit it would pass.
func (c *conn) addSub(p *principal) *wire.Error {
	o := &c.srv.o
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.subs >= o.MaxSubscriptions:
		return wire.NewError(wire.CodeLimitExceeded, "%d subscriptions of this identity on this connection: that is the limit", p.subs)
	case c.subs >= o.MaxSubscriptionsConn:
		return wire.NewError(wire.CodeLimitExceeded, "%d subscriptions on this connection: that is the limit", c.subs)
	}
	p.subs++
	c.subs++
	return nil
}

func (c *conn) removeSub(p *principal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.subs--
	c.subs--
	c.forget(p)
}

// owed says whether a stream of the connection has answers to write.
func (c *conn) owed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		if s.w.owed() {
			return true
		}
	}
	return false
}

// stopReaders ends the streams that only publish: they have nothing to be told.
func (c *conn) stopReaders() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for u := range c.oneWay {
		u.st.CancelRead(netio.ResetNone)
	}
}
