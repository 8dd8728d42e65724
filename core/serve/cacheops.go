package serve

import (
	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/wire"
)

// cacheOf authorises a cache request and finds the cache. On failure it has answered.
func (s *session) cacheOf(action auth.Action, tenant, namespace, cache, key string) *core.CacheInfo {
	e := func() *wire.Error {
		if tenant != s.id.Tenant {
			return s.forbid(errTenant)
		}
		if !s.id.AllowCache(action, namespace, cache, key) {
			return s.forbid(wire.ErrForbidden)
		}
		if s.srv.draining.Load() {
			return wire.ErrDraining
		}
		return nil
	}()
	if e == nil {
		info, err := s.srv.o.Broker.Cache(tenant, namespace, cache)
		if err == nil {
			return info
		}
		e = wire.AsError(err)
		if e.Code == wire.CodeNotFound {
			e = wire.NewError(wire.CodeNotFound, "cache scope not found: %s/%s/%s", tenant, namespace, cache)
		}
	}
	s.refuse(e)
	return nil
}

// once says what follows a cache request: one without a request id is a single shot.
func once(requestID *uint64) verdict {
	if requestID == nil {
		return endStream
	}
	return goOn
}

func (s *session) cachePut(m *wire.CachePut) verdict {
	c := s.cacheOf(auth.CacheWrite, m.TenantID, m.Namespace, m.Cache, m.Key)
	if c == nil {
		return once(m.RequestID)
	}
	var ttl uint64
	if m.TTLMS != nil {
		ttl = *m.TTLMS
	}
	// The decoder made the value for this message: the cache may keep it.
	if _, err := s.srv.o.Cache.Put(c.ID, m.Key, m.Value, ttl); err != nil {
		s.refuse(wire.AsError(err))
		return once(m.RequestID)
	}
	if m.RequestID == nil {
		s.reply(&wire.OK{})
		return endStream
	}
	s.reply(&wire.CacheOK{RequestID: *m.RequestID})
	return goOn
}

func (s *session) cacheGet(m *wire.CacheGet) verdict {
	c := s.cacheOf(auth.CacheRead, m.TenantID, m.Namespace, m.Cache, m.Key)
	if c == nil {
		return once(m.RequestID)
	}
	answer := &wire.CacheValue{TenantID: m.TenantID, Namespace: m.Namespace, Cache: m.Cache, Key: m.Key, RequestID: m.RequestID}
	if e, ok := s.srv.o.Cache.Get(c.ID, m.Key); ok {
		answer.Value = present(e.Value)
	}
	s.reply(answer)
	return once(m.RequestID)
}

func (s *session) cacheDelete(m *wire.CacheDelete) verdict {
	c := s.cacheOf(auth.CacheWrite, m.TenantID, m.Namespace, m.Cache, m.Key)
	if c == nil {
		return once(m.RequestID)
	}
	answer := &wire.CacheValue{TenantID: m.TenantID, Namespace: m.Namespace, Cache: m.Cache, Key: m.Key, RequestID: m.RequestID}
	if e, ok := s.srv.o.Cache.Delete(c.ID, m.Key); ok {
		answer.Value = present(e.Value)
	}
	s.reply(answer)
	return once(m.RequestID)
}

// present keeps an empty value apart from none.
func present(v []byte) []byte {
	if v == nil {
		return []byte{}
	}
	return v
}
