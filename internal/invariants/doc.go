// Package invariants says whether expensive self-checks are compiled in.
//
// A broken invariant panics; wrong input or a dead disk is an error and never comes here. The
// package lies under every other one and imports nothing.
package invariants
