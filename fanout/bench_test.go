package fanout

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/wire"
)

type nullSink struct{}

func (nullSink) WriteFrames([][]byte) error { return nil }

// BenchmarkPublishToSleeping is the executor's cost of a publish whose subscribers' feeders all
// sleep: it wakes each of them. They deliver to nowhere and fall asleep again, which
// is in ns/op and not in ns/publish. With one subscriber the price is that of waking an idle CPU.
func BenchmarkPublishToSleeping(b *testing.B) {
	pool := wire.NewPool(64 << 20)
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("subs=%d", n), func(b *testing.B) {
			r := NewRegistry()
			subs := make([]*Subscriber, n)
			var wg sync.WaitGroup
			for i := range subs {
				subs[i] = NewSubscriber(SubscriberOptions{})
				r.Add(subs[i])
				wg.Go(func() { Feed(b.Context(), subs[i], nullSink{}, Limits{}) })
			}
			e := numbered(pool, 0, 1)
			e.next = 1 << 62 // the same envelope again and again is ahead of every feeder
			asleep := func() {
				for _, s := range subs {
					for s.state.Load()&stateSleeping == 0 {
						runtime.Gosched()
					}
				}
			}
			asleep()
			b.ReportAllocs()
			publishing := time.Duration(0) // StopTimer stops the world, which costs more than what is timed
			for b.Loop() {
				began := time.Now()
				r.Publish(e)
				publishing += time.Since(began)
				asleep()
			}
			b.ReportMetric(float64(publishing.Nanoseconds())/float64(b.N), "ns/publish")
			b.ReportMetric(float64(publishing.Nanoseconds())/float64(b.N*n), "ns/sub")
			for _, s := range subs {
				s.End(EndStopped)
			}
			wg.Wait()
			e.Release()
		})
	}
}

// BenchmarkFeed is publish to sink, in one process, with a sink that takes no time: making the
// envelope, queueing, joining, writing, releasing.
func BenchmarkFeed(b *testing.B) {
	for _, c := range []struct{ subs, records, size int }{{1, 1, 256}, {1, 64, 256}, {10, 1, 256}, {100, 64, 256}} {
		b.Run(fmt.Sprintf("subs=%d/records=%d/size=%d", c.subs, c.records, c.size), func(b *testing.B) {
			pool := wire.NewPool(64 << 20)
			r := NewRegistry()
			subs := make([]*Subscriber, c.subs)
			var wg sync.WaitGroup
			for i := range subs {
				subs[i] = NewSubscriber(SubscriberOptions{Shape: offsets})
				r.Add(subs[i])
				wg.Go(func() { Feed(b.Context(), subs[i], nullSink{}, Limits{}) })
			}
			recs := make([]string, c.records)
			for i := range recs {
				recs[i] = strings.Repeat("x", c.size)
			}
			p := publish{prefix: 40, records: recs}
			model := p.part(pool)
			parts := make([]Part, 1)
			next := uint64(0)
			b.SetBytes(int64(c.subs * c.records * c.size))
			b.ReportAllocs()
			for b.Loop() {
				part := model
				part.Base = next
				part.Buf = pool.Get(model.Buf.Len())
				part.Section = part.Buf.Bytes()[model.Pos:]
				copy(part.Section, model.Section)
				parts[0] = part
				e := NewEnvelope(true, parts)
				next = e.Next()
				r.Publish(e)
				e.Release()
				for subs[0].Queued() > 256 {
					runtime.Gosched()
				}
			}
			b.StopTimer()
			for _, s := range subs {
				s.End(EndStopped)
			}
			wg.Wait()
			var delivered, dropped, writes uint64
			for _, s := range subs {
				st := s.Stats()
				delivered += st.DeliveredRecords
				dropped += st.DroppedRecords
				writes += st.Writes
			}
			b.ReportMetric(float64(dropped), "dropped")
			b.ReportMetric(float64(delivered)/float64(writes), "records/write")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(delivered), "ns/record")
			model.Buf.Release()
		})
	}
}

// BenchmarkIdleSubscriber is the memory of a subscriber that has nothing to do: its queue, its
// feeder and the feeder's goroutine.
func BenchmarkIdleSubscriber(b *testing.B) {
	const n = 5000
	var held uint64
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		subs := make([]*Subscriber, n)
		var wg sync.WaitGroup
		for i := range subs {
			subs[i] = NewSubscriber(SubscriberOptions{})
			wg.Go(func() { Feed(b.Context(), subs[i], nullSink{}, Limits{}) })
		}
		for _, s := range subs {
			for s.state.Load()&stateSleeping == 0 {
				runtime.Gosched()
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		held = after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse
		for _, s := range subs {
			s.End(EndStopped)
		}
		wg.Wait()
	}
	b.ReportMetric(float64(held)/n, "B/sub")
}
