package admin

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/wire"
)

// tokenMax is the longest bearer token that is looked at, in bytes.
const tokenMax = 16 << 10

// caller is who asks, and what is there to ask.
type caller struct {
	*Services
	id *auth.Identity
}

// guarded runs fn for a caller with a valid token, once the broker is attached. It turns a returned
// error into the answer.
func (s *Server) guarded(fn action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := s.services.Load()
		if v == nil {
			writeError(w, wire.NewError(wire.CodeShardUnavailable, "the broker is starting: %s", *s.progress.Load()).WithReason("not_ready", 1000))
			return
		}
		id, err := identify(r, v.Verifier)
		if err != nil {
			if r.URL.Path == "/" && r.Header.Get("Authorization") == "" {
				s.signIn(w)
				return
			}
			writeError(w, err)
			return
		}
		if err := fn(w, r, &caller{v, id}); err != nil {
			writeError(w, err)
		}
	})
}

// identify verifies the bearer token. On a tenant's path it must be that tenant's; elsewhere the
// token names its tenant itself, and the tenant's keys then prove it.
func identify(r *http.Request, v *auth.Verifier) (*auth.Identity, error) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, wire.NewError(wire.CodeUnauthenticated, "a bearer token is needed")
	}
	if len(token) > tokenMax {
		return nil, wire.NewError(wire.CodeUnauthenticated, "auth failed")
	}
	tenant := r.PathValue("tenant")
	if tenant == "" {
		tenant = claimedTenant(token)
	}
	return v.Verify(r.Context(), tenant, token)
}

// claimedTenant reads the tenant that a token names. Nothing is believed of it: it only says whose
// keys to check the token with, and the verifier compares it again.
func claimedTenant(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Tenant string `json:"tid"`
	}
	if json.Unmarshal(body, &claims) != nil {
		return ""
	}
	return claims.Tenant
}

func forbidden(what string) error {
	return wire.NewError(wire.CodeForbidden, "the token lacks %s", what)
}

// mayViewBroker is for what shows all tenants: status, configuration, profiles.
func (c *caller) mayViewBroker() error {
	if !c.id.AllowClusterView() {
		return forbidden("node.view:cluster:*")
	}
	return nil
}

func (c *caller) mayManageStream(namespace, stream string) error {
	if !c.id.AllowStream(auth.StreamManage, namespace, stream) {
		return forbidden("stream.manage on the stream")
	}
	return nil
}

func (c *caller) mayManageCache(namespace, cache string) error {
	if !c.id.AllowWholeCache(auth.CacheManage, namespace, cache) {
		return forbidden("cache.manage on the cache")
	}
	return nil
}

func (c *caller) mayManageTenant() error {
	if !c.id.AllowTenant(auth.TenantManage) {
		return forbidden("tenant.manage on the tenant")
	}
	return nil
}

// listScope says what a list is asked for, and whether the caller may see all of it. Who may not view
// the broker sees the own tenant, and of that what may be managed.
func (c *caller) listScope(r *http.Request) (tenant, namespace string, all bool, err error) {
	q := r.URL.Query()
	tenant, all = q.Get("tenant"), c.id.AllowClusterView()
	if !all {
		if tenant != "" && tenant != c.id.Tenant {
			return "", "", false, forbidden("node.view:cluster:* to see other tenants")
		}
		tenant = c.id.Tenant
	}
	return tenant, q.Get("namespace"), all, nil
}
