package log

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// benchOptions are real files with default sizes.
func benchOptions(b *testing.B, change ...func(*Options)) Options {
	o := Options{FS: ring.OS(), Dir: b.TempDir(), Pool: testPool}
	for _, f := range change {
		f(&o)
	}
	return o
}

// endOp ends a write as an engine without a disk does: everything is written at once.
func endOp(l *Log, op *ring.Op) {
	op.Written = opSize(op)
	l.OpDone(op)
}

// BenchmarkAppend is the log's own work per publish: staging, checksums, the gathered write, the
// end of the group. The engine takes no time. Segments roll.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 4096} {
		for _, group := range []int{1, 64} {
			b.Run(fmt.Sprintf("size=%d/group=%d", size, group), func(b *testing.B) {
				l := mustOpen(b, benchOptions(b, withMode(FsyncNone)))
				buf := testPool.Get(size + 8)
				section := wire.AppendSection(buf.Bytes()[:0], make([]byte, size))
				e := &Entry{Kind: KindRecords, Count: 1, Section: section, Buf: buf}
				step := func() {
					for j := l.TakeJob(); j != nil; j = l.TakeJob() {
						j.Run()
						l.JobDone(j)
					}
					if op := l.NextOp(); op != nil {
						endOp(l, op)
					}
				}
				// Fill one segment, so that what grows has grown.
				for l.Stats().Rolls < 2 {
					if _, err := l.Append(e, 1); err != nil && !errors.Is(err, ErrGroupFull) {
						b.Fatal(err)
					}
					step()
				}
				b.ReportAllocs()
				b.SetBytes(int64(size))
				n := 0
				for b.Loop() {
					if _, err := l.Append(e, 1); err != nil {
						step()
						if _, err := l.Append(e, 1); err != nil {
							b.Fatal(err)
						}
					}
					if n++; n%group == 0 {
						step()
					}
				}
				step()
				l.letGo()
			})
		}
	}
}

// fillSegment writes about size bytes of log with entries of records of 256 bytes.
func fillSegment(b *testing.B, l *Log, records int, size int64) {
	b.Helper()
	recs := make([][]byte, records)
	for i := range recs {
		recs[i] = make([]byte, 256)
	}
	e := entryOf(recs)
	for written := int64(0); written < size; {
		_, err := l.Append(e, 1)
		switch {
		case errors.Is(err, ErrGroupFull):
			pump(l)
		case err != nil:
			b.Fatal(err)
		default:
			written += entrySize(0, int64(len(e.Section)))
		}
	}
	pump(l)
}

// BenchmarkRecover is a full scan of an active segment of 1 GiB, from the page cache, checksums and
// producer state included.
func BenchmarkRecover(b *testing.B) {
	for _, records := range []int{1, 64} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			o := benchOptions(b, withMode(FsyncNone), withSegment(1100<<20))
			l := mustOpen(b, o)
			fillSegment(b, l, records, 1<<30)
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(1 << 30)
			for b.Loop() {
				p, err := MakePlan(o)
				if err != nil || p.Report.Entries == 0 || p.Changes() {
					b.Fatal(p, err)
				}
			}
		})
	}
}

// BenchmarkOpenSealed is what sealed segments cost at open: by their ends, and, without the checkpoint of
// the producers, by the headers of all their entries.
func BenchmarkOpenSealed(b *testing.B) {
	for _, records := range []int{1, 64} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			o := benchOptions(b, withMode(FsyncOnCommit), withSegment(64<<20))
			l := mustOpen(b, o)
			fillSegment(b, l, records, 256<<20)
			commitOne(b, l, 1, 10)
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			for _, walk := range []bool{false, true} {
				b.Run(fmt.Sprintf("walk=%t", walk), func(b *testing.B) {
					if walk {
						if err := o.FS.Remove(filepath.Join(o.Dir, checkpointName)); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportAllocs()
					b.SetBytes(256 << 20)
					for b.Loop() {
						if p, err := MakePlan(o); err != nil || (p.Report.Walked > 1) != walk {
							b.Fatal(p, err)
						}
					}
				})
			}
		})
	}
}

