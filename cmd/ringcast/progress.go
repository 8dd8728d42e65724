package main

import (
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progressDelay keeps bars off the screen for transfers that are over before one could read them.
const progressDelay = 400 * time.Millisecond

// progress is a bar on the terminal. A nil one does nothing.
type progress struct {
	pool *mpb.Progress
	bar  *mpb.Bar
	show chan any
	stop func() bool
}

// newProgress starts a bar over total bytes; total 0 = not known. It returns nil unless standard
// error is a terminal that the output does not share with records.
func newProgress(env *environment, mode, label string, total int64) *progress {
	if mode == "never" || mode == "auto" && (env.json || !terminal(env.stderr)) {
		return nil
	}
	p := &progress{show: make(chan any)}
	opts := []mpb.ContainerOption{mpb.WithOutput(env.stderr), mpb.WithWidth(50), mpb.WithRenderDelay(p.show)}
	if mode == "always" {
		opts = append(opts, mpb.ForceAutoRefresh())
	}
	p.pool = mpb.New(opts...)
	speed := decor.AverageSpeed(decor.SizeB1024(0), " % .1f")
	if total > 0 {
		p.bar = p.pool.AddBar(total,
			mpb.PrependDecorators(decor.Name(label+" "), decor.CountersKibiByte("% .1f / % .1f")),
			mpb.AppendDecorators(decor.Percentage(), speed, decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)))
	} else {
		p.bar = p.pool.AddSpinner(0,
			mpb.PrependDecorators(decor.Name(label+" "), decor.CurrentKibiByte("% .1f")),
			mpb.AppendDecorators(speed))
	}
	t := time.AfterFunc(progressDelay, func() { close(p.show) })
	p.stop = t.Stop
	return p
}

// Add moves the bar by n bytes.
func (p *progress) Add(n int64) {
	if p != nil {
		p.bar.IncrInt64(n)
	}
}

// End takes the bar away and waits for its goroutines.
func (p *progress) End() {
	if p == nil {
		return
	}
	if p.stop() {
		close(p.show)
	}
	p.bar.SetTotal(-1, true) // whatever was transferred was all
	p.pool.Wait()
}

// steps is a bar on the terminal that counts turns of something. A nil one does nothing.
type steps struct {
	pool *mpb.Progress
	bar  *mpb.Bar
}

// newSteps starts a bar whose length is told by Set. It returns nil unless standard error is a
// terminal and the output is for people.
func newSteps(env *environment, label string) *steps {
	if env.json || !terminal(env.stderr) {
		return nil
	}
	s := &steps{pool: mpb.New(mpb.WithOutput(env.stderr), mpb.WithWidth(50))}
	s.bar = s.pool.AddBar(0,
		mpb.PrependDecorators(decor.Name(label+" "), decor.CountersNoUnit("%d / %d")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)),
		mpb.BarRemoveOnComplete())
	return s
}

// Set says how far it is.
func (s *steps) Set(done, total int) {
	if s != nil {
		s.bar.SetTotal(int64(total), false)
		s.bar.SetCurrent(int64(done))
	}
}

// End takes the bar away and waits for its goroutines. It may be called again.
func (s *steps) End() {
	if s == nil || s.pool == nil {
		return
	}
	s.bar.SetTotal(-1, true)
	s.pool.Wait()
	s.pool = nil
}
