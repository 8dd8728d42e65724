package lint

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// CheckFileMap reports files that the file map of ARCHITECTURE.md does not name, and names in it
// that are no file. A line of the map is "| `path` | what it is | key types |" below a heading that
// holds the word "File map".
func CheckFileMap(files []*File, doc string) []Finding {
	const name = "ARCHITECTURE.md"
	i := strings.Index(doc, "## File map")
	if i < 0 {
		return []Finding{{name, 0, `has no "## File map"`}}
	}
	section := doc[i+len("## File map"):]
	if j := strings.Index(section, "\n## "); j >= 0 {
		section = section[:j]
	}
	mapped := make(map[string]bool)
	for _, m := range mapRow.FindAllStringSubmatch(section, -1) {
		mapped[m[1]] = true
	}
	var out []Finding
	exists := make(map[string]bool)
	for _, f := range files {
		exists[f.Path] = true
		if !f.Test && path.Base(f.Path) != "doc.go" && !mapped[f.Path] {
			out = append(out, Finding{f.Path, 0, "is not in the file map of ARCHITECTURE.md"})
		}
	}
	for p := range mapped {
		if !exists[p] {
			out = append(out, Finding{name, 0, "the file map names " + p + ", which does not exist"})
		}
	}
	return out
}

var mapRow = regexp.MustCompile("(?m)^\\| `([^`]+\\.go)` \\|")

// CheckGuarantees reports tests that docs/guarantees.md names and nobody wrote. A test is named as
// `package.TestName`, with the package's directory.
func CheckGuarantees(files []*File, doc string) []Finding {
	tests := make(map[string]bool)
	for _, f := range files {
		if !f.Test {
			continue
		}
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				tests[f.Dir+"."+fn.Name.Name] = true
			}
		}
	}
	var out []Finding
	for i, line := range strings.Split(doc, "\n") {
		for _, m := range testName.FindAllStringSubmatch(line, -1) {
			if !tests[m[1]] {
				out = append(out, Finding{"docs/guarantees.md", i + 1, "names " + m[1] + ", which is no test"})
			}
		}
	}
	return out
}

var testName = regexp.MustCompile("`([a-z/0-9]+\\.(?:Test|Fuzz)[A-Za-z0-9_]+)`")

// machineHeading starts the part of docs/guarantees.md whose tests need root and loop devices. They
// are never the only proof of a promise, so a machine that lacks these may skip them, by name.
const machineHeading = "## On real disks"

// GuaranteeTests returns the names of the tests that docs/guarantees.md lists and that must not be
// skipped, without package.
func GuaranteeTests(doc string) []string {
	var out []string
	if i := strings.Index(doc, "\n"+machineHeading); i >= 0 {
		end := strings.Index(doc[i+1+len(machineHeading):], "\n## ")
		if end < 0 {
			doc = doc[:i]
		} else {
			doc = doc[:i] + doc[i+1+len(machineHeading)+end:]
		}
	}
	for _, m := range testName.FindAllStringSubmatch(doc, -1) {
		_, name, _ := strings.Cut(m[1], ".")
		out = append(out, name)
	}
	return out
}
