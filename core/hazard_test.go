package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// HZ-9, LOG-17, LOG-20, PUB-18: every sync of one stream's files hangs, of data, directories, seals and
// marks alike. Another stream of the same executor goes on, also through many new segments, and the slow
// stream is read. It is judged by what ends while the slow one is still held, not by how long it takes;
// in the end the slow publishes are acknowledged in their order.
func TestHangingSyncHoldsOneStreamAlone(t *testing.T) {
	m := newMachine(t)
	fs := ringtest.NewFS(m.fs())
	b := openTest(t, Options{FS: fs, SegmentBytes: 64 << 10}.in(m.dir))
	slow := stream(t, b, StreamDef{Stream: "slow", Durable: true})
	other := stream(t, b, StreamDef{Stream: "other", Durable: true})
	body := string(make([]byte, 4<<10))
	for range 10 {
		publish(t, b, slow, body)
	}
	entered, hang := make(chan struct{}, 64), make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	defer release()
	dir := filepath.Join("streams", filepath.Base(b.streamDir(slow.id))) + "/" // a segment may be named like a stream
	for _, kind := range []ringtest.Kind{ringtest.Sync, ringtest.SyncDir} {
		fs.Add(ringtest.Rule{Kind: kind, Path: dir, Times: -1, Entered: entered, Wait: hang})
	}
	held := newResults()
	const heldPublishes = 40 // more than a segment
	for i := range uint64(heldPublishes) {
		r := request(b, slow, body)
		r.Reply, r.Tag = held, i
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-entered:
	case <-time.After(waitMax):
		t.Fatal("the slow stream does not sync")
	}
	for i := range 200 {
		if res := publish(t, b, other, body); res.Err != nil {
			t.Fatalf("publish %d beside a hanging disk: %+v", i, res)
		}
	}
	if rolls := other.shards[0].log.Stats().Rolls; rolls < 5 {
		t.Errorf("the other stream began %d segments only", rolls)
	}
	r := newReader(t, wire.FlagEvOffsets)
	sub := subscribe(t, b, &SubscribeRequest{Stream: slow, Start: earliest}, r)
	r.wait(10)
	held.mu.Lock()
	early := len(held.got)
	held.mu.Unlock()
	if early != 0 {
		t.Errorf("%d publishes were acknowledged while their sync hangs", early)
	}
	release()
	for i := range uint64(heldPublishes) {
		if res := held.wait(t, i); res.Err != nil || res.Offset != 10+i {
			t.Fatalf("held publish %d: %+v", i, res)
		}
	}
	sub.stop()
}

// HZ-8, LOG-10: sixteen publishers wait for their acknowledgements while the sync of a full segment's
// seal fails. All are answered, nobody is told of success after the failure, and the power cut that
// follows takes nothing that was acknowledged under on_commit, and nothing that readers are still shown.
func TestFailedSealUnderSixteenPublishers(t *testing.T) {
	rounds := 60
	if invariants.Enabled {
		rounds = 15
	}
	body := string(make([]byte, 6<<10))
	for round := range rounds {
		mode := []string{"on_commit", "periodic"}[round%2]
		m := newMachine(t)
		fs := ringtest.NewFS(m.fs())
		b, err := Open(t.Context(), Options{FS: fs, SegmentBytes: 64 << 10, FsyncInterval: time.Millisecond}.in(m.dir))
		if err != nil {
			t.Fatal(err)
		}
		st := stream(t, b, StreamDef{Durable: true, Fsync: mode})
		// Of the syncs of a segment the one behind its truncation is the seal's; a segment that fills
		// exactly is not truncated, so any sync of it may be hit: by seed.
		fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: ".seg", Nth: 10 + rand.New(rand.NewPCG(uint64(round), 8)).IntN(40), Err: syscall.EIO})
		var mu sync.Mutex
		acked, over := uint64(0), false
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 200 {
					res := newResults()
					r := request(b, st, body)
					r.Reply = res
					if err := b.Publish(t.Context(), r); err != nil {
						if !errors.Is(err, wire.ErrStorage) {
							t.Errorf("refused: %v", err)
						}
						mu.Lock()
						over = true // it failed while nobody's publish was under way
						mu.Unlock()
						return
					}
					got := res.wait(t, 0)
					mu.Lock()
					if got.Err == nil {
						acked = max(acked, got.Offset+1)
					} else {
						over = true
						if !errors.Is(got.Err, wire.ErrStorage) {
							t.Errorf("failed: %v", got.Err)
						}
					}
					mu.Unlock()
					if got.Err != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		if !over {
			t.Fatalf("round %d: the sync never failed", round)
		}
		end := st.Info().ShardInfo[0].Tail
		if mode == "on_commit" && end != acked {
			t.Errorf("round %d: readers see %d records, acknowledged were %d", round, end, acked)
		}
		after := m.powerCut(b, crashfs.SeedLoseAll)
		_ = b.Close(context.Background()) // it says what failed
		again, err := Open(t.Context(), Options{FS: after.fs()}.in(after.dir))
		if err != nil {
			t.Fatalf("round %d, %s: %v", round, mode, err)
		}
		list := again.ListStreams("", "")
		if len(list) != 1 || list[0].ShardInfo[0].Tail < end {
			t.Errorf("round %d, %s: %+v on the disk, readers were shown %d records", round, mode, list, end)
		}
		closeTest(t, again)
	}
}

