package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// run is one turn: the writers run, and the middle of it is measured. The store's files are removed
// by who asked.
func run(r request) (m *Measure, err error) {
	c := r.Cell
	if c.Writers < 1 || c.Logs < 1 || c.Bytes < 1 || r.Length <= 0 {
		return nil, errors.New("a load without writers, logs, bytes or time")
	}
	if c.Fsync != "on_commit" {
		return nil, fmt.Errorf("fsync %q: only on_commit is comparable", c.Fsync)
	}
	s, err := open(r.Peer, r.Dir, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()); runtime.GC() }()
	w := &writers{store: s, cell: c, bytesMax: r.BytesMax, full: make(chan struct{}), all: make(chan struct{})}
	w.left.Store(int32(c.Writers))
	w.start()
	w.run(r.Warm, nil)
	from := startUsage()
	w.measuring.Store(true)
	w.run(r.Length, w.all)
	w.measuring.Store(false)
	to := endUsage()
	latency, err := w.end()
	m = &Measure{
		Records: uint64(latency.TotalCount()), Time: to.at.Sub(from.at), CPU: to.cpu - from.cpu,
		Allocs: to.mallocs - from.mallocs, AllocBytes: to.bytes - from.bytes, DiskBytes: -1,
		P50: quantile(latency, 50), P99: quantile(latency, 99), P999: quantile(latency, 99.9),
	}
	m.PayloadBytes = m.Records * uint64(c.Bytes)
	if from.disk >= 0 && to.disk >= 0 {
		m.DiskBytes = to.disk - from.disk
	}
	return m, err
}

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q))
}

// writers are closed loops, each of which waits for its record; as in perf/append/engine.go.
type writers struct {
	store     store
	cell      Cell
	bytesMax  int64
	measuring atomic.Bool
	stop      atomic.Bool
	appended  atomic.Int64
	full      chan struct{}
	left      atomic.Int32  // writers without an append that was measured
	all       chan struct{} // closed when there are none
	filled    sync.Once
	group     sync.WaitGroup
	latency   []*hdrhistogram.Histogram
	errs      []error
}

func (w *writers) start() {
	w.latency = make([]*hdrhistogram.Histogram, w.cell.Writers)
	w.errs = make([]error, w.cell.Writers)
	for i := range w.cell.Writers {
		w.latency[i] = hdrhistogram.New(1_000, int64(time.Minute), 3)
		w.group.Go(func() { w.errs[i] = w.write(i) })
	}
}

// run lets the writers run for d, and until first ends when there is one.
func (w *writers) run(d time.Duration, first <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.full:
		return
	}
	if first != nil {
		select {
		case <-first:
		case <-w.full:
		}
	}
}

func (w *writers) end() (*hdrhistogram.Histogram, error) {
	w.stop.Store(true)
	w.group.Wait()
	sum := hdrhistogram.New(1_000, int64(time.Minute), 3)
	for _, h := range w.latency {
		sum.Merge(h)
	}
	return sum, errors.Join(w.errs...)
}

func (w *writers) write(i int) error {
	record := make([]byte, w.cell.Bytes)
	random := rand.NewChaCha8([32]byte{byte(i), 1})
	_, _ = random.Read(record) // never fails
	added := 0
	arrived := false
	arrive := func() {
		if !arrived && w.left.Add(-1) == 0 {
			close(w.all)
		}
		arrived = true
	}
	defer arrive()
	for n := i; !w.stop.Load(); n += w.cell.Writers {
		began := time.Now()
		if err := w.store.append(i, n%w.cell.Logs, record); err != nil {
			return err
		}
		if w.measuring.Load() {
			_ = w.latency[i].RecordValue(min(int64(time.Since(began)), int64(time.Minute)))
			arrive()
		}
		if added += w.cell.Bytes; added >= 1<<20 {
			if w.appended.Add(int64(added)) >= min(w.bytesMax, memtableBytes/2) {
				w.filled.Do(func() { close(w.full) })
				return nil
			}
			added = 0
		}
	}
	return nil
}

// usage is what the process has used up to a moment.
type usage struct {
	at      time.Time
	cpu     time.Duration
	mallocs uint64
	bytes   uint64
	disk    int64 // -1 = not known
}

// startUsage and endUsage read before and after what is measured: what they allocate lies outside.
func startUsage() usage {
	disk := diskBytes()
	u := memoryUsage()
	u.disk, u.cpu, u.at = disk, cpuTime(), time.Now()
	return u
}

func endUsage() usage {
	at, cpu := time.Now(), cpuTime()
	u := memoryUsage()
	u.at, u.cpu, u.disk = at, cpu, diskBytes()
	return u
}

func memoryUsage() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{mallocs: m.Mallocs, bytes: m.TotalAlloc}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail for the process itself
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func diskBytes() int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return -1
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if v, ok := bytes.CutPrefix(s.Bytes(), []byte("write_bytes: ")); ok {
			if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
