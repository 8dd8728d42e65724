package append

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Markdown writes the report as tables.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, kernel %s, %s, %d CPUs, GOMAXPROCS %d. %d rounds of %v turns; medians, in brackets the lowest and the highest round.\n",
		m.OS, m.Kernel, m.Go, m.CPUs, m.GOMAXPROCS, r.Rounds, r.Turn)
	for _, p := range r.Peers {
		fmt.Fprintf(&b, "\n%s %s: %s.", p.Name, p.Version, p.What)
	}
	if len(r.Peers) > 0 {
		b.WriteString("\n")
	}
	for _, x := range r.Missing {
		fmt.Fprintf(&b, "\nNot measured: %s: %s\n", x.What, x.Why)
	}
	r.targets(&b)
	r.engines(&b)
	r.limits(&b)
	r.rivals(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func table(b *strings.Builder, title string, head ...string) {
	fmt.Fprintf(b, "\n### %s\n\n| %s |\n|%s\n", title, strings.Join(head, " | "), strings.Repeat("---|", len(head)))
}

func line(b *strings.Builder, values ...string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(values, " | "))
}

func (r *Report) targets(b *strings.Builder) {
	table(b, "Targets", "target", "engine and load", "bound", "found", "met")
	for _, t := range r.Targets {
		sign, met := "at least", "yes"
		if t.Most {
			sign = "at most"
		}
		if !t.Met() {
			met = "**no**"
		}
		line(b, t.What, t.On, fmt.Sprintf("%s %g", sign, t.Bound), ratio(t.Found), met)
	}
}

func (r *Report) engines(b *strings.Builder) {
	var peers []string
	for _, row := range r.Rows {
		for name := range row.OfPeer {
			if !slices.Contains(peers, name) {
				peers = append(peers, name)
			}
		}
	}
	slices.Sort(peers)
	head := []string{"fsync", "writers", "logs", "record", "engine", "records/s", "MB/s", "p50", "p99", "p99.9", "records/write", "bytes/write",
		"CPU/record", "allocs/record", "disk bytes/byte", "rate / bare", "p50 / bare"}
	for _, name := range peers {
		head = append(head, "rate / "+name)
	}
	table(b, "Engines", head...)
	for _, row := range r.Rows {
		n := row.Numbers
		disk := "unknown"
		if n.Disk >= 0 {
			disk = fmt.Sprintf("%.2f", n.Disk)
		}
		values := append(cellColumns(row.Cell), row.Engine, count(n.Rate.Median), fmt.Sprintf("%.1f", n.BytesRate/1e6), short(n.P50), short(n.P99), short(n.P999),
			fmt.Sprintf("%.1f", n.PerWrite), count(n.WriteBytes), short(n.CPU), fmt.Sprintf("%.3f", n.Allocs), disk, ratio(row.OfBare), ratio(row.P50OfBare))
		for _, name := range peers {
			text := ""
			if s, ok := row.OfPeer[name]; ok {
				text = ratio(s)
			}
			values = append(values, text)
		}
		line(b, values...)
	}
}

func (r *Report) limits(b *strings.Builder) {
	table(b, "Bare loops at the engines' group sizes", "fsync", "writers", "logs", "record", "at the size of", "loop", "bytes/write", "writes/s", "p50", "p99", "CPU/write")
	for i, l := range r.Limits {
		engines := l.Engine
		for _, o := range r.Limits[i+1:] {
			if o.Cell == l.Cell && o.Loop == l.Loop && o.Numbers == l.Numbers {
				engines += ", " + o.Engine // one turn stood for both
			}
		}
		if slices.ContainsFunc(r.Limits[:i], func(o Limit) bool { return o.Cell == l.Cell && o.Loop == l.Loop && o.Numbers == l.Numbers }) {
			continue
		}
		line(b, append(cellColumns(l.Cell), engines, l.Loop, count(l.WriteBytes), count(l.Rate.Median), short(l.P50), short(l.P99), short(l.CPU))...)
	}
}

func (r *Report) rivals(b *strings.Builder) {
	if len(r.Rivals) == 0 {
		return
	}
	table(b, "Peers", "fsync", "writers", "logs", "record", "peer", "records/s", "p50", "p99", "p99.9", "CPU/record", "allocs/record")
	for _, p := range r.Rivals {
		line(b, append(cellColumns(p.Cell), p.Peer, count(p.Rate.Median), short(p.P50), short(p.P99), short(p.P999), short(p.CPU), fmt.Sprintf("%.1f", p.Allocs))...)
	}
}

func cellColumns(c Cell) []string {
	return []string{c.Fsync, fmt.Sprint(c.Writers), fmt.Sprint(c.Logs), byteText(c.Bytes)}
}

func ratio(s Spread) string { return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Low, s.High) }

// count writes a number with a comma between thousands.
func count(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	case d >= 100*time.Microsecond:
		return fmt.Sprintf("%.0f us", float64(d)/1e3)
	}
	return fmt.Sprintf("%.1f us", float64(d)/1e3)
}
