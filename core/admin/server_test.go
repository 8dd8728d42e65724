package admin

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ringcast/ringcast/core"
)

// OPS-7, HZ-18: the process is alive from the start and while it drains; it is ready only in between,
// and a drain never turns back.
func TestReadinessIsOffBeforeTheStartEndsAndForGoodAfterADrain(t *testing.T) {
	r := newRig(t, core.Options{})
	r.Progress("opening logs")
	state := func(ready int, word string) {
		t.Helper()
		for _, p := range []string{"/healthz", "/live"} {
			r.want(r.do("GET", p, "", ""), http.StatusOK, "")
		}
		for _, p := range []string{"/readyz", "/ready"} {
			a := r.do("GET", p, "", "")
			r.want(a, ready, "")
			if a.json["status"] != word {
				t.Errorf("%s: %v, want %s", p, a.json, word)
			}
		}
	}
	state(http.StatusServiceUnavailable, "starting")
	if a := r.do("GET", "/readyz", "", ""); a.json["progress"] != "opening logs" || a.header.Get("Retry-After") == "" {
		t.Errorf("no progress: %v", a.json)
	}
	r.want(r.do("GET", "/v1/status", r.all(), ""), http.StatusServiceUnavailable, "shard_unavailable")
	if a := r.do("GET", "/metrics", "", ""); a.status != http.StatusOK || !strings.Contains(a.text, "ringcast_ready_state 0") {
		t.Errorf("metrics while starting: %d\n%s", a.status, a.text)
	}
	r.attach()
	state(http.StatusOK, "ready")
	r.Draining()
	state(http.StatusServiceUnavailable, "draining")
	r.Ready()
	state(http.StatusServiceUnavailable, "draining")
}

// Nothing but health and metrics is served without a token, and a token without the permission is
// told which one it lacks.
func TestEveryRouteNeedsItsPermission(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	const s, c = "/v1/tenants/t1/namespaces/n/streams/s", "/v1/tenants/t1/namespaces/n/caches/c"
	nothing := r.token("t1", "stream.publish:stream:t1/*")
	stranger := r.token("t2", "stream.manage:stream:t2/*", "cache.manage:cache:t2/*", "tenant.manage:tenant:t2", "node.view:cluster:*")
	for _, route := range []struct{ method, path string }{
		{"GET", "/v1/status"}, {"GET", "/v1/config"},
		{"GET", "/debug/pprof/"}, {"GET", "/debug/pprof/cmdline"}, {"GET", "/debug/pprof/profile"}, {"GET", "/debug/pprof/heap"},
		{"PUT", s}, {"GET", s}, {"DELETE", s}, {"PUT", c}, {"GET", c}, {"DELETE", c},
		{"PUT", "/v1/tenants/t1/keys"}, {"GET", "/v1/tenants/t1/keys"}, {"POST", "/v1/tenants/t1/revocations"},
	} {
		t.Run(route.method+" "+route.path, func(t *testing.T) {
			r := &rig{Server: r.Server, t: t, base: r.base, key: r.key, broker: r.broker, client: r.client}
			for _, token := range []string{"", "nonsense", "a.b.c", nothing + "x", strings.Repeat("x", tokenMax+1)} {
				if len(token) > 1<<14 { // the header limit may answer first
					if a := r.do(route.method, route.path, token, ""); a.status != 401 && a.status != 431 {
						t.Fatalf("giant token: %d", a.status)
					}
					continue
				}
				a := r.do(route.method, route.path, token, "{}")
				r.want(a, http.StatusUnauthorized, "unauthenticated")
				if a.header.Get("WWW-Authenticate") == "" {
					t.Error("no WWW-Authenticate")
				}
			}
			r.want(r.do(route.method, route.path, nothing, "{}"), http.StatusForbidden, "forbidden")
			if strings.Contains(route.path, "/t1/") { // OPS-3
				r.want(r.do(route.method, route.path, stranger, "{}"), http.StatusUnauthorized, "unauthenticated")
			}
		})
	}
	r.want(r.do("GET", "/v1/streams", "", ""), http.StatusUnauthorized, "unauthenticated")
}

