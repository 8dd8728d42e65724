package auth

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var ctx = context.Background()

// Each rule of a key set (wire.md 3.2): one bad key spoils it.
func TestKeySetWithABadKeyIsUnusable(t *testing.T) {
	x := b64.EncodeToString(make([]byte, 32))
	const ok = `{"kty":"OKP","kid":"a","alg":"EdDSA","use":"sig","crv":"Ed25519","x":"$X"}`
	change := func(from, to string) string { return strings.Replace(ok, from, to, 1) }
	for _, c := range []struct {
		name, key string
		keys      int // -1 = refused
	}{
		{"good", ok, 1},
		{"no crv", change(`"crv":"Ed25519",`, ``), 1},
		{"more members", change(`"use"`, `"x5t":"y","use"`), 1},
		{"for encryption", change(`"sig"`, `"enc"`), 0},
		{"no kty", change(`"kty":"OKP",`, ``), -1},
		{"no kid", change(`"kid":"a",`, ``), -1},
		{"no alg", change(`"alg":"EdDSA",`, ``), -1},
		{"no use", change(`"use":"sig",`, ``), -1},
		{"no x", change(`,"x":"$X"`, ``), -1},
		{"short x", change(`$X`, x[:42]), -1},
		{"long x", change(`$X`, x+"A"), -1},
		{"padded x", change(`$X`, x+"="), -1},
		{"x with a line break", change(`$X`, x[:42]+`\n`), -1},
		{"x with loose bits", change(`$X`, x[:42]+"B"), -1},
		{"RSA", change(`OKP`, `RSA`), -1},
		{"other curve", change(`Ed25519`, `X25519`), -1},
		{"other alg", change(`EdDSA`, `ES256`), -1},
		{"kid of another type", change(`"a"`, `1`), -1},
	} {
		good := strings.ReplaceAll(ok, "$X", x)
		set, err := ParseKeySet([]byte(`{"keys":[` + strings.ReplaceAll(c.key, "$X", x) + `]}`))
		if c.keys < 0 != (err != nil) || err == nil && len(set.Keys()) != c.keys {
			t.Errorf("%s: %v, %v", c.name, set, err)
		}
		if both, err := ParseKeySet([]byte(`{"keys":[` + good + `,` + strings.ReplaceAll(c.key, "$X", x) + `]}`)); c.keys < 0 && err == nil {
			t.Errorf("%s: usable beside a good key: %v", c.name, both)
		}
	}
	for _, text := range []string{``, `[]`, `{}`, `{"keys":null}`, `{"keys":{}}`, `{"keys":[null]}`, `{"keys":[]} x`} {
		if _, err := ParseKeySet([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// write replaces a file and makes sure that its time differs.
func write(t *testing.T, name string, data []byte, mod time.Time) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, mod, mod); err != nil {
		t.Fatal(err)
	}
}

func idsOf(t *testing.T, s KeySource, tenant string) string {
	t.Helper()
	set, err := s.Keys(ctx, tenant)
	if err != nil {
		return "error"
	}
	var ids []string
	for _, k := range set.Keys() {
		ids = append(ids, k.ID)
	}
	return strings.Join(ids, " ")
}

// named is a fresh key under a short id.
func named(t *testing.T, id string) *SigningKey {
	k := newKey(t)
	k.ID = id
	return k
}

// A key file is read again when it changes, keeps its last good keys while it is broken, and holds none when
// it is gone. Looking costs at most one stat per second.
func TestChangedKeyFileIsReadAgain(t *testing.T) {
	clk := newClock()
	a, b := named(t, "a"), named(t, "b")
	file := filepath.Join(t.TempDir(), "jwks.json")
	var log bytes.Buffer
	lg := slog.New(slog.NewTextHandler(&log, nil))

	if _, err := NewFileSource(file, lg); err == nil {
		t.Fatal("a missing file was opened")
	}
	write(t, file, []byte(`{"keys":[]}`), clk.t)
	if _, err := NewFileSource(file, lg); err == nil {
		t.Fatal("a file without keys was opened")
	}
	write(t, file, []byte(`{"keys":`), clk.t)
	if _, err := NewFileSource(file, lg); err == nil {
		t.Fatal("a broken file was opened")
	}
	write(t, file, a.PublicJWKS(), clk.t)
	s, err := NewFileSource(file, lg)
	if err != nil {
		t.Fatal(err)
	}
	s.f.now = clk.now
	s.f.looked = clk.t
	step := func(want string) {
		t.Helper()
		clk.advance(fileLookEvery)
		for _, tenant := range []string{"t1", "t2"} {
			if got := idsOf(t, s, tenant); got != want {
				t.Fatalf("keys of %s: %q, want %q", tenant, got, want)
			}
		}
	}
	step("a")
	write(t, file, MarshalKeySet(a.Public(), b.Public()), clk.t)
	if got := idsOf(t, s, "t1"); got != "a" {
		t.Fatalf("looked at once: %q", got)
	}
	step("a b")
	set1, _ := s.Keys(ctx, "t1")
	clk.advance(time.Minute)
	if set2, _ := s.Keys(ctx, "t1"); set1 != set2 {
		t.Fatal("an unchanged file gave another set")
	}
	write(t, file, []byte(`{"keys":`), clk.t)
	step("a b")
	step("a b")
	if n := strings.Count(log.String(), "not reloaded"); n != 1 {
		t.Fatalf("reported %d times:\n%s", n, log.String())
	}
	write(t, file, b.PublicJWKS(), clk.t)
	step("b")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	step("")
	write(t, file, a.PublicJWKS(), clk.t)
	step("a")
}

// A directory serves each tenant its own file, and no id reaches out of it.
func TestDirectoryServesEachTenantItsOwnKeys(t *testing.T) {
	clk := newClock()
	dir := filepath.Join(t.TempDir(), "keys")
	if _, err := NewDirSource(dir, nil); err == nil {
		t.Fatal("a missing directory was opened")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := NewDirSource(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.now = clk.now
	write(t, filepath.Join(dir, "t1.json"), named(t, "one").PublicJWKS(), clk.t)
	write(t, filepath.Join(dir, "t2.json"), named(t, "two").PublicJWKS(), clk.t)
	write(t, filepath.Join(dir, "bad.json"), []byte("{"), clk.t)
	write(t, filepath.Join(dir, "..", "up.json"), named(t, "up").PublicJWKS(), clk.t)
	for tenant, want := range map[string]string{
		"t1": "one", "t2": "two", "t3": "", "bad": "error", "../up": "", "..": "", ".": "", "": "", "a/b": "", `a\b`: "", "t1\x00": "",
		strings.Repeat("x", 256): "error", // too long for a file system
	} {
		if got := idsOf(t, s, tenant); got != want {
			t.Errorf("%q: %q, want %q", tenant, got, want)
		}
	}
	if n := len(s.files); n != 3 {
		t.Errorf("%d files remembered, of 3 that exist", n)
	}
	write(t, filepath.Join(dir, "t3.json"), named(t, "three").PublicJWKS(), clk.t)
	if got := idsOf(t, s, "t3"); got != "three" {
		t.Errorf("a tenant that came later: %q", got)
	}
	os.Remove(filepath.Join(dir, "t3.json"))
	clk.advance(fileLookEvery)
	if got := idsOf(t, s, "t3"); got != "" {
		t.Errorf("a tenant that went: %q", got)
	}
}

// Merged sources: everybody's keys; a source that fails hides no other.
func TestMergedSourcesServeAllKeys(t *testing.T) {
	one, two := &StaticSource{}, &StaticSource{}
	failing := sourceFunc(func(string) (*KeySet, error) { return nil, errors.New("down") })
	all := Merge(one, failing, two)
	if got := idsOf(t, all, "t1"); got != "error" {
		t.Fatalf("no keys and a failure: %q", got)
	}
	if got := idsOf(t, Merge(one, two), "t1"); got != "" {
		t.Fatalf("no keys: %q", got)
	}
	one.Set("t1", []Key{named(t, "a").Public()})
	if got := idsOf(t, all, "t1"); got != "a" {
		t.Fatal(got)
	}
	two.Set("t1", []Key{named(t, "b").Public()})
	if got := idsOf(t, all, "t1"); got != "a b" {
		t.Fatal(got)
	}
	if got := idsOf(t, one, "t1"); got != "a" {
		t.Fatalf("merging changed a source: %q", got)
	}
}

// keyServer is a control plane that a test steers.
type keyServer struct {
	*httptest.Server
	requests atomic.Int64
	running  atomic.Int64
	most     atomic.Int64
	// entered gets the tenant of each request; hold, when set, keeps it until closed.
	entered chan string
	mu      sync.Mutex
	hold    chan struct{}
	status  int
	body    []byte
}

func newKeyServer(t *testing.T, body []byte) *keyServer {
	k := &keyServer{entered: make(chan string, 1000), status: 200, body: body}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.requests.Add(1)
		n := k.running.Add(1)
		for m := k.most.Load(); n > m && !k.most.CompareAndSwap(m, n); m = k.most.Load() {
		}
		defer k.running.Add(-1)
		k.mu.Lock()
		hold, status, body := k.hold, k.status, k.body
		k.mu.Unlock()
		k.entered <- r.URL.EscapedPath()
		if hold != nil {
			<-hold
		}
		w.WriteHeader(status)
		w.Write(body)
	}))
	t.Cleanup(k.Close)
	return k
}

func (k *keyServer) answer(status int, body []byte, hold chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status, k.body, k.hold = status, body, hold
}

func (k *keyServer) source(t *testing.T, now func() time.Time) *URLSource {
	s, err := NewURLSource(URLOptions{URL: k.URL + "/v1/tenants/{tenant}/.well-known/jwks.json", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Fetched keys are kept for an hour, and outlive failures until then; a failure is remembered for 5 s.
func TestFetchedKeysAreKeptAndFailuresRemembered(t *testing.T) {
	clk := newClock()
	a, b := named(t, "a"), named(t, "b")
	k := newKeyServer(t, a.PublicJWKS())
	s := k.source(t, clk.now)
	expect := func(want string, requests int64) {
		t.Helper()
		if got := idsOf(t, s, "t1"); got != want {
			t.Fatalf("keys %q, want %q", got, want)
		}
		if got := k.requests.Load(); got != requests {
			t.Fatalf("%d requests, want %d", got, requests)
		}
	}
	expect("a", 1)
	clk.advance(54 * time.Minute)
	expect("a", 1)
	k.answer(500, nil, nil)
	clk.advance(time.Minute)
	expect("a", 2) // due for renewal, which fails: the old keys serve on
	expect("a", 2)
	clk.advance(5 * time.Minute)
	expect("error", 3) // an hour old
	clk.advance(4 * time.Second)
	expect("error", 3)
	clk.advance(time.Second)
	expect("error", 4)
	k.answer(200, b.PublicJWKS(), nil)
	clk.advance(4 * time.Second)
	expect("error", 4)
	clk.advance(time.Second)
	expect("b", 5)
	if _, err := s.Refresh(ctx, "t1"); err != nil || k.requests.Load() != 5 {
		t.Fatalf("a copy that is seconds old was refreshed: %v", err)
	}
	clk.advance(30 * time.Second)
	k.answer(200, a.PublicJWKS(), nil)
	if set, err := s.Refresh(ctx, "t1"); err != nil || set.Keys()[0].ID != "a" || k.requests.Load() != 6 {
		t.Fatalf("%v", err)
	}
}

// What a server may answer, and what of it is keys.
func TestStrangeAnswersAreNoKeys(t *testing.T) {
	clk := newClock()
	good := named(t, "a").PublicJWKS()
	for _, c := range []struct {
		status int
		body   []byte
	}{
		{404, good}, {500, good}, {204, nil}, {302, good}, {200, nil}, {200, []byte("<html>")}, {200, []byte(`{"keys":[{"kty":"RSA"}]}`)},
		{200, append(bytes.Repeat([]byte(" "), keySetBytesMax), good...)},
	} {
		k := newKeyServer(t, c.body)
		k.answer(c.status, c.body, nil)
		if got := idsOf(t, k.source(t, clk.now), "t1"); got != "error" {
			t.Errorf("status %d, %.20q: keys %q", c.status, c.body, got)
		}
	}
	gone := newKeyServer(t, good)
	s := gone.source(t, clk.now)
	gone.Close()
	if got := idsOf(t, s, "t1"); got != "error" {
		t.Errorf("no server: %q", got)
	}
}

// A tenant id becomes one path segment, whatever is in it; implausible ones ask nobody.
func TestTenantBecomesOnePathSegment(t *testing.T) {
	k := newKeyServer(t, named(t, "a").PublicJWKS())
	s := k.source(t, nil)
	for tenant, segment := range map[string]string{"t1": "t1", "a b": "a%20b", "a/b": "a%2Fb", "é": "%C3%A9", "a%2Fb": "a%252Fb", "x?y#z": "x%3Fy%23z"} {
		if got := idsOf(t, s, tenant); got != "a" {
			t.Fatalf("%q: %q", tenant, got)
		}
		if path := <-k.entered; path != "/v1/tenants/"+segment+"/.well-known/jwks.json" {
			t.Fatalf("%q: path %s", tenant, path)
		}
	}
	before := k.requests.Load()
	for _, tenant := range []string{"", ".", "..", "a\n", strings.Repeat("x", 257)} {
		if got := idsOf(t, s, tenant); got != "error" {
			t.Fatalf("%q: %q", tenant, got)
		}
	}
	if k.requests.Load() != before {
		t.Fatal("an implausible tenant was asked for")
	}
	for _, bad := range []string{"", "http://x/", "ftp://x/{tenant}", "http:///{tenant}", "http://x/{tenant}/{tenant}", "::{tenant}"} {
		if _, err := NewURLSource(URLOptions{URL: bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// Concurrent misses for one tenant are one request; a caller that gives up does not stop it for the others.
func TestConcurrentMissesShareOneFetch(t *testing.T) {
	k := newKeyServer(t, named(t, "a").PublicJWKS())
	hold := make(chan struct{})
	k.answer(200, k.body, hold)
	s := k.source(t, nil)
	var wg sync.WaitGroup
	var good atomic.Int64
	for range 50 {
		wg.Go(func() {
			if set, err := s.Keys(ctx, "t1"); err == nil && len(set.Keys()) == 1 {
				good.Add(1)
			}
		})
	}
	<-k.entered
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Keys(impatient, "t1"); !errors.Is(err, context.Canceled) {
		t.Fatalf("a waiter whose context ended: %v", err)
	}
	close(hold)
	wg.Wait()
	if good.Load() != 50 || k.requests.Load() != 1 {
		t.Fatalf("%d served by %d requests", good.Load(), k.requests.Load())
	}
}

// Many unknown tenants at once: never more than 8 requests.
func TestFetchesAtOnceAreBounded(t *testing.T) {
	k := newKeyServer(t, named(t, "a").PublicJWKS())
	hold := make(chan struct{})
	k.answer(200, k.body, hold)
	s := k.source(t, nil)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { s.Keys(ctx, "t"+strings.Repeat("x", i)) })
	}
	for range urlFetchesMax {
		<-k.entered
	}
	close(hold)
	wg.Wait()
	if k.most.Load() != 8 || k.requests.Load() != 40 {
		t.Fatalf("at most %d at once, %d in all", k.most.Load(), k.requests.Load())
	}
}

// What is remembered of made-up tenants is bounded, and does not push out the keys in use.
func TestMadeUpTenantsDoNotFillMemory(t *testing.T) {
	clk := newClock()
	s, err := NewURLSource(URLOptions{URL: "http://x/{tenant}", Now: clk.now, Client: &http.Client{Transport: notFound{}}})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	*s.entry("real") = fetched{set: NewKeySet(named(t, "a").Public()), at: clk.t, used: clk.t}
	s.mu.Unlock()
	for i := range urlTenantsMax + 500 {
		s.Keys(ctx, "fake"+time.Duration(i).String())
		if i%1000 == 0 {
			s.Keys(ctx, "real")
			clk.advance(time.Second)
		}
	}
	if n := len(s.tenants); n > urlTenantsMax {
		t.Fatalf("%d entries", n)
	}
	if got := idsOf(t, s, "real"); got != "a" {
		t.Fatalf("the real tenant's keys: %q", got)
	}
}

type notFound struct{}

func (notFound) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("not found") }

// A token of a key that is not in the fetched copy makes the copy be renewed, at most every 30 s, so that a
// rotated key works without waiting an hour.
func TestUnknownKeyIDRenewsTheKeys(t *testing.T) {
	clk := newClock()
	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	k := newKeyServer(t, a.PublicJWKS())
	v := NewVerifier(Merge(&StaticSource{}, k.source(t, clk.now)), Options{Now: clk.now})
	try := func(key *SigningKey, want Reason, requests int64) {
		t.Helper()
		if _, err := verify(v, sign(t, key, nil, body(clk.t))); ReasonOf(err) != want {
			t.Fatalf("%v, want %v", err, want)
		}
		if got := k.requests.Load(); got != requests {
			t.Fatalf("%d requests, want %d", got, requests)
		}
	}
	try(a, ReasonNone, 1)
	k.answer(200, MarshalKeySet(a.Public(), b.Public()), nil)
	try(b, ReasonSignature, 1) // the copy is too young
	clk.advance(30 * time.Second)
	try(b, ReasonNone, 2)
	try(c, ReasonSignature, 2)
	clk.advance(30 * time.Second)
	try(c, ReasonSignature, 3)
	try(&SigningKey{ID: "a", private: c.private}, ReasonSignature, 3) // a known id renews nothing
}

func TestKeySourceIsOpenedByWhatItNames(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f.json")
	write(t, file, named(t, "a").PublicJWKS(), time.Now())
	for _, where := range []string{file, dir, "http://127.0.0.1:1/{tenant}", "https://x/{tenant}"} {
		s, err := OpenKeySource(where, nil)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		switch s.(type) {
		case *FileSource:
			if where != file {
				t.Fatal(where)
			}
		case *DirSource:
			if where != dir {
				t.Fatal(where)
			}
		case *URLSource:
			if !strings.HasPrefix(where, "http") {
				t.Fatal(where)
			}
		}
	}
	for _, where := range []string{filepath.Join(dir, "none"), "http://x/", ""} {
		if _, err := OpenKeySource(where, nil); err == nil {
			t.Fatalf("%q was opened", where)
		}
	}
}
