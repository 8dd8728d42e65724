package core

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring/ringtest"
	"github.com/ringcast/ringcast/wire"
)

func put(key, value string) Change {
	return Change{Op: log.ChangePut, Key: key, Value: []byte(value)}
}

func del(key string) Change { return Change{Op: log.ChangeDelete, Key: key} }

// commit commits and waits for the answer.
func commit(t testing.TB, b *Broker, r *PublishRequest, event string, changes ...Change) PublishResult {
	t.Helper()
	res := newResults()
	r.Reply = res
	if err := b.Commit(t.Context(), r, []byte(event), changes); err != nil {
		return PublishResult{Err: wire.AsError(err)}
	}
	return res.wait(t, 0)
}

func mustCommit(t testing.TB, b *Broker, st *Stream, event string, changes ...Change) (offset uint64) {
	t.Helper()
	res := commit(t, b, &PublishRequest{Stream: st}, event, changes...)
	if res.Err != nil || res.Refused != nil || !res.HasOffset {
		t.Fatalf("commit of %q: %+v", event, res)
	}
	return res.Offset
}

// text is a state value as "value@version", "-" for none.
func (v StateValue) text() string {
	if v.Value == nil {
		return "-"
	}
	return fmt.Sprintf("%s@%d", v.Value, v.Version)
}

func wantState(t testing.TB, b *Broker, st *Stream, key, want string) StateValue {
	t.Helper()
	v, err := b.State(t.Context(), st, 0, key)
	if err != nil || v.text() != want {
		t.Fatalf("state of %q: %s, %v; want %s", key, v.text(), err, want)
	}
	return v
}

// list reads shard 0 of a stream to its end.
func list(t testing.TB, b *Broker, st *Stream) (events []event) {
	t.Helper()
	for from := base(st); ; {
		p, err := b.ReadPage(&ReadRequest{Stream: st, From: from})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			events = append(events, event{r.Offset, string(r.Payload)})
		}
		done := p.Next == from
		from = p.Next
		p.Release()
		if done {
			return events
		}
	}
}

