package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
)

// PUT is idempotent: the same definition is 200, a new one 201, another shape 409 (design.md 11).
func TestPutStreamIsIdempotent(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable"}).attach()
	const path = "/v1/tenants/t1/namespaces/n/streams/s"
	a := r.do("PUT", path, r.all(), `{"shards":2,"durable":true,"fsync":"on_commit","routing":"modulo"}`)
	r.want(a, http.StatusCreated, "")
	if a.json["shards"] != 2.0 || a.json["durable"] != true || a.json["fsync"] != "on_commit" || a.json["routing"] != "modulo" || a.json["tenant"] != "t1" {
		t.Errorf("made %v", a.json)
	}
	id := a.json["id"]
	a = r.do("PUT", path, r.all(), `{"shards":2}`)
	r.want(a, http.StatusOK, "")
	if a.json["id"] != id {
		t.Errorf("the same definition made another stream: %v, was %v", a.json["id"], id)
	}
	for _, body := range []string{`{"shards":3}`, `{"shards":2,"durable":false}`, `{"shards":2,"routing":"jump_hash"}`} {
		a := r.do("PUT", path, r.all(), body)
		r.want(a, http.StatusConflict, "invalid_request")
	}
	r.want(r.do("GET", path, r.all(), ""), http.StatusOK, "")
	r.want(r.do("DELETE", path, r.all(), ""), http.StatusNoContent, "")
	r.want(r.do("GET", path, r.all(), ""), http.StatusNotFound, "not_found")
	r.want(r.do("DELETE", path, r.all(), ""), http.StatusNotFound, "not_found")
	a = r.do("PUT", path, r.all(), `{"shards":3}`)
	r.want(a, http.StatusCreated, "")
	if a.json["id"] == id {
		t.Error("a stream made anew has its old id")
	}
}

// Retention may change, and what is shown is what is in force: the stream's bounds, the broker's where
// it has none.
func TestRetentionChangesAndIsShown(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable", RetentionAge: time.Hour}).attach()
	const path = "/v1/tenants/t1/namespaces/n/streams/s"
	for i, row := range []struct{ body, want string }{
		{`{}`, `map[seconds:3600]`},
		{`{"retention_bytes":1000}`, `map[bytes:1000 seconds:3600]`},
		{`{"retention_bytes":2000,"retention_seconds":60}`, `map[bytes:2000 seconds:60]`},
		{`{"retention_seconds":60}`, `map[seconds:60]`},
		{`{}`, `map[seconds:3600]`},
	} {
		a := r.do("PUT", path, r.all(), row.body)
		r.want(a, map[bool]int{true: http.StatusCreated, false: http.StatusOK}[i == 0], "")
		if got := fmt.Sprint(a.json["retention"]); got != row.want {
			t.Errorf("%s: %s, want %s", row.body, got, row.want)
		}
		if a = r.do("GET", path, r.all(), ""); fmt.Sprint(a.json["retention"]) != row.want {
			t.Errorf("%s: shown as %v", row.body, a.json)
		}
	}
}

func TestBadDefinitionsAreRefused(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable"}).attach()
	const path = "/v1/tenants/t1/namespaces/n/streams/s"
	for _, body := range []string{
		`{"shards":0}`, `{"shards":-1}`, `{"shards":100000}`, `{"fsync":"sometimes"}`, `{"routing":"random"}`,
		`{"retention_bytes":0}`, `{"retention_seconds":0}`, `{"retention_byte":5}`, `{"durable":"yes"}`,
		`{"durable":false,"fsync":"none"}`, `[]`, `{`, `{} {}`,
	} {
		r.want(r.do("PUT", path, r.all(), body), http.StatusBadRequest, "invalid_request")
	}
	r.want(r.do("PUT", path, r.all(), `{"routing":"`+strings.Repeat("x", bodyMax)+`"}`), http.StatusRequestEntityTooLarge, "limit_exceeded")
	for _, name := range []string{"a%2Fb", "a*b", "a:b", "a%00b", strings.Repeat("x", 256)} {
		a := r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/"+name, r.all(), `{}`)
		if a.status != http.StatusBadRequest && a.status != http.StatusForbidden {
			t.Errorf("stream named %q: %d %v", name, a.status, a.json)
		}
	}
	if infos := r.broker.ListStreams("", ""); len(infos) != 0 {
		t.Errorf("refused definitions made %v", infos)
	}
}

// LOG-1: a durable stream is refused without storage, never downgraded; nor is a durable cache, which
// this version does not have.
func TestDurableIsRefusedNotDowngraded(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/s", r.all(), `{}`), http.StatusBadRequest, "invalid_request")
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/caches/c", r.all(), `{"durable":true}`), http.StatusBadRequest, "invalid_request")
	r.want(r.do("PUT", "/v1/tenants/t1/namespaces/n/streams/s", r.all(), `{"durable":false}`), http.StatusCreated, "")
}

