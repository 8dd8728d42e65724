package append

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
)

// Options configure Run.
type Options struct {
	Cells   []Cell
	Engines []string // kinds of ring.Open; with /growing behind it, the engine under logs that do not pre-write
	Rounds  int
	Length  time.Duration // of a turn of an engine or a peer; a bare loop gets the half
	Dir     string        // on the disk that is measured; what is made there is removed
	// Peers is the program of perf/peers; "" = none. PeerNames are those that run, none = all that
	// it has.
	Peers     string
	PeerNames []string
	// Progress is told after each turn of how many. nil = nobody.
	Progress func(done, total int)
	// Warnings gets a line about what could not be measured. nil = nobody.
	Warnings io.Writer

	fs ring.FS // of the bare loops; nil = the system's
}

// bytesMax bounds what one turn writes: files are removed after it.
const bytesMax = 2 << 30

// Cells is every combination.
func Cells(writers, logs, bytes []int, fsync []string) []Cell {
	var out []Cell
	for _, f := range fsync {
		for _, l := range logs {
			for _, b := range bytes {
				for _, w := range writers {
					out = append(out, Cell{Writers: w, Logs: l, Bytes: b, Fsync: f})
				}
			}
		}
	}
	return out
}

// Validate returns every problem of o, joined.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("append: "+format, args...))
		}
	}
	check(len(o.Engines) > 0, "no engine")
	check(len(o.Cells) > 0, "no load")
	check(o.Rounds >= 1, "%d rounds: want at least 1", o.Rounds)
	check(o.Length > 0, "a turn of %v", o.Length)
	for _, c := range o.Cells {
		check(c.Writers >= 1 && c.Writers <= 4096, "%d writers: want 1 to 4096", c.Writers)
		check(c.Logs >= 1 && c.Logs <= 256, "%d logs: want 1 to 256", c.Logs)
		check(c.Bytes >= 1 && c.Bytes <= 16<<20, "records of %d bytes: want 1 to 16 MiB", c.Bytes)
		_, err := log.ParseFsyncMode(c.Fsync)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Run measures every cell: in each round each subject has a turn, one after another on the same
// disk, and the order rotates with the rounds. Ratios are taken within a round.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Warnings == nil {
		o.Warnings = io.Discard
	}
	if o.fs == nil {
		o.fs = ring.OS()
	}
	dir, err := os.MkdirTemp(o.Dir, "ringcast-append-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &runner{o: o, dir: dir, fs: o.fs}
	r.report = &Report{Machine: machine(), Rounds: o.Rounds, Turn: o.Length}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.peers.close()) }()
	r.total = o.Rounds * len(o.Cells) * (len(r.engines) + len(r.peers.names()))
	for _, c := range o.Cells {
		rounds := make([]*round, o.Rounds)
		for i := range rounds {
			if rounds[i], err = r.round(ctx, c, i); err != nil {
				return nil, fmt.Errorf("append: %s: %w", c, err)
			}
		}
		r.report.add(c, rounds)
	}
	r.report.judgeAllocs()
	return r.report, nil
}

type runner struct {
	o           Options
	dir         string
	fs          ring.FS
	bare        *bare
	peers       *peers // nil: none
	engines     []string
	report      *Report
	done, total int
}

// open finds out which engines and peers there are.
func (r *runner) open(ctx context.Context) error {
	bare, refused, err := newBare(r.fs, r.dir)
	if err != nil {
		return err
	}
	if r.bare = bare; refused != nil {
		r.missing("the bare loop of direct writes", refused.Error())
	}
	for _, kind := range r.o.Engines {
		e, _, fell, err := openEngine(kind, r.dir)
		if err != nil {
			r.missing("engine "+kind, err.Error())
			continue
		}
		name := e.Name()
		if err := e.Close(); err != nil {
			return err
		}
		if fell != "" {
			r.missing("engine "+kind, "the kernel refuses io_uring, this is the "+name+" engine: "+fell)
		}
		r.engines = append(r.engines, kind)
	}
	if len(r.engines) == 0 {
		return errors.New("append: none of the engines can be opened here")
	}
	if r.o.Peers == "" {
		r.missing("peers", "there is no program ringcast-peers: make peers builds it")
		return nil
	}
	p, err := startPeers(ctx, r.o.Peers, r.o.PeerNames)
	if err != nil {
		r.missing("peers", err.Error())
		return nil
	}
	r.peers = p
	r.report.Peers = p.hello.Peers
	return nil
}

