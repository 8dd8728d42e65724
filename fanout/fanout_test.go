package fanout

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringcast/ringcast/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	plain   = wire.Flags(0)
	offsets = wire.FlagEvOffsets
	allOf   = wire.FlagEvOffsets | wire.FlagEvSkipped | wire.FlagEvPublisher | wire.FlagEvTimes
)

// everyShape is each set of optional parts.
func everyShape() (all []wire.Flags) {
	for i := range shapes {
		var f wire.Flags
		for bit, flag := range []wire.Flags{wire.FlagEvOffsets, wire.FlagEvSkipped, wire.FlagEvPublisher, wire.FlagEvTimes} {
			if i&(1<<bit) != 0 {
				f |= flag
			}
		}
		all = append(all, f)
	}
	return all
}

// tester is what helpers need of a *testing.T, a *testing.B or a *rapid.T.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// event is one delivered record, as a client sees it.
type event struct {
	Offset    uint64
	Skipped   uint64
	Publisher string
	Time      uint64
	Data      string
}

// decode reads frames as a client would and returns the events and the number of frames. Offsets
// are those on the wire.
func decode(t tester, frames [][]byte) (events []event, n int) {
	t.Helper()
	stream := bytes.Join(frames, nil)
	for len(stream) > 0 {
		h, err := wire.ParseHeader(stream)
		if err != nil {
			t.Fatalf("frame %d: %v", n, err)
		}
		if err := h.Flags.FromBroker(wire.FlagsKnown); err != nil {
			t.Fatalf("frame %d: flags %#x: %v", n, h.Flags, err)
		}
		if h.Length > wire.MaxFrameBytes {
			t.Fatalf("frame %d has %d bytes", n, h.Length)
		}
		end := wire.HeaderSize + int(h.Length)
		if end > len(stream) {
			t.Fatalf("frame %d is %d bytes short", n, end-len(stream))
		}
		var e wire.BinaryEvents
		if err := wire.DecodeEvents(h.Flags, stream[wire.HeaderSize:end], &e); err != nil {
			t.Fatalf("frame %d: %v", n, err)
		}
		if e.Count == 0 {
			t.Fatalf("frame %d is empty", n)
		}
		if h.Flags&wire.FlagEvSkipped != 0 && e.Skipped == 0 || h.Flags&wire.FlagEvPublisher != 0 && len(e.Publisher) == 0 {
			t.Fatalf("frame %d has a part without content", n)
		}
		for i := uint64(0); ; i++ {
			rec, micros, ok := e.Next()
			if !ok {
				if i != uint64(e.Count) || len(e.Records) != 0 {
					t.Fatalf("frame %d: %d records and %d bytes, count says %d", n, i, len(e.Records), e.Count)
				}
				break
			}
			ev := event{Publisher: string(e.Publisher), Time: micros, Data: string(rec)}
			if h.Flags&wire.FlagEvOffsets != 0 {
				ev.Offset = e.Base + i
				if i == 0 {
					ev.Skipped = e.Skipped
				}
			}
			events = append(events, ev)
		}
		stream = stream[end:]
		n++
	}
	return events, n
}

// publish describes one publish of a test.
type publish struct {
	base, skipped uint64
	publisher     string
	micros        uint64
	records       []string
	prefix        int  // bytes of the publish frame before the section
	noBuf         bool // section in ordinary memory
}

// part makes a Part as the broker does: the section inside a publish frame.
func (p *publish) part(pool *wire.Pool) Part {
	recs := make([][]byte, len(p.records))
	for i, r := range p.records {
		recs[i] = []byte(r)
	}
	section := wire.AppendSection(nil, recs...)
	part := Part{Base: p.base, Skipped: p.skipped, Count: uint32(len(recs)), TimeMicros: p.micros, Publisher: p.publisher, Section: section}
	if !p.noBuf {
		b := pool.Get(p.prefix + len(section))
		copy(b.Bytes()[p.prefix:], section)
		part.Section, part.Buf, part.Pos = b.Bytes()[p.prefix:], b, p.prefix
	}
	return part
}

