package append

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringcast/ringcast/ring"
)

// bareKind is one way to write to a file without anything around it.
type bareKind struct {
	name    string
	written bool // into blocks that were written before
	direct  bool // O_DIRECT|O_DSYNC, else pwrite and, under on_commit, fdatasync
}

var bareKinds = []bareKind{
	{"growing file", false, false},
	{"pre-written", true, false},
	{"pre-written, direct", true, true},
}

// bare has the pre-written files of all turns.
type bare struct {
	fs      ring.FS
	dir     string
	kinds   []bareKind // that this file system can
	size    int64      // of one pre-written file
	written []string
}

// newBare finds out which loops the file system of dir can run; refused says why not all of them.
func newBare(fs ring.FS, dir string) (b *bare, refused, err error) {
	b = &bare{fs: fs, dir: dir, kinds: bareKinds}
	name := filepath.Join(dir, "probe")
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	direct, refused := fs.OpenDirect(name, true)
	switch {
	case refused == nil:
		err = direct.Close()
	case errors.Is(refused, ring.ErrUnsupported):
		b.kinds = slices.DeleteFunc(slices.Clone(bareKinds), func(k bareKind) bool { return k.direct })
	default:
		err = refused
	}
	return b, refused, errors.Join(err, f.Close(), fs.Remove(name))
}

// bareFiles is how many files the loops of a cell write to: as many as can be written at once.
func bareFiles(c Cell) int { return min(c.Writers, c.Logs) }

// prepare sees to it that there are n pre-written files, for what is left of a bound on them all.
func (b *bare) prepare(n int) error {
	if len(b.written) >= n {
		return nil
	}
	if err := b.remove(); err != nil {
		return err
	}
	b.size = preWrittenBytes / int64(n) &^ (1<<20 - 1)
	names, err := makeWritten(b.fs, b.dir, n, b.size)
	b.written = names
	return err
}

// preWrittenBytes is what all pre-written files have together.
const preWrittenBytes = 512 << 20

func (b *bare) remove() error {
	var err error
	for _, name := range b.written {
		err = errors.Join(err, b.fs.Remove(name))
	}
	b.written = nil
	return errors.Join(err, b.fs.SyncDir(b.dir))
}

// run is one turn of loops that write bytes at a time, on end of each other as a log does: into the
// same files and with the same fsync mode as the cell says. Records counts writes.
func (b *bare) run(ctx context.Context, k bareKind, c Cell, bytes int64, t turn) (m Measure, err error) {
	n := bareFiles(c)
	if k.written {
		if err := b.prepare(n); err != nil {
			return m, err
		}
	}
	loops := make([]*bareLoop, n)
	for i := range loops {
		l := &bareLoop{kind: k, bytes: bytes, size: b.size, each: c.Fsync == "on_commit", max: t.bytesMax / int64(n), latency: newHistogram()}
		loops[i] = l
		if k.written {
			l.name = b.written[i]
		} else {
			l.name, l.size = filepath.Join(b.dir, fmt.Sprintf("growing-%d", i)), 0
			defer func() { err = errors.Join(err, b.fs.Remove(l.name)) }()
		}
		if err := l.open(b.fs); err != nil {
			return m, err
		}
		defer l.file.Close()
	}
	var stop, measuring atomic.Bool
	warm, measured := newPhase(n), newPhase(n)
	var wg, syncer sync.WaitGroup
	for _, l := range loops {
		wg.Go(func() { l.run(&stop, &measuring, warm.arrive, measured.arrive) })
	}
	done := make(chan struct{})
	var syncErr error
	if c.Fsync == "periodic" {
		syncer.Go(func() { syncErr = syncAll(loops, done) })
	}
	warm.wait(ctx, t.warm, nil)
	from := startUsage()
	measuring.Store(true)
	measured.wait(ctx, t.length, nil)
	measuring.Store(false)
	to, writes := endUsage(), writesOf(loops)
	stop.Store(true)
	wg.Wait()
	close(done)
	syncer.Wait()
	sum := newHistogram()
	err = syncErr
	for _, l := range loops {
		sum.Merge(l.latency)
		err = errors.Join(err, l.err)
	}
	m.use(from, to)
	m.latency(sum)
	m.Records, m.Writes, m.WriteBytes = writes, writes, float64(bytes)
	m.PayloadBytes = m.Records * uint64(bytes)
	return m, err
}

// syncAll does what a log's owner does under periodic.
func syncAll(loops []*bareLoop, done <-chan struct{}) error {
	t := time.NewTicker(fsyncInterval)
	defer t.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-t.C:
			for _, l := range loops {
				if err := l.file.Sync(); err != nil {
					return err
				}
			}
		}
	}
}

func writesOf(loops []*bareLoop) (n uint64) {
	for _, l := range loops {
		n += l.writes.Load()
	}
	return n
}

// bareLoop writes to one file.
type bareLoop struct {
	kind    bareKind
	name    string
	file    ring.File
	bytes   int64
	size    int64         // of a pre-written file, 0 = it grows
	max     int64         // a file that grows begins anew there
	each    bool          // sync after each write
	writes  atomic.Uint64 // measured
	latency *hdrhistogram.Histogram
	err     error
}

func (l *bareLoop) open(fs ring.FS) (err error) {
	if l.kind.direct {
		l.file, err = fs.OpenDirect(l.name, l.each)
		return err
	}
	l.file, err = fs.Open(l.name, os.O_RDWR|os.O_CREATE, 0o600)
	return err
}

func (l *bareLoop) run(stop, measuring *atomic.Bool, warm, measured func()) {
	defer func() { warm(); measured() }()
	// Into written blocks a write covers whole ones, and the one that it begins in a second time: a
	// direct write must, and the kernel would read what it does not have of a block.
	const block = ring.DirectAlign
	payload := ring.AlignedBytes(int((l.bytes+2*block-1)/block) * block)
	for i := range payload {
		payload[i] = byte(i)*7 + 1
	}
	limit := l.size
	if limit == 0 {
		limit = max(l.max, 2*l.bytes)
	}
	for at := int64(0); !stop.Load(); at += l.bytes {
		if at+int64(len(payload)) > limit {
			at = 0
			if l.size == 0 {
				if l.err = errors.Join(l.file.Truncate(0), l.file.Sync()); l.err != nil {
					return
				}
			}
		}
		from, to := at, at+l.bytes
		if l.kind.written {
			from, to = at&^(block-1), (to+block-1)&^(block-1)
		}
		began := time.Now()
		_, err := l.file.WriteAt(payload[:to-from], from)
		if err == nil && l.each && !l.kind.direct {
			err = l.file.Sync()
		}
		if err != nil {
			l.err = err
			return
		}
		if measuring.Load() {
			recordLatency(l.latency, time.Since(began))
			l.writes.Add(1)
			measured()
			measured = nothing
		}
		warm()
		warm = nothing
	}
}
