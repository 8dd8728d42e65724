package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/wire"
)

// outcome is what a publisher was told about one record.
type outcome uint8

const (
	outcomeUnknown outcome = iota // no answer, or one that says maybe
	outcomeAcked
	outcomeRefused // the answer says that nothing was applied
)

// series is what one publisher sent, in order. Each record names its series and number and carries
// its own checksum, so that a reader can judge it without anything else.
type series struct {
	id     uint32
	mu     sync.Mutex // guards what follows
	sent   []outcome  // by number
	offset []uint64   // by number, of acked records
	broken error
}

const recordHead = 4 + 8 + 4 // series, number, length of the filling

// record makes record n of series id: a head, filling from a seed, a checksum of all.
func record(id uint32, n uint64) []byte {
	r := rand.New(rand.NewPCG(uint64(id), n))
	size := r.IntN(600)
	switch r.IntN(200) {
	case 0:
		size = 100 << 10
	case 1, 2, 3:
		size = 8 << 10
	}
	b := make([]byte, recordHead+size+4)
	binary.BigEndian.PutUint32(b, id)
	binary.BigEndian.PutUint64(b[4:], n)
	binary.BigEndian.PutUint32(b[12:], uint32(size))
	for i := recordHead; i < recordHead+size; i++ {
		b[i] = byte(r.Uint32())
	}
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.ChecksumIEEE(b[:len(b)-4]))
	return b
}

// parseRecord returns the series and number of a record that is whole.
func parseRecord(b []byte) (id uint32, n uint64, err error) {
	if len(b) < recordHead+4 {
		return 0, 0, fmt.Errorf("record of %d bytes is torn", len(b))
	}
	if crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return 0, 0, fmt.Errorf("record of %d bytes fails its checksum", len(b))
	}
	return binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:]), nil
}

// next reserves the number of the record to send.
func (s *series) next() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, outcomeUnknown)
	s.offset = append(s.offset, 0)
	return uint64(len(s.sent) - 1)
}

// told notes the answer for record n. Only answers that cannot happen are failures.
func (s *series) told(n uint64, ack client.Ack, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && !ack.HasOffset:
		s.broken = fmt.Errorf("series %d record %d: acked without an offset on a durable stream", s.id, n)
	case err == nil:
		s.sent[n], s.offset[n] = outcomeAcked, ack.Offset
	case !mayBeApplied(err):
		s.sent[n] = outcomeRefused
	}
}

// mayBeApplied says whether a record that failed with err may still be in the log.
func mayBeApplied(err error) bool {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Retry == wire.RetryUnknown
	}
	return true
}

// oracle judges what a reader sees of a stream that several series were published to (T14).
type oracle struct {
	series []*series
	next   uint64            // the offset that must come next
	seen   []map[uint64]bool // by series: the numbers seen
	last   []int64           // by series: the newest number seen
	sum    uint32            // of all records seen, in order

	duplicates, torn int // what see has complained of, counted for the table of a run
}

func newOracle(all []*series) *oracle {
	o := &oracle{series: all, last: make([]int64, len(all))}
	for i := range all {
		o.seen = append(o.seen, make(map[uint64]bool))
		o.last[i] = -1
	}
	return o
}

// see judges one event: its offset follows, it is whole, was sent, and comes once and in order.
func (o *oracle) see(e client.Event) error {
	if !e.HasOffset || e.Offset != o.next {
		return fmt.Errorf("offset %d (%v) follows %d: a gap or a duplicate", e.Offset, e.HasOffset, int64(o.next)-1)
	}
	o.next++
	id, n, err := parseRecord(e.Payload)
	if err != nil {
		o.torn++
		return fmt.Errorf("offset %d: %w", e.Offset, err)
	}
	o.sum = crc32.Update(o.sum, crc32.IEEETable, e.Payload)
	if int(id) >= len(o.series) {
		return fmt.Errorf("offset %d: series %d was never started", e.Offset, id)
	}
	s := o.series[id]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case n >= uint64(len(s.sent)):
		return fmt.Errorf("offset %d: series %d record %d was never sent", e.Offset, id, n)
	case o.seen[id][n]:
		o.duplicates++
		return fmt.Errorf("offset %d: series %d record %d comes twice", e.Offset, id, n)
	case int64(n) < o.last[id]:
		return fmt.Errorf("offset %d: series %d record %d comes after %d", e.Offset, id, n, o.last[id])
	case s.sent[n] == outcomeRefused:
		return fmt.Errorf("offset %d: series %d record %d was refused and is there", e.Offset, id, n)
	case s.sent[n] == outcomeAcked && s.offset[n] != e.Offset:
		return fmt.Errorf("series %d record %d was acked at %d and is at %d", id, n, s.offset[n], e.Offset)
	}
	o.seen[id][n], o.last[id] = true, int64(n)
	return nil
}

// missing returns the acked records that were not seen. Publishers must be quiet.
func (o *oracle) missing() error {
	var errs []error
	for i, s := range o.series {
		s.mu.Lock()
		if s.broken != nil {
			errs = append(errs, s.broken)
		}
		for n, out := range s.sent {
			if out == outcomeAcked && !o.seen[i][uint64(n)] {
				errs = append(errs, fmt.Errorf("series %d record %d, acked at %d, is lost", i, n, s.offset[n]))
			}
		}
		s.mu.Unlock()
	}
	return errors.Join(errs[:min(len(errs), 10)]...)
}

// present is how many of the acked records were seen.
func (o *oracle) present() (n int) {
	for i, s := range o.series {
		s.mu.Lock()
		for k, out := range s.sent {
			if out == outcomeAcked && o.seen[i][uint64(k)] {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// counts sums the outcomes of all series.
func counts(all []*series) (sent, acked, refused int) {
	for _, s := range all {
		s.mu.Lock()
		sent += len(s.sent)
		for _, o := range s.sent {
			switch o {
			case outcomeAcked:
				acked++
			case outcomeRefused:
				refused++
			}
		}
		s.mu.Unlock()
	}
	return sent, acked, refused
}

// tail is one above the highest acked offset.
func tail(all []*series) uint64 {
	var t uint64
	for _, s := range all {
		s.mu.Lock()
		for n, o := range s.sent {
			if o == outcomeAcked {
				t = max(t, s.offset[n]+1)
			}
		}
		s.mu.Unlock()
	}
	return t
}

// readTo feeds the oracle from a subscription until the offset `to` comes next.
func (o *oracle) readTo(ctx context.Context, sub *client.Subscription, to uint64) error {
	for o.next < to {
		e, err := sub.Next(ctx)
		if err != nil {
			return fmt.Errorf("after offset %d of %d: %w", int64(o.next)-1, to, err)
		}
		if err := o.see(e); err != nil {
			return err
		}
	}
	return nil
}