// envelope makes an envelope of publishes.
func envelope(pool *wire.Pool, durable bool, ps ...publish) *Envelope {
	parts := make([]Part, len(ps))
	for i := range ps {
		parts[i] = ps[i].part(pool)
	}
	return NewEnvelope(durable, parts)
}

// numbered is an envelope of n records "base", "base+1", ...
func numbered(pool *wire.Pool, base uint64, n int) *Envelope {
	return envelope(pool, true, publish{base: base, records: numbers(base, n), prefix: 20})
}

func numbers(base uint64, n int) []string {
	recs := make([]string, n)
	for i := range recs {
		recs[i] = fmt.Sprint(base + uint64(i))
	}
	return recs
}

// naive is what a reader from offset from must see of publishes, in a shape: the loop that fanout
// is an optimisation of.
func naive(durable bool, shape wire.Flags, from uint64, ps ...publish) (events []event) {
	for _, p := range ps {
		for i, rec := range p.records {
			offset := p.base + uint64(i)
			if offset < from {
				continue
			}
			e := event{Data: rec}
			if durable && shape&wire.FlagEvOffsets != 0 {
				e.Offset = offset
				if i == 0 && shape&wire.FlagEvSkipped != 0 {
					e.Skipped = p.skipped
				}
			}
			if durable && shape&wire.FlagEvTimes != 0 {
				e.Time = p.micros
			}
			if shape&wire.FlagEvPublisher != 0 {
				e.Publisher = p.publisher
			}
			events = append(events, e)
		}
	}
	return events
}

// memorySink keeps what is written. It can block and fail.
type memorySink struct {
	mu     sync.Mutex
	stream []byte
	writes []int // bytes of each
	err    error
	gate   chan struct{} // if not nil, each write takes one token
	tell   chan struct{} // if not nil, told (without blocking) of each write
}

func (s *memorySink) WriteFrames(frames [][]byte) error {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	n := 0
	for _, f := range frames {
		s.stream = append(s.stream, f...)
		n += len(f)
	}
	s.writes = append(s.writes, n)
	if s.tell != nil {
		select {
		case s.tell <- struct{}{}:
		default:
		}
	}
	return nil
}

func (s *memorySink) events(t tester) []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, _ := decode(t, [][]byte{s.stream})
	return events
}

// data is the records of events in one string.
func data(events []event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Data)
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func joined(recs ...[]string) string { return strings.Join(slices.Concat(recs...), " ") }

// checkPool fails if a Buf was not given back.
func checkPool(t tester, pool *wire.Pool) {
	t.Helper()
	if s := pool.Stats(); s.InUse != 0 {
		t.Errorf("%d Bufs (%d bytes) were not released", s.InUse, s.InUseBytes)
	}
}

// checkEquation checks that everything offered to s is accounted for (HZ-40, HZ-43).
func checkEquation(t tester, s *Subscriber, offeredBatches, offeredRecords uint64) {
	t.Helper()
	st := s.Stats()
	if st.Accepted+st.DroppedBatches != offeredBatches {
		t.Errorf("offered %d batches, accepted %d + dropped %d", offeredBatches, st.Accepted, st.DroppedBatches)
	}
	if st.DeliveredBatches+st.AbandonedBatches+uint64(st.Queued) != st.Accepted {
		t.Errorf("accepted %d batches, delivered %d + abandoned %d + queued %d", st.Accepted, st.DeliveredBatches, st.AbandonedBatches, st.Queued)
	}
	if st.Queued == 0 && st.DeliveredRecords+st.DroppedRecords+st.AbandonedRecords != offeredRecords {
		t.Errorf("offered %d records, delivered %d + dropped %d + abandoned %d", offeredRecords, st.DeliveredRecords, st.DroppedRecords, st.AbandonedRecords)
	}
	if s.bytesIn-s.bytesOut.Load() != 0 && st.Queued == 0 {
		t.Errorf("%d bytes are accounted for an empty queue", s.bytesIn-s.bytesOut.Load())
	}
}

// eventually waits until ok holds.
func eventually(t tester, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}
