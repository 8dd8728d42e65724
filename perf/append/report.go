package append

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Report is what Run found.
type Report struct {
	Machine Machine       `json:"machine"`
	Rounds  int           `json:"rounds"`
	Turn    time.Duration `json:"turn_nanos"`
	Peers   []Peer        `json:"peers,omitempty"`
	Missing []Missing     `json:"missing,omitempty"`
	Rows    []Row         `json:"rows"`
	Limits  []Limit       `json:"limits"`
	Rivals  []Rival       `json:"rivals,omitempty"`
	Targets []Target      `json:"targets"`
}

// Machine is where it was measured.
type Machine struct {
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	OS         string `json:"os"`
	Kernel     string `json:"kernel,omitempty"`
	Go         string `json:"go"`
}

// Missing is what was asked for and not measured.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Spread is a median over the rounds, and the rounds' extremes.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{median(v), slices.Min(v), slices.Max(v)}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Numbers are the medians over the rounds of one subject under one load.
type Numbers struct {
	Records    float64       `json:"records_per_turn"`
	Rate       Spread        `json:"records_per_second"`
	BytesRate  float64       `json:"payload_bytes_per_second"`
	P50        time.Duration `json:"p50_nanos"`
	P99        time.Duration `json:"p99_nanos"`
	P999       time.Duration `json:"p999_nanos"`
	PerWrite   float64       `json:"records_per_write"`
	WriteBytes float64       `json:"bytes_per_write"`
	Syncs      float64       `json:"syncs_per_second"`
	CPU        time.Duration `json:"cpu_per_record_nanos"`
	Allocs     float64       `json:"allocs_per_record"`
	AllocBytes float64       `json:"alloc_bytes_per_record"`
	Disk       float64       `json:"disk_bytes_per_payload_byte"` // -1 = not known
}

// Row is an engine under one load.
type Row struct {
	Cell
	Engine string `json:"engine"`
	Numbers
	// OfBare is the rate against what the best bare loop would give at the same group size, P50OfBare
	// the same of the latency: 1 is the limit.
	OfBare    Spread `json:"rate_of_best_bare"`
	P50OfBare Spread `json:"p50_of_best_bare"`
	// OfPeer is the rate against a peer's.
	OfPeer map[string]Spread `json:"rate_of_peer,omitempty"`
}

// Limit is a bare loop at the group size of an engine.
type Limit struct {
	Cell
	Engine string `json:"engine"`
	Loop   string `json:"loop"`
	Numbers
}

// Rival is a peer under one load.
type Rival struct {
	Cell
	Peer string `json:"peer"`
	Numbers
}

// Target is a bound of the project and what was found.
type Target struct {
	What  string  `json:"what"`
	On    string  `json:"on"` // engine and load
	Bound float64 `json:"bound"`
	Most  bool    `json:"at_most"` // else at least
	Found Spread  `json:"found"`
}

// Met says whether the median keeps the bound.
func (t Target) Met() bool {
	if t.Most {
		return t.Found.Median <= t.Bound
	}
	return t.Found.Median >= t.Bound
}

func numbers(ms []Measure) Numbers {
	of := func(f func(Measure) float64) []float64 {
		out := make([]float64, len(ms))
		for i, m := range ms {
			out[i] = f(m)
		}
		return out
	}
	mid := func(f func(Measure) float64) float64 { return median(of(f)) }
	return Numbers{
		Records:    mid(func(m Measure) float64 { return float64(m.Records) }),
		Rate:       spread(of(Measure.Rate)),
		BytesRate:  mid(func(m Measure) float64 { return float64(m.PayloadBytes) / m.Time.Seconds() }),
		P50:        time.Duration(mid(func(m Measure) float64 { return float64(m.P50) })),
		P99:        time.Duration(mid(func(m Measure) float64 { return float64(m.P99) })),
		P999:       time.Duration(mid(func(m Measure) float64 { return float64(m.P999) })),
		PerWrite:   mid(Measure.PerWrite),
		WriteBytes: mid(func(m Measure) float64 { return m.WriteBytes }),
		Syncs:      mid(func(m Measure) float64 { return float64(m.Syncs) / m.Time.Seconds() }),
		CPU:        time.Duration(mid(func(m Measure) float64 { return m.PerRecord(float64(m.CPU)) })),
		Allocs:     mid(func(m Measure) float64 { return m.PerRecord(float64(m.Allocs)) }),
		AllocBytes: mid(func(m Measure) float64 { return m.PerRecord(float64(m.AllocBytes)) }),
		Disk: mid(func(m Measure) float64 {
			if m.DiskBytes < 0 {
				return -1
			}
			return float64(m.DiskBytes) / float64(max(m.PayloadBytes, 1))
		}),
	}
}