func TestUnknownPathsAndMethodsAreJSON(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	r.want(r.do("GET", "/v2/anything", r.all(), ""), http.StatusNotFound, "not_found")
	r.want(r.do("GET", "/v1/tenants/t1/namespaces/n/streams/s/groups", r.all(), ""), http.StatusNotFound, "not_found")
	a := r.do("POST", "/v1/status", r.all(), "")
	r.want(a, http.StatusMethodNotAllowed, "invalid_request")
	if !strings.Contains(a.header.Get("Allow"), "GET") {
		t.Errorf("Allow: %q", a.header.Get("Allow"))
	}
}

// The port takes a bounded number of requests; probes are answered all the same.
func TestBusyPortRefusesAndStaysAlive(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	for range requestsMax {
		r.slots <- struct{}{}
	}
	r.want(r.do("GET", "/v1/status", r.all(), ""), http.StatusServiceUnavailable, "overloaded")
	r.want(r.do("GET", "/healthz", "", ""), http.StatusOK, "")
	r.want(r.do("GET", "/readyz", "", ""), http.StatusOK, "")
	for range requestsMax {
		<-r.slots
	}
	r.want(r.do("GET", "/v1/status", r.all(), ""), http.StatusOK, "")
}

func TestStatusNamesEngineStreamsAndPromises(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable"}).attach()
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/a", r.all(), `{}`), http.StatusCreated, "")
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/b", r.all(), `{"fsync":"none"}`), http.StatusCreated, "")
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/c", r.all(), `{"durable":false}`), http.StatusCreated, "")
	a := r.do("GET", "/v1/status", r.all(), "")
	r.want(a, http.StatusOK, "")
	if a.json["engine"] != "portable" || a.json["state"] != "ready" || a.json["version"] != "test" {
		t.Errorf("status %v", a.json)
	}
	for _, want := range []string{`"fsync": "on_commit"`, `"fsync": "none"`, "a power cut loses nothing acknowledged", "a power cut may lose anything", "in memory", "a note"} {
		if !strings.Contains(a.text, want) {
			t.Errorf("status lacks %q:\n%s", want, a.text)
		}
	}
	if a := r.do("GET", "/v1/config", r.all(), ""); a.json["quic_bind"] != "x" {
		t.Errorf("config %v", a.json)
	}
	if a := r.do("GET", "/debug/pprof/heap?debug=1", r.all(), ""); a.status != 200 || !strings.Contains(a.text, "heap profile") {
		t.Errorf("heap profile: %d", a.status)
	}
}

// HZ-1: a weaker promise that the operator chose is named wherever a stream is shown.
func TestAckOnQueueIsNamedWithEveryStream(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable"}).attach()
	r.o.AckOnQueue = true
	const path = "/v1/tenants/t1/namespaces/n/streams/a"
	r.want(r.do("PUT", path, r.all(), `{}`), http.StatusCreated, "")
	for _, p := range []string{path, "/v1/streams", "/v1/status", "/"} {
		if a := r.do("GET", p, r.all(), ""); a.status != http.StatusOK || !strings.Contains(a.text, "when queued") {
			t.Errorf("%s: %d\n%s", p, a.status, a.text)
		}
	}
}

// The page asks a browser without a token for one, and shows nothing until it has it; what it then
// shows is escaped.
func TestPageShowsNothingWithoutTokenAndEscapes(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/%3Cb%3Ebold", r.all(), `{"durable":false}`), http.StatusCreated, "")
	a := r.do("GET", "/", "", "")
	r.want(a, http.StatusUnauthorized, "")
	if !strings.Contains(a.text, "<form") || strings.Contains(a.text, "bold") || a.header.Get("Content-Security-Policy") == "" {
		t.Errorf("sign-in page:\n%s", a.text)
	}
	r.want(r.do("GET", "/", "wrong", ""), http.StatusUnauthorized, "unauthenticated")
	r.want(r.do("GET", "/", r.token("t1"), ""), http.StatusForbidden, "forbidden")
	for _, path := range []string{"/", "/?content"} {
		a = r.do("GET", path, r.all(), "")
		r.want(a, http.StatusOK, "")
		if !strings.Contains(a.text, "t1/n/&lt;b&gt;bold") || strings.Contains(a.text, "<b>bold") || !strings.Contains(a.text, "published/s") {
			t.Errorf("%s:\n%s", path, a.text)
		}
	}
}
