package core

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

func TestOfTwoConditionalPublishesOneIsWritten(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	release := hold(t, st.shards[0].exec)
	send := func(tag uint64, expected int64, records ...string) {
		t.Helper()
		r := request(b, st, records...)
		r.Reply, r.Tag = res, tag
		if expected >= 0 {
			r.Conditional, r.Expected = true, uint64(expected)
		}
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	send(0, -1, "plain 0")
	send(1, 1, "winner 1", "winner 2")
	send(2, 1, "loser")
	send(3, 0, "loser of the past")
	send(4, 9, "loser of the future")
	send(5, -1, "plain 3")
	send(6, 4, "follows")
	release()
	pending(t, engine, 1)
	if claims := b.Status().Executors[0].ClaimSizes; claims != [ClaimSizes]uint64{7} {
		t.Errorf("claims by size: %v", claims)
	}
	if n := res.count(); n != 0 {
		t.Fatalf("%d answers with the disk held", n)
	}
	stop := pump(t, engine)
	for _, tag := range []uint64{2, 3, 4} {
		got := res.wait(t, tag)
		if got.Err != nil || got.Refused == nil || got.Refused.Kind != RefusedOffset || got.Refused.Tail != 3 {
			t.Fatalf("loser %d: %+v", tag, got)
		}
	}
	for tag, want := range map[uint64]uint64{0: 0, 1: 1, 5: 3, 6: 4} {
		if got := res.wait(t, tag); got.Err != nil || !got.HasOffset || got.Offset != want {
			t.Fatalf("publish %d: %+v, want offset %d", tag, got, want)
		}
	}
	want := []event{{0, "plain 0"}, {1, "winner 1"}, {2, "winner 2"}, {3, "plain 3"}, {4, "follows"}}
	if got := list(t, b, st); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("log %v", got)
	}
	stop()
	send(7, 0, "nothing is under way: answered without the disk")
	if got := res.wait(t, 7); got.Refused == nil || got.Refused.Tail != 5 {
		t.Fatalf("%+v", got)
	}
	pump(t, engine)
	closeTest(t, b)
}

func TestLoserWhoseWinnerFailsLearnsTheTail(t *testing.T) { // PUB-25
	fs := ringtest.NewFS(nil)
	b := openTest(t, Options{FS: fs}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	publish(t, b, st, "first")
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: ".seg", Err: syscall.ENOSPC})
	release := hold(t, st.shards[0].exec)
	res := newResults()
	for tag := range uint64(2) {
		r := request(b, st, "x")
		r.Reply, r.Tag, r.Conditional, r.Expected = res, tag, true, 1
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	release()
	if got := res.wait(t, 0); !errors.Is(got.Err, wire.ErrOverloaded) {
		t.Errorf("winner: %+v", got)
	}
	if got := res.wait(t, 1); got.Err != nil || got.Refused == nil || got.Refused.Tail != 1 {
		t.Errorf("loser: %+v", got)
	}
}

func TestConditionalCommitsLoseNoUpdate(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	const clients, each = 6, 25
	done := make(chan struct{})
	for range clients {
		go func() {
			defer func() { done <- struct{}{} }()
			next := uint64(0)
			for n := 0; n < each; {
				v, err := b.State(t.Context(), st, 0, "n")
				if err != nil {
					t.Error(err)
					return
				}
				now := 0
				if v.Value != nil {
					fmt.Sscan(string(v.Value), &now)
				}
				res := newResults()
				r := &PublishRequest{Stream: st, Conditional: true, Expected: next, Reply: res}
				if err := b.Commit(t.Context(), r, []byte("+1"), []Change{put("n", fmt.Sprint(now+1))}); err != nil {
					t.Error(err)
					return
				}
				switch got := res.wait(t, 0); {
				case got.Refused != nil:
					next = got.Refused.Tail
				case got.Err != nil:
					t.Error(got.Err)
					return
				default:
					n++
					next = got.Offset + 1
				}
			}
		}()
	}
	for range clients {
		<-done
	}
	wantState(t, b, st, "n", fmt.Sprintf("%d@%d", clients*each, clients*each-1))
}

func TestConditionalPublishesRace(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none"})
	const clients, each = 8, 40
	done := make(chan map[uint64]string, clients)
	for c := range clients {
		go func() {
			won := map[uint64]string{}
			tail := uint64(0)
			for n := 0; n < each; {
				r := request(b, st, fmt.Sprint(c, "/", n))
				r.Conditional, r.Expected = true, tail
				res := newResults()
				r.Reply = res
				if err := b.Publish(t.Context(), r); err != nil {
					t.Error(err)
					break
				}
				got := res.wait(t, 0)
				switch {
				case got.Refused != nil && got.Refused.Tail > tail:
					tail = got.Refused.Tail
				case got.Err == nil && got.Refused == nil && got.Offset == tail:
					won[tail] = fmt.Sprint(c, "/", n)
					tail++
					n++
				default:
					t.Errorf("expected %d: %+v %v", tail, got, got.Refused)
					n = each
				}
			}
			done <- won
		}()
	}
	at := map[uint64]string{}
	for range clients {
		for offset, payload := range <-done {
			if other, twice := at[offset]; twice {
				t.Errorf("offset %d is %s and %s", offset, other, payload)
			}
			at[offset] = payload
		}
	}
	got := list(t, b, st)
	if len(got) != clients*each {
		t.Fatalf("%d records, want %d", len(got), clients*each)
	}
	for _, e := range got {
		if at[e.offset] != e.payload {
			t.Fatalf("offset %d holds %s, its client was told of %q", e.offset, e.payload, at[e.offset])
		}
	}
}

func TestConditionOnNothingIsRefused(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	memory := stream(t, b, StreamDef{Stream: "memory"})
	durable := stream(t, b, StreamDef{Stream: "durable", Durable: true})
	for what, r := range map[string]*PublishRequest{"in memory": request(b, memory, "x"), "empty": request(b, durable)} {
		r.Conditional = true
		if err := b.Publish(t.Context(), r); !errors.Is(err, wire.NewError(wire.CodeInvalidRequest, "")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"commit in memory": commit(t, b, &PublishRequest{Stream: memory}, "e").Err,
		"state in memory":  func() error { _, err := b.State(t.Context(), memory, 0, "k"); return err }(),
		"no such shard":    commit(t, b, &PublishRequest{Stream: durable, Shard: 1}, "e").Err,
		"long key":         commit(t, b, &PublishRequest{Stream: durable}, "e", put(string(make([]byte, 1<<16)), "")).Err,
		"many changes":     commit(t, b, &PublishRequest{Stream: durable}, "e", make([]Change, CommitChangesMax+1)...).Err,
		"no change":        commit(t, b, &PublishRequest{Stream: durable}, "e", Change{Op: 7}).Err,
		"event too large":  commit(t, b, &PublishRequest{Stream: durable}, string(make([]byte, wire.MaxFrameBytes))).Err,
	} {
		if e := wire.AsError(err); e == nil || e.Retry != wire.RetryFatal {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := list(t, b, durable); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}
