package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/core/cache"
	"github.com/ringcast/ringcast/netio"
)

const (
	// requestsMax is how many requests run at a time, health probes excepted.
	requestsMax = 64
	// bodyMax is the largest body that is read, in bytes; keysMax that of a key set.
	bodyMax = 64 << 10
	keysMax = 256 << 10

	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 60 * time.Second
	headerMax     = 32 << 10
)

// Options configure a Server. The zero value of a field means its default.
type Options struct {
	// Addr is host:port over TCP; port 0 picks a free one.
	Addr string
	// TLS makes the port HTTPS. Default: plain HTTP.
	TLS *tls.Config
	// Version is what the status names as the program's.
	Version string
	// Config is the configuration in force, secrets masked, as /v1/config shows it.
	Config map[string]any
	// AckOnQueue says that clients which do not ask for more are answered when a publish is queued:
	// every description of a stream then names that.
	AckOnQueue bool
	// Notes are shown with the status: what an operator chose that weakens a promise.
	Notes []string
	// Logger receives lifecycle messages. Default: discard.
	Logger *slog.Logger
}

// Services is what the API works on. All fields must be set.
type Services struct {
	Broker   *core.Broker
	Verifier *auth.Verifier
	// Keys is the source of the keys that PUT /v1/tenants/T/keys stores; the verifier asks it too.
	Keys  *auth.StaticSource
	Cache *cache.Cache
	// Sessions and Listeners return snapshots; the session layer lies beside this package.
	Sessions  func() Sessions
	Listeners func() []netio.Stats
}

// phase is the life of the broker as a probe sees it. It only rises.
type phase int32

const (
	phaseStarting phase = iota
	phaseReady
	phaseDraining
)

func (p phase) String() string { return [...]string{"starting", "ready", "draining"}[p] }

// Server is the HTTP port of a broker.
//
// Life: Listen, Attach, Ready, Draining, Close.
type Server struct {
	o    Options
	http *http.Server
	ln   net.Listener
	done sync.WaitGroup

	began    time.Time
	phase    atomic.Int32
	progress atomic.Pointer[string] // what is being done while starting
	services atomic.Pointer[Services]
	slots    chan struct{} // one per running request

	drainMS     atomic.Int64
	drainForced forcedCounters
	rates       rates
	keysMu      sync.Mutex // serialises changes of a key set in the catalogue and in memory
}

// New returns a server that does not listen yet.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, began: time.Now(), slots: make(chan struct{}, requestsMax)}
	s.Progress("reading the configuration")
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerMax,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

// Listen opens the port and serves it until Close.
func (s *Server) Listen() error {
	ln, err := net.Listen("tcp", s.o.Addr)
	if err != nil {
		return fmt.Errorf("admin: listen on %s: %w", s.o.Addr, err)
	}
	s.ln = ln
	if s.o.TLS != nil {
		ln = tls.NewListener(ln, s.o.TLS)
	}
	s.done.Go(func() {
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.o.Logger.Error("http port failed", "err", err)
		}
	})
	return nil
}

// Addr is the address the port is bound to; Listen must have returned.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Progress says what is being done while the broker starts, for whoever asks for readiness.
func (s *Server) Progress(what string) { s.progress.Store(&what) }

// Attach gives the API something to work on.
func (s *Server) Attach(v Services) { s.services.Store(&v) }

// Ready turns readiness on, unless a drain began (HZ-18: it never comes back).
func (s *Server) Ready() { s.phase.CompareAndSwap(int32(phaseStarting), int32(phaseReady)) }

// Draining turns readiness off for good.
func (s *Server) Draining() { s.phase.Store(int32(phaseDraining)) }

// Drained records how a drain went: how long it took, and what was cut short by name.
func (s *Server) Drained(took time.Duration, forced ...string) {
	s.drainMS.Store(took.Milliseconds())
	for _, name := range forced {
		s.drainForced.add(name)
	}
}

// Close ends the port: running requests may finish until ctx ends. It may be called twice.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.done.Wait()
	return err
}

// ready says whether traffic should be sent here.
func (s *Server) ready() bool { return phase(s.phase.Load()) == phaseReady }

// forcedCounters counts what drains cut short. The names are a closed set.
type forcedCounters struct {
	mu sync.Mutex // guards n
	n  map[string]uint64
}

func (c *forcedCounters) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]uint64)
	}
	c.n[name]++
}

func (c *forcedCounters) all() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]uint64, len(c.n))
	for k, v := range c.n {
		out[k] = v
	}
	return out
}
