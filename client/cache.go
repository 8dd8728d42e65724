package client

import (
	"context"
	"fmt"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// Cache is a handle on one cache. All methods may be called from any goroutine.
type Cache struct {
	client    *Client
	namespace string
	name      string
}

// Cache returns a handle on a cache; nothing is sent.
func (c *Client) Cache(name string, opts ...CacheOption) (*Cache, error) {
	cfg := cacheConfig{namespace: c.cfg.namespace}
	for _, o := range opts {
		o.applyCache(&cfg)
	}
	if err := checkName("namespace", cfg.namespace); err != nil {
		return nil, fmt.Errorf("client: cache: %w", err)
	}
	if err := checkName("cache", name); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Cache{client: c, namespace: cfg.namespace, name: name}, nil
}

// Put stores value under key. It reads as missing once ttl has passed, counted from when the broker
// takes the request and in whole milliseconds; ttl 0 = never. A put whose connection was lost is
// not sent again: it fails with wire.ErrUnacknowledged.
func (k *Cache) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if ttl < 0 {
		return fmt.Errorf("client: negative ttl %s", ttl)
	}
	if value == nil {
		value = []byte{}
	}
	var ms *uint64
	if ttl > 0 {
		n := uint64(max(1, (ttl + time.Millisecond - 1).Milliseconds()))
		ms = &n
	}
	id := uint64(1)
	m, err := k.client.call(ctx, 0, "", &wire.CachePut{
		TenantID: k.client.cfg.tenant, Namespace: k.namespace, Cache: k.name, Key: key,
		Value: value, TTLMS: ms, RequestID: &id,
	}, false)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.CacheOK, *wire.OK:
		return nil
	default:
		return protocolError("answer to cache_put is "+m.Type(), nil)
	}
}

// Get returns the value of key; found is false when there is none.
func (k *Cache) Get(ctx context.Context, key string) (value []byte, found bool, err error) {
	id := uint64(1)
	m, err := k.client.call(ctx, 0, "", &wire.CacheGet{
		TenantID: k.client.cfg.tenant, Namespace: k.namespace, Cache: k.name, Key: key, RequestID: &id,
	}, true)
	return cacheValue(m, err)
}

// Delete removes key and returns the value that it had; found is false when there was none. Like
// Put it is not repeated when its connection is lost.
func (k *Cache) Delete(ctx context.Context, key string) (value []byte, found bool, err error) {
	id := uint64(1)
	m, err := k.client.call(ctx, wire.FeatureCacheDelete, "cache_delete", &wire.CacheDelete{
		TenantID: k.client.cfg.tenant, Namespace: k.namespace, Cache: k.name, Key: key, RequestID: &id,
	}, false)
	return cacheValue(m, err)
}

func cacheValue(m wire.Message, err error) ([]byte, bool, error) {
	if err != nil {
		return nil, false, err
	}
	v, ok := m.(*wire.CacheValue)
	if !ok {
		return nil, false, protocolError("answer of a cache is "+m.Type(), nil)
	}
	return v.Value, v.Value != nil, nil
}
