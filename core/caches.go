package core

import (
	"fmt"
	"slices"

	"github.com/ringcast/ringcast/wire"
)

// Cache returns a cache's definition, which is made if it does not exist and the broker may
// (AUTO_CREATE); else a *wire.Error not_found with the text of wire.md 4.5.
func (b *Broker) Cache(tenant, namespace, cache string) (*CacheInfo, error) {
	if c, ok := b.lookupCache(tenant, namespace, cache); ok {
		return c, nil
	}
	if !b.opts.AutoCreate {
		return nil, wire.NewError(wire.CodeNotFound, "cache scope not found: %s/%s/%s", tenant, namespace, cache)
	}
	c, _, err := b.createCache(CacheDef{Tenant: tenant, Namespace: namespace, Cache: cache}, true)
	return c, err
}

// GetCache describes a cache that exists. It never makes one.
func (b *Broker) GetCache(tenant, namespace, cache string) (info CacheInfo, ok bool) {
	c, ok := b.lookupCache(tenant, namespace, cache)
	if !ok {
		return info, false
	}
	return *c, true
}

func (b *Broker) lookupCache(tenant, namespace, cache string) (*CacheInfo, bool) {
	var scratch [3*nameMax + 2]byte
	return b.caches.get(appendKey(scratch[:0], tenant, namespace, cache))
}

// CreateCache makes a cache; created is false for one that existed. Another number of shards or
// durability is an ErrConflict.
func (b *Broker) CreateCache(def CacheDef) (info CacheInfo, created bool, err error) {
	c, created, err := b.createCache(def, false)
	if err != nil {
		return CacheInfo{}, false, err
	}
	return *c, created, nil
}

func (b *Broker) createCache(def CacheDef, keep bool) (*CacheInfo, bool, error) {
	if err := def.normalise(); err != nil {
		return nil, false, err
	}
	if err := b.lockDefinitions(); err != nil {
		return nil, false, err
	}
	defer b.defMu.Unlock()
	key := appendKey(nil, def.Tenant, def.Namespace, def.Cache)
	if c, ok := b.caches.get(key); ok {
		if !keep && c.CacheDef != def {
			return nil, false, fmt.Errorf("%w: cache %s/%s/%s has shards %d, durable %t",
				ErrConflict, def.Tenant, def.Namespace, def.Cache, c.Shards, c.Durable)
		}
		return c, false, nil
	}
	c := &CacheInfo{CacheDef: def, Created: b.opts.Now().UTC()}
	err := b.cat.putNew(bucketCaches, key, func(id uint64) any {
		c.ID = id
		return cacheRow{CacheDef: def, ID: id, Created: c.Created}
	})
	if err != nil {
		return nil, false, createError(err)
	}
	b.caches.put(key, c)
	return c, true, nil
}

// DeleteCache removes a cache's definition; who holds its entries drops them (core/cache).
func (b *Broker) DeleteCache(tenant, namespace, cache string) error {
	if err := b.lockDefinitions(); err != nil {
		return err
	}
	defer b.defMu.Unlock()
	key := appendKey(nil, tenant, namespace, cache)
	if _, ok := b.caches.get(key); !ok {
		return wire.NewError(wire.CodeNotFound, "cache scope not found: %s/%s/%s", tenant, namespace, cache)
	}
	if err := b.cat.remove(bucketCaches, key); err != nil {
		return createError(err)
	}
	b.caches.remove(key)
	return nil
}

// ListCaches describes the caches of a tenant and namespace, "" for all, in order of their names.
func (b *Broker) ListCaches(tenant, namespace string) []CacheInfo {
	var infos []CacheInfo
	b.caches.all(func(c *CacheInfo) {
		if (tenant == "" || c.Tenant == tenant) && (namespace == "" || c.Namespace == namespace) {
			infos = append(infos, *c)
		}
	})
	slices.SortFunc(infos, func(a, b CacheInfo) int {
		return compareNames(a.Tenant, b.Tenant, a.Namespace, b.Namespace, a.Cache, b.Cache)
	})
	return infos
}

// TenantKeys returns the JWK sets that were stored per tenant through the admin API.
func (b *Broker) TenantKeys() (map[string][]byte, error) { return b.cat.keys() }

// PutTenantKeys stores a tenant's JWK set, which the caller has checked.
func (b *Broker) PutTenantKeys(tenant string, set []byte) error {
	if err := checkName("tenant", tenant); err != nil {
		return err
	}
	if err := b.cat.putKeys(tenant, set); err != nil {
		return createError(err)
	}
	return nil
}
