package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A command that waits for its standard input ends when it is interrupted.
func TestReadEndsWithAnInterrupt(t *testing.T) {
	pipe, other := io.Pipe()
	defer other.Close() // frees the read that stays behind
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newInterruptible(ctx.Done(), ctx.Err, pipe)
	go func() { _, _ = other.Write([]byte("a line\n")) }()
	line := make([]byte, len("a line\n"))
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "a line\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if got, err := io.ReadAll(r); len(got) != 0 || !errors.Is(err, context.Canceled) {
		t.Fatalf("read %q, %v", got, err)
	}
}

func TestInterruptibleReadsEverything(t *testing.T) {
	text := strings.Repeat("0123456789", 50_000)
	broken := errors.New("broken")
	r := newInterruptible(nil, nil, io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
	got, err := io.ReadAll(r)
	if string(got) != text || !errors.Is(err, broken) {
		t.Fatalf("read %d bytes, %v", len(got), err)
	}
}