// PUB-25: of conditional publishes at one offset exactly one is written. The comparison counts what
// is claimed and not yet on the disk; a loser takes no offset, and what is queued behind it is claimed
// and written as if it had not been there. It learns the tail as soon as all below can be read, so
// that who looks there before the next attempt sees what won. PUB-8: each is claimed alone.
// What took a loser's offset fails: the loser is told the tail that there is then, and nothing that was
// promised to it is gone.
// COM-1: a counter in the state, raised by clients that read it and write what follows at the tail that they
// were told. No increment is lost: who is told a tail reads the state of all below it.
// PUB-25: many clients count with conditional publishes, each repeating with the tail it was told. No
// two are written at one offset, and all of them get through.
// A condition needs something that has an offset: a log, and a record.
// A commit is one record: readers of every kind get its event at the offset that the state names as the
// version, between the other records; changes happen in order; expectations are compared as those of a
// conditional publish. All of it is the same after a restart.
func TestCommitIsAnEventAndItsState(t *testing.T) {
	o := Options{}.in(t.TempDir())
	b := openTest(t, o)
	def := StreamDef{Durable: true}
	st := stream(t, b, def)
	live := newReader(t, wire.FlagEvOffsets|wire.FlagEvPublisher|wire.FlagEvTimes)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, live)
	if v := wantState(t, b, st, "a", "-"); v.HasAsOf {
		t.Errorf("an empty log reflects %d", v.AsOf)
	}
	publish(t, b, st, "plain 0", "plain 1")
	r := &PublishRequest{Stream: st, Publisher: "ann"}
	if res := commit(t, b, r, "event 2", put("a", "1"), put("b", ""), put("a", "2"), del("c"), put("c", "3"), put("d", "4"), del("d")); res.Offset != 2 {
		t.Fatalf("%+v", res)
	}
	publish(t, b, st, "plain 3")
	if at := mustCommit(t, b, st, "", del("c")); at != 4 { // an event of no bytes is an event
		t.Fatalf("at %d", at)
	}
	if res := commit(t, b, &PublishRequest{Stream: st, Conditional: true, Expected: 4}, "lost", put("a", "lost")); res.Refused == nil || res.Refused.Tail != 5 {
		t.Fatalf("%+v", res)
	}
	if res := commit(t, b, &PublishRequest{Stream: st, Conditional: true, Expected: 5}, "event 5", put("e", "5")); res.Offset != 5 {
		t.Fatalf("%+v", res)
	}
	want := fmt.Sprint([]event{{0, "plain 0"}, {1, "plain 1"}, {2, "event 2"}, {3, "plain 3"}, {4, ""}, {5, "event 5"}})
	if got := fmt.Sprint(live.wait(6)); got != want {
		t.Errorf("live: %s", got)
	}
	for _, when := range []string{"before", "after"} {
		st = stream(t, b, def)
		for key, want := range map[string]string{"a": "2@2", "b": "@2", "c": "-", "d": "-", "e": "5@5", "": "-"} {
			if v := wantState(t, b, st, key, want); !v.HasAsOf || v.AsOf != 5 {
				t.Errorf("%s: %q reflects %d", when, key, v.AsOf)
			}
		}
		if got := fmt.Sprint(list(t, b, st)); got != want {
			t.Errorf("%s: list %s", when, got)
		}
		for _, from := range []uint64{0, 2, 3, 5} { // from the ring and from the disk
			r := newReader(t, wire.FlagEvOffsets)
			sub := subscribe(t, b, &SubscribeRequest{Stream: st, Start: wire.Start{Kind: wire.StartOffset, Offset: from}}, r)
			if got := r.wait(int(6 - from)); fmt.Sprint(got) != fmt.Sprint(live.wait(6)[from:]) {
				t.Errorf("%s: from %d: %v", when, from, got)
			}
			sub.stop()
		}
		p, err := b.ReadPage(&ReadRequest{Stream: st, From: 2, MaxRecords: 1})
		if err != nil || len(p.Records) != 1 || p.Records[0].Publisher != "ann" || p.Next != 3 || p.Records[0].TimeMicros == 0 {
			t.Errorf("%s: page %+v, %v", when, p, err)
		}
		p.Release()
		closeTest(t, b)
		if when == "before" {
			b = openTest(t, o)
		}
	}
}

// COM-1: whoever has seen the event of a commit, in whatever way and at whatever moment, finds its state,
// and whoever has seen the state finds the event. The narrow place is the step in which the log learns
// that the commit is on the disk: whatever a read of history shows there, a state read that follows it in
// the same step must not be answered from before.
func TestStateIsNeverOlderThanAnEventThatWasRead(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	e := st.shards[0].exec
	res := newResults()
	if err := b.Commit(t.Context(), &PublishRequest{Stream: st, Reply: res}, []byte("event"), []Change{put("k", "v")}); err != nil {
		t.Fatal(err)
	}
	op := pending(t, engine, 1)[0]
	wantState(t, b, st, "k", "-") // claimed, and seen by nobody
	if got := list(t, b, st); len(got) != 0 {
		t.Fatalf("an unwritten event was read: %v", got)
	}
	release := hold(t, e)
	engine.Run(op) // its end waits in the inbox
	read := make(chan StateValue, 1)
	look := newTask(taskCall, nil)
	var seen []event
	look.call = func() { // behind the end of the operation, in the same step
		seen = list(t, b, st)
		go func() {
			v, err := b.State(t.Context(), st, 0, "k")
			if err != nil {
				t.Error(err)
			}
			read <- v
		}()
		for e.inbox.Empty() {
			runtime.Gosched()
		}
	}
	e.inbox.Push(&look.node)
	release()
	if v := <-read; v.text() != "v@0" {
		t.Errorf("the event was read (%v), then the state was %s", seen, v.text())
	}
	if got := list(t, b, st); len(got) != 1 {
		t.Errorf("the state was read, then the events were %v", got)
	}
	res.wait(t, 0)
	closeTest(t, b)
}

