package append

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringcast/ringcast/ring"
)

// blocks says in which state the blocks are that an append goes to.
type blocks uint8

const (
	growing   blocks = iota // none yet: each append extends the file
	allocated               // reserved but never written (fallocate): each append converts them
	written                 // written before, zeros or an old segment: an append changes data alone
	ahead                   // zeroed ahead of the appends by another thread while they run
	extending               // as ahead, but the zeroing also extends the file
	inline                  // the append that finds no written block left zeroes the next chunk first
)

// preparation is one way to have blocks ready.
type preparation struct {
	Name   string
	blocks blocks
	chunk  int  // bytes per zeroing write
	sync   bool // each zeroing write is synced
	direct bool // appends are O_DIRECT|O_DSYNC, otherwise pwrite and fdatasync
}

func preparations() []preparation {
	var out []preparation
	for _, direct := range []bool{false, true} {
		how := "fdatasync"
		if direct {
			how = "direct"
		}
		out = append(out,
			preparation{how + ", growing", growing, 0, false, direct},
			preparation{how + ", fallocate", allocated, 0, false, direct},
			preparation{how + ", written before", written, 0, false, direct},
			preparation{how + ", zeroed ahead 256 KiB", ahead, 256 << 10, true, direct},
			preparation{how + ", zeroed ahead 1 MiB", ahead, 1 << 20, true, direct},
			preparation{how + ", zeroed ahead 1 MiB, not synced", ahead, 1 << 20, false, direct},
			preparation{how + ", zeroed ahead 1 MiB, extending", extending, 1 << 20, true, direct},
			preparation{how + ", zeroed in line 256 KiB", inline, 256 << 10, true, direct},
			preparation{how + ", zeroed in line 1 MiB", inline, 1 << 20, true, direct},
		)
	}
	return out
}

// aheadBytes is how far the zeroing keeps ahead of the appends.
const aheadBytes = 8 << 20

// PrewriteOptions configure Prewrite.
type PrewriteOptions struct {
	Dir      string        // where files are made, and removed
	Rounds   int           // turns of every preparation; the order rotates
	Turn     time.Duration // length of one turn
	FileSize int64         // of each file; a turn ends early when they are full
	Progress func(done, total int)
}

// PrewriteLoad is what appends: Files loops, each of which has one append of Bytes in flight.
type PrewriteLoad struct {
	Files int `json:"files"`
	Bytes int `json:"bytes"`
}

// PrewriteRow is one preparation under one load: medians over the rounds.
type PrewriteRow struct {
	Load        PrewriteLoad  `json:"load"`
	Preparation string        `json:"preparation"`
	Rate        Spread        `json:"bytes_per_second"`
	P50         time.Duration `json:"p50_nanos"`
	P99         time.Duration `json:"p99_nanos"`
	// OfWritten is the rate against that of "written before" of the same method in the same round.
	OfWritten Spread  `json:"rate_of_written"`
	Zeroed    float64 `json:"zeroed_bytes_per_byte"`
}

// PrewriteLoads are the loads of the command.
var PrewriteLoads = []PrewriteLoad{{1, 4 << 10}, {8, 4 << 10}, {1, 16 << 10}, {1, 64 << 10}, {8, 64 << 10}, {1, 1 << 20}, {8, 1 << 20}}