func (r *runner) missing(what, why string) {
	r.report.Missing = append(r.report.Missing, Missing{what, why})
	fmt.Fprintf(r.o.Warnings, "not measured: %s: %s\n", what, why)
}

// round is what one round of a cell found.
type round struct {
	engines map[string]Measure
	// bare is the loops at the group size of an engine: by engine and kind of loop.
	bare  map[string]map[string]Measure
	peers map[string]Measure
}

// bareShare is how much wider the sizes of two groups may be apart for one turn of the bare loops
// to stand for both.
const bareShare = 1.05

func (r *runner) round(ctx context.Context, c Cell, number int) (*round, error) {
	out := &round{engines: map[string]Measure{}, bare: map[string]map[string]Measure{}, peers: map[string]Measure{}}
	t := turn{warm: min(r.o.Length/5, 200*time.Millisecond), length: r.o.Length, bytesMax: bytesMax}
	half := t
	half.length = t.length / 2
	type sized struct {
		bytes float64
		loops map[string]Measure
	}
	var sizes []sized
	var subjects []func() error
	for _, kind := range r.engines {
		subjects = append(subjects, func() error {
			m, err := r.engine(ctx, kind, c, t)
			if err != nil {
				return fmt.Errorf("engine %s: %w", kind, err)
			}
			out.engines[kind] = m
			for _, s := range sizes {
				if s.bytes <= m.WriteBytes*bareShare && m.WriteBytes <= s.bytes*bareShare {
					out.bare[kind] = s.loops
					return nil
				}
			}
			loops := map[string]Measure{}
			for i := range r.bare.kinds {
				k := r.bare.kinds[(i+number)%len(r.bare.kinds)]
				if loops[k.name], err = r.bare.run(ctx, k, c, max(int64(m.WriteBytes), 1), half); err != nil {
					return fmt.Errorf("bare loop, %s: %w", k.name, err)
				}
			}
			sizes = append(sizes, sized{m.WriteBytes, loops})
			out.bare[kind] = loops
			return nil
		})
	}
	for _, name := range r.peers.names() {
		subjects = append(subjects, func() error {
			if c.Fsync != "on_commit" {
				return nil // their other modes promise other things
			}
			m, err := r.peers.run(ctx, name, r.dir, c, t)
			if err != nil {
				return fmt.Errorf("peer %s: %w", name, err)
			}
			out.peers[name] = m
			return nil
		})
	}
	for i := range subjects {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := subjects[(i+number)%len(subjects)](); err != nil {
			return nil, err
		}
		r.done++
		if r.o.Progress != nil {
			r.o.Progress(r.done, r.total)
		}
	}
	return out, ctx.Err()
}

// engine is one turn of an engine in a directory of its own, which is gone before the next turn.
func (r *runner) engine(ctx context.Context, kind string, c Cell, t turn) (Measure, error) {
	dir, err := os.MkdirTemp(r.dir, "logs-")
	if err != nil {
		return Measure{}, err
	}
	m, err := runEngine(ctx, kind, dir, c, t, asUsual())
	err = errors.Join(err, r.fs.RemoveAll(dir), r.fs.SyncDir(r.dir))
	runtime.GC() // what this turn left is not collected in the next one
	return m, err
}

// machine describes where this runs.
func machine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = string(slices.DeleteFunc(b, func(c byte) bool { return c == '\n' }))
	}
	return m
}
