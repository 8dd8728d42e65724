package append

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/sched"
)

// Threads that an executor can run on.
const (
	Unlocked = "unlocked" // an ordinary goroutine
	Locked   = "locked"   // a thread of its own
	Pinned   = "pinned"   // the same, bound to a CPU
)

// Where an executor can sleep.
const (
	ParkChannel = "channel" // in Go's scheduler
	ParkEventfd = "eventfd" // in the kernel
)

// WaitMode is one way to run the executor of a log.
type WaitMode struct {
	// Busy: goroutines that only compute and yield, one per CPU, take every processor that is left, as in a
	// broker that is saturated.
	Busy   bool   `json:"cpus_busy"`
	Thread string `json:"thread"`
	Park   string `json:"park"`
	// OneMore: GOMAXPROCS is the CPUs plus the locked executor, whose thread may hold one in a system call.
	OneMore bool `json:"one_more_p"`
	// Gather: whoever became runnable with the answers of the last group runs, and what it appends is taken,
	// before the next group is sealed.
	Gather bool `json:"gather"`
}

func (m WaitMode) String() string {
	s := m.Thread + ", " + m.Park
	if m.OneMore {
		s += ", one P more"
	}
	if m.Gather {
		s += ", gathers"
	}
	return s
}

// usual is the mode that the others are compared with.
func (m WaitMode) usual() WaitMode {
	return WaitMode{Busy: m.Busy, Thread: Unlocked, Park: ParkChannel}
}

// waitModes is every mode, the usual one of idle and of busy CPUs before those compared with it.
func waitModes() []WaitMode {
	var modes []WaitMode
	for _, busy := range []bool{false, true} {
		for _, thread := range []string{Unlocked, Locked, Pinned} {
			for _, park := range []string{ParkChannel, ParkEventfd} {
				for _, more := range []bool{false, true} {
					if more && thread == Unlocked {
						continue
					}
					for _, gather := range []bool{false, true} {
						modes = append(modes, WaitMode{busy, thread, park, more, gather})
					}
				}
			}
		}
	}
	return modes
}

// WaitingOptions configure Waiting.
type WaitingOptions struct {
	Dir     string // on the disk that is measured; what is made there is removed
	Engine  string // kind of ring.Open
	Writers []int
	Rounds  int
	Turn    time.Duration
	// Progress is told after each turn of how many. nil = nobody.
	Progress func(done, total int)
}

// WaitReport is what Waiting found.
type WaitReport struct {
	Machine Machine       `json:"machine"`
	Engine  string        `json:"engine"`
	Rounds  int           `json:"rounds"`
	Turn    time.Duration `json:"turn_nanos"`
	Missing []Missing     `json:"missing,omitempty"`
	Rows    []WaitRow     `json:"rows"`
}

// WaitRow is one mode under one load. OfUsual is its rate against that of an unlocked executor parked in a
// channel, P99OfUsual the same of the latency, in the same round.
type WaitRow struct {
	WaitMode
	Cell
	Numbers
	OfUsual    Spread `json:"rate_of_usual"`
	P99OfUsual Spread `json:"p99_of_usual"`
}

// Waiting measures every way to run an executor: closed-loop writers of 256 bytes append to one log with a
// sync per group. Each mode has one turn in each round, and the order rotates.
func Waiting(ctx context.Context, o WaitingOptions) (_ *WaitReport, err error) {
	if o.Rounds < 1 || o.Turn <= 0 || len(o.Writers) == 0 {
		return nil, errors.New("append: waiting: no round, no time or no writers")
	}
	engine, _, _, err := openEngine(o.Engine, o.Dir)
	if err != nil {
		return nil, err
	}
	r := &WaitReport{Machine: machine(), Engine: engine.Name(), Rounds: o.Rounds, Turn: o.Turn}
	if err := engine.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.Dir, "ringcast-waiting-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	cpus := sched.UsableCPUs()
	modes := waitModes()
	if len(cpus) < 2 {
		r.Missing = append(r.Missing, Missing{"the pinned executor", "there is no other CPU for the rest of the process"})
		modes = slices.DeleteFunc(modes, func(m WaitMode) bool { return m.Thread == Pinned })
	}
	done, total := 0, o.Rounds*len(modes)*len(o.Writers)
	for _, writers := range o.Writers {
		c := Cell{Writers: writers, Logs: 1, Bytes: 256, Fsync: "on_commit"}
		measures := make([][]Measure, len(modes))
		for round := range o.Rounds {
			for i := range modes {
				at := (i + round) % len(modes)
				m, err := waitTurn(ctx, r.Engine, dir, c, modes[at], cpus, o.Turn)
				if err != nil {
					return nil, fmt.Errorf("append: waiting: %s: %w", modes[at], err)
				}
				measures[at] = append(measures[at], m)
				if done++; o.Progress != nil {
					o.Progress(done, total)
				}
			}
		}
		r.add(c, modes, measures)
	}
	return r, ctx.Err()
}