func TestListShowsWhatTheTokenMayManage(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	two := r.token("t2", auth.EveryPermission("t2")...)
	for _, s := range []string{"n/streams/a", "n/streams/b", "m/streams/a"} {
		r.want(r.do("PUT", "/v1/tenants/t1/namespaces/"+s, r.all(), `{"durable":false}`), http.StatusCreated, "")
		r.want(r.do("PUT", "/v1/tenants/t2/namespaces/"+s, two, `{"durable":false}`), http.StatusCreated, "")
	}
	for _, tt := range []struct {
		token, query string
		want         int
	}{
		{r.all(), "", 6}, {r.all(), "?tenant=t2", 3}, {r.all(), "?tenant=t1&namespace=n", 2},
		{r.token("t1", "stream.manage:stream:t1/*"), "", 3},
		{r.token("t1", "stream.manage:stream:t1/n/a"), "", 1},
		{r.token("t1", "stream.publish:stream:t1/*"), "", 0},
	} {
		a := r.do("GET", "/v1/streams"+tt.query, tt.token, "")
		r.want(a, http.StatusOK, "")
		if got := len(a.json["streams"].([]any)); got != tt.want {
			t.Errorf("%q: %d streams, want %d\n%s", tt.query, got, tt.want, a.text)
		}
	}
	r.want(r.do("GET", "/v1/streams?tenant=t2", r.token("t1", "stream.manage:stream:t1/*"), ""), http.StatusForbidden, "forbidden")
}

func TestCachesAreDefined(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	const path = "/v1/tenants/t1/namespaces/n/caches/c"
	r.want(r.do("PUT", path, r.all(), ``), http.StatusCreated, "")
	r.want(r.do("PUT", path, r.all(), `{"shards":1,"durable":false}`), http.StatusOK, "")
	r.want(r.do("PUT", path, r.all(), `{"shards":2}`), http.StatusConflict, "invalid_request")
	r.want(r.do("GET", path, r.all(), ""), http.StatusOK, "")
	if a := r.do("GET", "/v1/caches", r.all(), ""); len(a.json["caches"].([]any)) != 1 {
		t.Errorf("list: %s", a.text)
	}
	// A grant of keys is no grant of the cache.
	r.want(r.do("DELETE", path, r.token("t1", "cache.write:cache:t1/n/c/k"), ""), http.StatusForbidden, "forbidden")
	r.want(r.do("DELETE", path, r.all(), ""), http.StatusNoContent, "")
	r.want(r.do("GET", path, r.all(), ""), http.StatusNotFound, "not_found")
}

// A stored key set counts at once, replaces the one before, and is never more than its public part.
func TestTenantKeysCountAtOnce(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable"}).attach()
	key, err := auth.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	const path, list = "/v1/tenants/t1/keys", "/v1/streams"
	token := mint(t, key, "t1", "stream.manage:stream:t1/*")
	r.want(r.do("GET", list, token, ""), http.StatusUnauthorized, "unauthenticated")
	r.want(r.do("PUT", path, r.all(), `{"keys":[{"kty":"RSA"}]}`), http.StatusBadRequest, "invalid_request")
	r.want(r.do("PUT", path, r.all(), strings.Repeat("x", keysMax+1)), http.StatusRequestEntityTooLarge, "limit_exceeded")

	withPrivate := strings.Replace(string(key.PublicJWKS()), `"kty"`, `"d":"c2VjcmV0","kty"`, 1)
	a := r.do("PUT", path, r.all(), withPrivate)
	r.want(a, http.StatusOK, "")
	if strings.Contains(a.text, "c2VjcmV0") {
		t.Errorf("a private part was kept: %s", a.text)
	}
	r.want(r.do("GET", list, token, ""), http.StatusOK, "")
	if a := r.do("GET", path, r.all(), ""); !strings.Contains(a.text, key.ID) || strings.Contains(a.text, "c2VjcmV0") {
		t.Errorf("keys: %s", a.text)
	}
	sets, err := r.broker.TenantKeys()
	if err != nil || !strings.Contains(string(sets["t1"]), key.ID) || strings.Contains(string(sets["t1"]), "c2VjcmV0") {
		t.Errorf("catalogue holds %q, %v", sets["t1"], err)
	}
	r.want(r.do("PUT", path, r.all(), `{"keys":[]}`), http.StatusOK, "")
	r.want(r.do("GET", list, token, ""), http.StatusUnauthorized, "unauthenticated")
}

func TestRevokedSubjectIsRefused(t *testing.T) {
	r := newRig(t, core.Options{}).attach()
	now := time.Now()
	victim, err := auth.Mint(r.key, auth.Claims{Tenant: "t1", Subject: "victim", Permissions: []string{"stream.manage:stream:t1/*"}, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	r.want(r.do("GET", "/v1/streams", victim, ""), http.StatusOK, "")
	r.want(r.do("POST", "/v1/tenants/t1/revocations", r.all(), `{}`), http.StatusBadRequest, "invalid_request")
	r.want(r.do("POST", "/v1/tenants/t1/revocations", r.all(), `{"sub":"victim"}`), http.StatusOK, "")
	r.want(r.do("GET", "/v1/streams", victim, ""), http.StatusUnauthorized, "unauthenticated")
	r.want(r.do("GET", "/v1/streams", r.all(), ""), http.StatusOK, "")
}

// A stream that is being deleted is deleted whole, also when its caller hangs up.
func TestDeleteOutlivesItsCaller(t *testing.T) {
	r := newRig(t, core.Options{DataDir: t.TempDir(), Engine: "portable"}).attach()
	const path = "/v1/tenants/t1/namespaces/n/streams/s"
	r.want(r.do("PUT", path, r.all(), `{"shards":8}`), http.StatusCreated, "")
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "DELETE", r.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.all())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := r.client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	deadline := time.Now().Add(5 * time.Second)
	for {
		if _, ok := r.broker.GetStream("t1", "n", "s"); !ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the stream is still there")
		}
	}
	cancel()
	<-done
	r.want(r.do("PUT", path, r.all(), `{"shards":2}`), http.StatusCreated, "")
}
