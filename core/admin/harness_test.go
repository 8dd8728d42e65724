package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/core/cache"
	"github.com/ringcast/ringcast/netio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a listening Server over a broker, with a key that every tenant's tokens are checked with.
type rig struct {
	*Server
	t      *testing.T
	base   string
	key    *auth.SigningKey
	broker *core.Broker
	client *http.Client
}

func newRig(t *testing.T, o core.Options) *rig {
	t.Helper()
	key, err := auth.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := core.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := New(Options{Addr: "127.0.0.1:0", Version: "test", Config: map[string]any{"quic_bind": "x"}, Notes: []string{"a note"}})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: s, t: t, base: "http://" + s.Addr().String(), key: key, broker: b,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// attach gives the server its broker and turns readiness on.
func (r *rig) attach() *rig {
	var fixed auth.StaticSource
	for _, tenant := range []string{"t1", "t2"} {
		fixed.Set(tenant, []auth.Key{r.key.Public()})
	}
	stored := &auth.StaticSource{}
	r.Attach(Services{
		Broker: r.broker, Verifier: auth.NewVerifier(auth.Merge(stored, &fixed), auth.Options{}), Keys: stored,
		Cache: cache.New(cache.Options{}),
		Sessions: func() Sessions {
			return Sessions{ConnsOpen: 3, BadInput: map[string]uint64{"magic": 7}, SubscriptionEnds: map[string]uint64{"reader": 1}}
		},
		Listeners: func() []netio.Stats { return []netio.Stats{{Accepted: 5, RefusedPerIP: 2}} },
	})
	r.Ready()
	return r
}

// token mints one for a tenant.
func (r *rig) token(tenant string, perms ...string) string {
	return mint(r.t, r.key, tenant, perms...)
}

func mint(t *testing.T, key *auth.SigningKey, tenant string, perms ...string) string {
	t.Helper()
	now := time.Now()
	token, err := auth.Mint(key, auth.Claims{Tenant: tenant, Subject: "s", Permissions: perms, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// all is a token that may do everything in t1 and see the whole broker.
func (r *rig) all() string { return r.token("t1", auth.EveryPermission("t1")...) }

type reply struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

func (r *rig) do(method, path, token, body string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := reply{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(text, &a.json); err != nil {
			r.t.Fatalf("%s %s: %v\n%s", method, path, err, text)
		}
	}
	return a
}

// want checks a status and, for a refusal, the code and that the other members are there.
func (r *rig) want(a reply, status int, code string) {
	r.t.Helper()
	if a.status != status {
		r.t.Fatalf("status %d, want %d\n%s", a.status, status, a.text)
	}
	if code == "" {
		return
	}
	if a.json["code"] != code || a.json["message"] == "" || a.json["retry"] == nil {
		r.t.Fatalf("answer %v, want code %s with a message and a retry class", a.json, code)
	}
}
