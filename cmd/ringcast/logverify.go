package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
)

type logVerify struct {
	logTarget
}

// verifyView is the result for one log as --json prints it.
type verifyView struct {
	logName
	Missing  bool         `json:"missing,omitempty"`
	OK       bool         `json:"ok"`
	Starts   bool         `json:"starts"` // the broker takes it at its next start, whatever it looks at
	Segments int          `json:"segments"`
	Entries  uint64       `json:"entries"`
	Records  uint64       `json:"records"`
	Bytes    int64        `json:"bytes"`
	Base     uint64       `json:"base"`
	Next     uint64       `json:"next"`
	Damages  int          `json:"damages"`
	Damage   []damageView `json:"damage"`
	Noted    int          `json:"noted"`
	Notes    []noteView   `json:"notes"`
}

type damageView struct {
	Kind    string `json:"kind,omitempty"`
	Segment uint64 `json:"segment"`
	Pos     int64  `json:"pos"`
	Bytes   int64  `json:"bytes,omitempty"`
	What    string `json:"what"`
	First   uint64 `json:"first_offset,omitempty"`
	Next    uint64 `json:"next_offset,omitempty"`
	Advice  string `json:"advice,omitempty"`
}

type noteView struct {
	Segment uint64 `json:"segment"`
	Pos     int64  `json:"pos"`
	What    string `json:"what"`
}

// verifySummary is the last line with --json.
type verifySummary struct {
	Logs           int     `json:"logs"`
	Damaged        int     `json:"damaged"`
	Bytes          int64   `json:"bytes"`
	Seconds        float64 `json:"seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

func (c *logVerify) Run(ctx context.Context, env *environment, s *Settings) error {
	open, err := c.openLogs(env, s, false)
	if err != nil {
		return err
	}
	defer open.close()
	var total int64
	for i := range open.logs {
		total += fileBytes(&open.logs[i])
	}
	began := time.Now()
	found := make([]*log.Verification, len(open.logs))
	bar := newProgress(env, c.Progress, "verify", total)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range open.logs {
		if open.logs[i].Missing {
			continue
		}
		g.Go(func() (err error) {
			found[i], err = log.Verify(gctx, logOptions(&open.logs[i]), bar.Add)
			return err
		})
	}
	err = g.Wait()
	bar.End()
	if err != nil {
		return canceled(ctx, err)
	}
	sum := verifySummary{Logs: len(open.logs), Seconds: time.Since(began).Seconds()}
	for i, f := range found {
		l := &open.logs[i]
		v := viewVerification(l, f)
		if !v.OK {
			sum.Damaged++
		}
		sum.Bytes += v.Bytes
		if env.json {
			err = env.emit(v)
		} else {
			err = v.print(env.stdout, l)
		}
		if err != nil {
			return err
		}
	}
	sum.BytesPerSecond = rate(float64(sum.Bytes), time.Since(began))
	if env.json {
		err = env.emit(sum)
	} else {
		_, err = fmt.Fprintf(env.stdout, "%s, %s read in %.1f s (%s/s), %d damaged\n",
			plural(sum.Logs, "log", "logs"), size(float64(sum.Bytes)), sum.Seconds, size(sum.BytesPerSecond), sum.Damaged)
	}
	if err == nil && sum.Damaged > 0 {
		err = &damaged{sum.Damaged, sum.Logs}
	}
	return err
}

func viewVerification(l *core.StoredLog, f *log.Verification) verifyView {
	v := verifyView{logName: nameOf(l), Missing: l.Missing, OK: true, Starts: true, Damage: []damageView{}, Notes: []noteView{}}
	if f == nil {
		return v // the next start makes it
	}
	v.OK, v.Starts = f.Damages == 0, f.Refused == nil
	v.Segments, v.Entries, v.Records, v.Bytes, v.Base, v.Next = f.Segments, f.Entries, f.Records, f.Read, f.Base, f.Next
	v.Damages, v.Noted = f.Damages, f.Noted
	for i := range f.Damage {
		v.Damage = append(v.Damage, viewDamage(&f.Damage[i]))
	}
	for _, n := range f.Notes {
		v.Notes = append(v.Notes, noteView{n.Segment, n.Pos, n.What})
	}
	return v
}

func viewDamage(d *log.Damage) damageView {
	return damageView{Kind: string(d.Kind), Segment: d.Segment, Pos: d.Pos, Bytes: d.Bytes, What: d.What, First: d.First, Next: d.Next, Advice: advice[d.Kind]}
}

// advice is what a person can do about damage.
var advice = map[log.DamageKind]string{
	log.DamageEntries: "Restore the segment from a copy, or give up everything from there on with repair --truncate-at-damage.",
	log.DamageHeader:  "Restore the segment from a copy, or give up it and all after it with repair --truncate-at-damage.",
	log.DamageGap:     "A segment is missing: put it back, or give up all after the gap with repair --truncate-at-damage.",
	log.DamageMark:    "A file is missing or older than durable.mark: put it back; repair --truncate-at-damage accepts what is there.",
	log.DamageForeign: "Move the file to the log that it belongs to. repair does not touch it.",
	log.DamageNewer:   "Use the version of ringcast that wrote it. repair does not touch it.",
}

func (v *verifyView) print(out io.Writer, l *core.StoredLog) error {
	switch {
	case v.Missing:
		_, err := fmt.Fprintf(out, "%s: no files; the next start makes it\n", title(l))
		return err
	case v.OK:
		fmt.Fprintf(out, "%s: clean, %s, %s\n", title(l), held(v.Base, v.Next), plural(v.Segments, "segment", "segments"))
	default:
		start := "the broker may refuse to start with it"
		if v.Starts {
			start = "the broker starts with it, and fails reads there"
		}
		fmt.Fprintf(out, "%s: DAMAGED at %s;\n  %s\n  %s\n", title(l), plural(v.Damages, "place", "places"), start, v.Dir)
	}
	for i := range v.Damage {
		d := &v.Damage[i]
		fmt.Fprintf(out, "  segment %d, byte %d:\n%s\n", d.Segment, d.Pos, wrap(d.What, "    ", lineColumns))
		switch {
		case d.Next > d.First, d.Bytes > 0 && d.Kind == string(log.DamageEntries):
			fmt.Fprintf(out, "    %s, %s\n", size(float64(d.Bytes)), span(d.First, d.Next))
		case d.Bytes > 0:
			fmt.Fprintf(out, "    %s\n", size(float64(d.Bytes)))
		}
		if i == len(v.Damage)-1 || v.Damage[i+1].Kind != d.Kind {
			fmt.Fprintln(out, wrap(d.Advice, "    ", lineColumns))
		}
	}
	if n := v.Damages - len(v.Damage); n > 0 {
		fmt.Fprintf(out, "  and %d more\n", n)
	}
	for _, n := range v.Notes {
		fmt.Fprintf(out, "  note: segment %d, byte %d:\n%s\n", n.Segment, n.Pos, wrap(n.What, "    ", lineColumns))
	}
	if n := v.Noted - len(v.Notes); n > 0 {
		fmt.Fprintf(out, "  and %d more notes\n", n)
	}
	return nil
}
