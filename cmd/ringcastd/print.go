package main

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// printConfig writes the configuration in force as a TOML file that would reproduce it, with the
// origin of each value. Secrets are masked.
func (l *Loaded) printConfig(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, warning := range l.Warnings {
		fmt.Fprintf(b, "# warning: %s\n", warning)
	}
	l.each(func(name string, s setting) {
		if name == "config" {
			return // a file cannot name itself
		}
		value := s.toml()
		if t, ok := s.(Text); ok {
			value = Text{maskSecrets(t.V)}.toml()
		}
		fmt.Fprintf(b, "%-36s = %-24s # %s\n", fileKey(name), value, l.Sources[name])
	})
	return b.Flush()
}

// values returns the configuration in force by file key, secrets masked, for /v1/config.
func (l *Loaded) values() map[string]any {
	out := make(map[string]any)
	l.each(func(name string, s setting) {
		var v any
		switch s := s.(type) {
		case Text:
			v = maskSecrets(s.V)
		case Num:
			v = s.V
		case Size:
			v = s.V
		case Bound:
			if v = s.V; s.V == 0 {
				v = "off"
			}
		case Bool:
			v = s.V
		case Choice:
			v = s.V
		}
		out[fileKey(name)] = map[string]any{"value": v, "from": l.Sources[name].String()}
	})
	return out
}

// changed lists the settings that are not at their default, "name=value", for the start line.
func (l *Loaded) changed() []string {
	var out []string
	l.each(func(name string, s setting) {
		if l.Sources[name] == FromDefault {
			return
		}
		value := s.toml()
		if t, ok := s.(Text); ok {
			value = maskSecrets(t.V)
		}
		out = append(out, fileKey(name)+"="+value)
	})
	return out
}

// maskSecrets hides the password and the query of a URL: a key source may carry a token there.
func maskSecrets(v string) string {
	if !strings.Contains(v, "://") {
		return v
	}
	u, err := url.Parse(v)
	if err != nil {
		return "(masked)"
	}
	if u.User != nil {
		u.User = url.User("masked")
	}
	if u.RawQuery != "" {
		u.RawQuery = "masked"
	}
	return strings.NewReplacer("%7B", "{", "%7D", "}").Replace(u.String())
}