// HZ-12, PUB-12: one of eight publishers gives up again and again, while it waits for room, while its
// record is queued, or while it is written. The stream never stops, what was refused is nowhere, and
// live order is the order on the disk.
func TestCancelledPublisherLeavesNoGap(t *testing.T) {
	rounds := 10_000
	if invariants.Enabled {
		rounds = 1500
	}
	m := newMachine(t)
	// Room for a few records at a time, so that publishers wait, and are cancelled waiting.
	b := openTest(t, Options{FS: m.fs(), PublishInflightBytes: 2048, PublishConnInflightBytes: 2048, SubscriberQueue: 1 << 16, SubscriberQueueMax: 1 << 16}.in(m.dir))
	st := stream(t, b, StreamDef{Durable: true})
	live := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, live)
	filling := string(make([]byte, 300))
	var mu sync.Mutex
	taken := map[string]bool{} // by name of the record: accepted or refused
	cancelled := 0
	var wg sync.WaitGroup
	for who := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(who), 12))
			for n := range rounds / 8 {
				ctx, cancel := context.WithCancel(t.Context())
				name := fmt.Sprintf("%d/%d/", who, n)
				res := newResults()
				req := request(b, st, name+filling)
				req.Reply = res
				var giveUp sync.WaitGroup
				if who == 0 {
					spins := r.IntN(2000)
					giveUp.Go(func() {
						for range spins {
							if ctx.Err() != nil {
								return
							}
						}
						cancel()
					})
				}
				err := b.Publish(ctx, req)
				if err == nil {
					if got := res.wait(t, 0); got.Err != nil {
						t.Errorf("%s: %v", name, got.Err)
					}
				}
				cancel()
				giveUp.Wait()
				mu.Lock()
				taken[name] = err == nil
				if err != nil {
					cancelled++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if cancelled == 0 {
		t.Error("nobody was cancelled")
	}
	if res := publish(t, b, st, "the next"); res.Err != nil {
		t.Fatalf("the stream stands still: %+v", res)
	}
	accepted := 0
	for _, ok := range taken {
		if ok {
			accepted++
		}
	}
	t.Logf("%d accepted, %d cancelled", accepted, cancelled)
	seen := live.wait(accepted + 1)
	disk := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, disk)
	again := disk.wait(accepted + 1)
	for i, e := range seen {
		if e != again[i] || e.offset != uint64(i) {
			t.Fatalf("event %d: live offset %d, from the log %d", i, e.offset, again[i].offset)
		}
		if name, _, ok := cutName(e.payload); ok && !taken[name] {
			t.Fatalf("%s was refused and is there", name)
		}
	}
	if end := st.Info().ShardInfo[0].Tail; end != uint64(accepted)+1 {
		t.Errorf("the log ends at %d, accepted were %d", end, accepted+1)
	}
}

func cutName(payload string) (name, rest string, ok bool) {
	slashes := 0
	for i := range payload {
		if payload[i] == '/' {
			if slashes++; slashes == 2 {
				return payload[:i+1], payload[i+1:], true
			}
		}
	}
	return "", payload, false
}

// HZ-13, PUB-10: sixteen publishers share groups, eight readers listen; then the broker starts anew and
// the log is read. All nine sequences are the same, record for record, and the answers fit them.
func TestLiveOrderIsDiskOrder(t *testing.T) {
	const publishers, each, readers = 16, 100, 8
	dir := t.TempDir()
	b, err := Open(t.Context(), Options{SegmentBytes: 64 << 10, SubscriberQueue: 1 << 14, SubscriberQueueMax: 1 << 14}.in(dir))
	if err != nil {
		t.Fatal(err)
	}
	st := stream(t, b, StreamDef{Durable: true})
	live := make([]*reader, readers)
	for i := range live {
		live[i] = newReader(t, wire.FlagEvOffsets)
		subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, live[i])
	}
	answers := make([]map[string]uint64, publishers)
	var wg sync.WaitGroup
	for p := range publishers {
		answers[p] = map[string]uint64{}
		wg.Go(func() {
			res := newResults()
			for n := range uint64(each) {
				r := request(b, st, fmt.Sprintf("%d/%d/", p, n))
				r.Reply, r.Tag = res, n
				if err := b.Publish(t.Context(), r); err != nil {
					t.Error(err)
					return
				}
				if n%8 == 7 { // some of them under way together
					res.wait(t, n)
				}
			}
			for n := range uint64(each) {
				answers[p][fmt.Sprintf("%d/%d/", p, n)] = res.wait(t, n).Offset
			}
		})
	}
	wg.Wait()
	if syncs := b.Status().Executors[0].Ring.Syncs; syncs >= publishers*each {
		t.Errorf("%d syncs for %d publishes: no group was shared", syncs, publishers*each)
	}
	first := live[0].wait(publishers * each)
	for _, r := range live[1:] {
		for i, e := range r.wait(publishers * each) {
			if e != first[i] {
				t.Fatalf("two readers differ at %d: %+v and %+v", i, e, first[i])
			}
		}
	}
	closeTest(t, b)
	again := openTest(t, Options{SegmentBytes: 64 << 10}.in(dir))
	disk := newReader(t, wire.FlagEvOffsets)
	subscribe(t, again, &SubscribeRequest{Stream: stream(t, again, StreamDef{Durable: true}), Start: earliest}, disk)
	for i, e := range disk.wait(publishers * each) {
		if e != first[i] || e.offset != uint64(i) {
			t.Fatalf("record %d on the disk is %+v, live it was %+v", i, e, first[i])
		}
		var p int
		if _, err := fmt.Sscanf(e.payload, "%d/", &p); err != nil || answers[p][e.payload] != e.offset {
			t.Fatalf("%q was acknowledged at %d and is at %d", e.payload, answers[p][e.payload], e.offset)
		}
	}
}
