package admin

import (
	"net/http"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// cacheBody is what PUT takes. Caches are in memory in this version, so durable is false when it is
// left out, and true is refused by core.
type cacheBody struct {
	Shards  *uint32 `json:"shards"`
	Durable bool    `json:"durable"`
}

func (s *Server) putCache(w http.ResponseWriter, r *http.Request, c *caller) error {
	namespace, name := r.PathValue("namespace"), r.PathValue("cache")
	if err := c.mayManageCache(namespace, name); err != nil {
		return err
	}
	var b cacheBody
	if err := readJSON(w, r, &b); err != nil {
		return err
	}
	def := core.CacheDef{Tenant: c.id.Tenant, Namespace: namespace, Cache: name, Shards: 1, Durable: b.Durable}
	if b.Shards != nil {
		if def.Shards = *b.Shards; def.Shards == 0 {
			return wire.NewError(wire.CodeInvalidRequest, "shards must be at least 1")
		}
	}
	info, created, err := c.Broker.CreateCache(def)
	if err != nil {
		return defineError(err)
	}
	writeJSON(w, createdStatus(created), info)
	return nil
}

// namedCache is the cache that the path names, if the caller may manage it.
func (c *caller) namedCache(r *http.Request) (core.CacheInfo, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("cache")
	if err := c.mayManageCache(namespace, name); err != nil {
		return core.CacheInfo{}, err
	}
	info, ok := c.Broker.GetCache(c.id.Tenant, namespace, name)
	if !ok {
		return core.CacheInfo{}, wire.NewError(wire.CodeNotFound, "cache not found: %s/%s/%s", c.id.Tenant, namespace, name)
	}
	return info, nil
}

func (s *Server) getCache(w http.ResponseWriter, r *http.Request, c *caller) error {
	info, err := c.namedCache(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, info)
	return nil
}

// deleteCache removes the definition and then the entries: nobody can reach them any more.
func (s *Server) deleteCache(w http.ResponseWriter, r *http.Request, c *caller) error {
	info, err := c.namedCache(r)
	if err != nil {
		return err
	}
	if err := c.Broker.DeleteCache(info.Tenant, info.Namespace, info.Cache); err != nil {
		return err
	}
	c.Cache.Drop(info.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listCaches(w http.ResponseWriter, r *http.Request, c *caller) error {
	tenant, namespace, all, err := c.listScope(r)
	if err != nil {
		return err
	}
	list := []core.CacheInfo{}
	for _, info := range c.Broker.ListCaches(tenant, namespace) {
		if all || c.mayManageCache(info.Namespace, info.Cache) == nil {
			list = append(list, info)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"caches": list})
	return nil
}
