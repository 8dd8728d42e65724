package wire

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/ringcast/ringcast/internal/invariants"
)

// bytesAllocated returns what f allocates. Other goroutines must be quiet.
func bytesAllocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// requireNoAllocation fails if one run of f allocates anything, not even a fraction of an object.
func requireNoAllocation(t *testing.T, what string, f func()) {
	t.Helper()
	const runs = 1000
	f()
	// The runtime allocates on its own now and then; code that does is over the limit every time.
	var n uint64
	for range 3 {
		if n = bytesAllocated(func() {
			for range runs {
				f()
			}
		}); n < 4096 && testing.AllocsPerRun(runs, f) == 0 {
			return
		}
	}
	t.Errorf("%s: %d bytes in %d runs, %v allocations per run", what, n, runs, testing.AllocsPerRun(runs, f))
}

// publishFrame returns a keyed, acked publish of count records of size bytes.
func publishFrame(count, size int) []byte {
	records := make([][]byte, count)
	for i := range records {
		records[i] = make([]byte, size)
	}
	return AppendPublish(nil, &BinaryPublish{
		Flags: FlagPublish | FlagAcked | FlagKeyed, RequestID: 7, AckMode: AckPerBatch,
		HasKey: true, Key: []byte("user-1"),
		Tenant: []byte("acme"), Namespace: []byte("prod"), Stream: []byte("orders"),
		Section: AppendSection(nil, records...),
	})
}

// The data path allocates nothing: not per frame, and not per record.
func TestDataPathAllocatesNothing(t *testing.T) {
	one, many := publishFrame(1, 256), publishFrame(64, 256)
	bad := publishFrame(64, 256)
	binary.BigEndian.PutUint32(bad[len(bad)-260:], 1<<31)
	var p BinaryPublish
	for _, c := range []struct {
		name  string
		frame []byte
		fails bool
	}{{"publish of 1", one, false}, {"publish of 64", many, false}, {"malformed publish", bad, true}} {
		requireNoAllocation(t, c.name, func() {
			h, err := ParseHeader(c.frame)
			if err == nil {
				err = h.Flags.FromClient()
			}
			if err == nil {
				err = DecodePublish(h.Flags, c.frame[HeaderSize:], &p)
			}
			if (err != nil) != c.fails {
				panic(err)
			}
		})
	}
	if err := DecodePublish(FlagPublish|FlagAcked|FlagKeyed, many[HeaderSize:], &p); err != nil {
		t.Fatal(err)
	}
	requireNoAllocation(t, "walk of records", func() {
		for rest := p.Section[4:]; ; {
			var ok bool
			if _, rest, ok = NextRecord(rest); !ok {
				return
			}
		}
	})
	const shape = FlagEvOffsets | FlagEvSkipped | FlagEvPublisher
	h := EventHeader{Base: 1000, Skipped: 1, Publisher: "svc-b", Count: p.Count}
	dst := make([]byte, 0, 64<<10)
	requireNoAllocation(t, "event header", func() {
		PutEventHeader(dst[:EventHeaderSize(shape, len(h.Publisher))], shape, &h, len(p.Section)-4)
	})
	requireNoAllocation(t, "timed records", func() { AppendTimedRecords(dst, p.Section[4:], 1) })

	frame := append(make([]byte, EventHeaderSize(shape, 5)), p.Section[4:]...)
	PutEventHeader(frame, shape, &h, len(p.Section)-4)
	var e BinaryEvents
	requireNoAllocation(t, "events", func() {
		if err := DecodeEvents(FlagEventsShared|shape, frame[HeaderSize:], &e); err != nil {
			panic(err)
		}
		for {
			if _, _, ok := e.Next(); !ok {
				return
			}
		}
	})
	ok := Ack{RequestID: 7, HasOffset: true, Offset: 9}
	failed := Ack{RequestID: 7, Err: ErrOverloaded.WithReason("publish_queue_full", 10)}
	requireNoAllocation(t, "acks", func() {
		AppendAck(dst, &ok, FlagsKnown, FeatureErrorCodes)
		AppendAck(dst, &failed, FlagsKnown, FeatureErrorCodes)
	})
	ackFrame := AppendAck(nil, &ok, FlagsKnown, 0)
	requireNoAllocation(t, "ack decode", func() {
		if _, err := DecodeAck(FlagAck|FlagAckOffset, ackFrame[HeaderSize:]); err != nil {
			panic(err)
		}
	})
	key := []byte("user-1")
	requireNoAllocation(t, "shard", func() { ShardOf(key, true, 64, RoutingJumpHash) })
	if invariants.Enabled {
		return // a Buf is never used twice there
	}
	pool := NewPool(1 << 20)
	requireNoAllocation(t, "Buf", func() {
		b := pool.Get(1000)
		b.Retain()
		b.Release()
		b.Release()
	})
}
