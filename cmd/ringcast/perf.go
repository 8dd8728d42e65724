package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	perf "github.com/ringcast/ringcast/perf/append" // append is a builtin
)

type perfCmd struct {
	Append   perfAppendCmd   `cmd:"" help:"Measure durable appends: the log on each engine, bare loops of write and sync, bbolt and Pebble."`
	Prewrite perfPrewriteCmd `cmd:"" help:"Measure what blocks that were written before are worth, and what zeroing them costs."`
	Waiting  perfWaitingCmd  `cmd:"" help:"Measure on which kind of thread an executor runs best, where it sleeps, and when it seals a group."`
}

type perfAppendCmd struct {
	Engines []string `default:"portable,uring,uring-direct" help:"Engines to measure; NAME/growing is one under logs that do not write zeros ahead. One that cannot be opened here is named in the report."`
	Writers []int    `placeholder:"N,..." help:"Writers, each with one append in flight. Default: 1,64; with --full 1,8,64."`
	Logs    []int    `placeholder:"N,..." help:"Logs that they append to. Default: 1; with --full 1,64."`
	Sizes   []int    `placeholder:"BYTES,..." help:"Bytes of a record. Default: 256,4096; with --full also 65536."`
	Fsync   []string `placeholder:"MODE,..." help:"on_commit, periodic, none. Default: on_commit; with --full all."`
	Full    bool     `help:"Every load, in five rounds of longer turns: about an hour. The default takes a minute or two."`
	Rounds  int      `placeholder:"N" help:"Turns of each subject; ratios are taken within a round. Default: 3; with --full 5."`
	Seconds float64  `placeholder:"N" help:"Length of a turn. Default: 0.5; with --full 1."`
	Dir     string   `default:"." type:"existingdir" help:"A directory on the disk to measure. What is made there is removed."`
	Peers   string   `placeholder:"FILE" help:"The program with bbolt and Pebble. Default: ringcast-peers beside this program, else in PATH; make peers builds it."`
	Peer    []string `placeholder:"NAME,..." help:"Peers to measure. Default: all that the program has."`
}

func (p *perfAppendCmd) Run(ctx context.Context, env *environment) error {
	o := perf.Options{
		Engines: p.Engines, Dir: p.Dir, Peers: p.program(), PeerNames: p.Peer, Warnings: env.stderr,
	}
	seconds := cmp.Or(p.Seconds, 0.5)
	if p.Full {
		seconds = cmp.Or(p.Seconds, 1)
		o.Cells = perf.Cells(or(p.Writers, 1, 8, 64), or(p.Logs, 1, 64), or(p.Sizes, 256, 4096, 65536), or(p.Fsync, "on_commit", "periodic", "none"))
		o.Rounds = cmp.Or(p.Rounds, 5)
	} else {
		o.Cells = perf.Cells(or(p.Writers, 1, 64), or(p.Logs, 1), or(p.Sizes, 256, 4096), or(p.Fsync, "on_commit"))
		o.Rounds = cmp.Or(p.Rounds, 3)
	}
	o.Length = time.Duration(seconds * float64(time.Second))
	if err := o.Validate(); err != nil {
		return usageError(err)
	}
	bar := newSteps(env, "append")
	defer bar.End()
	o.Progress = bar.Set
	report, err := perf.Run(ctx, o)
	if err != nil {
		return err
	}
	bar.End()
	if env.json {
		return env.emit(report)
	}
	return report.Markdown(env.stdout)
}

// or returns the values that were given, else those of the default.
func or[T any](given []T, usual ...T) []T {
	if len(given) > 0 {
		return given
	}
	return usual
}

// program is the one with the peers; "" where there is none.
func (p *perfAppendCmd) program() string {
	if p.Peers != "" {
		return p.Peers
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "ringcast-peers"); exists(beside) {
			return beside
		}
	}
	path, err := exec.LookPath("ringcast-peers")
	if err != nil {
		return "" // the report says so
	}
	return path
}

type perfPrewriteCmd struct {
	Rounds  int     `default:"5" help:"Turns of each way to prepare blocks; ratios are taken within a round."`
	Seconds float64 `default:"0.5" help:"Length of a turn."`
	Dir     string  `default:"." type:"existingdir" help:"A directory on the disk to measure: 4 GiB are used for a while, and removed."`
}

func (p *perfPrewriteCmd) Run(ctx context.Context, env *environment) error {
	bar := newSteps(env, "prewrite")
	defer bar.End()
	o := perf.PrewriteOptions{
		Dir: p.Dir, Rounds: p.Rounds, Turn: time.Duration(p.Seconds * float64(time.Second)), FileSize: 256 << 20, Progress: bar.Set,
	}
	rows, err := perf.Prewrite(ctx, o, perf.PrewriteLoads)
	if err != nil {
		return err
	}
	bar.End()
	if env.json {
		return env.emit(rows)
	}
	return perf.PrewriteMarkdown(env.stdout, rows)
}

type perfWaitingCmd struct {
	Engine  string  `default:"auto" help:"Engine under the log."`
	Writers []int   `placeholder:"N,..." help:"Writers, each with one append in flight. Default: 1,64."`
	Rounds  int     `default:"5" help:"Turns of each mode; ratios are taken within a round."`
	Seconds float64 `default:"0.5" help:"Length of a turn."`
	Dir     string  `default:"." type:"existingdir" help:"A directory on the disk to measure. What is made there is removed."`
}

func (p *perfWaitingCmd) Run(ctx context.Context, env *environment) error {
	bar := newSteps(env, "waiting")
	defer bar.End()
	report, err := perf.Waiting(ctx, perf.WaitingOptions{
		Dir: p.Dir, Engine: p.Engine, Writers: or(p.Writers, 1, 64), Rounds: p.Rounds,
		Turn: time.Duration(p.Seconds * float64(time.Second)), Progress: bar.Set,
	})
	if err != nil {
		return err
	}
	bar.End()
	if env.json {
		return env.emit(report)
	}
	return report.Markdown(env.stdout)
}
