package serve

import (
	"context"
	"errors"

	"github.com/ringcast/ringcast/wire"
)

// frame handles one frame of a bidirectional stream and takes over buf.
func (s *session) frame(ctx context.Context, h wire.Header, buf *wire.Buf) verdict {
	if h.Flags&wire.FlagPublish != 0 && s.id != nil && h.Flags.FromClient() == nil {
		return s.publishBinary(ctx, h.Flags, buf)
	}
	defer buf.Release()
	if err := h.Flags.FromClient(); err != nil {
		if errors.Is(err, wire.ErrIdempotentUnacked) {
			s.srv.count.fault(faultIdempotent)
			return endStream
		}
		s.srv.count.fault(faultFlags)
		s.refuse(wire.AsError(err))
		return goOn
	}
	if h.Flags&wire.FlagPublish != 0 {
		return s.beforeAuth(errAuthFirst)
	}
	m, err := wire.DecodeMessage(buf.Bytes())
	if err != nil {
		return s.undecoded(err)
	}
	return s.message(ctx, m)
}

// undecoded handles a payload that is no message of ours: an unknown type is answered when the
// stream can read the answer, everything else ends the stream (wire.md 4.0, 6.2).
func (s *session) undecoded(err error) verdict {
	unknown, ok := errors.AsType[*wire.UnknownTypeError](err)
	if !ok {
		s.srv.count.fault(faultJSON)
		return endStream
	}
	s.srv.count.fault(faultType)
	return s.unsupported(&wire.Unsupported{RequestType: unknown.Type, RequestID: unknown.RequestID})
}

// unsupported answers a request that this broker does not serve.
func (s *session) unsupported(m *wire.Unsupported) verdict {
	if s.id == nil || !s.feats.Has(wire.FeatureUnsupported) {
		return endStream
	}
	s.srv.count.unsupported.Add(1)
	s.reply(m)
	return goOn
}

func (s *session) beforeAuth(e *wire.Error) verdict {
	s.srv.count.fault(faultBeforeAuth)
	s.refuse(e)
	return endStream
}

// message handles one decoded message.
func (s *session) message(ctx context.Context, m wire.Message) verdict {
	if wire.BrokerOnly(m) {
		s.srv.count.fault(faultBrokerOnly)
		if _, is := m.(*wire.ErrorMessage); !is {
			s.refuse(errBrokerOnly)
		}
		return endStream
	}
	if a, ok := m.(*wire.Auth); ok {
		if s.id != nil {
			s.srv.count.fault(faultSecondAuth)
			s.refuse(errAuthTwice)
			return endStream
		}
		return s.authenticate(ctx, a)
	}
	if s.id == nil {
		switch m.(type) {
		case *wire.ProducerInit, *wire.Topology, *wire.StreamShards, *wire.CacheShards, *wire.ShardOwners:
			return s.beforeAuth(errNotYet)
		}
		return s.beforeAuth(errAuthFirst)
	}
	switch m := m.(type) {
	case *wire.Publish:
		return s.publishOne(ctx, m)
	case *wire.PublishBatch:
		return s.publishBatch(ctx, m)
	case *wire.PublishIdempotent:
		return s.publishIdempotent(ctx, m)
	case *wire.PublishIf:
		return s.publishIf(ctx, m)
	case *wire.Commit:
		return s.commit(ctx, m)
	case *wire.StateGet:
		return s.stateGet(ctx, m)
	case *wire.ProducerInit:
		return s.producerInit(m)
	case *wire.Subscribe:
		return s.subscribe(ctx, m)
	case *wire.StreamRead:
		return s.streamRead(m)
	case *wire.OffsetForTime:
		return s.offsetForTime(m)
	case *wire.CachePut:
		return s.cachePut(m)
	case *wire.CacheGet:
		return s.cacheGet(m)
	case *wire.CacheDelete:
		return s.cacheDelete(m)
	case *wire.Topology:
		s.reply(&wire.TopologyView{})
		return goOn
	case *wire.StreamShards:
		return s.streamShards(m)
	case *wire.CacheShards:
		return s.cacheShards(m)
	case *wire.ShardOwners:
		return s.shardOwners(m)
	case *wire.Extension:
		return s.unsupported(&wire.Unsupported{RequestType: m.Type(), Extension: m.Name, RequestID: m.RequestID})
	}
	// Decoded, and not served by this version.
	return s.unsupported(&wire.Unsupported{RequestType: m.Type(), RequestID: requestID(m)})
}
