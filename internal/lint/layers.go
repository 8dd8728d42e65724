package lint

import (
	"fmt"
	"strings"
)

// layers places every package. An import must point to a lower layer; a package that is not here
// has no place in the tree yet and is a finding.
var layers = map[string]int{
	"wire":        1,
	"ring":        2,
	"sched":       2,
	"log":         3,
	"fanout":      3,
	"netio":       3,
	"netio/mux":   3,
	"core/auth":   3,
	"core":        4,
	"core/cache":  5,
	"core/group":  5,
	"core/serve":  6,
	"core/admin":  6,
	"client":      6,
	"perf":        7,
	"perf/demo":   7,
	"perf/append": 7,
}

// cmdLayer is where everything below cmd/ lies. A command imports what it likes below, and its
// own sub-packages; commands do not import each other.
const cmdLayer = 8

// only narrows what a package may import of the module, beyond its layer.
var only = map[string][]string{
	"core/auth": {"wire"},
	"netio":     {"wire"},
	"netio/mux": {"wire"},
	"sched":     {},
	"client":    {"wire", "netio", "netio/mux"},
}

// testOnly packages may be imported by tests alone. They may import what they fake or check.
var testOnly = []string{"ring/ringtest", "internal/crashfs", "internal/sim", "internal/lint", "internal/daemon", "internal/loopfs", "interop/tap", "netio/netiotest"}

// anywhere packages lie under everything.
var anywhere = []string{"internal/invariants"}

// externals are modules that one place alone may use. The value lists directories; a directory
// covers what lies below it.
var externals = map[string][]string{
	"github.com/quic-go/quic-go":         {"netio"},
	"golang.org/x/sys":                   {"ring", "netio", "sched"},
	"github.com/prometheus":              {"core/admin"},
	"github.com/golang-jwt/jwt":          {"core/auth"},
	"github.com/MicahParks":              {"core/auth"},
	"go.etcd.io/bbolt":                   {"core"},
	"github.com/alecthomas/kong":         {"cmd"},
	"github.com/jotaen/kong-completion":  {"cmd"},
	"github.com/BurntSushi/toml":         {"cmd"},
	"github.com/vbauerster/mpb":          {"cmd"},
	"github.com/HdrHistogram":            {"perf", "cmd"},
	"github.com/go-json-experiment/json": {"wire"},
}

// stdlib packages that one place alone may use outside tests.
var stdlib = map[string]struct {
	dirs []string
	why  string
}{
	"flag": {[]string{"cmd"}, "cmd owns flags and environment"},
	"log":  {nil, "log/slog only, injected"},
	// perf/append reads the processor time of the process and looks at no errno.
	"syscall": {[]string{"ring", "netio", "sched", "cmd", "perf/append"}, "errno becomes our error at the boundary, once"},
}

// CheckLayers reports imports that do not point down, that cross between packages of one layer,
// or that bring a library to a place that must not know it.
func CheckLayers(files []*File) []Finding {
	var out []Finding
	for _, f := range files {
		for _, imp := range f.Imports() {
			if what := checkImport(f, imp.Path); what != "" {
				out = append(out, Finding{f.Path, imp.Line, what})
			}
		}
		if !f.Test && !isPlaced(f.Dir) {
			out = append(out, Finding{f.Path, 0, fmt.Sprintf("package %q has no layer: give it one in internal/lint/layers.go and in ARCHITECTURE.md", f.Dir)})
		}
	}
	return out
}

func checkImport(f *File, imp string) string {
	if rest, ok := strings.CutPrefix(imp, modulePath+"/"); ok {
		if f.Test {
			return "" // a test may look up: it drives the package through its users
		}
		return checkInternal(f.Dir, rest)
	}
	for module, dirs := range externals {
		if under(imp, module) && !underAny(f.Dir, dirs) {
			return fmt.Sprintf("imports %s, which only %s may", imp, strings.Join(dirs, ", "))
		}
	}
	if rule, ok := stdlib[imp]; ok && !f.Test && !underAny(f.Dir, rule.dirs) && !underAny(f.Dir, testOnly) {
		return fmt.Sprintf("imports %s: %s", imp, rule.why)
	}
	return ""
}

// checkInternal judges one import between packages of the module, outside tests.
func checkInternal(from, to string) string {
	if from == to || underAny(to, anywhere) {
		return ""
	}
	if underAny(to, testOnly) {
		if underAny(from, testOnly) {
			return ""
		}
		return fmt.Sprintf("imports %s, which is for tests", to)
	}
	if underAny(from, testOnly) {
		return ""
	}
	lf, okf := layerOf(from)
	lt, okt := layerOf(to)
	switch {
	case !okf || !okt:
		return fmt.Sprintf("imports %s, and one of the two has no layer", to)
	case lf == cmdLayer && lt == cmdLayer:
		if command(from) != command(to) {
			return fmt.Sprintf("imports %s: commands do not import each other", to)
		}
		return ""
	case lt >= lf:
		return fmt.Sprintf("imports %s: layer %d may not import layer %d", to, lf, lt)
	}
	if allowed, ok := only[from]; ok && !contains(allowed, to) {
		return fmt.Sprintf("imports %s: %s may import only [%s]", to, from, strings.Join(allowed, " "))
	}
	return ""
}

// layerOf returns the layer of a directory.
func layerOf(dir string) (int, bool) {
	if under(dir, "cmd") {
		return cmdLayer, true
	}
	l, ok := layers[dir]
	return l, ok
}

func isPlaced(dir string) bool {
	_, ok := layerOf(dir)
	return ok || underAny(dir, anywhere) || underAny(dir, testOnly)
}

// command returns "cmd/NAME" of a directory below cmd.
func command(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	if len(parts) < 2 {
		return dir
	}
	return parts[0] + "/" + parts[1]
}

// under says whether p is base or lies below it.
func under(p, base string) bool {
	return p == base || strings.HasPrefix(p, base+"/")
}

func underAny(p string, bases []string) bool {
	for _, b := range bases {
		if under(p, b) {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
