package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/vbauerster/cupwriter"
)

// environment is what a command reads from and prints to.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
}

// emit prints v as one line of JSON.
func (e *environment) emit(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s\n", text)
	return err
}

// warn says something beside the result; with --json it is an object of its own.
func (e *environment) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if e.json {
		line, _ := json.Marshal(map[string]string{"warning": text})
		fmt.Fprintf(e.stderr, "%s\n", line)
		return
	}
	fmt.Fprintln(e.stderr, "ringcast: note:", text)
}

// terminal says whether w is one.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && cupwriter.New(f, false).IsTerminal()
}

// size puts n bytes as a person reads them.
func size(n float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if n < 1024 {
			if unit == "B" {
				return fmt.Sprintf("%.0f B", n)
			}
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.1f GiB", n)
}

// count puts n with separators.
func count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rate is n per second of d, 0 when there is no time.
func rate(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}
