package serve

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/core/cache"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// world is a broker with a server in front of it, and the means to make tokens.
type world struct {
	t      testing.TB
	key    *auth.SigningKey
	broker *core.Broker
	cache  *cache.Cache
	pool   *wire.Pool
	srv    *Server

	listener *netio.Server // nil without QUIC
	roots    *x509.CertPool
	stop     context.CancelFunc
	served   chan error
}

type worldOptions struct {
	quic    bool
	durable bool
	tenants []string // known beside t1 and t2
	core    func(*core.Options)
	serve   func(*Options)
	netio   func(*netio.ServerOptions)
}

// newWorld starts a broker that knows the tenants t1 and t2, with AUTO_CREATE off, and the streams
// s (one shard), wide (four shards) and the cache c of t1/default.
func newWorld(t testing.TB, wo worldOptions) *world {
	t.Helper()
	w := &world{t: t, pool: wire.NewPool(64 << 20), cache: cache.New(cache.Options{})}
	var err error
	if w.key, err = auth.GenerateKey(); err != nil {
		t.Fatal(err)
	}
	keys := &auth.StaticSource{}
	keys.Set("t1", []auth.Key{w.key.Public()})
	keys.Set("t2", []auth.Key{w.key.Public()})
	for _, tenant := range wo.tenants {
		keys.Set(tenant, []auth.Key{w.key.Public()})
	}

	co := core.Options{Pool: w.pool, Engine: "portable"}
	if wo.durable {
		co.DataDir = t.TempDir()
	}
	if wo.core != nil {
		wo.core(&co)
	}
	if w.broker, err = core.Open(t.Context(), co); err != nil {
		t.Fatal(err)
	}
	so := Options{Broker: w.broker, Verifier: auth.NewVerifier(keys, auth.Options{}), Cache: w.cache, DrainLinger: 20 * time.Millisecond}
	if wo.serve != nil {
		wo.serve(&so)
	}
	w.srv = New(so)
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	if wo.quic {
		w.listen(ctx, wo.netio)
	}
	t.Cleanup(w.close)

	w.stream(core.StreamDef{Stream: "s"})
	w.stream(core.StreamDef{Stream: "wide", Shards: 4})
	if _, _, err := w.broker.CreateCache(core.CacheDef{Tenant: "t1", Namespace: "default", Cache: "c"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) listen(ctx context.Context, change func(*netio.ServerOptions)) {
	w.t.Helper()
	dir := w.t.TempDir()
	cert, err := netio.DevCertificate(dir, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.roots, err = netio.LoadCertPool(dir + "/" + netio.DevCAFile); err != nil {
		w.t.Fatal(err)
	}
	no := netio.ServerOptions{Addr: "127.0.0.1:0", TLS: netio.NewServerTLS(cert, nil)}
	if change != nil {
		change(&no)
	}
	if w.listener, err = netio.Listen(no); err != nil {
		w.t.Fatal(err)
	}
	w.served = make(chan error, 1)
	go func() { w.served <- w.srv.Serve(ctx, w.listener) }()
}

func (w *world) close() {
	w.stop()
	if w.listener != nil {
		if err := <-w.served; err != nil {
			w.t.Errorf("Serve: %v", err)
		}
		if err := w.listener.Close(); err != nil {
			w.t.Errorf("close listener: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.broker.Close(ctx); err != nil {
		w.t.Errorf("close broker: %v", err)
	}
	w.checkRest()
}

// checkRest says whether every gauge is back at zero (HZ-40).
func (w *world) checkRest() {
	st := w.srv.Stats()
	if st.ConnsOpen != 0 || st.StreamsOpen != 0 || st.SubscriptionsOpen != 0 {
		w.t.Errorf("at rest: %d connections, %d streams, %d subscriptions", st.ConnsOpen, st.StreamsOpen, st.SubscriptionsOpen)
	}
	if n := w.pool.Stats().InUse; n != 0 {
		w.t.Errorf("at rest: %d Bufs are in use", n)
	}
}

func (w *world) stream(def core.StreamDef) {
	w.t.Helper()
	if def.Tenant == "" {
		def.Tenant, def.Namespace = "t1", "default"
	}
	if _, _, err := w.broker.CreateStream(def); err != nil {
		w.t.Fatal(err)
	}
}

// token is a token of t1 that may do everything there, or only perms.
func (w *world) token(perms ...string) string { return w.tokenOf("t1", "alice", perms...) }

func (w *world) tokenOf(tenant, subject string, perms ...string) string {
	w.t.Helper()
	if perms == nil {
		perms = auth.EveryPermission(tenant)
	}
	now := time.Now()
	text, err := auth.Mint(w.key, auth.Claims{Tenant: tenant, Subject: subject, Permissions: perms, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// dial connects over QUIC, or in memory where the world has no listener.
func (w *world) dial() *client {
	w.t.Helper()
	if w.listener == nil {
		return w.pair(1 << 20)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc, err := netio.Dial(ctx, w.listener.Addr().String(), netio.DialOptions{RootCAs: w.roots})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.newClient(nc)
}

// pair connects in memory, with streams of the given window.
func (w *world) pair(window int) *client {
	near, far := fakePair(window)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.srv.serveConn(context.Background(), far)
	}()
	w.t.Cleanup(func() {
		far.CloseWithError(netio.CloseShutdown, "test ends")
		<-done
	})
	return w.newClient(near)
}

func (w *world) newClient(nc netio.Conn) *client {
	c := &client{w: w, nc: nc}
	w.t.Cleanup(func() { nc.CloseWithError(netio.CloseShutdown, "") })
	return c
}

// eventually polls until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		case <-tick.C:
		}
	}
}
