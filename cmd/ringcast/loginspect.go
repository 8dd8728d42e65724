package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
)

type logInspect struct {
	logTarget
	Segments bool    `help:"Show the segments also when there are several logs."`
	Long     bool    `short:"l" help:"Show everything about segments: creation, nonce, entries, index."`
	Offset   *uint64 `placeholder:"N" help:"Show the entries around this offset. Wants one log."`
	Entries  int     `default:"5" placeholder:"N" help:"How many entries --offset shows on each side."`
}

// logView is a log as --json prints it.
type logView struct {
	logName
	Missing   bool          `json:"missing,omitempty"`
	Base      uint64        `json:"base"`
	Next      uint64        `json:"next"`
	Bytes     int64         `json:"bytes"`
	FileBytes int64         `json:"file_bytes"`
	Epoch     uint64        `json:"epoch"`
	Producers int           `json:"producers"`
	Mark      *markView     `json:"mark"`
	BadMark   bool          `json:"bad_mark,omitempty"`
	Segments  []segmentView `json:"segments"`
	Others    []string      `json:"other_files,omitempty"`
	// Steps are what the next start does; Changes whether any of them changes something.
	Steps   []stepView  `json:"steps"`
	Changes bool        `json:"changes"`
	Damage  *damageView `json:"damage,omitempty"` // why the next start refuses it
}

// logName says which log something is about.
type logName struct {
	Stream string `json:"stream,omitempty"`
	ID     string `json:"id"`
	Shard  uint32 `json:"shard"`
	Dir    string `json:"dir"`
}

type markView struct {
	Segment uint64 `json:"segment"`
	Bytes   int64  `json:"bytes"`
}

type segmentView struct {
	ID        uint64 `json:"id"`
	Base      uint64 `json:"base"`
	Next      uint64 `json:"next,omitempty"`
	Bytes     int64  `json:"bytes"`
	FileBytes int64  `json:"file_bytes"`
	Entries   uint64 `json:"entries"`
	Records   uint64 `json:"records"`
	Created   string `json:"created,omitempty"`
	First     string `json:"first,omitempty"`
	Last      string `json:"last,omitempty"`
	Sealed    bool   `json:"sealed"`
	OnCommit  bool   `json:"on_commit"`
	Stays     bool   `json:"stays"`
	Nonce     string `json:"nonce,omitempty"`
	Index     bool   `json:"index"`
	Problem   string `json:"problem,omitempty"`
}

type stepView struct {
	Kind string `json:"kind"`
	File string `json:"file"`
	Size *int64 `json:"size,omitempty"`
	Why  string `json:"why,omitempty"`
}

func nameOf(l *core.StoredLog) logName {
	return logName{Stream: l.Name(), ID: fmt.Sprintf("%016x", l.ID), Shard: l.Shard, Dir: l.Dir}
}

func (c *logInspect) Run(ctx context.Context, env *environment, s *Settings) error {
	if c.Entries < 0 || c.Entries > 1000 {
		return usageError(errors.New("--entries wants 0 to 1000"))
	}
	open, err := c.openLogs(env, s, false)
	if err != nil {
		return err
	}
	defer open.close()
	if c.Offset != nil {
		if len(open.logs) != 1 {
			return usageError(fmt.Errorf("--offset wants one log, these are %d: name the stream, and --shard", len(open.logs)))
		}
		return canceled(ctx, c.around(ctx, env, &open.logs[0]))
	}
	detail := c.Segments || c.Long || len(open.logs) == 1
	w := tabwriter.NewWriter(env.stdout, 0, 8, 2, ' ', 0)
	if !env.json && !detail {
		fmt.Fprintln(w, "STREAM\tSHARD\tBASE\tNEXT\tSEGMENTS\tBYTES\tNEXT START")
	}
	for i := range open.logs {
		l := &open.logs[i]
		v := logView{logName: nameOf(l), Missing: l.Missing, Segments: []segmentView{}, Steps: []stepView{}}
		if !l.Missing {
			in, err := log.Inspect(ctx, logOptions(l))
			if err != nil {
				return canceled(ctx, err)
			}
			v.fill(in)
		}
		switch {
		case env.json:
			err = env.emit(v)
		case detail:
			err = v.print(env.stdout, l, c.Long, i > 0)
		default:
			base, next, bytes := fmt.Sprint(v.Base), fmt.Sprint(v.Next), size(float64(v.Bytes))
			if v.Damage != nil { // only the headers are known
				base, next, bytes = "-", "-", size(float64(v.FileBytes))
			}
			_, err = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%s\t%s\n", shorten(v.streamName(), 36), v.Shard, base, next,
				len(v.Segments), bytes, v.verdict())
		}
		if err != nil {
			return err
		}
	}
	return w.Flush()
}

