package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/admin"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/core/cache"
	"github.com/ringcast/ringcast/core/serve"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/sched"
)

// server is everything that a running broker consists of, in the order of its start.
type server struct {
	l  *Loaded
	lg *slog.Logger
	// memory is the limit that the runtime keeps to, in bytes; 0 = none.
	memory int64

	http   *admin.Server
	broker *core.Broker
	dev    *devFiles // nil without --dev
	// listeners are on consecutive ports; the first is on the configured one.
	listeners []*netio.Server
	sessions  *serve.Server

	// served is closed when the sessions have returned for every listener, after serveErr was set.
	served    chan struct{}
	serveErr  error
	stopServe context.CancelFunc
}

// Run starts a broker, tells out how to reach it, serves until ctx ends, and shuts down. Closing
// hurry cuts the shutdown's waits short. It returns nil after an orderly life, also when ctx ended
// while the broker was still starting.
func Run(ctx context.Context, hurry <-chan struct{}, l *Loaded, out io.Writer, lg *slog.Logger) (err error) {
	for _, w := range l.Warnings {
		lg.Warn("configuration", "warning", w)
	}
	lg.Info("starting", "version", version(), "pid", os.Getpid(), "set", l.changed())
	s := &server{l: l, lg: lg, memory: limitMemory(lg)}
	if err := s.start(ctx); err != nil {
		err = errors.Join(err, s.abandon())
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			lg.Info("stopped while starting")
			return nil
		}
		return err
	}
	if err := s.announce(out); err != nil {
		lg.Warn("not announced", "err", err)
	}
	select {
	case <-ctx.Done():
	case <-s.served:
		lg.Error("the listener failed", "err", s.serveErr)
	}
	return errors.Join(s.serveErr, s.shutdown(hurry))
}

// start brings the parts up, each one before those that need it.
func (s *server) start(ctx context.Context) error {
	if err := s.startHTTP(); err != nil {
		return err
	}
	s.http.Progress("opening the data directory")
	o := coreOptions(s.l, s.memory, s.lg)
	o.OnOpenProgress = func(done, total int, read int64) {
		s.http.Progress(fmt.Sprintf("opening logs: %d of %d, %d MiB read", done, total, read>>20))
	}
	var err error
	if s.broker, err = core.Open(ctx, o); err != nil {
		return err
	}
	if s.l.Dev.V {
		if s.dev, err = openDevFiles(filepath.Join(s.l.DataDir.V, "dev"), s.lg); err != nil {
			return err
		}
	}
	s.http.Progress("loading keys")
	stored, source, err := s.keys()
	if err != nil {
		return err
	}
	verifier := auth.NewVerifier(source, auth.Options{Logger: s.lg})
	caches := cache.New(cache.Options{})

	s.http.Progress("opening the client listeners")
	if err := s.listen(); err != nil {
		return err
	}
	so := serveOptions(s.l, s.lg)
	so.Broker, so.Verifier, so.Cache, so.Pool = s.broker, verifier, caches, s.broker.Pool()
	so.ListenerPorts = s.ports()
	if err := so.Validate(); err != nil {
		return err
	}
	s.sessions = serve.New(so)
	s.serve()
	s.http.Attach(admin.Services{
		Broker: s.broker, Verifier: verifier, Keys: stored, Cache: caches,
		Sessions:  func() admin.Sessions { return sessionStats(s.sessions.Stats()) },
		Listeners: s.listenerStats,
	})
	s.http.Ready()
	s.lg.Info("ready", "quic", s.listeners[0].Addr().String(), "quic_ports", s.ports(), "http", s.http.Addr().String())
	return nil
}

// serve has the sessions take the connections of every listener. One that fails ends them all: clients
// were told of its port, and half a broker is harder to notice than none.
func (s *server) serve() {
	ctx, stop := context.WithCancel(context.Background())
	s.stopServe, s.served = stop, make(chan struct{})
	var all errgroup.Group
	for _, l := range s.listeners {
		all.Go(func() error {
			err := s.sessions.Serve(ctx, l)
			if err != nil {
				stop()
			}
			return err
		})
	}
	go func() {
		defer close(s.served)
		s.serveErr = all.Wait()
	}()
}

