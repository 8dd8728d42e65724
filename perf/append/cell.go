package append

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Cell is one load: Writers loops, each with one append of Bytes in flight, over Logs logs.
type Cell struct {
	Writers int    `json:"writers"`
	Logs    int    `json:"logs"`
	Bytes   int    `json:"bytes"` // of the one record of an append
	Fsync   string `json:"fsync"` // on_commit, periodic, none
}

// String returns the load in words.
func (c Cell) String() string {
	return fmt.Sprintf("%s, %s, %s, %s", plural(c.Writers, "writer"), plural(c.Logs, "log"), byteText(c.Bytes), c.Fsync)
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func byteText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// Measure is the outcome of one turn of one subject. Peers send it as it is.
type Measure struct {
	Records uint64        `json:"records"`
	Writes  uint64        `json:"writes,omitempty"` // to the file; 0 = not known
	Syncs   uint64        `json:"syncs,omitempty"`
	Time    time.Duration `json:"nanos"`

	P50  time.Duration `json:"p50_nanos"` // of one append, until it is committed
	P99  time.Duration `json:"p99_nanos"`
	P999 time.Duration `json:"p999_nanos"`

	WriteBytes   float64       `json:"write_bytes,omitempty"` // mean of a write
	CPU          time.Duration `json:"cpu_nanos"`             // of the process: the writers are in it
	Allocs       uint64        `json:"allocs"`
	AllocBytes   uint64        `json:"alloc_bytes"`
	DiskBytes    int64         `json:"disk_bytes"` // -1 = not known
	PayloadBytes uint64        `json:"payload_bytes"`
}

// Rate is records per second.
func (m Measure) Rate() float64 { return float64(m.Records) / m.Time.Seconds() }

// PerRecord divides by the records.
func (m Measure) PerRecord(v float64) float64 { return v / float64(max(m.Records, 1)) }

// PerWrite is records per write, 0 where writes are not counted.
func (m Measure) PerWrite() float64 {
	if m.Writes == 0 {
		return 0
	}
	return float64(m.Records) / float64(m.Writes)
}

// use fills in what lies between two usages.
func (m *Measure) use(from, to usage) {
	m.Time = to.at.Sub(from.at)
	m.CPU = to.cpu - from.cpu
	m.Allocs, m.AllocBytes = to.mallocs-from.mallocs, to.bytes-from.bytes
	m.DiskBytes = -1
	if from.disk >= 0 && to.disk >= 0 {
		m.DiskBytes = to.disk - from.disk
	}
}

func (m *Measure) latency(h *hdrhistogram.Histogram) {
	m.P50 = time.Duration(h.ValueAtQuantile(50))
	m.P99 = time.Duration(h.ValueAtQuantile(99))
	m.P999 = time.Duration(h.ValueAtQuantile(99.9))
}
