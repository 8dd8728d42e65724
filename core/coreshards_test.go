package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

// CORE-1: with N executors the work of the shard with the dense id i is done by number i mod N and by no
// other, also after a restart. Shard n of a stream has the id of the stream's first shard plus n.
func TestShardRunsOnTheExecutorOfItsId(t *testing.T) {
	const n = 4
	dir := t.TempDir()
	for range 2 {
		b := openTest(t, Options{CoreShards: n}.in(dir))
		for i, shards := range []uint32{1, 3, 2, 5} {
			st := stream(t, b, StreamDef{Stream: fmt.Sprint(i), Durable: i%2 == 0, Shards: shards})
			for shard := range shards {
				owner := int((st.first + uint64(shard)) % n)
				before := b.Status().Executors
				r := request(b, st, "x")
				r.Shard = shard
				if res := publishRequest(t, b, r); res.Err != nil {
					t.Fatal(res.Err)
				}
				sh := st.shards[shard]
				if sh.exec.id != owner {
					t.Errorf("stream %d shard %d is executor %d's, want %d", i, shard, sh.exec.id, owner)
				}
				if err := sh.exec.call(func() {
					if !slices.Contains(sh.exec.shards, sh) {
						t.Errorf("stream %d shard %d is not among those of executor %d", i, shard, owner)
					}
				}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "its executor has counted it", func() bool {
					return b.Status().Executors[owner].Claimed == before[owner].Claimed+1
				})
				for e, after := range b.Status().Executors {
					if e != owner && (after.Claimed != before[e].Claimed || after.Finished != before[e].Finished) {
						t.Errorf("stream %d shard %d: executor %d worked for it", i, shard, e)
					}
				}
			}
		}
		closeTest(t, b)
	}
}

// totals is what a broker did, in the sum of its executors, and per tenant.
type totals struct {
	Claimed, Finished, Failed, Refused, AckedDropped uint64
	Delivered                                        uint64
	Tenants                                          []TenantStatus
}

// life is everything that a client can see of a broker's work, by stream and shard.
type life struct {
	Answers []PublishResult
	Refused []string // at admission
	Live    map[string][]event
	History map[string][]event
	Totals  totals
}

// CORE-2: answers, offsets, refusals, order, what live readers and history give, and the counters are the
// same for every number of executors: plain, empty and idempotent publishes, durable and in memory, of
// two tenants.
func TestResultsDoNotDependOnCoreShards(t *testing.T) {
	var want *life
	for _, n := range []int{0, 1, 2, 4} {
		got := liveOnce(t, n)
		if want == nil {
			want = got
			if len(want.Refused) == 0 || want.Totals.Refused == 0 || want.Totals.Failed == 0 || want.Totals.AckedDropped == 0 {
				t.Fatalf("nothing was refused: %+v", want.Totals)
			}
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(event{}), cmp.Comparer(sameError)); diff != "" {
			t.Errorf("%d core shards (-0 +%d):\n%s", n, n, diff)
		}
	}
}

func sameError(a, b *wire.Error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error() && a.Retry == b.Retry)
}

