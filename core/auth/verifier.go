package auth

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a Verifier. The zero value of a field is its default.
type Options struct {
	// CacheBytes bounds the texts of the verified tokens that are remembered. 16 MiB; negative: none.
	// A client sends the same token on each of its streams, and a hit costs a hash.
	CacheBytes int
	// Logger gets key sources that fail. Default: none.
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// cacheBytesDefault holds tens of thousands of ordinary tokens.
const cacheBytesDefault = 16 << 20

// Verifier turns tokens into identities. Safe for concurrent use.
type Verifier struct {
	source KeySource
	lg     *slog.Logger
	now    func() time.Time
	cache  *tokenCache

	mu      sync.RWMutex
	revoked map[principal]int64 // tokens issued up to this second are refused; guarded by mu

	verified  atomic.Uint64
	cacheHits atomic.Uint64
	refused   [reasonCount]atomic.Uint64
}

type principal struct{ tenant, subject string }

// NewVerifier returns a verifier that asks src for keys.
func NewVerifier(src KeySource, o Options) *Verifier {
	v := &Verifier{source: src, lg: o.Logger, now: o.Now, revoked: make(map[principal]int64)}
	if v.lg == nil {
		v.lg = slog.New(slog.DiscardHandler)
	}
	if v.now == nil {
		v.now = time.Now
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = cacheBytesDefault
	}
	v.cache = newTokenCache(o.CacheBytes)
	return v
}

// Verify checks a token that a client presents for a tenant. It may wait for a fetch of the tenant's keys.
// The error is a *wire.Error "unauthenticated: auth failed"; ReasonOf and Unwrap tell why.
func (v *Verifier) Verify(ctx context.Context, tenant, token string) (*Identity, error) {
	id, err := v.verify(ctx, tenant, token)
	if err != nil {
		v.refused[err.reason].Add(1)
		return nil, errAuthFailed.WithCause(err)
	}
	v.verified.Add(1)
	return id, nil
}

func (v *Verifier) verify(ctx context.Context, tenant, token string) (*Identity, *cause) {
	if err := checkTenant(tenant); err != nil {
		return nil, &cause{ReasonTenant, err}
	}
	set, err := v.keys(ctx, tenant)
	if err != nil {
		return nil, err
	}
	now := v.now()
	name := cacheName(tenant, token)
	// A remembered token is judged anew in all that can change: its key, its end, its revocation.
	if id := v.cache.get(name); id != nil && set.holds(&id.key) {
		v.cacheHits.Add(1)
		switch {
		case expired(id.Expires, now):
			return nil, refuse(ReasonExpired, "expired at %d", id.Expires)
		case v.Revoked(id):
			return nil, refuse(ReasonRevoked, "revoked")
		}
		return id, nil
	}
	id, kid, err := verifyToken(tenant, token, set, now)
	if err != nil && err.reason == ReasonSignature && !set.hasID(kid) {
		// Perhaps its key was made after the set was fetched.
		if fresh := v.refresh(ctx, tenant, set); fresh != nil {
			id, _, err = verifyToken(tenant, token, fresh, now)
		}
	}
	if err != nil {
		return nil, err
	}
	if v.Revoked(id) {
		return nil, refuse(ReasonRevoked, "revoked")
	}
	v.cache.put(name, id, len(token))
	return id, nil
}

func (v *Verifier) keys(ctx context.Context, tenant string) (*KeySet, *cause) {
	set, err := v.source.Keys(ctx, tenant)
	if err != nil {
		v.lg.LogAttrs(ctx, slog.LevelWarn, "keys of tenant not available", slog.String("tenant", tenant), slog.Any("err", err))
		return nil, &cause{ReasonKeySource, err}
	}
	if len(set.Keys()) == 0 {
		return nil, refuse(ReasonNoKeys, "tenant %q has no keys here", tenant)
	}
	return set, nil
}

// refresh returns a set that is newer than old, or nil.
func (v *Verifier) refresh(ctx context.Context, tenant string, old *KeySet) *KeySet {
	r, ok := v.source.(Refresher)
	if !ok {
		return nil
	}
	set, err := r.Refresh(ctx, tenant)
	if err != nil || set == old || len(set.Keys()) == 0 {
		return nil
	}
	return set
}

// Revoke refuses the tokens of a subject that were issued up to at. A later moment replaces an earlier
// one. What such tokens have opened is for the caller to end: see Revoked.
func (v *Verifier) Revoke(tenant, subject string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := principal{tenant, subject}
	if old, ok := v.revoked[p]; !ok || at.Unix() > old {
		v.revoked[p] = at.Unix()
	}
}

// Revoked reports whether id's token would be refused now because of Revoke.
func (v *Verifier) Revoked(id *Identity) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if len(v.revoked) == 0 {
		return false
	}
	at, ok := v.revoked[principal{id.Tenant, id.Subject}]
	return ok && id.IssuedAt <= at
}

// Current reports whether the key behind id is still one of its tenant's. It may wait for a fetch. When
// the keys cannot be had it is true: a source that is down ends nothing that is open.
func (v *Verifier) Current(ctx context.Context, id *Identity) bool {
	set, err := v.source.Keys(ctx, id.Tenant)
	return err != nil || set.holds(&id.key)
}

// Stats is a snapshot of a verifier's counters.
type Stats struct {
	Verified    uint64
	CacheHits   uint64 // of tokens that were seen before, accepted or not
	CachedBytes int
	Refused     map[Reason]uint64 // the reasons that occurred
}

// Stats may be called from any goroutine.
func (v *Verifier) Stats() Stats {
	s := Stats{
		Verified: v.verified.Load(), CacheHits: v.cacheHits.Load(), CachedBytes: v.cache.size(),
		Refused: make(map[Reason]uint64),
	}
	for r := range v.refused {
		if n := v.refused[r].Load(); n > 0 {
			s.Refused[Reason(r)] = n
		}
	}
	return s
}
