package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ringcast/ringcast/perf/demo"
)

type demoCmd struct {
	Broker string `placeholder:"FILE" help:"The ringcastd binary. Default: the one beside this program, else the one in PATH."`
	Lines  int    `default:"120000" help:"Lines of the text that is published."`
	Dir    string `placeholder:"DIR" help:"Where the text and the broker's data go while it runs. Default: a temporary directory."`
}

func (d *demoCmd) Run(ctx context.Context, env *environment) error {
	broker, err := d.binary()
	if err != nil {
		return err
	}
	o := demo.Options{Broker: broker, Dir: d.Dir, Lines: d.Lines, Env: os.Environ(), Out: env.stdout}
	if env.json {
		o.Out = nil
	}
	if !env.json && terminal(env.stderr) {
		o.NewBar = func(label string, total int64) demo.Bar { return newProgress(env, "always", label, total) }
	}
	report, err := demo.Run(ctx, o)
	if err != nil {
		return err
	}
	if env.json {
		return env.emit(report)
	}
	return nil
}

func (d *demoCmd) binary() (string, error) {
	if d.Broker != "" {
		return d.Broker, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "ringcastd"); exists(beside) {
			return beside, nil
		}
	}
	path, err := exec.LookPath("ringcastd")
	if err != nil {
		return "", errors.New("ringcastd is neither beside this program nor in PATH: build it (make build) or give --broker FILE")
	}
	return path, nil
}
