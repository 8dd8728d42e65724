package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/internal/daemon"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// stormStreams is how many streams of bad input the broker is sent.
const stormStreams = 1200

// OPS-5, OPS-9, HZ-40, HZ-44: a real broker is fed garbage on authenticated, unauthenticated and
// publish-only streams, some of which are reset half way. A neighbour publishes and reads as
// before, the kinds of garbage are counted, nothing is left behind, and the process did not panic.
func TestStormOfBadInputLeavesNothingBehind(t *testing.T) {
	d, err := daemon.Start(t.Context(), daemon.Options{Bin: bin, Data: filepath.Join(t.TempDir(), "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	n := newNeighbour(t, d)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	inputs := badInputs()
	asIs := 6 * len(inputs) // each kind is sent authenticated or not, in both kinds of stream, at first
	var conns []netio.Conn
	for i := range stormStreams {
		if i%100 == 0 {
			conns = append(conns, dialRaw(t, d))
		}
		x, reset := inputs[i%len(inputs)], false
		if i >= asIs {
			x, reset = spoil(r, x), r.IntN(4) == 0
		}
		abuse(t, conns[len(conns)-1], d, i, x, reset)
		if i%20 == 0 {
			n.exchange()
		}
	}
	n.exchange()

	for _, kind := range []string{"magic", "version", "flags", "json", "truncated", "too_large", "too_large_preauth", "before_auth"} {
		name := fmt.Sprintf("ringcast_serve_bad_input_total{reason=%q}", kind)
		until(t, name+" moves", func() bool { return metricsOf(t, d)[name] > 0 })
	}
	for _, nc := range conns {
		_ = nc.CloseWithError(netio.CloseShutdown, "")
	}
	n.close()
	atRest := []string{
		"ringcast_serve_connections", "ringcast_serve_streams", "ringcast_serve_event_streams",
		"ringcast_sub_connection_subscribers", "ringcast_inflight_requests",
		"ringcast_core_publish_inflight_bytes", "ringcast_broker_ingress_queue_depth",
	}
	until(t, "every gauge is zero", func() bool {
		m := metricsOf(t, d)
		for _, name := range atRest {
			if v, ok := m[name]; !ok || v != 0 {
				return false
			}
		}
		return true
	})
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if log := d.Log(1 << 20); strings.Contains(log, "panic") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the broker's log:\n%s", d.Log(40))
	}
}

// badInputs has one input of each kind.
func badInputs() [][]byte {
	frame := func(f wire.Flags, length uint32, body string) []byte {
		b := binary.BigEndian.AppendUint16([]byte("FLX1\x00\x01"), uint16(f))
		return append(binary.BigEndian.AppendUint32(b, length), body...)
	}
	json := func(s string) []byte { return frame(0, uint32(len(s)), s) }
	acked := func(rest string) []byte {
		s := "\x00\x00\x00\x00\x00\x00\x00\x09\x02" + rest
		return frame(wire.FlagPublish|wire.FlagAcked, uint32(len(s)), s)
	}
	names := "\x00\x03dev\x00\x07default\x00\x01s"
	return [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
		[]byte("FLX1\x00\x02\x00\x00\x00\x00\x00\x02{}"),
		frame(0, 1<<32-1, "x"),
		frame(wire.FlagPublish, 16<<20, "half of a frame"),
		frame(0x8000, 2, "xx"),
		frame(wire.FlagAck|wire.FlagPublish, 2, "xx"),
		frame(wire.FlagPublish|wire.FlagIdempotent, 2, "xx"),
		json(""),
		json("\xff\xfe{}"),
		json(`{"type":"cache_get","key":` + strings.Repeat("[", 20000)),
		json(strings.Repeat(`{"a":`, 10000)),
		json(`{"type":"cache_get","type":"auth"}`),
		json(`{"type":"frobnicate","request_id":7}`),
		json(`{"type":"publish_ok","request_id":1}`),
		json(`{"type":"frobnicate"` + strings.Repeat(`,"a":1`, 5000) + `}`),
		acked(""),
		acked(names + "\xff\xff\xff\xff0123456789"),
		acked(names + "\x00\x00\x00\x01\xff\xff\xff\xffx"),
		acked("\x00\x03dev\x00\x07default\x00\x02\xff\xff\x00\x00\x00\x00"),
		frame(wire.FlagPublish, 2, "\x00\x01"),
	}
}

// spoil returns input changed in a random way.
func spoil(r *rand.Rand, input []byte) []byte {
	x := bytes.Clone(input)
	switch r.IntN(3) {
	case 0:
		for range 1 + r.IntN(8) {
			x[r.IntN(len(x))] ^= 1 << r.IntN(8)
		}
	case 1:
		x = x[:r.IntN(len(x))]
	default:
		x = make([]byte, r.IntN(2000))
		for i := range x {
			x[i] = byte(r.Uint32())
		}
	}
	return x
}

// abuse sends input on a stream of its own and ends it, by a reset or in order.
func abuse(t *testing.T, nc netio.Conn, d *daemon.Daemon, i int, input []byte, reset bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out netio.SendStream
	var err error
	if i%7 == 3 {
		out, err = nc.OpenUniStream(ctx)
	} else {
		var st netio.Stream
		if st, err = nc.OpenStream(ctx); err == nil {
			st.CancelRead(netio.ResetNone)
			out = st
		}
	}
	if err != nil {
		t.Fatalf("stream %d: %v", i, err)
	}
	if i%3 > 0 {
		input = append(authFrame(d), input...)
	}
	// The broker may have ended the stream already.
	_ = out.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = out.Write(input)
	if reset {
		out.CancelWrite(netio.ResetNone)
	} else {
		_ = out.Close()
	}
}

func authFrame(d *daemon.Daemon) []byte {
	flags := uint16(wire.FlagsKnown)
	return wire.AppendMessage(nil, &wire.Auth{TenantID: devTenant, Token: d.Token, ClientFlags: &flags})
}

func dialRaw(t *testing.T, d *daemon.Daemon) netio.Conn {
	t.Helper()
	pool, err := netio.LoadCertPool(d.CA)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := netio.Dial(t.Context(), d.QUIC, netio.DialOptions{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// neighbour is a well-behaved client that publishes a record and reads it back.
type neighbour struct {
	t   *testing.T
	c   *client.Client
	pub *client.Publisher
	sub *client.Subscription
	n   int
}

func newNeighbour(t *testing.T, d *daemon.Daemon) *neighbour {
	t.Helper()
	n := &neighbour{t: t}
	var err error
	if n.c, err = d.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	if n.pub, err = n.c.Publisher(t.Context(), "healthy"); err != nil {
		t.Fatal(err)
	}
	if n.sub, err = n.c.Subscribe(t.Context(), "healthy"); err != nil {
		t.Fatal(err)
	}
	n.exchange()
	return n
}

func (n *neighbour) exchange() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 20*time.Second)
	defer cancel()
	n.n++
	want := strconv.Itoa(n.n)
	if _, err := n.pub.Publish(ctx, client.Record{Value: []byte(want)}); err != nil {
		n.t.Fatalf("the neighbour's publish: %v", err)
	}
	e, err := n.sub.Next(ctx)
	if err != nil || string(e.Payload) != want {
		n.t.Fatalf("the neighbour reads %q, %v: want %q", e.Payload, err, want)
	}
}

func (n *neighbour) close() { _ = n.c.Close() }

// metricsOf reads /metrics: the value of each series by its name with labels.
func metricsOf(t *testing.T, d *daemon.Daemon) map[string]float64 {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + d.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && name != "#" {
			m[name] = v
		}
	}
	return m
}
