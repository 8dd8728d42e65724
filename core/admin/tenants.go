package admin

import (
	"io"
	"net/http"
	"time"

	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/wire"
)

// putKeys stores a tenant's key set, which counts beside the configured source from now on. An empty
// set removes what was stored. A tenant's keys can sign any permission of that tenant and
// node.view:cluster:*, so tenant.manage is as much as all of these.
func (s *Server) putKeys(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := c.mayManageTenant(); err != nil {
		return err
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, keysMax))
	if err != nil {
		return bodyError(err)
	}
	set, err := auth.ParseKeySet(text)
	if err != nil {
		return wire.NewError(wire.CodeInvalidRequest, "%v", err)
	}
	// Only what was understood is kept: an unknown member, a private part above all, is not.
	text = auth.MarshalKeySet(set.Keys()...)
	s.keysMu.Lock()
	defer s.keysMu.Unlock()
	if err := c.Broker.PutTenantKeys(c.id.Tenant, text); err != nil {
		return err
	}
	c.Keys.Set(c.id.Tenant, set.Keys())
	s.o.Logger.Info("tenant keys stored", "tenant", c.id.Tenant, "keys", len(set.Keys()), "by", c.id.Subject)
	writeKeys(w, text)
	return nil
}

// getKeys shows the set that putKeys stored; keys of the configured source are not in it.
func (s *Server) getKeys(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := c.mayManageTenant(); err != nil {
		return err
	}
	set, err := c.Keys.Keys(r.Context(), c.id.Tenant)
	if err != nil {
		return err
	}
	writeKeys(w, auth.MarshalKeySet(set.Keys()...))
	return nil
}

func writeKeys(w http.ResponseWriter, set []byte) {
	w.Header().Set("Content-Type", "application/jwk-set+json")
	_, _ = w.Write(append(set, '\n'))
}

// revoke refuses the tokens of a subject that were issued up to now, and ends its event streams.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := c.mayManageTenant(); err != nil {
		return err
	}
	var b struct {
		Subject *string `json:"sub"`
	}
	if err := readJSON(w, r, &b); err != nil {
		return err
	}
	if b.Subject == nil {
		return wire.NewError(wire.CodeInvalidRequest, `the body has no "sub"`)
	}
	at := time.Now()
	c.Verifier.Revoke(c.id.Tenant, *b.Subject, at)
	ended := c.Broker.Revoke(c.id.Tenant, *b.Subject)
	s.o.Logger.Info("subject revoked", "tenant", c.id.Tenant, "sub", *b.Subject, "subscriptions_ended", ended, "by", c.id.Subject)
	writeJSON(w, http.StatusOK, map[string]any{
		"sub": *b.Subject, "issued_until": at.Unix(), "subscriptions_ended": ended,
		// The configured key source decides again after a restart; see docs/operations.md.
		"until": "restart of the broker",
	})
	return nil
}
