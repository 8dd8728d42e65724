package core

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/wire"
)

// A durable publish is answered with the offset of its first record, and a reader that starts at the
// oldest record has it in order, also after a restart (SUB-24, LOG-2).
func TestDurablePublishSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, Options{}.in(dir))
	st := stream(t, b, StreamDef{Durable: true})
	var want []event
	for i := range 20 {
		a, c := fmt.Sprint("a", i), fmt.Sprint("c", i)
		res := publish(t, b, st, a, c)
		if res.Err != nil || !res.HasOffset || res.Offset != uint64(2*i) {
			t.Fatalf("publish %d: %+v", i, res)
		}
		want = append(want, event{uint64(2 * i), a}, event{uint64(2*i + 1), c})
	}
	closeTest(t, b)

	b = openTest(t, Options{}.in(dir))
	st = stream(t, b, StreamDef{Durable: true})
	r := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: wire.Start{Kind: wire.StartEarliest}}, r)
	if diff := cmp.Diff(want, r.wait(len(want)), cmp.AllowUnexported(event{})); diff != "" {
		t.Fatal(diff)
	}
	if res := publish(t, b, st, "next"); res.Offset != 40 {
		t.Fatalf("first offset after the restart: %+v", res)
	}
	if got := r.wait(41)[40]; got != (event{40, "next"}) {
		t.Fatalf("live after replay: %+v", got)
	}
}

// PUB-23, PUB-24: the same batch twice is written once and answered with the same offset, also after a
// restart; other payloads, a gap, an old and an unknown sequence are refused, and nothing is written.
func TestIdempotentPublishIsWrittenOnce(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprintf("durable=%t", durable), func(t *testing.T) {
			dir := t.TempDir()
			b := openTest(t, Options{}.in(dir))
			st := stream(t, b, StreamDef{Durable: durable})
			send := func(seq uint64, records ...string) PublishResult {
				r := request(b, st, records...)
				r.Idempotent, r.ProducerID, r.Sequence = true, 77, seq
				return publishRequest(t, b, r)
			}
			refused := func(res PublishResult, kind RefusalKind) {
				t.Helper()
				if res.Refused == nil || res.Refused.Kind != kind {
					t.Fatalf("want refusal %d, got %+v", kind, res)
				}
			}
			refused(send(3, "x"), RefusedUnknownProducer)
			first := send(0, "a", "b")
			if first.Err != nil || first.Refused != nil {
				t.Fatalf("%+v", first)
			}
			again := send(0, "a", "b")
			if diff := cmp.Diff(first, again); diff != "" {
				t.Fatal(diff)
			}
			refused(send(0, "other"), RefusedReused)
			gap := send(5, "x")
			refused(gap, RefusedGap)
			if gap.Refused.Expected != 1 {
				t.Fatalf("expected sequence: %+v", gap.Refused)
			}
			for i := uint64(1); i < 70; i++ {
				send(i, "c")
			}
			refused(send(0, "a", "b"), RefusedExpired)
			if !durable {
				return
			}
			closeTest(t, b)
			b = openTest(t, Options{}.in(dir))
			st = stream(t, b, StreamDef{Durable: true})
			if res := send(69, "c"); res.Err != nil || res.Offset != 70 {
				t.Fatalf("duplicate after the restart: %+v", res)
			}
			if res := send(70, "d"); res.Err != nil || res.Offset != 71 {
				t.Fatalf("next after the restart: %+v", res)
			}
			refused(send(70, "e"), RefusedReused)
		})
	}
}

// LOG-1: without a data directory a durable stream is refused and never quietly kept in memory.
func TestDurableStreamNeedsStorage(t *testing.T) {
	b := openTest(t, Options{})
	_, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: "s", Durable: true})
	if !errors.Is(err, wire.ErrInvalidRequest) {
		t.Fatalf("got %v", err)
	}
	if _, _, err := b.CreateStream(StreamDef{Tenant: "t", Namespace: "n", Stream: "s"}); err != nil {
		t.Fatal(err)
	}
}

// An empty publish is answered in its turn and takes no offset; a shard that the stream does not
// have is refused.
func TestEdgePublishes(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true, Shards: 2})
	if res := publish(t, b, st); res.Err != nil || res.HasOffset {
		t.Fatalf("empty publish: %+v", res)
	}
	if res := publish(t, b, st, ""); res.Err != nil || res.Offset != 0 {
		t.Fatalf("empty record: %+v", res)
	}
	r := request(b, st, "x")
	r.Shard = 2
	if err := b.Publish(t.Context(), r); !errors.Is(err, wire.ErrInvalidRequest) {
		t.Fatalf("shard out of range: %v", err)
	}
}
