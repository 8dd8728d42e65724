package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// envPrefix starts the name of every variable of this program.
const envPrefix = "RINGCAST_"

// othersVariables are RINGCAST_ variables of the command line tool and of the tests, without the
// prefix: no setting here, and no mistake.
var othersVariables = []string{
	"ADDR", "HTTP", "TENANT", "NAMESPACE", "TOKEN", "TOKEN_FILE", "CA", "SERVER_NAME", "DEV_DIR", "TIMEOUT", "CLI_CONFIG", "KILLS", "CUTS", "LOOPFS",
}

// Source says where the value in force comes from.
type Source uint8

const (
	FromDefault Source = iota
	FromFile
	FromEnvironment
	FromFlag
)

func (s Source) String() string {
	return [...]string{"default", "file", "environment", "flag"}[s]
}

// Loaded is a configuration with the origin of each value and what is odd about it.
type Loaded struct {
	Config
	// Sources is indexed by flag name.
	Sources  map[string]Source
	Warnings []string
}

// ConfigError lists everything that is wrong with a configuration.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0]
	}
	return fmt.Sprintf("configuration: %d problems:\n  %s", len(e.Problems), strings.Join(e.Problems, "\n  "))
}

// exitRequest is what --help and --version end the parsing with.
type exitRequest int

func (e exitRequest) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Load reads the configuration: defaults, then the file, then the environment, then flags, each
// overriding the one before. environ is os.Environ(); kong reads the same variables itself.
func Load(args, environ []string, out io.Writer) (l *Loaded, err error) {
	defer func() {
		if r := recover(); r != nil { // kong ends --help and --version through its exit function
			code, ok := r.(exitRequest)
			if !ok {
				panic(r)
			}
			l, err = nil, code
		}
	}()
	// Once without the file, to learn its name; values that cannot be read do not stop this.
	first := &Loaded{}
	if _, err := parse(&first.Config, nil, args, out); err != nil {
		return nil, &ConfigError{[]string{err.Error()}}
	}
	var problems []string
	file := fileValues{}
	if name := first.Config.Config.V; name != "" {
		file, problems = readFile(name)
	}
	l = &Loaded{Sources: make(map[string]Source)}
	ctx, err := parse(&l.Config, file, args, out)
	if err != nil {
		return nil, &ConfigError{append(problems, err.Error())}
	}
	known := make(map[string]string) // file key -> flag name
	for _, f := range ctx.Model.Flags {
		if len(f.Envs) > 0 { // help, version and print-config are commands, not settings
			known[fileKey(f.Name)] = f.Name
		}
		l.Sources[f.Name] = sourceOf(f, file)
	}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved {
			l.Sources[p.Flag.Name] = FromFlag
		}
	}
	problems = append(problems, file.unknown(known)...)
	l.Warnings = unknownVariables(environ, known)
	l.applyDev()
	l.each(func(name string, s setting) {
		if bad := s.problem(); bad != "" {
			problems = append(problems, fmt.Sprintf("%s (from the %s): %s", envName(name), l.Sources[name], bad))
		}
	})
	if len(problems) == 0 { // combinations of values that could not be read say nothing
		problems = l.check()
	}
	if len(problems) > 0 {
		return nil, &ConfigError{problems}
	}
	return l, nil
}

