package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
)

// entryView is an entry as --json prints it.
type entryView struct {
	Segment   uint64        `json:"segment"`
	Pos       int64         `json:"pos"`
	Length    uint32        `json:"length"`
	Offset    uint64        `json:"offset"`
	Count     uint32        `json:"count"`
	Kind      string        `json:"kind"`
	Time      string        `json:"time"`
	Epoch     uint64        `json:"epoch"`
	OnCommit  bool          `json:"on_commit"`
	GroupPos  int64         `json:"group_pos"`
	Producer  *producerView `json:"producer,omitempty"`
	Publisher string        `json:"publisher,omitempty"`
	BodyHolds bool          `json:"body_holds"`
}

type producerView struct {
	ID       uint64 `json:"id"`
	Sequence uint64 `json:"sequence"`
	Digest   string `json:"digest"`
}

// entriesEnd is the last line with --json when the entries end before the segment does.
type entriesEnd struct {
	Stop string `json:"stop"`
	Pos  int64  `json:"pos"`
}

var kindNames = map[log.Kind]string{log.KindRecords: "records", log.KindEpoch: "epoch", log.KindCommit: "commit"}

func viewEntry(e *log.EntryInfo) entryView {
	v := entryView{
		Segment: e.Segment, Pos: e.Pos, Length: e.Length, Offset: e.Offset, Count: e.Count, Kind: kindNames[e.Kind],
		Time: micros(e.Micros), Epoch: e.Epoch, OnCommit: e.OnCommit, GroupPos: e.GroupPos, Publisher: e.Publisher, BodyHolds: e.BodyHolds,
	}
	if e.HasProducer {
		v.Producer = &producerView{ID: e.ProducerID, Sequence: e.Sequence, Digest: fmt.Sprintf("%016x", e.Digest)}
	}
	return v
}

// around prints the entries around --offset.
func (c *logInspect) around(ctx context.Context, env *environment, l *core.StoredLog) error {
	found, err := log.EntriesAround(ctx, logOptions(l), *c.Offset, c.Entries, c.Entries)
	if err != nil {
		return err
	}
	if len(found.Entries) == 0 && found.Stop == "" {
		return &noSuchLog{fmt.Sprintf("no segment of %s has offset %d", title(l), *c.Offset)}
	}
	if env.json {
		for i := range found.Entries {
			if err := env.emit(viewEntry(&found.Entries[i])); err != nil {
				return err
			}
		}
		if found.Stop != "" {
			return env.emit(entriesEnd{found.Stop, found.StopPos})
		}
		return nil
	}
	fmt.Fprintln(env.stdout, title(l))
	w := tabwriter.NewWriter(env.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\tSEGMENT\tBYTE\tLENGTH\tOFFSET\tCOUNT\tEPOCH\tTIME\tFLAGS")
	for i := range found.Entries {
		e := &found.Entries[i]
		mark := ""
		if *c.Offset >= e.Offset && *c.Offset < e.Offset+uint64(e.Count) {
			mark = ">"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", mark, e.Segment, e.Pos, e.Length, e.Offset, e.Count, e.Epoch, short(micros(e.Micros)), flagWords(e))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range found.Entries {
		if e := &found.Entries[i]; e.HasProducer || e.Publisher != "" {
			fmt.Fprintf(env.stdout, "offset %d:", e.Offset)
			if e.HasProducer {
				fmt.Fprintf(env.stdout, " producer %016x, sequence %d", e.ProducerID, e.Sequence)
			}
			if e.Publisher != "" {
				fmt.Fprintf(env.stdout, " publisher %q", shorten(e.Publisher, 40))
			}
			fmt.Fprintln(env.stdout)
		}
	}
	if found.Stop != "" {
		fmt.Fprintf(env.stdout, "The entries end at byte %d: %s\n", found.StopPos, found.Stop)
	}
	return nil
}

func flagWords(e *log.EntryInfo) string {
	s := kindNames[e.Kind]
	if e.OnCommit {
		s += " on_commit"
	}
	if e.GroupPos == e.Pos {
		s += " first"
	}
	if !e.BodyHolds {
		s += " BAD BODY"
	}
	return s
}
