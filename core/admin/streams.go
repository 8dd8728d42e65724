package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// deleteTimeout bounds the wait for disk work in flight when a stream is deleted.
const deleteTimeout = writeTimeout - 5*time.Second

// streamBody is what PUT takes. A member that is left out has the default of design.md 11.
type streamBody struct {
	Shards           *uint32 `json:"shards"`
	Durable          *bool   `json:"durable"`
	Fsync            string  `json:"fsync"`
	Routing          string  `json:"routing"`
	RetentionBytes   *int64  `json:"retention_bytes"`
	RetentionSeconds *int64  `json:"retention_seconds"`
}

// putStream makes a stream or changes what may change: 201 new, 200 as it was or changed, 409 when
// it exists with another shape.
func (s *Server) putStream(w http.ResponseWriter, r *http.Request, c *caller) error {
	namespace, stream := r.PathValue("namespace"), r.PathValue("stream")
	if err := c.mayManageStream(namespace, stream); err != nil {
		return err
	}
	var b streamBody
	if err := readJSON(w, r, &b); err != nil {
		return err
	}
	def := core.StreamDef{
		Tenant: c.id.Tenant, Namespace: namespace, Stream: stream,
		Shards: 1, Durable: true, Fsync: b.Fsync, Routing: b.Routing,
		RetentionBytes: b.RetentionBytes, RetentionSeconds: b.RetentionSeconds,
	}
	if b.Shards != nil {
		if def.Shards = *b.Shards; def.Shards == 0 {
			return wire.NewError(wire.CodeInvalidRequest, "shards must be at least 1")
		}
	}
	if b.Durable != nil {
		def.Durable = *b.Durable
	}
	info, created, err := c.Broker.CreateStream(def)
	if err != nil {
		return defineError(err)
	}
	writeJSON(w, createdStatus(created), s.describe(info))
	return nil
}

func (s *Server) getStream(w http.ResponseWriter, r *http.Request, c *caller) error {
	namespace, stream := r.PathValue("namespace"), r.PathValue("stream")
	if err := c.mayManageStream(namespace, stream); err != nil {
		return err
	}
	info, ok := c.Broker.GetStream(c.id.Tenant, namespace, stream)
	if !ok {
		return wire.NewError(wire.CodeNotFound, "stream not found: %s/%s/%s", c.id.Tenant, namespace, stream)
	}
	writeJSON(w, http.StatusOK, s.describe(info))
	return nil
}

func (s *Server) deleteStream(w http.ResponseWriter, r *http.Request, c *caller) error {
	namespace, stream := r.PathValue("namespace"), r.PathValue("stream")
	if err := c.mayManageStream(namespace, stream); err != nil {
		return err
	}
	// A caller that hangs up must not leave a stream half deleted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), deleteTimeout)
	defer cancel()
	if err := c.Broker.DeleteStream(ctx, c.id.Tenant, namespace, stream); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listStreams shows what the token may manage, or everything to who may view the broker.
func (s *Server) listStreams(w http.ResponseWriter, r *http.Request, c *caller) error {
	tenant, namespace, all, err := c.listScope(r)
	if err != nil {
		return err
	}
	list := []core.StreamInfo{}
	for _, info := range c.Broker.ListStreams(tenant, namespace) {
		if all || c.mayManageStream(info.Namespace, info.Stream) == nil {
			list = append(list, s.describe(info))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"streams": list})
	return nil
}

// describe completes what a stream says of itself by what this broker was told to promise (HZ-1).
func (s *Server) describe(info core.StreamInfo) core.StreamInfo {
	if s.o.AckOnQueue {
		info.Ack = "when queued (ack_on_commit is off), unless the client asks for more; then " + info.Ack
	}
	return info
}

func createdStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// defineError gives a conflict its status.
func defineError(err error) error {
	if errors.Is(err, core.ErrConflict) {
		return refuse(http.StatusConflict, wire.CodeInvalidRequest, "%v", err)
	}
	return err
}