// parse fills c from its defaults, the file, the environment and args.
func parse(c *Config, file fileValues, args []string, out io.Writer) (*kong.Context, error) {
	k, err := kong.New(c,
		kong.Name("ringcastd"),
		kong.Description("The ringcast broker. Settings come from a TOML file, RINGCAST_* variables and flags, each overriding the one before."),
		kong.Vars{"version": "ringcastd " + version()},
		kong.DefaultEnvars(strings.TrimSuffix(envPrefix, "_")),
		groups,
		kong.Resolvers(file),
		kong.Writers(out, out),
		kong.Exit(func(code int) { panic(exitRequest(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		return nil, err
	}
	return k.Parse(args)
}

// fileValues are the keys of the configuration file.
type fileValues map[string]any

// readFile reads a TOML file. A missing file is a problem: somebody asked for it by name.
func readFile(name string) (fileValues, []string) {
	v := fileValues{}
	if _, err := toml.DecodeFile(name, &v); err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return nil, []string{fmt.Sprintf("%sCONFIG: %s, line %d: %s", envPrefix, name, pe.Position.Line, pe.Message)}
		}
		return nil, []string{fmt.Sprintf("%sCONFIG: %v", envPrefix, err)}
	}
	return v, nil
}

// Validate is part of kong.Resolver; unknown keys are collected by Load with the other problems.
func (v fileValues) Validate(*kong.Application) error { return nil }

// Resolve answers a flag from the file. kong lets a resolver override the environment, so it
// answers nothing for a flag whose variable is set.
func (v fileValues) Resolve(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	x, ok := v[fileKey(f.Name)]
	if !ok || len(f.Envs) == 0 || envSet(f) {
		return nil, nil
	}
	switch x.(type) {
	case string, int64, float64, bool:
		return x, nil
	default:
		return fmt.Sprintf("%v", x), nil // an array or a table: the type's own complaint names it
	}
}

// unknown reports keys that are no setting.
func (v fileValues) unknown(known map[string]string) []string {
	var out []string
	for key := range v {
		if _, ok := known[key]; ok && key != "config" {
			continue
		}
		out = append(out, fmt.Sprintf("%q in the file is no setting%s", key, suggest(key, known)))
	}
	sort.Strings(out)
	return out
}

// unknownVariables warns of RINGCAST_ variables that no setting reads, and of FELIX_ ones that
// would be settings under our prefix.
func unknownVariables(environ []string, known map[string]string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if key, ok := strings.CutPrefix(name, envPrefix); ok {
			if _, ok := known[strings.ToLower(key)]; !ok && !slices.Contains(othersVariables, key) {
				out = append(out, name+" is no setting of this version and was ignored"+suggest(strings.ToLower(key), known))
			}
			continue
		}
		if key, ok := strings.CutPrefix(name, "FELIX_"); ok {
			if _, ok := known[strings.ToLower(key)]; ok {
				out = append(out, name+" has no effect here: the variable is "+envPrefix+key)
			}
		}
	}
	sort.Strings(out)
	return out
}

// suggest names the closest setting when one is close enough to be meant.
func suggest(key string, known map[string]string) string {
	best, at := "", len(key)/3+1
	for k := range known {
		if d := distance(key, k); d < at || d == at && best != "" && k < best {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance is the number of single-character edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func fileKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }
func envName(flag string) string { return envPrefix + strings.ToUpper(fileKey(flag)) }

func envSet(f *kong.Flag) bool {
	for _, e := range f.Envs {
		if _, ok := os.LookupEnv(e); ok {
			return true
		}
	}
	return false
}

func sourceOf(f *kong.Flag, file fileValues) Source {
	if envSet(f) {
		return FromEnvironment
	}
	if _, ok := file[fileKey(f.Name)]; ok {
		return FromFile
	}
	return FromDefault
}

// each calls fn for every setting, in the order of Config.
func (l *Loaded) each(fn func(name string, s setting)) {
	v := reflect.ValueOf(&l.Config).Elem()
	for i := range v.NumField() {
		if s, ok := v.Field(i).Interface().(setting); ok {
			fn(v.Type().Field(i).Tag.Get("name"), s)
		}
	}
}

// applyDev puts the defaults of --dev in place of those that nobody overrode.
func (l *Loaded) applyDev() {
	if !l.Dev.V {
		return
	}
	v := reflect.ValueOf(&l.Config).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		dev, ok := tag.Lookup("dev")
		if !ok || l.Sources[tag.Get("name")] != FromDefault {
			continue
		}
		switch s := v.Field(i).Addr().Interface().(type) {
		case *Text:
			s.V = dev
		case *Bool:
			s.V = dev == "true"
		}
	}
}
