package admin

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringcast/ringcast/wire"
)

// action is a handler that may refuse by returning an error.
type action func(w http.ResponseWriter, r *http.Request, c *caller) error

// handler builds the routes of design.md 11.
func (s *Server) handler() http.Handler {
	open := http.NewServeMux()
	for _, p := range []string{"GET /healthz", "GET /live"} {
		open.HandleFunc(p, s.health)
	}
	for _, p := range []string{"GET /readyz", "GET /ready"} {
		open.HandleFunc(p, s.readiness)
	}

	mux := http.NewServeMux()
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{s: s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		MaxRequestsInFlight: 8, Timeout: writeTimeout - 5*time.Second, ErrorHandling: promhttp.HTTPErrorOnError,
	}))

	route := func(pattern string, fn action) { mux.Handle(pattern, s.guarded(fn)) }
	route("GET /{$}", s.page)
	route("GET /v1/status", s.status)
	route("GET /v1/config", s.config)
	route("GET /v1/streams", s.listStreams)
	const stream = "/v1/tenants/{tenant}/namespaces/{namespace}/streams/{stream}"
	route("PUT "+stream, s.putStream)
	route("GET "+stream, s.getStream)
	route("DELETE "+stream, s.deleteStream)
	route("GET /v1/caches", s.listCaches)
	const cache = "/v1/tenants/{tenant}/namespaces/{namespace}/caches/{cache}"
	route("PUT "+cache, s.putCache)
	route("GET "+cache, s.getCache)
	route("DELETE "+cache, s.deleteCache)
	route("PUT /v1/tenants/{tenant}/keys", s.putKeys)
	route("GET /v1/tenants/{tenant}/keys", s.getKeys)
	route("POST /v1/tenants/{tenant}/revocations", s.revoke)

	route("GET /debug/pprof/", profile(pprof.Index))
	route("GET /debug/pprof/cmdline", profile(pprof.Cmdline))
	route("GET /debug/pprof/profile", profile(pprof.Profile))
	route("GET /debug/pprof/symbol", profile(pprof.Symbol))
	route("POST /debug/pprof/symbol", profile(pprof.Symbol))
	route("GET /debug/pprof/trace", profile(pprof.Trace))

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if h, pattern := open.Handler(r); pattern != "" {
			h.ServeHTTP(w, r) // probes are answered however busy the port is
			return
		}
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		default:
			writeError(w, wire.NewError(wire.CodeOverloaded, "%d requests are running already", requestsMax))
			return
		}
		h, pattern := mux.Handler(r)
		if pattern == "" {
			unrouted(w, r, h)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// profile serves one of net/http/pprof's handlers to who may see the whole broker. A profile runs
// as long as its caller asks, within five minutes.
func profile(h http.HandlerFunc) action {
	return func(w http.ResponseWriter, r *http.Request, c *caller) error {
		if err := c.mayViewBroker(); err != nil {
			return err
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(5 * time.Minute))
		h(w, r)
		return nil
	}
}

// unrouted turns the multiplexer's own refusal (404, 405, or a redirect to a clean path) into JSON.
func unrouted(w http.ResponseWriter, r *http.Request, h http.Handler) {
	rec := &statusOnly{header: make(http.Header)}
	h.ServeHTTP(rec, r)
	switch {
	case rec.status == http.StatusMethodNotAllowed:
		w.Header().Set("Allow", rec.header.Get("Allow"))
		writeStatus(w, http.StatusMethodNotAllowed, wire.NewError(wire.CodeInvalidRequest, "%s is not possible here, only %s", r.Method, rec.header.Get("Allow")))
	default:
		writeStatus(w, http.StatusNotFound, wire.NewError(wire.CodeNotFound, "no such resource").WithRetry(wire.RetryFatal))
	}
}

// statusOnly is a ResponseWriter that keeps the status and the header.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// health answers 200 while the process runs, also while it starts or drains (OPS-7).
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
}

// readiness answers 200 only while traffic should come here.
func (s *Server) readiness(w http.ResponseWriter, _ *http.Request) {
	p := phase(s.phase.Load())
	switch p {
	case phaseReady:
		body := map[string]any{"status": "ready"}
		if v := s.services.Load(); v != nil {
			// A shard whose log failed is out of service alone: the broker is ready for the others.
			st := v.Broker.Status()
			body["failed_shards"] = st.FailedShards
			if st.FailedShards > 0 {
				// Anybody may ask, so they are named as the disk names them, not as tenants do.
				body["failed_logs"] = st.FailedLogs
			}
		}
		writeJSON(w, http.StatusOK, body)
	case phaseStarting:
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "starting", "progress": *s.progress.Load()})
	default:
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": p.String()})
	}
}
