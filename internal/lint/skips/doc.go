// Command skips reads the output of `go test -json` and turns it into a verdict: failures with
// their output, one line per package, every skipped test with its reason. It fails when a test
// failed, and when a test that docs/guarantees.md names was skipped: a promise whose test did not
// run is not kept.
//
//	go test -json ./... | go run ./internal/lint/skips
//
// Goroutines: none. What it refuses to do: rerun or hide anything.
package main
