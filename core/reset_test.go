package core

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// PUB-27, BUG-11: a log is reset while publishes wait: one in flight, others claimed behind it. They fail
// with their outcome unknown, also when the disk has written and synced them; they reach no ring, no
// reader and no page, and a power cut does not bring them back. The next publish takes their offset, and an
// idempotent one that was lost is not taken for a duplicate.
func TestResetFailsWhatWaits(t *testing.T) {
	for _, written := range []bool{true, false} {
		t.Run(fmt.Sprint("written=", written), func(t *testing.T) {
			m := newMachine(t)
			engine := ringtest.NewEngine(8)
			o := Options{FS: m.fs()}.in(m.dir)
			b := openTest(t, o.scripted(engine))
			st := stream(t, b, StreamDef{Durable: true})
			live := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Start: latest}, live)
			s := newSender(t, b)
			s.records(st, "kept")
			engine.Run(pending(t, engine, 1)[0])
			s.res.wait(t, 0)

			idempotent := func(records ...string) *PublishRequest {
				r := request(b, st, records...)
				r.Idempotent, r.ProducerID = true, 5
				return r
			}
			s.records(st, "in flight")
			op := pending(t, engine, 1)[0]
			s.records(st, "filling", "filling")
			s.send(idempotent("lost"))
			s.send(idempotent("lost")) // its duplicate
			eventually(t, "all are claimed", func() bool { return b.Status().Executors[0].Claimed == 5 })
			if err := b.Reset(st, 0); err != nil {
				t.Fatal(err)
			}
			if n := s.res.count(); n != 1 {
				t.Errorf("%d answered with the write in flight", n)
			}
			behind := s.records(st, "behind") // queued while the log is reset
			if written {
				engine.Run(op)
			} else {
				engine.End(op, 100, nil) // cut short
			}
			pump(t, engine)
			for tag := uint64(1); tag < behind; tag++ {
				if res := s.res.wait(t, tag); !errors.Is(res.Err, wire.ErrUnacknowledged) || res.Err.Retry != wire.RetryUnknown {
					t.Errorf("publish %d: %+v", tag, res)
				}
			}
			if res := s.res.wait(t, behind); res.Err != nil || res.Offset != 1 {
				t.Errorf("behind the reset: %+v", res)
			}
			if res := publishRequest(t, b, idempotent("again")); res.Err != nil || res.Refused != nil || res.Offset != 2 {
				t.Errorf("sent again: %+v", res)
			}
			want := []event{{0, "kept"}, {1, "behind"}, {2, "again"}}
			check := func(name string, got []event) {
				t.Helper()
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("%s: event %d is %+v, want %+v", name, i, got[i], want[i])
					}
				}
			}
			check("live", live.wait(3))
			replay := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, replay)
			check("history", replay.wait(3))
			page, err := b.ReadPage(&ReadRequest{Stream: st})
			if err != nil || len(page.Records) != 3 || page.Next != 3 {
				t.Fatalf("page %+v, %v", page, err)
			}
			page.Release()

			after := m.powerCut(b, crashfs.SeedLoseAll)
			again := openTest(t, Options{FS: after.fs()}.in(after.dir))
			check("after a power cut", readAll(t, again, stream(t, again, StreamDef{Durable: true}))[0])
			closeTest(t, b)
		})
	}
}

// A reset of a shard at rest, or in memory, changes nothing; one that there is not is refused.
func TestResetAtRestChangesNothing(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	for _, durable := range []bool{true, false} {
		st := stream(t, b, StreamDef{Stream: fmt.Sprint(durable), Durable: durable})
		publish(t, b, st, "a")
		if err := b.Reset(st, 0); err != nil {
			t.Fatal(err)
		}
		publish(t, b, st, "b")
		r := newReader(t, wire.FlagEvOffsets)
		subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, r)
		if got := r.wait(2); got[0] != (event{0, "a"}) || got[1] != (event{1, "b"}) {
			t.Errorf("durable %t: %+v", durable, got)
		}
		if err := b.Reset(st, 1); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("a shard that there is not: %v", err)
		}
	}
}