// ports are the client ports, in order.
func (s *server) ports() []uint16 {
	var ports []uint16
	for _, l := range s.listeners {
		ports = append(ports, l.Port())
	}
	return ports
}

func (s *server) listenerStats() []netio.Stats {
	var all []netio.Stats
	for _, l := range s.listeners {
		all = append(all, l.Stats())
	}
	return all
}

func (s *server) startHTTP() error {
	o := admin.Options{
		Addr: s.l.HTTPBind.V, Version: version(), Config: s.l.values(), Notes: s.l.notes(), Logger: s.lg,
		AckOnQueue: !s.l.AckOnCommit.V,
	}
	if s.l.HTTPTLSCert.V != "" {
		cert, err := netio.LoadCertificate(s.l.HTTPTLSCert.V, s.l.HTTPTLSKey.V, s.lg)
		if err != nil {
			return err
		}
		o.TLS = netio.NewServerTLS(cert, nil)
	}
	s.http = admin.New(o)
	return s.http.Listen()
}

// keys joins the sources that tokens are checked with: what the configuration names and what was
// stored through the admin API. With neither, nobody could ever be let in: the start is refused.
func (s *server) keys() (*auth.StaticSource, auth.KeySource, error) {
	stored := &auth.StaticSource{}
	sets, err := s.broker.TenantKeys()
	if err != nil {
		return nil, nil, err
	}
	for tenant, text := range sets {
		set, err := auth.ParseKeySet(text)
		if err != nil {
			return nil, nil, fmt.Errorf("stored keys of tenant %q: %w", tenant, err)
		}
		stored.Set(tenant, set.Keys())
	}
	where := s.l.JWKS.V
	if where == "" && s.dev != nil {
		where = s.dev.jwks
	}
	if where == "" {
		if len(sets) == 0 {
			return nil, nil, &ConfigError{[]string{fmt.Sprintf(
				"%s: no key to check tokens with: name a file, a directory or a URL, or start with %s=true", envName("jwks"), envName("dev"))}}
		}
		return stored, stored, nil
	}
	source, err := auth.OpenKeySource(where, s.lg)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", envName("jwks"), err)
	}
	return stored, auth.Merge(stored, source), nil
}

// listen opens the client ports.
func (s *server) listen() error {
	var cert *netio.Certificate
	var err error
	if s.l.TLSCert.V != "" {
		cert, err = netio.LoadCertificate(s.l.TLSCert.V, s.l.TLSKey.V, s.lg)
	} else {
		cert, err = netio.DevCertificate(s.dev.dir, s.lg)
	}
	if err != nil {
		return err
	}
	o := listenOptions(s.l, s.lg)
	if ca := s.l.TLSClientCA.V; ca != "" {
		pool, err := netio.LoadCertPool(ca)
		if err != nil {
			return err
		}
		o.TLS = netio.NewServerTLS(cert, pool)
	} else {
		o.TLS = netio.NewServerTLS(cert, nil)
	}
	if dir := s.l.DataDir.V; dir != "" {
		// Clients learn at once that a restarted broker knows nothing of their connection (HZ-36).
		if o.StatelessResetKey, o.TokenKey, err = netio.Secret(filepath.Join(dir, "listener-secret")); err != nil {
			return err
		}
	}
	n, fewer := s.l.quicListeners(len(sched.UsableCPUs()))
	s.listeners, err = netio.ListenPorts(o, n, fewer)
	return err
}

// announce writes the file and the text by which a developer finds a --dev broker, or one line.
func (s *server) announce(out io.Writer) error {
	if s.dev == nil {
		return nil
	}
	return s.dev.announce(out, s.listeners[0].Addr().String(), s.http.Addr().String())
}
