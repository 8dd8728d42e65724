package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

// wrap breaks text into lines of at most columns, each behind indent.
func wrap(text, indent string, columns int) string {
	var b strings.Builder
	line := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case line == 0:
			b.WriteString(indent)
			line = len(indent)
		case line+1+n > columns:
			b.WriteString("\n" + indent)
			line = len(indent)
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += n
	}
	return b.String()
}

// plural is n with the noun that goes with it.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(uint64(n)) + " " + more
}

// span names the offsets from first up to next, which is excluded.
func span(first, next uint64) string {
	switch {
	case next <= first:
		return fmt.Sprintf("offset %d on", first)
	case next == first+1:
		return fmt.Sprintf("offset %d", first)
	}
	return fmt.Sprintf("offsets %d-%d", first, next-1)
}

// held is the same for a log that may be empty.
func held(base, next uint64) string {
	if next == base {
		return fmt.Sprintf("empty, next offset %d", next)
	}
	return span(base, next)
}

// rate is n per second of d, 0 when there is no time.
func rate(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}
