package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// KeySource knows the keys of tenants. Safe for concurrent use. A set may be compared by its pointer: the
// same pointer, the same keys.
type KeySource interface {
	// Keys returns the tenant's keys; an empty set (also nil) if it has none here. It may wait.
	Keys(ctx context.Context, tenant string) (*KeySet, error)
}

// Refresher is a source that keeps copies of keys that live elsewhere.
type Refresher interface {
	// Refresh looks for newer keys than Keys last returned. A source bounds how often it really does.
	Refresh(ctx context.Context, tenant string) (*KeySet, error)
}

// OpenKeySource opens what the JWKS setting names: a URL with {tenant}, a directory with TENANT.json in
// it, or a file with one set for every tenant. lg may be nil.
func OpenKeySource(where string, lg *slog.Logger) (KeySource, error) {
	if strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://") {
		return NewURLSource(URLOptions{URL: where, Logger: lg})
	}
	info, err := os.Stat(where)
	if err != nil {
		return nil, fmt.Errorf("auth: keys: %w", err)
	}
	if info.IsDir() {
		return NewDirSource(where, lg)
	}
	return NewFileSource(where, lg)
}

// StaticSource holds keys that somebody sets. The zero value is empty and ready.
type StaticSource struct {
	mu   sync.RWMutex
	sets map[string]*KeySet // guarded by mu
}

// Set replaces a tenant's keys. No keys remove the tenant.
func (s *StaticSource) Set(tenant string, keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(keys) == 0 {
		delete(s.sets, tenant)
		return
	}
	if s.sets == nil {
		s.sets = make(map[string]*KeySet)
	}
	s.sets[tenant] = NewKeySet(keys...)
}

// Keys implements KeySource.
func (s *StaticSource) Keys(_ context.Context, tenant string) (*KeySet, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sets[tenant], nil
}

// Merge returns a source with the keys of all sources. One that fails is passed over as long as another
// has keys.
func Merge(sources ...KeySource) KeySource {
	if len(sources) == 1 {
		return sources[0]
	}
	return merged(sources)
}

type merged []KeySource

func (m merged) Keys(ctx context.Context, tenant string) (*KeySet, error) {
	return m.join(func(s KeySource) (*KeySet, error) { return s.Keys(ctx, tenant) })
}

// Refresh implements Refresher: those that can refresh do, the others are read.
func (m merged) Refresh(ctx context.Context, tenant string) (*KeySet, error) {
	return m.join(func(s KeySource) (*KeySet, error) {
		if r, ok := s.(Refresher); ok {
			return r.Refresh(ctx, tenant)
		}
		return s.Keys(ctx, tenant)
	})
}

func (m merged) join(read func(KeySource) (*KeySet, error)) (*KeySet, error) {
	var all *KeySet
	var errs []error
	for _, s := range m {
		set, err := read(s)
		switch {
		case err != nil:
			errs = append(errs, err)
		case len(set.Keys()) == 0:
		case all == nil:
			all = set
		default:
			all = NewKeySet(append(all.Keys()[:len(all.Keys()):len(all.Keys())], set.Keys()...)...)
		}
	}
	if all == nil {
		return nil, errors.Join(errs...)
	}
	return all, nil
}
