package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Times and bounds of wire.md 3.2.
const (
	urlKeepFor    = time.Hour
	urlFailureFor = 5 * time.Second
	urlTimeout    = 5 * time.Second
	urlFetchesMax = 8
	// urlRenewAfter: from this age on a copy is fetched anew, while a failure still leaves the old one
	// in use until urlKeepFor: a control plane that is down for a moment locks nobody out.
	urlRenewAfter = 55 * time.Minute
	// urlRefreshMin is how old a copy must be to be fetched anew because of an unknown key id.
	urlRefreshMin = 30 * time.Second
	// urlTenantsMax bounds the copies and failures remembered; the oldest go first.
	urlTenantsMax = 10_000
)

const tenantPlaceholder = "{tenant}"

// URLOptions configures a URLSource.
type URLOptions struct {
	// URL holds {tenant}, which becomes the tenant id, percent-encoded as one path segment. Required.
	URL string
	// Client does the fetches. Default: one that follows no redirect.
	Client *http.Client
	Logger *slog.Logger
	Now    func() time.Time
}

// URLSource fetches key sets over HTTP and keeps them for an hour. Concurrent misses for a tenant share one
// fetch, a failure is remembered for 5 s, and at most 8 fetches run at once, 5 s each: whoever sends made-up
// tenant ids costs little. It has no goroutine: the first caller that misses fetches, also for those who
// come meanwhile, and is not stopped by its own context so that they are not.
type URLSource struct {
	before, after string // of the placeholder
	client        *http.Client
	lg            *slog.Logger
	now           func() time.Time
	slots         chan struct{} // one per running fetch

	mu      sync.Mutex // guards tenants and their entries
	tenants map[string]*fetched
}

// fetched is what is known of one tenant. Guarded by URLSource.mu; the channel is closed without it.
type fetched struct {
	set      *KeySet
	at       time.Time // when set was fetched
	err      error     // of the last fetch, nil if it succeeded
	failedAt time.Time
	running  chan struct{} // closed when the fetch that runs has ended; nil: none runs
	used     time.Time
}

// NewURLSource checks the URL; nothing is fetched yet.
func NewURLSource(o URLOptions) (*URLSource, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %w", err)
	}
	before, after, ok := strings.Cut(o.URL, tenantPlaceholder)
	if !ok || strings.Contains(after, tenantPlaceholder) || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("auth: keys: %q is not an http(s) URL with one %s", o.URL, tenantPlaceholder)
	}
	s := &URLSource{
		before: before, after: after, client: o.Client, lg: orDiscard(o.Logger), now: o.Now,
		slots: make(chan struct{}, urlFetchesMax), tenants: make(map[string]*fetched),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.client == nil {
		s.client = &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				MaxIdleConnsPerHost: urlFetchesMax,
				IdleConnTimeout:     time.Minute,
			},
			// Keys come from where the operator said.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return s, nil
}

// Keys implements KeySource.
func (s *URLSource) Keys(ctx context.Context, tenant string) (*KeySet, error) {
	return s.get(ctx, tenant, urlRenewAfter)
}

// Refresh implements Refresher: a copy older than half a minute is fetched anew.
func (s *URLSource) Refresh(ctx context.Context, tenant string) (*KeySet, error) {
	return s.get(ctx, tenant, urlRefreshMin)
}

// Close drops idle connections.
func (s *URLSource) Close() { s.client.CloseIdleConnections() }

// get returns a copy not older than renewAfter if one can be had, else one not older than urlKeepFor.
func (s *URLSource) get(ctx context.Context, tenant string, renewAfter time.Duration) (*KeySet, error) {
	if err := checkTenant(tenant); err != nil {
		return nil, err
	}
	s.mu.Lock()
	f := s.entry(tenant)
	for {
		now := s.now()
		f.used = now
		if f.set != nil && now.Sub(f.at) < renewAfter {
			defer s.mu.Unlock()
			return f.set, nil
		}
		if f.err != nil && now.Sub(f.failedAt) < urlFailureFor {
			defer s.mu.Unlock()
			return f.usable(now)
		}
		if f.running == nil {
			break
		}
		running := f.running
		s.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		s.mu.Lock()
	}
	f.running = make(chan struct{})
	s.mu.Unlock()

	set, err := s.fetch(tenant)

	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if f.err = err; err != nil {
		f.failedAt = now
		if f.set != nil {
			s.lg.Warn("keys not renewed, the old ones stay in use", "tenant", tenant, "err", err)
		}
	} else {
		f.set, f.at = set, now
	}
	close(f.running)
	f.running = nil
	return f.usable(now)
}

// usable returns the copy while it is young enough, else why there is none.
func (f *fetched) usable(now time.Time) (*KeySet, error) {
	if f.set != nil && now.Sub(f.at) < urlKeepFor {
		return f.set, nil
	}
	return nil, f.err
}

// entry returns the tenant's entry and makes room for a new one. Called with mu held.
func (s *URLSource) entry(tenant string) *fetched {
	f := s.tenants[tenant]
	if f != nil {
		return f
	}
	if len(s.tenants) >= urlTenantsMax {
		s.evict()
	}
	f = &fetched{}
	s.tenants[tenant] = f
	return f
}

// evict forgets failures that no longer matter, and if that frees nothing, the entry used longest ago.
func (s *URLSource) evict() {
	now := s.now()
	var oldest string
	var oldestUsed time.Time
	found := false
	for tenant, f := range s.tenants {
		if f.running != nil {
			continue
		}
		if f.set == nil && now.Sub(f.failedAt) >= urlFailureFor {
			delete(s.tenants, tenant)
			continue
		}
		if !found || f.used.Before(oldestUsed) {
			oldest, oldestUsed, found = tenant, f.used, true
		}
	}
	if found && len(s.tenants) >= urlTenantsMax {
		delete(s.tenants, oldest)
	}
}

var errFetchesBusy = errors.New("auth: keys: too many fetches at once")

func (s *URLSource) fetch(tenant string) (*KeySet, error) {
	timer := time.NewTimer(urlTimeout)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-timer.C:
		return nil, errFetchesBusy
	}
	ctx, cancel := context.WithTimeout(context.Background(), urlTimeout)
	defer cancel()
	where := s.before + url.PathEscape(tenant) + s.after
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, keySetBytesMax+1))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("auth: keys: %s answered %s", where, resp.Status)
	case err != nil:
		return nil, fmt.Errorf("auth: keys: %s: %w", where, err)
	case len(text) > keySetBytesMax:
		return nil, fmt.Errorf("auth: keys: %s answered more than %d bytes", where, keySetBytesMax)
	}
	set, err := ParseKeySet(text)
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %s: %w", where, err)
	}
	return set, nil
}
