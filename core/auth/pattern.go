// Hot path.

package auth

import (
	"bytes"
	"fmt"
	"strings"
)

// glob is a pattern in which * stands for any run of bytes, also empty, also across "/". Nothing else
// has a meaning. It is cut at its stars when the token is read: matching is then a prefix, a suffix and
// leftmost searches between them, never a backtracking loop that a hostile name could stretch.
type glob struct {
	text  string
	parts []string // what lies between the stars; one entry when there is none
}

func compileGlob(text string) glob { return glob{text, strings.Split(text, "*")} }

func (g *glob) match(s []byte) bool {
	first := g.parts[0]
	if len(g.parts) == 1 {
		return string(s) == first
	}
	if len(s) < len(first) || string(s[:len(first)]) != first {
		return false
	}
	s = s[len(first):]
	last := g.parts[len(g.parts)-1]
	for _, part := range g.parts[1 : len(g.parts)-1] {
		i := index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return len(s) >= len(last) && string(s[len(s)-len(last):]) == last
}

// open reports whether the pattern ends in a star: if it matches s, it matches everything that begins
// with s.
func (g *glob) open() bool { return len(g.parts) > 1 && g.parts[len(g.parts)-1] == "" }

// touches reports whether the pattern matches some string that begins with prefix and is longer.
func (g *glob) touches(prefix []byte) bool {
	first := g.parts[0]
	if len(g.parts) == 1 {
		return len(first) > len(prefix) && first[:len(prefix)] == string(prefix)
	}
	n := min(len(first), len(prefix))
	return first[:n] == string(prefix[:n])
}

// index is bytes.Index for a string, without a copy.
func index(s []byte, part string) int {
	if len(part) == 0 {
		return 0
	}
	for from := 0; ; {
		i := bytes.IndexByte(s[from:], part[0])
		if i < 0 || len(s)-from-i < len(part) {
			return -1
		}
		if from += i; string(s[from:from+len(part)]) == part {
			return from
		}
		from++
	}
}

// permission is one entry of a token's perms.
type permission struct {
	glob
	// isGroup: the pattern names groups, so it scopes the stream it names (wire.md 3.2.1).
	isGroup bool
	// isKeys: a cache pattern with a fourth segment. cache then holds the first three and key the rest,
	// matched each on its own, so that a star in a cache's name cannot reach into the keys of others.
	isKeys     bool
	cache, key glob
}

// parsePermission reads "action:resource pattern" for a token of this tenant.
func parsePermission(tenant, text string) (Action, permission, error) {
	name, resource, ok := strings.Cut(text, ":")
	if !ok || resource == "" {
		return 0, permission{}, fmt.Errorf("permission %q is not action:resource", text)
	}
	action, ok := ParseAction(name)
	if !ok {
		return 0, permission{}, fmt.Errorf("permission %q: unknown action", text)
	}
	p := permission{glob: compileGlob(resource), isGroup: strings.HasPrefix(resource, "group:")}
	if at := keyOf(tenant, resource); at > 0 {
		p.isKeys = true
		p.cache, p.key = compileGlob(resource[:at-1]), compileGlob(resource[at:])
	}
	return action, p, nil
}

// keyOf returns where the fourth segment of a cache pattern begins, 0 if there is none. A tenant's own
// name may contain a "/".
func keyOf(tenant, resource string) int {
	rest, ok := strings.CutPrefix(resource, "cache:")
	if !ok {
		return 0
	}
	slashes := 3
	if own, ok := strings.CutPrefix(rest, tenant+"/"); ok {
		rest, slashes = own, 2
	}
	for ; slashes > 0; slashes-- {
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return 0
		}
		rest = rest[i+1:]
	}
	return len(resource) - len(rest)
}