// BenchmarkOpenManyLogs is Open of 1,000 logs, each with a sealed segment and one that is written to,
// eight at a time as the broker does; B/op over 1,000 is what a log takes while it is opened.
func BenchmarkOpenManyLogs(b *testing.B) {
	const logs = 1000
	o := benchOptions(b, withMode(FsyncNone), withSegment(64<<10))
	dir := o.Dir
	at := func(i int) Options {
		o := o
		o.Dir = fmt.Sprintf("%s/%d", dir, i)
		return o
	}
	for i := range logs {
		l := mustOpen(b, at(i))
		fillSegment(b, l, 1, 80<<10)
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	var held uint64
	for b.Loop() {
		open := make([]*Log, logs)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC() // twice: pools keep what they hold over one
		runtime.ReadMemStats(&before)
		var g sync.WaitGroup
		var failed atomic.Bool
		for w := range 8 {
			g.Go(func() {
				for i := w; i < logs; i += 8 {
					l, err := Open(at(i))
					if err != nil {
						failed.Store(true)
						return
					}
					open[i] = l
				}
			})
		}
		g.Wait()
		if failed.Load() {
			b.Fatal("a log did not open")
		}
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		held = (after.HeapAlloc - before.HeapAlloc) / logs
		for _, l := range open {
			l.letGo()
		}
	}
	b.ReportMetric(float64(held), "heap-B/log")
}

// BenchmarkRead is one page of 1 MiB of history, verified, from the page cache.
func BenchmarkRead(b *testing.B) {
	for _, records := range []int{1, 64} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			l := mustOpen(b, benchOptions(b, withMode(FsyncNone)))
			fillSegment(b, l, records, 64<<20)
			b.ReportAllocs()
			b.SetBytes(1 << 20)
			at := uint64(0)
			for b.Loop() {
				p, err := l.Read(at, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				if at = p.Next; at > l.Committed()-10_000 {
					at = 0
				}
				p.Release()
			}
			l.letGo()
		})
	}
}

// BenchmarkStage is one Append: checks, header, both checksums, its place in the group and in the
// index. The group is thrown away at its bounds, which is not counted.
func BenchmarkStage(b *testing.B) {
	for _, size := range []int{256, 4096, 64 << 10} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			l := mustOpen(b, benchOptions(b, withMode(FsyncNone), withSegment(4<<30), func(o *Options) { o.NoPreWrite = true }))
			commitOne(b, l, 1, 8) // the segment is there
			buf := testPool.Get(size + 8)
			e := &Entry{Kind: KindRecords, Count: 1, Section: wire.AppendSection(buf.Bytes()[:0], make([]byte, size)), Buf: buf}
			empty := func() {
				g := l.filling
				l.next, l.cur.pos, l.cur.indexed = g.first, g.start, g.start
				g.reset()
			}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := l.Append(e, 1); err != nil {
					b.StopTimer()
					empty()
					b.StartTimer()
					if _, err := l.Append(e, 1); err != nil {
						b.Fatal(err)
					}
				}
			}
			empty()
			buf.Release()
			l.letGo()
		})
	}
}

// BenchmarkGroup is the end of a group that n entries wait for, staging left out: the gathered write
// is put together, the engine takes no time, the entries become readable, their frames are released.
func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			const size = 256
			l := mustOpen(b, benchOptions(b, withMode(FsyncOnCommit), func(o *Options) { o.NoPreWrite = true }))
			commitOne(b, l, 1, 8) // the segment is there
			buf := testPool.Get(size + 8)
			e := &Entry{Kind: KindRecords, Count: 1, Section: wire.AppendSection(buf.Bytes()[:0], make([]byte, size)), Buf: buf}
			b.ReportAllocs()
			var took time.Duration // stopping b's timer costs a hundred times what is measured
			for b.Loop() {
				if t := l.cur; t != nil && t.full(int64(n)*(entrySize(0, int64(len(e.Section)))), l.o.SegmentBytes) {
					l.roll() // now and whole, not within the group
				}
				for range n {
					if _, err := l.Append(e, 1); err != nil {
						b.Fatal(err)
					}
				}
				for j := l.TakeJob(); j != nil; j = l.TakeJob() {
					j.Run()
					l.JobDone(j)
				}
				began := time.Now()
				op := l.NextOp()
				if op == nil {
					b.Fatal("no write")
				}
				endOp(l, op)
				took += time.Since(began)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/op")
			buf.Release()
			l.letGo()
		})
	}
}

// BenchmarkReadPage is what a reader of history costs per page, by the size of the page: finding the
// position, the read from the page cache, the checksums.
func BenchmarkReadPage(b *testing.B) {
	for _, page := range []int{16 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
			l := mustOpen(b, benchOptions(b, withMode(FsyncNone)))
			fillSegment(b, l, 1, 16<<20)
			b.ReportAllocs()
			b.SetBytes(int64(page))
			at := uint64(0)
			for b.Loop() {
				p, err := l.Read(at, page)
				if err != nil {
					b.Fatal(err)
				}
				if at = p.Next; at > l.Committed()-2000 {
					at = 0
				}
				p.Release()
			}
			l.letGo()
		})
	}
}