// COM-1: readers of history, of the state and of the live feed run against committers. Who reads the list,
// the state and the list again finds the state at least as new as the first list, and its event in the
// second; a live event is never ahead of the state.
func TestNobodySeesHalfACommit(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true, Fsync: "none"})
	stop := make(chan struct{})
	committers := make(chan struct{})
	for c := range 3 {
		go func() {
			defer func() { committers <- struct{}{} }()
			for n := 0; !over(stop); n++ {
				text := fmt.Sprint(c, "/", n)
				res := newResults()
				if err := b.Commit(t.Context(), &PublishRequest{Stream: st, Reply: res}, []byte(text), []Change{put("k", text), put(text, text)}); err != nil {
					t.Error(err)
					return
				}
				res.wait(t, 0)
				if n%3 == 0 {
					publish(t, b, st, "plain")
				}
			}
		}()
	}
	live := newReader(t, wire.FlagEvOffsets)
	subscribe(t, b, &SubscribeRequest{Stream: st, Start: earliest}, live)
	from := uint64(0)
	next := func() (events []event) {
		p, err := b.ReadPage(&ReadRequest{Stream: st, From: from})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		for _, r := range p.Records {
			events = append(events, event{r.Offset, string(r.Payload)})
		}
		return events
	}
	for round := range 300 {
		if round%2 == 0 { // whatever the feed has delivered by now, the state has
			live.mu.Lock()
			var last *event
			for i := len(live.got) - 1; i >= 0 && last == nil; i-- {
				if e := live.got[i]; e.payload != "plain" {
					last = &e
				}
			}
			live.mu.Unlock()
			if last != nil {
				v, err := b.State(t.Context(), st, 0, last.payload)
				if err != nil || v.text() != fmt.Sprintf("%s@%d", last.payload, last.offset) {
					t.Fatalf("live event %v, state %s, %v", *last, v.text(), err)
				}
			}
		}
		first := next()
		v, err := b.State(t.Context(), st, 0, "k")
		if err != nil {
			t.Fatal(err)
		}
		second := next()
		for _, e := range first {
			if e.payload != "plain" && (v.Value == nil || e.offset > v.Version || e.offset > v.AsOf) {
				t.Fatalf("event %v was read, then the state was %s as of %d", e, v.text(), v.AsOf)
			}
		}
		if v.Value != nil && v.Version >= from {
			found := false
			for _, e := range second {
				found = found || e.offset == v.Version && e.payload == string(v.Value)
			}
			if !found && uint64(len(second)) < ReadRecordsMax {
				t.Fatalf("state %s, and its event is not in the list behind %d", v.text(), from)
			}
			from = v.Version
		}
	}
	close(stop)
	for range 3 {
		<-committers
	}
}

