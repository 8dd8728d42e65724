package serve

import (
	"context"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// featuresOf is what a broker with these options really serves (wire.md 7). A feature that is not
// here is never used with our clients, and its requests are answered unsupported.
func featuresOf(o *Options) wire.Features {
	f := wire.FeatureStreamShards | wire.FeatureCacheShards | wire.FeatureCacheDelete |
		wire.FeatureIdempotentProducer | wire.FeatureErrorCodes | wire.FeatureShardMoved |
		wire.FeatureUnsupported | wire.FeatureSequenceReused | wire.FeatureShardOwners |
		wire.FeatureAckOnCommit | wire.FeatureSubscribeQueue | wire.FeatureStreamDeleted |
		wire.FeatureExplicitShard
	if o.PublishWindow > 0 {
		f |= wire.FeaturePublishPipeline | wire.FeatureStreamPublishWindow
	}
	if o.Broker.Durable() {
		f |= wire.FeatureSubscriptionLagged | wire.FeatureStreamRead | wire.FeatureRecordTimestamps |
			wire.FeaturePublishConditional | wire.FeatureAtomicCommit
	}
	return f
}

// authenticate handles the first frame of a stream (wire.md 3.1).
func (s *session) authenticate(ctx context.Context, m *wire.Auth) verdict {
	offered := m.Features()
	if s.srv.draining.Load() {
		s.srv.count.authDraining.Add(1)
		if !offered.Has(wire.FeatureErrorCodes) {
			// A client that cannot read the code would take the error for a refusal of its token.
			return holdStream
		}
		s.reply(wire.NewErrorMessage(wire.ErrDraining, offered))
		return endStream
	}
	if err := s.login(ctx, m); err != nil {
		s.reply(wire.NewErrorMessage(errAuth.WithCause(err), offered))
		return endStream
	}
	s.feats = offered
	s.ackOnQueue = s.srv.o.AckOnQueue && !offered.Has(wire.FeatureAckOnCommit)
	s.fr.SetMax(s.srv.o.MaxFrameBytes)
	// A failure shows in the next read.
	_ = s.st.SetReadDeadline(time.Time{})

	flags, negotiated := m.Flags()
	s.flags = flags
	if !negotiated {
		s.reply(&wire.OK{})
		return goOn
	}
	s.reply(s.authOK(offered))
	return goOn
}

// secondWord is the features that only clients which read a second word are told of.
const secondWord = ^wire.Features(1<<32 - 1)

// authOK grants what the client can use. What the broker understands and serves is the same for
// everybody, but for the second word.
func (s *session) authOK(offered wire.Features) *wire.AuthOK {
	m := &wire.AuthOK{ServerFlags: uint16(wire.FlagsKnown)}
	if offered.Has(wire.FeatureExtended) {
		m.SetFeatures(s.srv.features)
	} else {
		m.SetFeatures(s.srv.features &^ secondWord)
	}
	if ports := s.srv.o.ListenerPorts; len(ports) > 1 {
		m.ListenerPorts = ports
	}
	if n := s.srv.o.PublishWindow; n > 0 && offered.Has(wire.FeaturePublishPipeline) {
		window := uint32(n)
		m.PublishWindow = &window
		s.ans.pipeline(n)
	}
	return m
}
