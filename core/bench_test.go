package core

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// counter is a Replier that counts and, at want, says so.
type counter struct {
	n    atomic.Int64
	want atomic.Int64
	done chan struct{}
}

func (c *counter) Published(_ uint64, r PublishResult) {
	if r.Err != nil {
		panic(r.Err)
	}
	if c.n.Add(1) == c.want.Load() {
		c.done <- struct{}{}
	}
}

// BenchmarkPublish is the path from a decoded frame to the answer, without network; the durable form
// writes through the scripted engine, which carries an operation out at once. Publishes are kept 64
// deep in flight, as pipelined clients do. The unit is one publish.
func BenchmarkPublish(b *testing.B) {
	for _, durable := range []bool{false, true} {
		for _, records := range []int{1, 64} {
			for _, size := range []int{256, 4096} {
				b.Run(fmt.Sprintf("durable=%t/records=%d/size=%d", durable, records, size), func(b *testing.B) {
					benchPublish(b, durable, records, size)
				})
			}
		}
	}
}

func benchPublish(b *testing.B, durable bool, records, size int) {
	o := Options{AutoCreate: true}.in(b.TempDir())
	o.openEngine = func(string) (ring.Engine, string, error) { return ringtest.NewSyncEngine(), "", nil }
	br, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer closeTest(b, br)
	st := stream(b, br, StreamDef{Durable: durable})
	raw := make([][]byte, records)
	for i := range raw {
		raw[i] = make([]byte, size)
	}
	section := wire.AppendSection(nil, raw...)
	const inFlight = 64
	c := &counter{done: make(chan struct{}, 1)}
	account := br.NewIdentity(br.NewAccount())
	b.SetBytes(int64(records * size))
	b.ReportAllocs()
	sent := int64(0)
	for b.Loop() {
		if sent%inFlight == 0 {
			if sent > 0 {
				<-c.done
			}
			c.want.Store(sent + inFlight)
		}
		buf := br.Pool().Get(len(section) + 32)
		copy(buf.Bytes()[32:], section)
		err := br.Publish(b.Context(), &PublishRequest{
			Stream: st, Buf: buf, Pos: 32, SectionLen: len(section), Count: uint32(records),
			PayloadBytes: records * size, Account: account, Acked: true, Reply: c,
		})
		if err != nil {
			b.Fatal(err)
		}
		sent++
	}
	b.StopTimer()
	if err := br.Drain(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStreamLookup is what a publish pays for its stream's name.
func BenchmarkStreamLookup(b *testing.B) {
	br, err := Open(b.Context(), Options{AutoCreate: true})
	if err != nil {
		b.Fatal(err)
	}
	defer closeTest(b, br)
	for i := range 1000 {
		if _, err := br.Stream("tenant", "namespace", fmt.Sprint("stream-", i)); err != nil {
			b.Fatal(err)
		}
	}
	tenant, namespace, name := []byte("tenant"), []byte("namespace"), []byte("stream-500")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := br.StreamBytes(tenant, namespace, name); err != nil {
			b.Fatal(err)
		}
	}
}