// PUB-8: a commit is claimed alone, between those before and behind it.
func TestCommitIsClaimedAlone(t *testing.T) {
	engine := ringtest.NewEngine(8)
	b := openTest(t, Options{}.in(t.TempDir()).scripted(engine))
	st := stream(t, b, StreamDef{Durable: true})
	res := newResults()
	release := hold(t, st.shards[0].exec)
	for tag := range uint64(6) {
		if tag == 2 || tag == 3 {
			if err := b.Commit(t.Context(), &PublishRequest{Stream: st, Reply: res, Tag: tag}, []byte("e"), []Change{put("k", fmt.Sprint(tag))}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r := request(b, st, "x")
		r.Reply, r.Tag = res, tag
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	release()
	pending(t, engine, 1)
	if claims := b.Status().Executors[0].ClaimSizes; claims != [ClaimSizes]uint64{2, 2} { // of 2, 1, 1 and 2
		t.Errorf("claims by size: %v", claims)
	}
	if n := len(engine.Pending()); n != 1 {
		t.Errorf("%d writes", n)
	}
	pump(t, engine)
	for tag := range uint64(6) {
		if got := res.wait(t, tag); got.Err != nil || got.Offset != tag {
			t.Errorf("publish %d: %+v", tag, got)
		}
	}
	wantState(t, b, st, "k", "3@3")
	closeTest(t, b)
}

// A shard that this broker does not serve gives no state away and takes no commit; both say why.
func TestFencedShardHasNoState(t *testing.T) {
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	mustCommit(t, b, st, "e", put("k", "v"))
	if err := b.Fence(st, 0, Moving); err != nil {
		t.Fatal(err)
	}
	_, err := b.State(t.Context(), st, 0, "k")
	for _, err := range []error{err, commit(t, b, &PublishRequest{Stream: st}, "e", put("k", "w")).Err} {
		if e := wire.AsError(err); e == nil || e.Code != wire.CodeShardUnavailable || e.Reason != "moving" {
			t.Errorf("%+v", e)
		}
	}
	if err := b.Fence(st, 0, Served); err != nil {
		t.Fatal(err)
	}
	wantState(t, b, st, "k", "v@0")
	mustCommit(t, b, st, "e", put("k", "w"))
}

// A panic while commits are completed may leave the state half made. It is read anew from the log, so that it
// still is that of the events that can be read.
func TestStateAfterAPanicIsThatOfTheLog(t *testing.T) { // COM-1, PUB-7
	b, err := Open(t.Context(), Options{}.in(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer closeFailed(b)
	st := stream(t, b, StreamDef{Durable: true})
	sh := st.shards[0]
	mustCommit(t, b, st, "first", put("k", "first"))
	release := hold(t, sh.exec)
	res := newResults()
	for tag := range uint64(3) {
		changes := []Change{put("k", fmt.Sprint(tag))}
		record, err := log.AppendCommitRecord(nil, fmt.Append(nil, tag), changes)
		if err != nil {
			t.Fatal(err)
		}
		r := request(b, st, string(record))
		r.Reply, r.Tag, r.commit = res, tag, &commitPart{eventLen: 1, changes: changes}
		if tag == 0 {
			r.commit.eventLen = 1 << 20 // a panic when its state is made and its event is not
		}
		if err := b.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	release()
	for tag := range uint64(3) {
		if got := res.wait(t, tag); got.Err == nil || got.Err.Retry != wire.RetryUnknown {
			t.Errorf("commit %d: %+v", tag, got)
		}
	}
	v, err := b.State(t.Context(), st, 0, "k")
	if err != nil {
		t.Fatal(err)
	}
	events := list(t, b, st)
	if len(events) == 0 {
		t.Fatal("not even the first commit can be read")
	}
	if last := events[len(events)-1]; v.text() != fmt.Sprintf("%s@%d", last.payload, last.offset) {
		t.Errorf("state %s, list %v", v.text(), events)
	}
	if res := commit(t, b, &PublishRequest{Stream: st}, "e", put("k", "w")); res.Err == nil {
		t.Errorf("%+v", res)
	}
}

// A commit whose write fails has no event and no state, gives back what it had reserved, and the next one
// takes its offset.
func TestFailedCommitLeavesNothing(t *testing.T) {
	fs := ringtest.NewFS(nil)
	b := openTest(t, Options{FS: fs}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	mustCommit(t, b, st, "first", put("k", "first"))
	held := b.Status().StateBytes
	fs.Add(ringtest.Rule{Kind: ringtest.Write, Path: ".seg", Err: syscall.ENOSPC})
	if res := commit(t, b, &PublishRequest{Stream: st}, "lost", put("k", "lost"), put("other", "lost")); !errors.Is(res.Err, wire.ErrOverloaded) {
		t.Fatalf("%+v", res)
	}
	wantState(t, b, st, "k", "first@0")
	wantState(t, b, st, "other", "-")
	if now := b.Status().StateBytes; now != held {
		t.Errorf("%d bytes of state, %d before", now, held)
	}
	eventually(t, "there is room again", func() bool {
		res := commit(t, b, &PublishRequest{Stream: st}, "second", put("k", "second"))
		return res.Err == nil && res.Offset == 1
	})
	wantState(t, b, st, "k", "second@1")
}

// COM-1: a periodic log that is poisoned takes back what was only in the page cache; the state goes back
// with it, to what can be read.
func TestStateStopsAtTheDurableBound(t *testing.T) {
	fs := ringtest.NewFS(nil)
	o := Options{FS: fs, FsyncInterval: time.Millisecond}.in(t.TempDir())
	b, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFailed(b)
	st := stream(t, b, StreamDef{Durable: true, Fsync: "periodic"})
	sh := st.shards[0]
	mustCommit(t, b, st, "durable", put("k", "durable"))
	eventually(t, "the commit is synced", func() bool { return sh.log.Stats().Durable == 1 })
	entered, wait := make(chan struct{}, 1), make(chan struct{})
	fs.Add(ringtest.Rule{Kind: ringtest.Sync, Path: fmt.Sprintf("%016x", st.id), Err: syscall.EIO, Entered: entered, Wait: wait})
	mustCommit(t, b, st, "page cache", put("k", "page cache"), put("other", "x"))
	<-entered
	wantState(t, b, st, "k", "page cache@1")
	close(wait)
	eventually(t, "the log is poisoned", func() bool { return sh.failure.Load() != nil })
	if v := wantState(t, b, st, "k", "durable@0"); v.AsOf != 0 {
		t.Errorf("as of %d", v.AsOf)
	}
	wantState(t, b, st, "other", "-")
	if got := list(t, b, st); len(got) != 1 {
		t.Errorf("list %v", got)
	}
	if res := commit(t, b, &PublishRequest{Stream: st}, "refused", put("k", "refused")); res.Err == nil {
		t.Errorf("%+v", res)
	}
}

// COM-1, PUB-4, PUB-25: on a replicated shard a commit has neither event nor state before its majority holds
// it, also after it was answered that its outcome is unknown, and the loser of a condition is told the
// tail when everything below that can be read.
func TestCommitWaitsForItsMajority(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) {
			o := Options{}.in(t.TempDir())
			if late {
				o.QuorumTimeout = time.Millisecond
			}
			b := openTest(t, o)
			st, m := replicated(t, b, StreamDef{Durable: true})
			won, lost := newResults(), newResults()
			if err := b.Commit(t.Context(), &PublishRequest{Stream: st, Reply: won, Conditional: true}, []byte("e"), []Change{put("k", "v")}); err != nil {
				t.Fatal(err)
			}
			heldBack(t, st.shards[0], 1)
			if late {
				if r := won.wait(t, 0); r.Err == nil || r.Err.Code != wire.CodeQuorumTimeout {
					t.Fatalf("%+v", r)
				}
			}
			wantState(t, b, st, "k", "-")
			if got := list(t, b, st); len(got) != 0 {
				t.Fatalf("an event without its majority was read: %v", got)
			}
			if !late { // else the loser's wait ends as the winner's did
				if err := b.Commit(t.Context(), &PublishRequest{Stream: st, Reply: lost, Conditional: true}, []byte("f"), []Change{put("k", "w")}); err != nil {
					t.Fatal(err)
				}
				heldBack(t, st.shards[0], 2)
			}
			m.move(b, st, 1)
			if !late {
				if r := won.wait(t, 0); r.Err != nil || r.Offset != 0 {
					t.Errorf("winner: %+v", r)
				}
				if r := lost.wait(t, 0); r.Refused == nil || r.Refused.Kind != RefusedOffset || r.Refused.Tail != 1 {
					t.Errorf("loser: %+v", r)
				}
			}
			eventually(t, "the commit is visible", func() bool { return len(list(t, b, st)) == 1 })
			wantState(t, b, st, "k", "v@0")
			if n := b.Status().StateBytes; n != stateCost("k", []byte("v")) {
				t.Errorf("%d bytes of state", n)
			}
		})
	}
}