// liveOnce runs one fixed workload on a broker of n core shards.
func liveOnce(t *testing.T, n int) *life {
	const shards, rounds = 4, 60
	l := &life{Live: map[string][]event{}, History: map[string][]event{}}
	b := openTest(t, Options{CoreShards: n, CorePin: true, PublishQueueDepth: 2000}.in(t.TempDir()))
	streams := map[string]*Stream{}
	live := map[string]*reader{}
	var names []string
	for _, durable := range []bool{true, false} {
		for _, tenant := range []string{"t", "u"} {
			name := fmt.Sprint(tenant, " durable=", durable)
			names = append(names, name)
			streams[name] = stream(t, b, StreamDef{Tenant: tenant, Stream: fmt.Sprint(durable), Durable: durable, Shards: shards})
			for shard := range uint32(shards) {
				r := newReader(t, wire.FlagEvOffsets)
				live[fmt.Sprint(name, "/", shard)] = r
				subscribe(t, b, &SubscribeRequest{Stream: streams[name], Shard: shard, Start: latest, QueueCapacity: new(uint32(4096))}, r)
			}
		}
	}
	s := newSender(t, b)
	records := map[string]int{}
	send := func(name string, shard uint32, round int) {
		st := streams[name]
		r := request(b, st, fmt.Sprint(shard, "/", round))
		kept := 1
		switch round % 6 {
		case 1: // several records
			r.Buf.Release()
			r, kept = request(b, st, fmt.Sprint(round, "a"), fmt.Sprint(round, "b")), 2
		case 2: // none
			r.Buf.Release()
			r, kept = request(b, st), 0
		case 3: // the next of a producer
			r.Idempotent, r.ProducerID, r.Sequence = true, 9, uint64(round/6)
		case 4: // a duplicate, or other payloads under a sequence that was used
			if round%12 == 4 {
				r.Buf.Release()
				r = request(b, st, fmt.Sprint(shard, "/", round-1))
			}
			r.Idempotent, r.ProducerID, r.Sequence, kept = true, 9, uint64(round/6), 0
		case 5: // a gap
			r.Idempotent, r.ProducerID, r.Sequence, kept = true, 9, 1000, 0
		}
		r.Shard = shard
		s.send(r)
		records[fmt.Sprint(name, "/", shard)] += kept
	}
	for round := range rounds {
		for _, name := range names {
			for shard := range uint32(shards) {
				send(name, shard, round)
			}
		}
	}
	for tag := range s.tag {
		l.Answers = append(l.Answers, s.res.wait(t, tag))
	}
	// Refused at admission, and acknowledged when queued but refused when claimed.
	for _, name := range names {
		st := streams[name]
		for shard := range uint32(shards + 1) {
			if shard == 0 {
				release := hold(t, st.shards[0].exec)
				fenced := make(chan error)
				go func() { fenced <- b.Fence(st, 0, Moving) }()
				queued(t, st.shards[0].exec)
				r := request(b, st, "fenced")
				r.AckOnQueue = true
				l.Answers = append(l.Answers, s.res.wait(t, s.send(r)))
				release()
				if err := <-fenced; err != nil {
					t.Fatal(err)
				}
			}
			r := request(b, st, "refused")
			r.Shard = shard
			if shard > 0 && shard < shards {
				r.Buf.Release()
				r = request(b, st)
				r.Idempotent, r.Shard = true, shard
			}
			err := b.Publish(t.Context(), r)
			l.Refused = append(l.Refused, fmt.Sprint(name, "/", shard, ": ", err))
			if !errors.Is(err, wire.ErrUnavailable) && !errors.Is(err, wire.ErrInvalidRequest) {
				t.Errorf("%s shard %d: %v", name, shard, err)
			}
		}
		if err := b.Fence(st, 0, Served); err != nil {
			t.Fatal(err)
		}
	}
	for key, r := range live {
		l.Live[key] = r.wait(records[key])
		if !strings.Contains(key, "durable=true") {
			for i := range l.Live[key] { // in memory nothing is sent of offsets
				l.Live[key][i].offset = 0
			}
		}
	}
	for _, name := range names {
		if st := streams[name]; st.Durable() {
			for shard, events := range readAll(t, b, st) {
				l.History[fmt.Sprint(name, "/", shard)] = events
			}
		}
	}
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeTest(t, b)
	status := b.Status()
	for _, e := range status.Executors {
		l.Totals.Claimed += e.Claimed
		l.Totals.Finished += e.Finished
		l.Totals.Failed += e.Failed
		l.Totals.Refused += e.Refused
		for _, n := range e.AckedDropped {
			l.Totals.AckedDropped += n
		}
	}
	l.Totals.Delivered = status.DeliveredRecords
	l.Totals.Tenants = status.Tenants
	slices.SortFunc(l.Totals.Tenants, func(a, b TenantStatus) int { return strings.Compare(a.Tenant, b.Tenant) })
	return l
}

// CORE-3: the engine of one executor is stuck, or the executor does not come to a step at all: publishes to
// shards of another are written, answered and delivered meanwhile, and those of the stuck one when it
// goes on.
func TestStuckExecutorStopsNoOther(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprint("held=", held), func(t *testing.T) {
			var mu sync.Mutex
			var engines []*ringtest.Engine
			o := Options{CoreShards: 2}.in(t.TempDir())
			o.openEngine = func(string) (ring.Engine, string, error) {
				mu.Lock()
				defer mu.Unlock()
				engines = append(engines, ringtest.NewEngine(8))
				return engines[len(engines)-1], "", nil
			}
			b := openTest(t, o)
			st := stream(t, b, StreamDef{Durable: true, Shards: 2})
			stuck, well := st.shards[0].exec, st.shards[1].exec
			if stuck == well {
				t.Fatal("both shards have one executor")
			}
			release := func() {}
			if held {
				release = hold(t, stuck)
			}
			live := newReader(t, wire.FlagEvOffsets)
			subscribe(t, b, &SubscribeRequest{Stream: st, Shard: 1, Start: latest}, live)
			behind, beside := newSender(t, b), newSender(t, b)
			for i := range 10 {
				behind.records(st, fmt.Sprint(i))
			}
			if !held {
				pending(t, engines[stuck.id], 1)
			}
			pump(t, engines[well.id])
			for i := range 50 {
				r := request(b, st, fmt.Sprint(i))
				r.Shard = 1
				beside.send(r)
			}
			for i, offset := range beside.offsets() {
				if offset != uint64(i) {
					t.Fatalf("publish %d beside a stuck executor is at %d", i, offset)
				}
			}
			live.wait(50)
			if n := behind.res.count(); n != 0 {
				t.Errorf("%d publishes of the stuck executor are answered", n)
			}
			release()
			pump(t, engines[stuck.id])
			for i, offset := range behind.offsets() {
				if offset != uint64(i) {
					t.Errorf("publish %d of the stuck executor is at %d", i, offset)
				}
			}
			closeTest(t, b)
		})
	}
}