func (v *logView) streamName() string {
	if v.Stream == "" {
		return v.ID
	}
	return v.Stream
}

// verdict is what the next start does, in a word or two.
func (v *logView) verdict() string {
	switch {
	case v.Missing:
		return "no files"
	case v.Damage != nil:
		return "REFUSED: damaged"
	case v.Changes:
		n := 0
		for _, s := range v.Steps {
			if s.Kind != "sync" {
				n++
			}
		}
		return fmt.Sprintf("%d changes", n)
	}
	return "clean"
}

func (v *logView) fill(in *log.Inspection) {
	v.Base, v.Next, v.Epoch, v.Producers, v.BadMark, v.Others = in.Base, in.Next, in.Epoch, in.Producers, in.BadMark, in.Others
	if in.Mark != nil {
		v.Mark = &markView{in.Mark.Segment, in.Mark.Bytes}
	}
	for i := range in.Segments {
		s := &in.Segments[i]
		v.Bytes += s.Bytes
		v.FileBytes += s.FileBytes
		sv := segmentView{
			ID: s.ID, Base: s.Base, Next: s.Next, Bytes: s.Bytes, FileBytes: s.FileBytes, Entries: s.Entries, Records: s.Records,
			Created: micros(s.CreatedMicros), First: micros(s.FirstMicros), Last: micros(s.LastMicros),
			Sealed: s.Sealed, OnCommit: s.OnCommit, Stays: s.Stays, Index: s.IndexFileFound, Problem: s.Problem,
		}
		if s.Nonce != 0 {
			sv.Nonce = fmt.Sprintf("%016x", s.Nonce)
		}
		v.Segments = append(v.Segments, sv)
	}
	if in.Plan != nil {
		v.Steps, v.Changes = stepViews(in.Plan.Steps), in.Plan.Changes()
	}
	if r := in.Refused; r != nil {
		v.Damage = &damageView{Segment: r.Segment, Pos: r.Pos, What: r.What}
	}
}

var stepNames = map[log.StepKind]string{
	log.StepRemove: "remove", log.StepCut: "cut", log.StepSync: "sync", log.StepIndex: "index", log.StepMark: "mark",
}

func stepViews(steps []log.Step) []stepView {
	out := make([]stepView, len(steps))
	for i, s := range steps {
		out[i] = stepView{Kind: stepNames[s.Kind], File: s.File, Why: s.Why}
		if s.Kind == log.StepCut || s.Kind == log.StepMark {
			out[i].Size = &steps[i].Size
		}
	}
	return out
}

