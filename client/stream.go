package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// offer is what a stream's auth says that we can read.
type offer struct {
	flags    wire.Flags
	features wire.Features
}

// offerBasic is offered on every stream. Event times and publishers change the form of events and
// are offered only where a subscription asks for them; who is redirected must have somewhere to
// go, so FeatureRedirect is not.
var offerBasic = offer{
	flags: wire.FlagsKnown &^ (wire.FlagEvTimes | wire.FlagEvPublisher),
	features: wire.FeatureErrorCodes | wire.FeatureUnsupported | wire.FeatureSequenceReused |
		wire.FeatureShardMoved | wire.FeatureSubscriptionLagged | wire.FeatureStreamDeleted |
		wire.FeatureCacheConditional,
}

// peer is what the broker announced on a stream.
type peer struct {
	flags    wire.Flags
	features wire.Features
	window   uint32   // unanswered publishes that it grants; 0 = none named
	ports    []uint16 // its client ports, if it has several
}

// stream is a stream that we opened and that has authenticated. One user at a time.
type stream struct {
	io     netio.Stream
	frames *netio.FrameReader
	offer  offer
	peer   peer
	out    []byte // reused for what we write
}

// openStream opens and authenticates a stream.
func openStream(ctx context.Context, conn netio.Conn, cfg *config, pool *wire.Pool, o offer) (*stream, error) {
	token, err := cfg.token(ctx)
	if err != nil {
		return nil, fmt.Errorf("client: token: %w", err)
	}
	raw, err := conn.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	st := &stream{io: raw, frames: netio.NewFrameReader(raw, pool), offer: o}
	stop := st.guard(ctx)
	err = st.auth(cfg.tenant, token)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		st.abort()
		return nil, ctxFirst(ctx, err)
	}
	return st, nil
}

func (st *stream) auth(tenant, token string) error {
	flags := uint16(st.offer.flags)
	req := &wire.Auth{TenantID: tenant, Token: token, ClientFlags: &flags}
	req.SetFeatures(st.offer.features)
	if err := st.send(req); err != nil {
		return err
	}
	m, err := st.receive()
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.AuthOK:
		st.peer = peer{flags: wire.Flags(m.ServerFlags)}
		st.peer.features = m.Features()
		st.peer.ports = m.ListenerPorts
		if m.PublishWindow != nil && st.peer.features.Has(wire.FeaturePublishPipeline) {
			st.peer.window = *m.PublishWindow
		}
	case *wire.OK:
		st.peer = peer{flags: wire.FlagsOriginal}
	default:
		return protocolError("answer to auth is "+m.Type(), nil)
	}
	st.frames.SetMax(wire.MaxFrameBytes)
	return nil
}

// send writes one JSON message.
func (st *stream) send(m wire.Message) error {
	st.out = wire.AppendMessage(st.out[:0], m)
	_, err := st.io.Write(st.out)
	return err
}

// receive reads one JSON message. An error message is returned as its error.
func (st *stream) receive() (wire.Message, error) {
	h, buf, err := st.frames.Next()
	if err != nil {
		return nil, err
	}
	defer buf.Release()
	if h.Flags != 0 {
		return nil, protocolError(fmt.Sprintf("binary frame %#04x where a message belongs", uint16(h.Flags)), nil)
	}
	m, err := wire.DecodeMessage(buf.Bytes())
	if err != nil {
		return nil, protocolError("unreadable message", err)
	}
	switch m := m.(type) {
	case *wire.ErrorMessage:
		return nil, m.Err()
	case *wire.Unsupported:
		return nil, &UnsupportedError{What: m.RequestType}
	}
	return m, nil
}

// guard ends the stream when ctx ends, until stop is called. stop reports false when that has
// happened.
func (st *stream) guard(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, st.abort)
}

// abort gives the stream up at once, in both directions.
func (st *stream) abort() {
	st.io.CancelRead(netio.ResetNone)
	st.io.CancelWrite(netio.ResetNone)
}

// ctxFirst prefers the caller's own reason when a stream was given up because of it.
func ctxFirst(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
	}
	return err
}

func isReset(err error) bool {
	_, ok := errors.AsType[*netio.ResetError](err)
	return ok
}
