package serve

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// client is a connection on which a test says exactly what goes over each stream.
type client struct {
	w  *world
	nc netio.Conn
}

// raw is one stream of a client. Its receiving half is nil on a publish-only stream, its sending
// half on an event stream.
type raw struct {
	t  testing.TB
	rx netio.ReceiveStream
	tx netio.SendStream
	fr *netio.FrameReader
}

// What clients offer in these tests: the newest official client, and one of ours that reads all.
const (
	offerFlags = uint16(0x1FFF)
	offerAll   = wire.FeatureErrorCodes | wire.FeatureUnsupported | wire.FeatureSequenceReused |
		wire.FeatureSubscriptionLagged | wire.FeatureSubscribeQueue | wire.FeatureShardMoved |
		wire.FeatureExtended | wire.FeatureStreamDeleted
	offerWindow = offerAll | wire.FeaturePublishPipeline
)

func (c *client) open() *raw {
	c.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := c.nc.OpenStream(ctx)
	if err != nil {
		c.w.t.Fatalf("open stream: %v", err)
	}
	return newRaw(c.w.t, c.w.pool, st, st)
}

func (c *client) openOneWay() *raw {
	c.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := c.nc.OpenUniStream(ctx)
	if err != nil {
		c.w.t.Fatalf("open uni stream: %v", err)
	}
	return newRaw(c.w.t, c.w.pool, nil, st)
}

// events accepts the next event stream.
func (c *client) events() *raw {
	c.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := c.nc.AcceptUniStream(ctx)
	if err != nil {
		c.w.t.Fatalf("no event stream: %v", err)
	}
	return newRaw(c.w.t, c.w.pool, st, nil)
}

func newRaw(t testing.TB, pool *wire.Pool, rx netio.ReceiveStream, tx netio.SendStream) *raw {
	r := &raw{t: t, rx: rx, tx: tx}
	if rx != nil {
		r.fr = netio.NewFrameReader(rx, pool)
		r.fr.SetMax(wire.MaxFrameBytes)
	}
	return r
}

// login opens a stream and authenticates with everything offered.
func (c *client) login() *raw { return c.loginAs(c.w.token(), offerFlags, offerAll) }

func (c *client) loginAs(token string, flags uint16, feats wire.Features) *raw {
	c.w.t.Helper()
	r := c.open()
	r.sendAuth("t1", token, flags, feats)
	if _, ok := r.recvMessage().(*wire.AuthOK); !ok {
		c.w.t.Fatal("no auth_ok")
	}
	return r
}

func authMessage(tenant, token string, flags uint16, feats wire.Features) *wire.Auth {
	m := &wire.Auth{TenantID: tenant, Token: token, ClientFlags: &flags}
	lo, hi := uint32(feats), uint32(feats>>32)
	m.ClientFeatures = &lo
	if feats.Has(wire.FeatureExtended) {
		m.ClientFeaturesHi = &hi
	}
	return m
}

func (r *raw) sendAuth(tenant, token string, flags uint16, feats wire.Features) {
	r.t.Helper()
	r.send(authMessage(tenant, token, flags, feats))
}

func (r *raw) send(m wire.Message) {
	r.t.Helper()
	r.write(wire.AppendMessage(nil, m))
}

func (r *raw) sendJSON(text string) {
	r.t.Helper()
	r.write(append(wire.AppendHeader(nil, 0, len(text)), text...))
}

// write sends bytes; a stream that the broker has ended already swallows them.
func (r *raw) write(b []byte) {
	r.t.Helper()
	if err := r.tx.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.tx.Write(b); err != nil && !netio.IsClosed(err) {
		r.t.Fatalf("write: %v", err)
	}
}

func (r *raw) fin() {
	r.t.Helper()
	if err := r.tx.Close(); err != nil {
		r.t.Fatalf("finish: %v", err)
	}
}

// recv returns the next frame.
func (r *raw) recv() (wire.Flags, []byte) {
	r.t.Helper()
	flags, body, err := r.next(patience)
	if err != nil {
		r.t.Fatalf("no frame: %v", err)
	}
	return flags, body
}

func (r *raw) next(d time.Duration) (wire.Flags, []byte, error) {
	if err := r.rx.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, nil, err
	}
	h, b, err := r.fr.Next()
	if err != nil {
		return 0, nil, err
	}
	defer b.Release()
	return h.Flags, bytes.Clone(b.Bytes()), nil
}

func (r *raw) recvMessage() wire.Message {
	r.t.Helper()
	flags, body := r.recv()
	if flags != 0 {
		r.t.Fatalf("frame with flags %#x: %x; want a message", uint16(flags), body)
	}
	m, err := wire.DecodeMessage(body)
	if err != nil {
		r.t.Fatalf("message %s: %v", body, err)
	}
	return m
}

