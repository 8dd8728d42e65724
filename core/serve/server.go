package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// Server speaks the protocol with clients on behalf of one broker.
//
// Life: New, Serve once per listener, Drain, then the context of Serve ends (or the listeners
// close) and Serve returns.
type Server struct {
	o Options
	// features is what this broker serves; constant.
	features wire.Features
	count    counters
	connIDs  atomic.Uint64
	// draining is set once by Drain.
	draining atomic.Bool

	mu        sync.Mutex // guards what follows
	conns     map[*conn]struct{}
	listeners map[*netio.Server]struct{}
}

// New returns a server that serves nothing yet. It panics if o is invalid: Validate it first.
func New(o Options) *Server {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	o = o.withDefaults()
	return &Server{
		o: o, features: featuresOf(&o),
		conns: make(map[*conn]struct{}), listeners: make(map[*netio.Server]struct{}),
	}
}

// Serve accepts connections of l and serves them. It returns nil when ctx ends, or when l stops
// accepting and its connections have ended; by then it has closed every connection and waited for
// everything it started. It does not close l.
func (s *Server) Serve(ctx context.Context, l *netio.Server) error {
	s.mu.Lock()
	s.listeners[l] = struct{}{}
	if s.draining.Load() {
		l.StopAccepting() // Drain has been, or is about to look
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var conns sync.WaitGroup
	for {
		nc, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() == nil && !netio.IsClosed(err) {
				err = fmt.Errorf("serve: accept: %w", err)
				cancel()
			} else {
				err = nil
			}
			conns.Wait()
			return err
		}
		conns.Go(func() { s.serveConn(ctx, nc) })
	}
}

func (s *Server) newConn(nc netio.Conn) *conn {
	return &conn{
		srv: s, nc: nc, id: s.connIDs.Add(1), account: s.o.Broker.NewAccount(),
		preauth:  make(chan struct{}, s.o.PreauthStreams),
		reads:    make(chan struct{}, readsPerConn),
		sessions: make(map[*session]struct{}),
		oneWay:   make(map[*oneWay]struct{}),
		who:      make(map[identityKey]*principal),
	}
}

// serveConn serves one connection to its end and closes it when ctx ends.
func (s *Server) serveConn(ctx context.Context, nc netio.Conn) {
	c := s.newConn(nc)
	stop := context.AfterFunc(ctx, func() { c.close(netio.CloseShutdown, "broker is shutting down") })
	defer stop()
	s.count.conns.Add(1)
	s.count.connsOpen.Add(1)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()

	c.run()

	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.count.connsOpen.Add(-1)
}

// open returns the connections of this moment.
func (s *Server) open() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}