// Prewrite measures what it costs to append to blocks in each state, and what zeroing ahead of the
// appends costs them.
func Prewrite(ctx context.Context, o PrewriteOptions, loads []PrewriteLoad) ([]PrewriteRow, error) {
	fs := ring.OS()
	dir, err := os.MkdirTemp(o.Dir, "ringcast-prewrite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	preps := preparations()
	var out []PrewriteRow
	done, total := 0, len(loads)*o.Rounds*len(preps)
	for _, load := range loads {
		old, err := makeWritten(fs, dir, load.Files, o.FileSize)
		if err != nil {
			return nil, err
		}
		turns := make([][]prewriteResult, len(preps)) // by preparation, then round
		for round := range o.Rounds {
			for i := range preps {
				at := (i + round) % len(preps)
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				t, err := prewriteTurn(fs, dir, old, preps[at], load, o)
				if err != nil {
					return nil, fmt.Errorf("append: %s: %w", preps[at].Name, err)
				}
				turns[at] = append(turns[at], t)
				done++
				if o.Progress != nil {
					o.Progress(done, total)
				}
			}
		}
		for i, p := range preps {
			base := slices.IndexFunc(preps, func(q preparation) bool { return q.direct == p.direct && q.blocks == written })
			out = append(out, prewriteRow(load, p, turns[i], turns[base]))
		}
		for _, name := range old {
			if err := fs.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func prewriteRow(load PrewriteLoad, p preparation, turns, base []prewriteResult) PrewriteRow {
	var rate, of, p50, p99, zeroed []float64
	for i, t := range turns {
		rate, of, zeroed = append(rate, t.rate), append(of, t.rate/base[i].rate), append(zeroed, t.zeroed)
		p50 = append(p50, float64(t.latency.ValueAtQuantile(50)))
		p99 = append(p99, float64(t.latency.ValueAtQuantile(99)))
	}
	return PrewriteRow{
		Load: load, Preparation: p.Name, Rate: spread(rate), OfWritten: spread(of), Zeroed: median(zeroed),
		P50: time.Duration(median(p50)), P99: time.Duration(median(p99)),
	}
}

// PrewriteMarkdown writes rows as a table.
func PrewriteMarkdown(w io.Writer, rows []PrewriteRow) error {
	var b strings.Builder
	table(&b, "Blocks", "files x append", "blocks", "MB/s", "p50", "p99", "rate / written before", "zeroed per byte")
	for _, r := range rows {
		line(&b, fmt.Sprintf("%d x %s", r.Load.Files, byteText(r.Load.Bytes)), r.Preparation, count(r.Rate.Median/1e6), short(r.P50), short(r.P99),
			ratio(r.OfWritten), fmt.Sprintf("%.2f", r.Zeroed))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// makeWritten makes files whose blocks have all been written.
func makeWritten(fs ring.FS, dir string, n int, size int64) ([]string, error) {
	names := make([]string, n)
	zeros := ring.AlignedBytes(1 << 20)
	for i := range names {
		names[i] = filepath.Join(dir, fmt.Sprintf("written-%d", i))
		if err := fullSize(fs, names[i], size); err != nil {
			return nil, err
		}
		f, err := fs.OpenDirect(names[i], false)
		if errors.Is(err, ring.ErrUnsupported) {
			f, err = fs.Open(names[i], os.O_RDWR, 0)
		}
		if err != nil {
			return nil, err
		}
		for off := int64(0); off < size && err == nil; off += int64(len(zeros)) {
			_, err = f.WriteAt(zeros, off)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// fullSize makes a file of reserved blocks that has its full length.
func fullSize(fs ring.FS, name string, size int64) error {
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := f.Allocate(0, size); err != nil && !errors.Is(err, ring.ErrUnsupported) {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

type prewriteResult struct {
	rate    float64
	zeroed  float64
	latency *hdrhistogram.Histogram
}

// prewriteTurn is one turn of one preparation.
func prewriteTurn(fs ring.FS, dir string, old []string, p preparation, load PrewriteLoad, o PrewriteOptions) (prewriteResult, error) {
	files := make([]*prewriteFile, load.Files)
	var err error
	for i := range files {
		name := filepath.Join(dir, fmt.Sprintf("fresh-%d", i))
		if p.blocks == written {
			name = old[i]
		} else {
			defer fs.Remove(name)
		}
		if files[i], err = openPrewriteFile(fs, name, p, load, o.FileSize); err != nil {
			return prewriteResult{}, err
		}
		defer files[i].close()
	}
	if err := fs.SyncDir(dir); err != nil {
		return prewriteResult{}, err
	}
	var appenders, zeroers sync.WaitGroup
	began := time.Now()
	for _, f := range files {
		if f.zeroer != nil && p.blocks != inline {
			zeroers.Go(f.zero)
		}
		appenders.Go(func() { f.append(began.Add(o.Turn)) })
	}
	appenders.Wait()
	took := time.Since(began)
	for _, f := range files {
		f.stop.Store(true)
		f.poke()
	}
	zeroers.Wait()
	out := prewriteResult{latency: newHistogram()}
	var bytes, zeroed int64
	for _, f := range files {
		err = errors.Join(err, f.appendErr, f.zeroErr)
		bytes += f.at.Load()
		zeroed += f.zeroedTo.Load()
		out.latency.Merge(f.latency)
	}
	out.rate = float64(bytes) / took.Seconds()
	if files[0].zeroer != nil {
		out.zeroed = float64(zeroed) / float64(max(bytes, 1))
	}
	return out, err
}

// prewriteFile is one file that is appended to and, by some preparations, zeroed ahead of that.
type prewriteFile struct {
	p        preparation
	load     PrewriteLoad
	size     int64
	appender ring.File
	zeroer   ring.File // nil: nothing is zeroed during the turn
	payload  []byte
	zeros    []byte
	latency  *hdrhistogram.Histogram

	at        atomic.Int64 // end of what is appended; written by append
	zeroedTo  atomic.Int64 // written by zero
	stop      atomic.Bool
	wake      chan struct{}
	appendErr error
	zeroErr   error
}

func openPrewriteFile(fs ring.FS, name string, p preparation, load PrewriteLoad, size int64) (*prewriteFile, error) {
	f := &prewriteFile{p: p, load: load, size: size, latency: newHistogram(), wake: make(chan struct{}, 1)}
	f.payload, f.zeros = ring.AlignedBytes(load.Bytes), ring.AlignedBytes(p.chunk)
	for i := range f.payload {
		f.payload[i] = byte(i)*7 + 1
	}
	var err error
	switch p.blocks {
	case growing, extending:
		var made ring.File
		if made, err = fs.Open(name, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			if p.blocks == extending {
				err = made.Allocate(0, size)
			}
			err = errors.Join(err, made.Sync(), made.Close())
		}
	case allocated, ahead, inline:
		err = fullSize(fs, name, size)
	}
	if err != nil {
		return nil, err
	}
	if p.blocks == ahead || p.blocks == extending || p.blocks == inline {
		if f.zeroer, err = fs.OpenDirect(name, p.sync); err != nil {
			return nil, err
		}
		// As a log would: the first stretch is ready before the first append.
		zeros := ring.AlignedBytes(1 << 20)
		if _, err = f.zeroer.WriteAt(zeros, 0); err != nil {
			return nil, err
		}
		f.zeroedTo.Store(1 << 20)
		if err = f.zeroer.Sync(); err != nil {
			return nil, err
		}
	}
	if p.direct {
		f.appender, err = fs.OpenDirect(name, true)
	} else {
		f.appender, err = fs.Open(name, os.O_RDWR, 0)
	}
	return f, err
}

func (f *prewriteFile) close() {
	if f.appender != nil {
		f.appender.Close()
	}
	if f.zeroer != nil {
		f.zeroer.Close()
	}
}

// append appends until the time is over or the file is full.
func (f *prewriteFile) append(until time.Time) {
	for at := int64(0); at+int64(f.load.Bytes) <= f.size; {
		began := time.Now()
		if at > 0 && began.After(until) {
			return
		}
		var err error
		if f.p.blocks == inline {
			err = f.zeroNext(at + int64(f.load.Bytes))
		}
		if err == nil {
			_, err = f.appender.WriteAt(f.payload, at)
		}
		if err == nil && !f.p.direct {
			err = f.appender.Sync()
		}
		if err != nil {
			f.appendErr = err
			return
		}
		recordLatency(f.latency, time.Since(began))
		at += int64(f.load.Bytes)
		f.at.Store(at)
		f.poke()
	}
}

// zeroNext zeroes the next chunk if the blocks below end have not all been written.
func (f *prewriteFile) zeroNext(end int64) error {
	to := f.zeroedTo.Load()
	for ; to < min(end, f.size-int64(f.p.chunk)); to += int64(f.p.chunk) {
		if _, err := f.zeroer.WriteAt(f.zeros, to); err != nil {
			return err
		}
	}
	f.zeroedTo.Store(to)
	return nil
}

func (f *prewriteFile) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// zero keeps aheadBytes ahead of the appends. Where they overtook it, it skips to them: a log does
// not zero what it has written.
func (f *prewriteFile) zero() {
	chunk := int64(f.p.chunk)
	zeroed := f.zeroedTo.Load() // bytes, for the report
	to := zeroed
	for !f.stop.Load() {
		at := f.at.Load()
		if to < at {
			// What is in flight begins at at: leave room for it.
			to = (at + int64(f.load.Bytes) + 2*chunk - 1) / chunk * chunk
		}
		if to+chunk > f.size || to >= at+max(aheadBytes, 4*int64(f.load.Bytes)) {
			<-f.wake
			continue
		}
		if _, f.zeroErr = f.zeroer.WriteAt(f.zeros, to); f.zeroErr != nil {
			return
		}
		to += chunk
		zeroed += chunk
		f.zeroedTo.Store(zeroed)
	}
}

// newHistogram holds latencies from a microsecond to a minute in nanoseconds, three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1_000, int64(time.Minute), 3) }

func recordLatency(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(cmp.Or(int64(d), 1), int64(time.Minute)))
}
