package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// quicFake serves b over QUIC on loopback and returns how a client reaches it.
func quicFake(t testing.TB, b *fakeBroker, dir string) (string, []Option) {
	t.Helper()
	cert, err := netio.DevCertificate(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := netio.Listen(netio.ServerOptions{Addr: "127.0.0.1:0", TLS: netio.NewServerTLS(cert, nil)})
	if err != nil {
		t.Fatal(err)
	}
	b.wg.Go(func() {
		for {
			conn, err := srv.Accept(context.Background())
			if err != nil {
				return
			}
			b.serve(conn)
		}
	})
	t.Cleanup(func() {
		_ = srv.Close()
		b.close()
	})
	return srv.Addr().String(), []Option{WithToken("t"), WithCAFile(filepath.Join(dir, netio.DevCAFile))}
}

// The whole SDK over real QUIC: publish, subscribe, lose every connection in the middle, resume.
func TestPublishAndResumeOverQUIC(t *testing.T) {
	b := newFakeBroker()
	addr, opts := quicFake(t, b, t.TempDir())
	ctx := bounded(t)
	c, err := Dial(ctx, addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := mustSubscribe(t, ctx, c, FromEarliest())
	p := mustPublisher(t, ctx, c, WithIdempotence(), WithBatchRecords(10))
	const records = 2000
	for i := range records {
		if err := p.PublishAsync(ctx, Record{Value: fmt.Append(nil, i)}, nil); err != nil {
			t.Fatal(err)
		}
		if i%400 == 399 {
			b.loseAll()
		}
	}
	if got := take(t, ctx, s, 0, records); !slices.Equal(got, numbered("", 0, records)) {
		t.Error("events differ")
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	if log := b.log(0); !slices.Equal(log, numbered("", 0, records)) {
		t.Errorf("log of %d records differs", len(log))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs < 2 {
		t.Error("the subscription was never resumed")
	}
}

// A wrong certificate is not tried again, and says what is wrong.
func TestUnknownCertificateFailsAtOnce(t *testing.T) {
	b := newFakeBroker()
	addr, _ := quicFake(t, b, t.TempDir())
	other := t.TempDir()
	if _, err := netio.DevCertificate(other, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := Dial(bounded(t), addr, WithToken("t"), WithCAFile(filepath.Join(other, netio.DevCAFile)))
	if _, ok := errors.AsType[*netio.HandshakeError](err); !ok || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// Event streams arrive for many subscriptions at once; each gets its own.
func TestManySubscriptionsOnOneConnection(t *testing.T) {
	b := newFakeBroker()
	b.shards = 32
	addr, opts := quicFake(t, b, t.TempDir())
	ctx := bounded(t)
	c, err := Dial(ctx, addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := mustPublisher(t, ctx, c)
	for i := range 320 {
		key := fmt.Append(nil, i)
		shard := wire.ShardOf(key, true, 32, wire.RoutingModulo)
		if err := p.PublishAsync(ctx, Record{Key: key, Value: fmt.Append(nil, shard)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for shard := range uint32(32) {
		wg.Go(func() {
			s, err := c.Subscribe(ctx, "orders", FromEarliest(), WithShard(shard))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for i := range b.log(shard) {
				ev, err := s.Next(ctx)
				if err != nil || string(ev.Payload) != fmt.Sprint(shard) || ev.Offset != uint64(i) {
					t.Errorf("shard %d event %d: %+v %v", shard, i, ev, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