// add takes in the rounds of a cell.
func (r *Report) add(c Cell, rounds []*round) {
	first := rounds[0]
	for _, name := range slices.Sorted(maps.Keys(first.peers)) {
		r.Rivals = append(r.Rivals, Rival{c, name, numbers(collect(rounds, func(d *round) Measure { return d.peers[name] }))})
	}
	for _, engine := range slices.Sorted(maps.Keys(first.engines)) {
		row := Row{Cell: c, Engine: engine, OfPeer: map[string]Spread{}}
		row.Numbers = numbers(collect(rounds, func(d *round) Measure { return d.engines[engine] }))
		var rate, p50 []float64
		ofPeer := map[string][]float64{}
		for _, d := range rounds {
			m := d.engines[engine]
			bestRate, bestP50 := 0.0, math.Inf(1)
			for _, b := range d.bare[engine] {
				bestRate, bestP50 = max(bestRate, b.Rate()), min(bestP50, float64(b.P50))
			}
			// A write of the loop stands for as many records as the engine's writes carried.
			rate = append(rate, m.Rate()/(bestRate*m.PerWrite()))
			p50 = append(p50, float64(m.P50)/bestP50)
			for name, p := range d.peers {
				ofPeer[name] = append(ofPeer[name], m.Rate()/p.Rate())
			}
		}
		row.OfBare, row.P50OfBare = spread(rate), spread(p50)
		for name, v := range ofPeer {
			row.OfPeer[name] = spread(v)
		}
		r.Rows = append(r.Rows, row)
		for _, k := range bareKinds {
			if _, ran := first.bare[engine][k.name]; !ran {
				continue
			}
			r.Limits = append(r.Limits, Limit{c, engine, k.name, numbers(collect(rounds, func(d *round) Measure { return d.bare[engine][k.name] }))})
		}
		r.judge(row)
	}
}

func collect(rounds []*round, f func(*round) Measure) []Measure {
	out := make([]Measure, len(rounds))
	for i, d := range rounds {
		out[i] = f(d)
	}
	return out
}

// The target "no allocation per append in steady state". A turn has a timer and the log its jobs, such as
// the next stretch of zeros, which allocate: allocsPerTurn are not held against the appends. One per append
// is a thousand in the shortest turn of a lone writer.
const (
	allocsBound   = 0.01
	allocsPerTurn = 100
)

// steadyAllocs is what is left per append.
func (n Numbers) steadyAllocs() float64 {
	return max(0, n.Allocs-allocsPerTurn/max(n.Records, 1))
}

// judge compares a row with the project's targets.
func (r *Report) judge(row Row) {
	add := func(what string, bound float64, most bool, found Spread) {
		r.Targets = append(r.Targets, Target{what, row.Engine + ": " + row.String(), bound, most, found})
	}
	if row.Fsync != "on_commit" {
		return
	}
	if row.Writers == 1 && row.Logs == 1 && row.Bytes == 4096 {
		add("p50 of a lone append / best bare loop", 1.15, true, row.P50OfBare)
	}
	if row.Writers == 64 && row.Logs == 1 && row.Bytes == 256 {
		add("records/s / best bare loop at the same group size", 0.9, false, row.OfBare)
	}
	for _, name := range slices.Sorted(maps.Keys(row.OfPeer)) {
		if !strings.HasPrefix(name, "bbolt") || row.Logs != 1 {
			continue
		}
		switch row.Writers {
		case 1:
			add("records/s / "+name, 2, false, row.OfPeer[name])
		case 8, 64:
			add("records/s / "+name, 5, false, row.OfPeer[name])
		}
	}
}

// judgeAllocs compares each engine's worst load.
func (r *Report) judgeAllocs() {
	worst := map[string]Row{}
	for _, row := range r.Rows {
		if w, ok := worst[row.Engine]; !ok || row.steadyAllocs() > w.steadyAllocs() {
			worst[row.Engine] = row
		}
	}
	for _, engine := range slices.Sorted(maps.Keys(worst)) {
		w := worst[engine]
		found := w.steadyAllocs()
		r.Targets = append(r.Targets, Target{"allocations per append, worst load", engine + ": " + w.String(), allocsBound, true, Spread{found, found, found}})
	}
}
