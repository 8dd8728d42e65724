package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcast/ringcast/internal/lint"
)

// event is one line of `go test -json` (cmd/test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

func main() {
	root, err := lint.Root()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !judge(os.Stdin, os.Stdout, lint.GuaranteeTests(string(doc))) {
		os.Exit(1)
	}
}

// judge copies what a person needs to out and says whether the run is good.
func judge(in io.Reader, out io.Writer, guarantees []string) bool {
	promised := make(map[string]bool)
	for _, g := range guarantees {
		promised[g] = true
	}
	type key struct{ pkg, test string }
	output := make(map[key][]string)
	var skipped, broken []string
	passed, failed, ended := 0, 0, 0

	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 0, 64<<10), 16<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			fmt.Fprintln(out, sc.Text()) // a build error, or somebody's stray print
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output":
			output[k] = append(output[k], e.Output)
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			failed++
			fmt.Fprintf(out, "FAIL  %s does not build\n", e.ImportPath)
		case "pass", "fail", "skip":
			if e.Test == "" {
				ended++
				if e.Action == "fail" {
					failed++
					fmt.Fprint(out, strings.Join(output[k], ""))
				}
				fmt.Fprintf(out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
				break
			}
			switch e.Action {
			case "pass":
				passed++
			case "fail":
				failed++
				fmt.Fprint(out, strings.Join(output[k], ""))
			case "skip":
				line := fmt.Sprintf("%s.%s: %s", e.Package, e.Test, reason(output[k]))
				skipped = append(skipped, line)
				if name, _, _ := strings.Cut(e.Test, "/"); promised[name] {
					broken = append(broken, line)
				}
			}
			delete(output, k)
		}
	}
	if err := sc.Err(); err != nil {
		fmt.Fprintln(out, "reading the test output:", err)
		return false
	}
	fmt.Fprintf(out, "\n%d tests passed, %d failed, %d skipped\n", passed, failed, len(skipped))
	for _, s := range skipped {
		fmt.Fprintln(out, "SKIP ", s)
	}
	for _, s := range broken {
		fmt.Fprintln(out, "FAIL  a guarantee was not tested:", s)
	}
	if ended == 0 {
		fmt.Fprintln(out, "FAIL  no package was tested")
		return false
	}
	return failed == 0 && len(broken) == 0
}

// reason is the text a test gave when it skipped.
func reason(lines []string) string {
	var said []string
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "=== ") || strings.HasPrefix(l, "--- ") {
			continue
		}
		said = append(said, l)
	}
	return strings.Join(said, " ")
}