// micros is a time of the format, "" for none.
func micros(us uint64) string {
	if us == 0 {
		return ""
	}
	return time.UnixMicro(int64(us)).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// short is the same for a table.
func short(stamp string) string {
	if len(stamp) < 19 {
		return "-"
	}
	return stamp[:10] + " " + stamp[11:19]
}

func (v *logView) print(out io.Writer, l *core.StoredLog, long, again bool) error {
	if again {
		fmt.Fprintln(out)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "log\t%s\ndirectory\t%s\n", title(l), v.Dir)
	if v.Missing {
		fmt.Fprintln(w, "next start\tmakes it: the catalogue has the shard, and there are no files")
		return w.Flush()
	}
	if v.Damage == nil {
		fmt.Fprintf(w, "records\t%s\n", held(v.Base, v.Next))
		fmt.Fprintf(w, "bytes\t%s of data in %s of files\n", size(float64(v.Bytes)), size(float64(v.FileBytes)))
		fmt.Fprintf(w, "epoch\t%d\nproducers\t%d\n", v.Epoch, v.Producers)
	} else {
		fmt.Fprintf(w, "bytes\t%s of files\n", size(float64(v.FileBytes)))
	}
	switch {
	case v.Mark != nil:
		fmt.Fprintf(w, "durable.mark\tsegment %d, %d bytes\n", v.Mark.Segment, v.Mark.Bytes)
	case v.BadMark:
		fmt.Fprintln(w, "durable.mark\tdoes not hold; treated as absent")
	default:
		fmt.Fprintln(w, "durable.mark\tabsent")
	}
	for _, name := range v.Others {
		fmt.Fprintf(w, "other file\t%s\n", name)
	}
	switch {
	case v.Damage != nil:
		fmt.Fprintf(w, "next start\tREFUSED, segment %d is damaged at byte %d:\n", v.Damage.Segment, v.Damage.Pos)
	case !v.Changes:
		fmt.Fprintln(w, "next start\tchanges nothing")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if v.Damage != nil {
		fmt.Fprintln(out, wrap(v.Damage.What, "    ", lineColumns))
	}
	if v.Damage == nil && v.Changes {
		fmt.Fprintln(out, "next start")
		printSteps(out, v.Steps)
	}
	return v.printSegments(out, long)
}

func printSteps(out io.Writer, steps []stepView) {
	for _, s := range steps {
		if s.Kind == "sync" {
			continue
		}
		fmt.Fprintf(out, "  %s %s", s.Kind, s.File)
		if s.Size != nil {
			fmt.Fprintf(out, " at %d bytes", *s.Size)
		}
		if s.Why != "" {
			fmt.Fprintf(out, ":\n%s", wrap(s.Why, "      ", lineColumns))
		}
		fmt.Fprintln(out)
	}
}

func (v *logView) printSegments(out io.Writer, long bool) error {
	if len(v.Segments) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SEGMENT\tBASE\tNEXT\tBYTES\tFILE BYTES\tFIRST\tLAST\tSTATE")
	for i := range v.Segments {
		s := &v.Segments[i]
		next, bytes := "-", "-"
		if s.Stays {
			next, bytes = fmt.Sprint(s.Next), fmt.Sprint(s.Bytes)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%d\t%s\t%s\t%s\n", s.ID, s.Base, next, bytes, s.FileBytes, short(s.First), short(s.Last), s.state(v.Damage != nil))
	}
	if err := w.Flush(); err != nil || !long {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintln(w, "SEGMENT\tCREATED\tNONCE\tENTRIES\tRECORDS\tMODE\tINDEX")
	for i := range v.Segments {
		s := &v.Segments[i]
		mode, index := "not on_commit", "none"
		if s.OnCommit {
			mode = "on_commit"
		}
		if s.Entries == 0 {
			mode = "-"
		}
		if s.Index {
			index = "found"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%s\t%s\n", s.ID, short(s.Created), s.Nonce, s.Entries, s.Records, mode, index)
	}
	return w.Flush()
}

// state is a word or two on a segment. Of a log that is refused only the headers are known.
func (s *segmentView) state(refused bool) string {
	switch {
	case s.Problem == "blank":
		return "blank"
	case s.Problem != "":
		return "BAD HEADER"
	case refused:
		return "-"
	case !s.Stays:
		return "goes"
	case s.Sealed:
		return "sealed"
	}
	return "open"
}
