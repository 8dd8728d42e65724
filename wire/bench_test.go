package wire

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func BenchmarkPublishDecode(b *testing.B) {
	for _, c := range []struct{ records, size int }{{1, 256}, {64, 256}} {
		frame := publishFrame(c.records, c.size)
		b.Run(fmt.Sprintf("records=%d/size=%d", c.records, c.size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(frame)))
			var p BinaryPublish
			for b.Loop() {
				h, err := ParseHeader(frame)
				if err != nil || h.Flags.FromClient() != nil {
					b.Fatal(err)
				}
				if err := DecodePublish(h.Flags, frame[HeaderSize:], &p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEventEncode(b *testing.B) {
	records := AppendSection(nil, make([]byte, 256), make([]byte, 256))[4:]
	h := EventHeader{Base: 1000, Skipped: 1, Publisher: "svc-b", Count: 2}
	for _, c := range []struct {
		name  string
		shape Flags
	}{{"plain", 0}, {"offsets", FlagEvOffsets}, {"everything", FlagEvOffsets | FlagEvSkipped | FlagEvPublisher}} {
		b.Run("header/shape="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]byte, EventHeaderSize(c.shape, len(h.Publisher)))
			for b.Loop() {
				PutEventHeader(dst, c.shape, &h, len(records))
			}
		})
	}
	b.Run("timed/records=2/size=256", func(b *testing.B) {
		b.ReportAllocs()
		dst := make([]byte, 0, TimedRecordsSize(2, len(records)))
		b.SetBytes(int64(len(records)))
		for b.Loop() {
			AppendTimedRecords(dst, records, 1)
		}
	})
}

func BenchmarkEventDecode(b *testing.B) {
	records := publishFrame(64, 256)
	var p BinaryPublish
	if err := DecodePublish(FlagPublish|FlagAcked|FlagKeyed, records[HeaderSize:], &p); err != nil {
		b.Fatal(err)
	}
	frame := make([]byte, EventHeaderSize(FlagEvOffsets, 0))
	PutEventHeader(frame, FlagEvOffsets, &EventHeader{Count: p.Count}, len(p.Section)-4)
	frame = append(frame, p.Section[4:]...)
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	var e BinaryEvents
	for b.Loop() {
		if err := DecodeEvents(FlagEventsShared|FlagEvOffsets, frame[HeaderSize:], &e); err != nil {
			b.Fatal(err)
		}
		for {
			if _, _, ok := e.Next(); !ok {
				break
			}
		}
	}
}

func BenchmarkAckEncode(b *testing.B) {
	for _, c := range []struct {
		name string
		ack  Ack
	}{
		{"ok", Ack{RequestID: 7, HasOffset: true, Offset: 9}},
		{"error", Ack{RequestID: 7, Err: ErrOverloaded.WithReason("publish_queue_full", 10)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]byte, 0, 256)
			for b.Loop() {
				AppendAck(dst, &c.ack, FlagsKnown, FeatureErrorCodes)
			}
		})
	}
}

func BenchmarkAckDecode(b *testing.B) {
	frame := AppendAck(nil, &Ack{RequestID: 7, HasOffset: true, Offset: 9}, FlagsKnown, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeAck(FlagAck|FlagAckOffset, frame[HeaderSize:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	for _, c := range []struct {
		name string
		m    Message
	}{
		{"subscribe", &Subscribe{TenantID: "acme", Namespace: "prod", Stream: "orders", Start: &Start{Kind: StartOffset, Offset: 1 << 40}, Shard: new(uint32(3))}},
		{"cache_get", &CacheGet{TenantID: "acme", Namespace: "prod", Cache: "sessions", Key: "user/7", RequestID: new(uint64(7))}},
		{"cache_put_1KiB", &CachePut{TenantID: "acme", Namespace: "prod", Cache: "sessions", Key: "user/7", Value: make([]byte, 1024), RequestID: new(uint64(7))}},
		{"publish_ok", &PublishOK{RequestID: 7, Offset: new(uint64(9))}},
	} {
		frame := AppendMessage(nil, c.m)
		b.Run("decode/type="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				if _, err := DecodeMessage(frame[HeaderSize:]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("encode/type="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(frame)))
			dst := make([]byte, 0, len(frame))
			for b.Loop() {
				AppendMessage(dst, c.m)
			}
		})
	}
}

func BenchmarkShardOf(b *testing.B) {
	for _, r := range []Routing{RoutingModulo, RoutingJumpHash} {
		for _, size := range []int{8, 64} {
			key := []byte(strings.Repeat("k", size))
			b.Run(fmt.Sprintf("routing=%s/key=%d", r, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ShardOf(key, true, 64, r)
				}
			})
		}
	}
}

// BenchmarkFreeList compares what a Pool could be made of: its own list, a channel, a sync.Pool.
// The last two count and bound nothing, which flatters them.
func BenchmarkFreeList(b *testing.B) {
	list := NewPool(1 << 20)
	channel := make(chan *Buf, 256)
	std := sync.Pool{New: func() any { return &Buf{mem: make([]byte, Headroom+1024)} }}
	for _, c := range []struct {
		name  string
		cycle func()
	}{
		{"list", func() { list.Get(1000).Release() }},
		{"channel", func() {
			var buf *Buf
			select {
			case buf = <-channel:
			default:
				buf = &Buf{mem: make([]byte, Headroom+1024)}
			}
			buf.refs.Store(1)
			if buf.refs.Add(-1) == 0 {
				select {
				case channel <- buf:
				default:
				}
			}
		}},
		{"sync.Pool", func() {
			buf := std.Get().(*Buf)
			buf.refs.Store(1)
			if buf.refs.Add(-1) == 0 {
				std.Put(buf)
			}
		}},
	} {
		b.Run("kind="+c.name+"/goroutines=1", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.cycle()
			}
		})
		b.Run("kind="+c.name+"/goroutines=all", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.cycle()
				}
			})
		})
	}
}
