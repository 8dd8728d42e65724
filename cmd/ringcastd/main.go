package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(start(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// start is main with its surroundings as arguments; it returns the exit code.
func start(args, environ []string, stdout, stderr io.Writer) int {
	l, err := Load(args, environ, stdout)
	if code, ok := errors.AsType[exitRequest](err); ok {
		return int(code)
	}
	if err != nil {
		fmt.Fprintln(stderr, "ringcastd:", err)
		return 2
	}
	if l.PrintConfig {
		if err := l.printConfig(stdout); err != nil {
			fmt.Fprintln(stderr, "ringcastd:", err)
			return 1
		}
		return 0
	}
	lg := newLogger(l, stderr)
	ctx, hurry, stop := watchSignals(lg)
	defer stop()
	if err := Run(ctx, hurry, l, stdout, lg); err != nil {
		lg.Error("ringcastd failed", "err", err)
		return 1
	}
	return 0
}

func newLogger(l *Loaded, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel.V)) // the word was checked
	o := &slog.HandlerOptions{Level: level}
	if l.LogFormat.V == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// watchSignals turns the first SIGINT or SIGTERM into the end of ctx, and a second one into the
// closing of hurry, which cuts the waits of the shutdown short. From then on signals kill.
func watchSignals(lg *slog.Logger) (ctx context.Context, hurry <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	second := make(chan struct{})
	done := make(chan struct{})
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		sig, ok := <-ch
		if !ok {
			return
		}
		lg.Info("shutting down", "signal", sig.String())
		cancel()
		if sig, ok = <-ch; ok {
			lg.Warn("cutting the shutdown short", "signal", sig.String())
			signal.Stop(ch)
			close(second)
		}
	}()
	return ctx, second, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		cancel()
	}
}
