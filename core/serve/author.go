// Hot path.

package serve

import (
	"context"
	"log/slog"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/wire"
)

// author is as whom a client stream acts and what it may publish: what the two kinds of client
// streams have in common. One goroutine, the stream's reader.
type author struct {
	srv *Server
	c   *conn
	// preauth is true while the stream holds one of the connection's places for unauthenticated
	// streams.
	preauth bool

	// Set once by login.
	id  *auth.Identity // nil = not authenticated
	who *principal
	// publisher is what is recorded with this stream's publishes.
	publisher string

	// binary is scratch, so that decoding allocates nothing.
	binary wire.BinaryPublish

	// parked are the unacked publishes that stand in line for room.
	parked parking

	// The last stream that the token was found to allow publishing to. Grants of an open stream
	// never change (wire.md 3.2).
	namespace, stream []byte
	granted           bool
}

// command is one publish of any form: what the encodings have in common. Every form goes through
// route and Broker.Publish, so that authorisation, routing, admission and acknowledgement cannot
// differ (broker.md 1.1).
type command struct {
	tenant, namespace, stream []byte

	hasKey   bool
	hasShard bool // an explicit shard, instead of hashing the key
	key      []byte
	shard    uint32

	// buf holds the records section at pos.
	buf          *wire.Buf
	pos          int
	sectionLen   int
	count        uint32
	payloadBytes int

	acked      bool
	form       form
	requestID  uint64
	idempotent bool
	producer   uint64
	sequence   uint64

	conditional bool // only if it begins at expected
	expected    uint64
}

// login verifies the token of m and makes the stream act as its subject.
func (a *author) login(ctx context.Context, m *wire.Auth) error {
	id, err := a.srv.o.Verifier.Verify(ctx, m.TenantID, m.Token)
	if err != nil {
		a.srv.count.authFailed.Add(1)
		a.srv.o.Logger.LogAttrs(ctx, slog.LevelDebug, "token refused", slog.String("tenant", m.TenantID),
			slog.String("peer", a.c.nc.RemoteAddr().String()), slog.String("reason", auth.ReasonOf(err).String()))
		return err
	}
	a.srv.count.authOK.Add(1)
	a.id, a.who = id, a.c.enter(id)
	if a.srv.o.RecordPublishers && len(id.Subject) <= publisherMax {
		a.publisher = id.Subject
	}
	a.leavePreauth()
	return nil
}

// leavePreauth gives the place among the unauthenticated streams back.
func (a *author) leavePreauth() {
	if a.preauth {
		a.preauth = false
		<-a.c.preauth
	}
}

// decoded fills c in from the binary publish that was just decoded from buf.
func (a *author) decoded(c *command, buf *wire.Buf) {
	p := &a.binary
	*c = command{
		tenant: p.Tenant, namespace: p.Namespace, stream: p.Stream,
		hasKey: p.HasKey, key: p.Key,
		buf: buf, pos: p.SectionPos, sectionLen: len(p.Section), count: p.Count, payloadBytes: p.PayloadBytes,
		acked: p.Flags&wire.FlagAcked != 0, requestID: p.RequestID,
	}
	if p.Flags&wire.FlagIdempotent != 0 {
		c.form = formIdempotent
		c.idempotent, c.producer, c.sequence = true, p.ProducerID, p.Sequence
	}
}

// route authorises c and finds its shard.
func (a *author) route(c *command, req *core.PublishRequest) *wire.Error {
	if string(c.tenant) != a.id.Tenant {
		return a.forbid(errTenant)
	}
	if !a.mayPublish(c.namespace, c.stream) {
		return a.forbid(wire.ErrForbidden)
	}
	if a.srv.draining.Load() {
		return wire.ErrDraining
	}
	stream, err := a.srv.o.Broker.StreamBytes(c.tenant, c.namespace, c.stream)
	if err != nil {
		return wire.AsError(err)
	}
	shard := c.shard
	if !c.hasShard {
		shard = stream.ShardOf(c.key, c.hasKey)
	}
	*req = core.PublishRequest{
		Stream: stream, Shard: shard,
		Buf: c.buf, Pos: c.pos, SectionLen: c.sectionLen, Count: c.count, PayloadBytes: c.payloadBytes,
		Publisher: a.publisher, Account: a.who.account,
		Acked:      c.acked,
		Idempotent: c.idempotent, ProducerID: c.producer, Sequence: c.sequence,
		Conditional: c.conditional, Expected: c.expected,
	}
	return nil
}

func (a *author) mayPublish(namespace, stream []byte) bool {
	if a.granted && string(a.namespace) == string(namespace) && string(a.stream) == string(stream) {
		return true
	}
	a.granted = a.id.AllowStreamBytes(auth.StreamPublish, namespace, stream)
	a.namespace = append(a.namespace[:0], namespace...)
	a.stream = append(a.stream[:0], stream...)
	return a.granted
}

// send carries out an unacked publish and takes over its buf. The error says that the token does
// not permit it; everything else that goes wrong is counted, here or by the broker.
func (a *author) send(ctx context.Context, c *command) *wire.Error {
	var req core.PublishRequest
	if err := a.route(c, &req); err != nil {
		c.buf.Release()
		if err.Code == wire.CodeForbidden {
			return err
		}
		a.lose()
		return nil
	}
	req.Place = a.parked.place()
	if err := a.srv.o.Broker.Publish(ctx, &req); err != nil && wire.AsError(err).Code != wire.CodeOverloaded {
		a.lose() // the broker counts what it sheds for want of room, or over a quota
	}
	return nil
}

// lose counts an unacked publish that never came into a queue.
func (a *author) lose() {
	a.srv.count.unackedLost.Add(1)
	a.srv.o.Broker.CountLost(a.id.Tenant)
}

func (a *author) forbid(e *wire.Error) *wire.Error {
	a.srv.count.forbidden.Add(1)
	return e
}
