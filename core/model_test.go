package core

import (
	"fmt"
	"sync"

	"github.com/ringcast/ringcast/wire"
)

// ledger is the naive model of what a broker has promised: per record what its publisher was told.
// Records are named writer/number/index, and every attempt that is not a resend has a new number.
type ledger struct {
	mu      sync.Mutex
	acked   map[string]uint64 // records of durable shards, with their offset
	refused map[string]bool   // nothing was applied, and will not be
}

func newLedger() *ledger {
	return &ledger{acked: map[string]uint64{}, refused: map[string]bool{}}
}

// copy is what had been promised at one moment.
func (l *ledger) copy() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := newLedger()
	for k, v := range l.acked {
		c.acked[k] = v
	}
	for k := range l.refused {
		c.refused[k] = true
	}
	return c
}

// check compares the records of all shards, each from offset 0, with the ledger: offsets without a
// hole, every acknowledged record at its offset and there once, nothing twice, nothing that was
// refused, and the records of each writer in the order in which it sent them.
func (l *ledger) check(shards [][]event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]uint64{}
	for shard, events := range shards {
		last := map[int][2]int{}
		for i, e := range events {
			if e.offset != uint64(i) {
				return fmt.Errorf("shard %d: event %d has offset %d", shard, i, e.offset)
			}
			if at, twice := seen[e.payload]; twice {
				return fmt.Errorf("record %s is at %d and at %d", e.payload, at, e.offset)
			}
			seen[e.payload] = e.offset
			if l.refused[e.payload] {
				return fmt.Errorf("record %s at %d was refused", e.payload, e.offset)
			}
			var w, n, k int
			if _, err := fmt.Sscanf(e.payload, "%d/%d/%d", &w, &n, &k); err != nil {
				return fmt.Errorf("record %q at %d is torn", e.payload, e.offset)
			}
			if before, ok := last[w]; ok && (n < before[0] || n == before[0] && k != before[1]+1 || n > before[0] && k != 0) {
				return fmt.Errorf("record %s at %d comes after %v", e.payload, e.offset, before)
			}
			last[w] = [2]int{n, k}
		}
	}
	for record, offset := range l.acked {
		at, ok := seen[record]
		if !ok {
			return fmt.Errorf("record %s, acknowledged at %d, is lost", record, offset)
		}
		if at != offset {
			return fmt.Errorf("record %s, acknowledged at %d, is at %d", record, offset, at)
		}
	}
	return nil
}

// batch is one publish of a writer.
type batch struct {
	number  int
	records []string
}

func (w *writer) batch(n int) batch {
	b := batch{number: n}
	for k := range 1 + (n*7+w.id)%3 {
		b.records = append(b.records, fmt.Sprintf("%d/%d/%d", w.id, n, k))
	}
	return b
}

// writer publishes to one shard, a window of batches at a time. An idempotent one sends again what
// it has no answer for, also after a restart and sometimes for nothing; a plain one never does.
type writer struct {
	id         int
	shard      uint32
	idempotent bool
	next       int // number of the first batch that is not acknowledged
}

// window sends a few batches and waits for all the answers. It says whether the shard goes on.
func (w *writer) window(t tester, b *Broker, st *Stream, l *ledger, size int, twice bool) bool {
	type sent struct {
		batch
		res PublishResult
		ok  bool // it was queued
	}
	res := newResults()
	var all []*sent
	for i := range size {
		for range 1 + b2i(twice && w.idempotent) {
			s := &sent{batch: w.batch(w.next + i)}
			r := request(b, st, s.records...)
			r.Shard, r.Reply, r.Tag = w.shard, res, uint64(len(all))
			if w.idempotent {
				r.Idempotent, r.ProducerID, r.Sequence = true, uint64(w.id), uint64(s.number)
			}
			all = append(all, s)
			err := b.Publish(t.Context(), r)
			if s.ok = err == nil; !s.ok {
				s.res = PublishResult{Err: wire.AsError(err)}
			}
		}
	}
	goOn := true
	for i, s := range all {
		if s.ok {
			s.res = res.wait(t, uint64(i))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range all {
		switch e := s.res.Err; {
		case s.res.Refused != nil:
			if !w.idempotent || s.res.Refused.Kind == RefusedReused {
				t.Errorf("writer %d, batch %d: %v", w.id, s.number, s.res.Refused)
			}
		case e == nil:
			for k, record := range s.records {
				offset := s.res.Offset + uint64(k)
				if at, ok := l.acked[record]; ok && at != offset {
					t.Errorf("record %s was acknowledged at %d and at %d", record, at, offset)
				}
				l.acked[record] = offset
			}
			if w.idempotent {
				w.next = max(w.next, s.number+1)
			}
		case e.Code == wire.CodeStorage:
			goOn = false
		case e.Retry == wire.RetryUnknown:
			t.Errorf("writer %d, batch %d: outcome unknown without a failed log: %v", w.id, s.number, e)
		}
		if e := s.res.Err; e != nil && e.Retry != wire.RetryUnknown && !w.idempotent {
			for _, record := range s.records {
				l.refused[record] = true
			}
		}
	}
	if !w.idempotent {
		w.next += size
	}
	return goOn
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
