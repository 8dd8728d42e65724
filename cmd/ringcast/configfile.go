package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// configFile are the settings of a TOML file; it resolves flags for kong. It answers nothing for
// a flag whose variable is set: kong would let it override the environment.
type configFile struct {
	name   string
	values map[string]any
}

// fileKeys are the keys that the file may have: the connection flags with _ for -.
var fileKeys = []string{"addr", "http", "tenant", "namespace", "token", "token_file", "ca", "server_name", "dev_dir", "timeout"}

// loadFile reads the file that the command line or the environment names, or the user's own if it
// exists.
func loadFile(args []string) (*configFile, error) {
	name, given := configName(args)
	if !given {
		dir, err := os.UserConfigDir()
		if err != nil {
			return &configFile{}, nil // no home, no file
		}
		name = filepath.Join(dir, "ringcast", "config.toml")
		if !exists(name) {
			return &configFile{}, nil
		}
	}
	f := &configFile{name: name}
	if _, err := toml.DecodeFile(name, &f.values); err != nil {
		if pe, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, fmt.Errorf("configuration file %s, line %d: %s", name, pe.Position.Line, pe.Message)
		}
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	var unknown []string
	for key := range f.values {
		if !slices.Contains(fileKeys, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		return nil, fmt.Errorf("configuration file %s: unknown key %s; known are %s",
			name, strings.Join(unknown, ", "), strings.Join(fileKeys, ", "))
	}
	return f, nil
}

// configName finds --config before anything else is parsed.
func configName(args []string) (name string, given bool) {
	for i, a := range args {
		if a == "--" {
			break
		}
		if v, ok := strings.CutPrefix(a, "--config="); ok {
			return v, true
		}
		if a == "--config" && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return os.LookupEnv("RINGCAST_CLI_CONFIG")
}

// Validate is part of kong.Resolver; loadFile has checked the keys.
func (f *configFile) Validate(*kong.Application) error { return nil }

// Resolve is part of kong.Resolver.
func (f *configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := f.values[strings.ReplaceAll(flag.Name, "-", "_")]
	if !ok || flag.Name == "config" {
		return nil, nil
	}
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("configuration file %s: %s must be a string", f.name, flag.Name)
	}
	return text, nil
}