// waitTurn is one turn of one mode.
func waitTurn(ctx context.Context, engine, dir string, c Cell, mode WaitMode, cpus []int, length time.Duration) (m Measure, err error) {
	as := runAs{ExecutorOptions: sched.ExecutorOptions{CPU: -1, Lock: mode.Thread == Locked}, gather: mode.Gather}
	if mode.Thread == Pinned {
		as.CPU = sched.PlaceExecutors(1, cpus)[0]
	}
	as.Parker = sched.NewChannelParker()
	if mode.Park == ParkEventfd {
		p, e := sched.NewEventfdParker()
		if e != nil {
			return m, e
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		as.Parker = p
	}
	if mode.OneMore {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(len(cpus) + 1))
	}
	if mode.Busy {
		defer keepBusy(len(cpus))()
	}
	sub, err := os.MkdirTemp(dir, "logs-")
	if err != nil {
		return m, err
	}
	m, err = runEngine(ctx, engine, sub, c, turn{warm: length / 5, length: length, bytesMax: bytesMax}, as)
	err = errors.Join(err, ring.OS().RemoveAll(sub), ring.OS().SyncDir(dir))
	runtime.GC() // what this turn left is not collected in the next one
	return m, err
}

// keepBusy starts n goroutines that compute some 20 us at a time and yield, until stop is called.
func keepBusy(n int) (stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			sum := uint64(1)
			for !over.Load() {
				for i := range uint64(40_000) {
					sum = sum*31 + i
				}
				runtime.Gosched()
			}
		})
	}
	return func() {
		over.Store(true)
		wg.Wait()
	}
}

// add makes rows of the measures of one load, [mode][round].
func (r *WaitReport) add(c Cell, modes []WaitMode, measures [][]Measure) {
	// A round's place in the measures is the same for all modes: each has one turn in it.
	usual := map[WaitMode][]Measure{}
	for i, m := range modes {
		if m == m.usual() {
			usual[m] = measures[i]
		}
	}
	for i, m := range modes {
		row := WaitRow{WaitMode: m, Cell: c, Numbers: numbers(measures[i])}
		var rate, p99 []float64
		for n, u := range usual[m.usual()] {
			rate = append(rate, measures[i][n].Rate()/u.Rate())
			p99 = append(p99, float64(measures[i][n].P99)/float64(max(u.P99, 1)))
		}
		row.OfUsual, row.P99OfUsual = spread(rate), spread(p99)
		r.Rows = append(r.Rows, row)
	}
}

// Markdown writes the report as tables, one per load.
func (r *WaitReport) Markdown(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, kernel %s, %s, %d CPUs, engine %s. %d rounds of %v turns; medians, in brackets the lowest and the highest round.\n",
		m.OS, m.Kernel, m.Go, m.CPUs, r.Engine, r.Rounds, r.Turn)
	for _, x := range r.Missing {
		fmt.Fprintf(&b, "\nNot measured: %s: %s\n", x.What, x.Why)
	}
	title := ""
	for _, row := range r.Rows {
		cpus := "CPUs idle"
		if row.Busy {
			cpus = "every CPU busy"
		}
		if t := row.Cell.String() + ", " + cpus; t != title {
			title = t
			table(&b, title, "executor", "records/s", "rate / usual", "p50", "p99", "p99 / usual", "records per group", "CPU per record")
		}
		line(&b, row.WaitMode.String(), count(row.Rate.Median), ratio(row.OfUsual), short(row.P50), short(row.P99), ratio(row.P99OfUsual),
			fmt.Sprintf("%.1f", row.PerWrite), short(row.CPU))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
