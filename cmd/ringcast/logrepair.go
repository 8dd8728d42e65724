package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
)

type logRepair struct {
	logTarget
	TruncateAtDamage bool   `help:"LOSES DATA: cut each damaged log at its first damaged byte; everything after it in that log is dropped."`
	DryRun           bool   `short:"n" help:"Show what would be done and change nothing."`
	Yes              bool   `short:"y" help:"Do not ask."`
	BackupDir        string `placeholder:"DIR" help:"Where files that lose bytes are saved first. Default: repair-TIME in the log's directory."`
	NoBackup         bool   `help:"Do not save them."`
}

// repairView is the result for one log as --json prints it.
type repairView struct {
	logName
	// State is clean (nothing to do), planned (--dry-run), repaired, or damaged (nothing was done).
	State  string      `json:"state"`
	Steps  []stepView  `json:"steps"`
	Loss   *lossView   `json:"loss,omitempty"`
	Damage *damageView `json:"damage,omitempty"`
	Backup string      `json:"backup,omitempty"`
	Base   *uint64     `json:"base,omitempty"`
	Next   *uint64     `json:"next,omitempty"`
}

type lossView struct {
	First    uint64 `json:"first_offset"`
	Next     uint64 `json:"next_offset"`
	Bytes    int64  `json:"bytes"`
	Segments int    `json:"segments"`
	Intact   uint64 `json:"intact_records"`
}

type notConfirmed struct{}

func (*notConfirmed) Error() string { return "not repaired: it was not confirmed" }

// plannedRepair is one log that something is to be done to.
type plannedRepair struct {
	log  *core.StoredLog
	plan *log.Repair
	view repairView
}

func (c *logRepair) Run(ctx context.Context, env *environment, s *Settings) error {
	if c.NoBackup && c.BackupDir != "" {
		return usageError(errors.New("--no-backup and --backup-dir exclude each other"))
	}
	open, err := c.openLogs(env, s, !c.DryRun)
	if err != nil {
		return err
	}
	defer open.close()
	todo, bad, err := c.plan(ctx, env, open.logs)
	if err != nil {
		return canceled(ctx, err)
	}
	if len(todo) > 0 && !c.DryRun {
		if err := c.confirm(env, todo); err != nil {
			return err
		}
		if err := c.apply(ctx, env, todo); err != nil {
			return err
		}
	}
	if bad > 0 {
		return &damaged{bad, len(open.logs)}
	}
	return nil
}

// plan finds out what there is to do and shows it. bad counts the logs that are damaged and stay so.
func (c *logRepair) plan(ctx context.Context, env *environment, logs []core.StoredLog) (todo []plannedRepair, bad int, err error) {
	var total int64
	for i := range logs {
		total += fileBytes(&logs[i])
	}
	var bar *progress
	if c.TruncateAtDamage {
		bar = newProgress(env, c.Progress, "look for damage", total)
	}
	views := make([]repairView, len(logs))
	for i := range logs {
		l := &logs[i]
		views[i] = repairView{logName: nameOf(l), State: "clean", Steps: []stepView{}}
		if l.Missing {
			continue
		}
		r, err := log.PlanRepair(ctx, logOptions(l), log.RepairOptions{TruncateAtDamage: c.TruncateAtDamage, Progress: bar.Add})
		if corrupt, ok := errors.AsType[*log.CorruptError](err); ok {
			bad++
			views[i].State = "damaged"
			views[i].Damage = &damageView{Segment: corrupt.Segment, Pos: corrupt.Pos, What: corrupt.What}
			continue
		}
		if err != nil {
			bar.End()
			return nil, 0, err
		}
		if !r.Changes() {
			continue
		}
		views[i].State, views[i].Steps = "planned", stepViews(r.Steps)
		if r.Damage != nil {
			d := viewDamage(r.Damage)
			views[i].Damage = &d
		}
		if x := r.Loss; x != nil {
			views[i].Loss = &lossView{x.First, x.Next, x.Bytes, x.Segments, x.Intact}
		}
		todo = append(todo, plannedRepair{l, r, views[i]})
	}
	bar.End()
	for i := range views {
		if err := c.show(env, &logs[i], &views[i]); err != nil {
			return nil, 0, err
		}
	}
	return todo, bad, nil
}

// show prints what is meant for one log. With --json a log that is going to be repaired is printed once,
// when that is done.
func (c *logRepair) show(env *environment, l *core.StoredLog, v *repairView) error {
	if env.json {
		if v.State == "planned" && !c.DryRun {
			return nil
		}
		return env.emit(v)
	}
	out := env.stdout
	switch v.State {
	case "clean":
		fmt.Fprintf(out, "%s: nothing to do\n", title(l))
		return nil
	case "damaged":
		fmt.Fprintf(out, "%s: DAMAGED, left as it is\n  segment %d, byte %d:\n%s\n", title(l),
			v.Damage.Segment, v.Damage.Pos, wrap(v.Damage.What, "    ", lineColumns))
		return nil
	}
	fmt.Fprintf(out, "%s:\n", title(l))
	if d := v.Damage; d != nil {
		fmt.Fprintf(out, "  damage in segment %d, byte %d:\n%s\n", d.Segment, d.Pos, wrap(d.What, "      ", lineColumns))
	}
	printSteps(out, v.Steps)
	if x := v.Loss; x != nil {
		fmt.Fprintf(out, "  LOST: %s (as far as can be known), %s of files, %s as a whole\n",
			span(x.First, x.Next), size(float64(x.Bytes)), plural(x.Segments, "segment", "segments"))
		fmt.Fprintf(out, "    %s of them behind the damage and whole. Offset %d is given out again.\n",
			plural(int(x.Intact), "record", "records"), x.First)
	}
	return nil
}

func (c *logRepair) confirm(env *environment, todo []plannedRepair) error {
	if c.Yes {
		return nil
	}
	if !terminal(env.stdin) {
		return &notConfirmed{}
	}
	fmt.Fprintf(env.stderr, "Change %s as shown? [y/N] ", plural(len(todo), "log", "logs"))
	answer, _ := bufio.NewReader(env.stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return &notConfirmed{}
	}
	return nil
}

// apply carries the repairs out. An interrupt ends it between two logs, or while files are being saved.
func (c *logRepair) apply(ctx context.Context, env *environment, todo []plannedRepair) error {
	bar := newProgress(env, c.Progress, "repair", 0)
	defer bar.End()
	stamp := time.Now().UTC().Format("20060102T150405Z")
	for i := range todo {
		p := &todo[i]
		done, err := p.plan.Apply(ctx, logOptions(p.log), c.backup(p.log, stamp), bar.Add)
		if err != nil {
			return canceled(ctx, err)
		}
		v := &p.view
		v.State, v.Backup, v.Base, v.Next = "repaired", done.Backup, &done.Plan.Base, &done.Plan.Next
		if env.json {
			if err := env.emit(v); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(env.stdout, "%s: repaired; it opens (%s)\n", title(p.log), held(done.Plan.Base, done.Plan.Next))
		if done.Backup != "" {
			fmt.Fprintf(env.stdout, "  saved in %s\n", done.Backup)
		}
	}
	return nil
}

// backup is where the files of a log are saved, "" for nowhere.
func (c *logRepair) backup(l *core.StoredLog, stamp string) string {
	name := "repair-" + stamp
	switch {
	case c.NoBackup:
		return ""
	case c.BackupDir != "":
		return filepath.Join(c.BackupDir, fmt.Sprintf("%s-%016x-%d", name, l.ID, l.Shard))
	}
	return filepath.Join(l.Dir, name)
}
