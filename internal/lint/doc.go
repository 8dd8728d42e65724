// Package lint holds the rules of the tree as tests: layering, who may import what, file sizes,
// names, sleeps, and that the documents name real files and real tests.
//
//	go/parser over every .go file  ->  []File  ->  one check per rule  ->  "path:line: what, and why"
//
// It reads source, not builds: a rule holds for files of every platform and every tag, not only
// for those that the current build selects.
//
// Goroutines: none. Failures: a file that does not parse is a finding, like any other.
// What it refuses to do: fix anything. `make check` runs it.
package lint
