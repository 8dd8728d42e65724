package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree is the module as it lies on disk.
func tree(t *testing.T) (string, []*File) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found only %d files below %s", len(files), root)
	}
	return root, files
}

func report(t *testing.T, findings []Finding) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// The layers of ARCHITECTURE.md: imports point down, and a library stays in its place.
func TestImportsPointDown(t *testing.T) {
	_, files := tree(t)
	report(t, CheckLayers(files))
}

func TestFilesKeepTheHouseRules(t *testing.T) {
	_, files := tree(t)
	report(t, CheckFiles(files))
}

func TestEveryPackageIsDocumented(t *testing.T) {
	_, files := tree(t)
	report(t, CheckPackages(files))
}

func TestArchitectureNamesEveryFile(t *testing.T) {
	root, files := tree(t)
	report(t, CheckFileMap(files, read(t, root, "ARCHITECTURE.md")))
}

func TestGuaranteesNameRealTests(t *testing.T) {
	root, files := tree(t)
	doc := read(t, root, "docs/guarantees.md")
	for _, text := range []string{"## A\n`a.TestX`\n" + machineHeading + "\n`b.TestY`\n## B\n`c.TestZ`", "## A\n`a.TestX` `c.TestZ`\n" + machineHeading + "\n`b.TestY`"} {
		if got := GuaranteeTests(text); len(got) != 2 || got[0] != "TestX" || got[1] != "TestZ" {
			t.Errorf("tests that must not be skipped: %v", got)
		}
	}
	if len(GuaranteeTests(doc)) == 0 {
		t.Error("docs/guarantees.md names no test")
	}
	report(t, CheckGuarantees(files, doc))
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every rule must find the defect it is for: a linter that sees nothing passes everything.
func TestRulesFindWhatTheyForbid(t *testing.T) {
	long := "// Package x.\npackage x\n" + strings.Repeat("\n", linesMax)
	tests := []struct {
		name, file, src, want string
	}{
		{"upward import", "log/a.go", `package log; import _ "` + modulePath + `/core"`, "layer 3 may not import layer 4"},
		{"sideways import", "fanout/a.go", `package fanout; import _ "` + modulePath + `/log"`, "layer 3 may not import layer 3"},
		{"client reaches the server", "client/a.go", `package client; import _ "` + modulePath + `/core"`, "may import only"},
		{"auth needs wire alone", "core/auth/a.go", `package auth; import _ "` + modulePath + `/ring"`, "may import only"},
		{"mux knows no netio", "netio/mux/a.go", `package mux; import _ "` + modulePath + `/netio"`, "layer 3"},
		{"test package in code", "core/a.go", `package core; import _ "` + modulePath + `/ring/ringtest"`, "is for tests"},
		{"commands are apart", "cmd/ringcast/a.go", `package main; import _ "` + modulePath + `/cmd/ringcastd/x"`, "do not import each other"},
		{"unplaced package", "broker/a.go", `package broker`, "has no layer"},
		{"quic outside netio", "client/a.go", `package client; import _ "github.com/quic-go/quic-go"`, "only netio"},
		{"quic in a test", "client/a_test.go", `package client; import _ "github.com/quic-go/quic-go/logging"`, "only netio"},
		{"x/sys in log", "log/a.go", `package log; import _ "golang.org/x/sys/unix"`, "only ring, netio, sched"},
		{"prometheus in core", "core/a.go", `package core; import _ "github.com/prometheus/client_golang/prometheus"`, "only core/admin"},
		{"flag in core", "core/a.go", `package core; import _ "flag"`, "cmd owns flags"},
		{"syscall in log", "log/a.go", `package log; import _ "syscall"`, "errno"},
		{"std log", "core/a.go", `package core; import _ "log"`, "log/slog only"},
		{"environment in core", "core/a.go", "package core\nimport \"os\"\nvar x = os.Getenv(\"A\")", "cmd owns flags and environment"},
		{"sleep", "core/a_test.go", "package core\nimport \"time\"\nfunc f() { time.Sleep(1) }", "time.Sleep"},
		{"sleep by another name", "core/a.go", "package core\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }", "time.Sleep"},
		{"global logger", "core/a.go", "package core\nimport \"log/slog\"\nvar l = slog.Default()", "injected"},
		{"exit in a library", "core/a.go", "package core\nimport \"os\"\nfunc f() { os.Exit(1) }", "only a command"},
		{"unsafe", "log/a.go", `package log; import _ "unsafe"`, "imports unsafe"},
		{"fmt on the hot path", "log/a.go", "// Hot path.\n\npackage log\nimport \"fmt\"\nfunc f() string { return fmt.Sprint(1) }", "hot path"},
		{"json on the hot path", "log/a.go", "// Hot path.\n\npackage log\nimport _ \"encoding/json\"", "hot path"},
		{"long file", "core/a.go", long, "the limit is 600"},
		{"vague name", "core/util/a.go", "package util", "says nothing"},
		{"unfinished", "core/a.go", "package core // TO" + "DO later", "finish it"},
		{"undocumented package", "core/a.go", "package core", "no doc.go"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse(tt.file, []byte(tt.src))
			if err != nil {
				t.Fatal(err)
			}
			files := []*File{f}
			found := append(append(CheckLayers(files), CheckFiles(files)...), CheckPackages(files)...)
			for _, x := range found {
				if strings.Contains(x.What, tt.want) {
					return
				}
			}
			t.Errorf("findings %v, want one with %q", found, tt.want)
		})
	}
}

func TestAllowedImportsAreAllowed(t *testing.T) {
	for _, tt := range []struct{ file, src string }{
		{"core/a.go", `package core; import (_ "` + modulePath + `/log"; _ "` + modulePath + `/internal/invariants")`},
		{"core/admin/a.go", `package admin; import (_ "github.com/prometheus/client_golang/prometheus"; _ "` + modulePath + `/core")`},
		{"cmd/ringcastd/a.go", `package main; import (_ "flag"; _ "syscall"; _ "` + modulePath + `/client")`},
		{"log/a_test.go", `package log; import _ "` + modulePath + `/ring/ringtest"`},
		{"netio/quic/a.go", `package quic; import _ "github.com/quic-go/quic-go"`},
	} {
		f, err := Parse(tt.file, []byte(tt.src))
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports() {
			if what := checkImport(f, imp.Path); what != "" {
				t.Errorf("%s: %s", tt.file, what)
			}
		}
	}
}

func TestDocumentChecksFindLies(t *testing.T) {
	code, _ := Parse("core/a.go", []byte("package core"))
	test, _ := Parse("core/a_test.go", []byte("package core\nimport \"testing\"\nfunc TestReal(t *testing.T) {}"))
	files := []*File{code, test}

	doc := "## File map\n\n| `core/b.go` | gone | |\n\n## Next\n| `core/a.go` | elsewhere | |\n"
	if got := CheckFileMap(files, doc); len(got) != 2 {
		t.Errorf("file map findings = %v, want one missing file and one that does not exist", got)
	}
	if got := CheckFileMap(files, "## File map\n| `core/a.go` | here | |\n"); len(got) != 0 {
		t.Errorf("true file map reported: %v", got)
	}
	if got := CheckGuarantees(files, "| `core.TestReal` | `core.TestInvented` |"); len(got) != 1 {
		t.Errorf("guarantee findings = %v, want one", got)
	}
}
