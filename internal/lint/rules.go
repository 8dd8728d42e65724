package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"strings"
)

// linesMax is the hard limit of a file; 100 to 300 is the aim.
const linesMax = 600

// unsafeFiles are the only files that may import unsafe (path.Match patterns).
var unsafeFiles = []string{
	"ring/sys_linux.go",
	"ring/aligned.go",
	"netio/*_linux.go",
	"netio/*_linux_test.go", // control messages as the kernel writes them
	"sched/affinity_linux.go",
	"internal/loopfs/ioctl_linux.go", // ioctls of file systems
}

// sleepers are the only files that may call time.Sleep, each with its reason.
var sleepers = map[string]string{
	"netio/main_test.go": "waitFor polls with a deadline",
}

// bannedNames are package names that say nothing.
var bannedNames = []string{"util", "utils", "common", "helpers", "helper", "types", "manager", "misc"}

// bannedWords must not appear in Go source: an unfinished thought has no end condition.
var bannedWords = []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"}

// hotBanned are packages that cost an allocation or a lock per call. Of fmt, making an error is
// allowed: what a refused message costs is not the hot path.
var hotBanned = []string{"encoding/json", "reflect", "regexp"}

// envCalls read the environment or the command line.
var envCalls = []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Args"}

// CheckFiles reports files that break a rule of their own, without looking at others.
func CheckFiles(files []*File) []Finding {
	var out []Finding
	for _, f := range files {
		out = append(out, checkFile(f)...)
	}
	return out
}

func checkFile(f *File) []Finding {
	var out []Finding
	add := func(line int, format string, args ...any) {
		out = append(out, Finding{f.Path, line, fmt.Sprintf(format, args...)})
	}
	if f.Lines > linesMax && !f.Generated {
		add(0, "%d lines, the limit is %d: split it by ideas", f.Lines, linesMax)
	}
	if contains(bannedNames, strings.TrimSuffix(f.AST.Name.Name, "_test")) || contains(bannedNames, path.Base(f.Dir)) {
		add(0, "package name %q says nothing", f.AST.Name.Name)
	}
	for _, imp := range f.Imports() {
		if imp.Path == "unsafe" && !matchAny(unsafeFiles, f.Path) {
			add(imp.Line, "imports unsafe: not in the list of internal/lint/rules.go")
		}
		if f.Hot && contains(hotBanned, imp.Path) {
			add(imp.Line, "hot path imports %s", imp.Path)
		}
	}
	for i, line := range strings.Split(string(f.Source), "\n") {
		for _, w := range bannedWords {
			if strings.Contains(line, w) {
				add(i+1, "%s: finish it or write it down where it will be found", w)
			}
		}
	}
	out = append(out, checkCalls(f)...)
	return out
}

// checkCalls looks for selectors of packages that are limited to a place.
func checkCalls(f *File) []Finding {
	var out []Finding
	names := importNames(f)
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		line := f.Fset.Position(sel.Pos()).Line
		switch pkg := names[id.Name]; {
		case pkg == "fmt" && f.Hot && sel.Sel.Name != "Errorf" && !inErrorMethod(f, sel.Pos()):
			out = append(out, Finding{f.Path, line, "fmt." + sel.Sel.Name + " on the hot path"})
		case pkg == "os" && contains(envCalls, sel.Sel.Name) && !f.Test && !under(f.Dir, "cmd") && !underAny(f.Dir, testOnly):
			out = append(out, Finding{f.Path, line, "os." + sel.Sel.Name + ": cmd owns flags and environment"})
		case pkg == "time" && sel.Sel.Name == "Sleep" && sleepers[f.Path] == "":
			out = append(out, Finding{f.Path, line, "time.Sleep: wait for the event, or poll with a deadline"})
		case pkg == "log/slog" && (sel.Sel.Name == "Default" || sel.Sel.Name == "SetDefault"):
			out = append(out, Finding{f.Path, line, "slog." + sel.Sel.Name + ": loggers are injected"})
		case pkg == "os" && sel.Sel.Name == "Exit" && !f.Test && !under(f.Dir, "cmd") && !underAny(f.Dir, testOnly):
			out = append(out, Finding{f.Path, line, "os.Exit: only a command ends the process"})
		}
		return true
	})
	return out
}

// inErrorMethod says whether pos lies in a method Error or String: text for people.
func inErrorMethod(f *File, pos token.Pos) bool {
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && fn.Recv != nil && (fn.Name.Name == "Error" || fn.Name.Name == "String") && fn.Pos() <= pos && pos < fn.End() {
			return true
		}
	}
	return false
}

// importNames maps the local name of each import to its path.
func importNames(f *File) map[string]string {
	m := make(map[string]string)
	for _, spec := range f.AST.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		m[name] = p
	}
	return m
}

// CheckPackages reports packages without a doc.go that documents them.
func CheckPackages(files []*File) []Finding {
	dirs := make(map[string]bool)
	documented := make(map[string]bool)
	for _, f := range files {
		if !f.Test {
			dirs[f.Dir] = true
		}
		if path.Base(f.Path) == "doc.go" && f.AST.Doc != nil {
			documented[f.Dir] = true
		}
	}
	var out []Finding
	for dir := range dirs {
		if !documented[dir] {
			out = append(out, Finding{dir, 0, "no doc.go with a package comment"})
		}
	}
	return out
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}
