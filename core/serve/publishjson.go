package serve

import (
	"context"
	"encoding/binary"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/wire"
)

// publishJSON carries out a publish that came in JSON: its payloads become a records section in a
// pooled Buf, and it goes the way of the binary ones.
func (s *session) publishJSON(ctx context.Context, c *command, payloads ...[]byte) verdict {
	s.srv.count.jsonPublishes.Add(1)
	if string(c.tenant) != s.id.Tenant {
		// Whatever its form, another tenant's publish gets an `error` (wire.md 3.2.1).
		s.refuse(s.forbid(errTenant))
		return goOn
	}
	c.section(s.srv.o.Pool, payloads)
	if c.acked {
		return s.publish(ctx, c)
	}
	if err := s.send(ctx, c); err != nil {
		s.refuse(err)
	}
	return goOn
}

// section encodes payloads.
func (c *command) section(pool *wire.Pool, payloads [][]byte) {
	n := 4
	for _, p := range payloads {
		n += 4 + len(p)
		c.payloadBytes += len(p)
	}
	c.buf = pool.Get(n)
	dst := binary.BigEndian.AppendUint32(c.buf.Bytes()[:0], uint32(len(payloads)))
	for _, p := range payloads {
		dst = wire.AppendRecord(dst, p)
	}
	c.sectionLen, c.count = len(dst), uint32(len(payloads))
}

// one fills c in from m; see acknowledge for the result.
func (c *command) one(m *wire.Publish) bool {
	c.target(m.TenantID, m.Namespace, m.Stream, m.Key, m.Shard)
	return c.acknowledge(m.Ack, m.RequestID)
}

// batch fills c in from m; see acknowledge for the result.
func (c *command) batch(m *wire.PublishBatch) bool {
	c.target(m.TenantID, m.Namespace, m.Stream, m.Key, m.Shard)
	return c.acknowledge(m.Ack, m.RequestID)
}

// target fills in what every JSON form has.
func (c *command) target(tenant, namespace, stream string, key []byte, shard *uint32) {
	c.tenant, c.namespace, c.stream = []byte(tenant), []byte(namespace), []byte(stream)
	c.key, c.hasKey = key, key != nil
	if shard != nil {
		c.shard, c.hasShard = *shard, true
	}
}

// acknowledge decides whether an answer is owed (wire.md 4.2): `none` is never answered, absent
// only with a request id, and the acked modes need one. It is false for a request that cannot be
// answered as it asks.
func (c *command) acknowledge(ack wire.AckMode, requestID *uint64) bool {
	c.form = formJSON
	c.acked = ack == wire.AckPerMessage || ack == wire.AckPerBatch || ack == wire.AckAbsent && requestID != nil
	if requestID != nil {
		c.requestID = *requestID
	}
	return !c.acked || requestID != nil
}

func (s *session) publishOne(ctx context.Context, m *wire.Publish) verdict {
	var c command
	if !c.one(m) {
		return s.missingRequestID()
	}
	return s.publishJSON(ctx, &c, m.Payload)
}

func (s *session) publishBatch(ctx context.Context, m *wire.PublishBatch) verdict {
	var c command
	if !c.batch(m) {
		return s.missingRequestID()
	}
	return s.publishJSON(ctx, &c, m.Payloads...)
}

func (s *session) publishIdempotent(ctx context.Context, m *wire.PublishIdempotent) verdict {
	c := command{
		acked: true, form: formIdempotent, requestID: m.RequestID,
		idempotent: true, producer: m.ProducerID, sequence: m.Sequence,
	}
	c.target(m.TenantID, m.Namespace, m.Stream, m.Key, m.Shard)
	return s.publishJSON(ctx, &c, m.Payloads...)
}

func (s *session) missingRequestID() verdict {
	s.srv.count.fault(faultRequestID)
	s.refuse(errRequestID)
	return goOn
}

// appendJSONAnswer encodes publish_ok, publish_error or publish_refused.
func (s *session) appendJSONAnswer(dst []byte, sl *slot, r *core.PublishResult) []byte {
	switch {
	case r.Err != nil:
		return wire.AppendMessage(dst, wire.NewPublishError(sl.requestID, r.Err, s.feats))
	case r.Refused != nil && !(r.Refused.Kind == core.RefusedReused && !s.feats.Has(wire.FeatureSequenceReused)):
		return wire.AppendMessage(dst, publishRefused(sl.requestID, r.Refused))
	}
	ok := &wire.PublishOK{RequestID: sl.requestID}
	if r.HasOffset && s.flags&wire.FlagAckOffset != 0 {
		offset := r.Offset
		ok.Offset = &offset
	}
	return wire.AppendMessage(dst, ok)
}