// want expects exactly these messages next, byte for byte.
func (r *raw) want(messages ...wire.Message) {
	r.t.Helper()
	for _, m := range messages {
		flags, body := r.recv()
		want := wire.AppendMessage(nil, m)[wire.HeaderSize:]
		if flags != 0 || !bytes.Equal(body, want) {
			r.t.Fatalf("flags %#x, %s; want %s", uint16(flags), body, want)
		}
	}
}

func (r *raw) wantJSON(texts ...string) {
	r.t.Helper()
	for _, want := range texts {
		if flags, body := r.recv(); flags != 0 || string(body) != want {
			r.t.Fatalf("flags %#x, %s; want %s", uint16(flags), body, want)
		}
	}
}

// wantAck expects a binary acknowledgement and returns it.
func (r *raw) wantAck(id uint64) wire.Ack {
	r.t.Helper()
	flags, body := r.recv()
	if flags&wire.FlagAck == 0 {
		r.t.Fatalf("flags %#x, %s; want the ack of %d", uint16(flags), body, id)
	}
	if err := flags.FromBroker(wire.Flags(offerFlags)); err != nil {
		r.t.Fatalf("ack with flags %#x: %v", uint16(flags), err)
	}
	a, err := wire.DecodeAck(flags, body)
	if err != nil {
		r.t.Fatalf("ack %x: %v", body, err)
	}
	if a.RequestID != id {
		r.t.Fatalf("ack of %d, want %d", a.RequestID, id)
	}
	return a
}

func (r *raw) wantOK(id uint64) wire.Ack {
	r.t.Helper()
	a := r.wantAck(id)
	if a.Err != nil {
		r.t.Fatalf("publish %d failed: %v", id, a.Err)
	}
	return a
}

func (r *raw) wantRefused(id uint64, code wire.Code, retry wire.Retry, message string) {
	r.t.Helper()
	a := r.wantAck(id)
	want := &wire.Error{Code: code, Retry: retry, Message: message}
	if diff := cmp.Diff(want, a.Err); diff != "" {
		r.t.Fatalf("ack of %d (-want +got):\n%s", id, diff)
	}
}

// wantEnd expects FIN: the broker has nothing more to say.
func (r *raw) wantEnd() {
	r.t.Helper()
	if flags, body, err := r.next(patience); err != io.EOF {
		r.t.Fatalf("flags %#x, %q, error %v; want the end of the stream", uint16(flags), body, err)
	}
}

// wantOpen expects that the stream goes on: a request is answered.
func (r *raw) wantOpen() {
	r.t.Helper()
	r.send(&wire.ProducerInit{RequestID: 4711})
	if m, ok := r.recvMessage().(*wire.ProducerInitOK); !ok || m.RequestID != 4711 {
		r.t.Fatalf("%v; want producer_init_ok", m)
	}
}

// wantQuiet expects no frame for a while; silence cannot be awaited any other way.
func (r *raw) wantQuiet() {
	r.t.Helper()
	if flags, body, err := r.next(20 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("flags %#x, %q, error %v; want silence", uint16(flags), body, err)
	}
	// The frame reader keeps its error; the stream does not.
	r.fr = netio.NewFrameReader(r.rx, wire.NewPool(0))
	r.fr.SetMax(wire.MaxFrameBytes)
}

// wantStopped expects that the broker reads the stream no more.
func (r *raw) wantStopped() {
	r.t.Helper()
	select {
	case <-r.tx.Context().Done():
	case <-time.After(patience):
		r.t.Fatal("the stream is still read")
	}
}

// publish is the frame of a binary publish to t1/default/stream.
func publish(flags wire.Flags, id uint64, stream string, records ...string) []byte {
	return publishAs(flags, id, "t1", stream, records...)
}

func publishAs(flags wire.Flags, id uint64, tenant, stream string, records ...string) []byte {
	p := wire.BinaryPublish{
		Flags: flags | wire.FlagPublish, RequestID: id, AckMode: wire.AckPerMessage,
		Tenant: []byte(tenant), Namespace: []byte("default"), Stream: []byte(stream),
		Section: section(records...),
	}
	return wire.AppendPublish(nil, &p)
}

func section(records ...string) []byte {
	list := make([][]byte, len(records))
	for i, rec := range records {
		list[i] = []byte(rec)
	}
	return wire.AppendSection(nil, list...)
}

// frame is a frame of any flags and body.
func frame(flags wire.Flags, body []byte) []byte {
	return append(wire.AppendHeader(nil, flags, len(body)), body...)
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// mustPublish publishes acked and waits for the answer.
func (r *raw) mustPublish(id uint64, stream string, records ...string) wire.Ack {
	r.t.Helper()
	r.write(publish(wire.FlagAcked, id, stream, records...))
	return r.wantOK(id)
}
