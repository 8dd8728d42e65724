package sim

import (
	"fmt"
	"strings"
)

// traceKept is how many steps a failure shows.
const traceKept = 60

// Trace is what happened, as a hash of all of it and as text of the newest steps. It formats nothing
// before somebody asks.
type Trace struct {
	hash  uint64
	steps int
	last  [traceKept]tracedStep
}

type tracedStep struct {
	what string
	args [4]uint64
	n    int
}

// Add notes a step: what it is, always the same text, and at most four numbers that say which.
func (t *Trace) Add(what string, args ...uint64) {
	s := &t.last[t.steps%traceKept]
	s.what, s.n = what, copy(s.args[:], args)
	t.steps++
	if t.hash == 0 {
		t.hash = 14695981039346656037 // FNV-1a
	}
	for i := range len(what) {
		t.hash = (t.hash ^ uint64(what[i])) * 1099511628211
	}
	for _, a := range args {
		t.hash = (t.hash ^ a) * 1099511628211
	}
}

// Steps is how many steps there were.
func (t *Trace) Steps() int { return t.steps }

// Hash tells two runs apart.
func (t *Trace) Hash() uint64 { return t.hash }

// String is the newest steps, one per line.
func (t *Trace) String() string {
	var b strings.Builder
	for i := max(0, t.steps-traceKept); i < t.steps; i++ {
		s := &t.last[i%traceKept]
		fmt.Fprintf(&b, "%6d %s %v\n", i, s.what, s.args[:s.n])
	}
	return b.String()
}
