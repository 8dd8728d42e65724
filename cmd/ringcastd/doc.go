// Command ringcastd is the broker: it reads a configuration, starts the parts in order and ends
// them in order.
//
//	main   flags, environment, signals          Load   file < environment < flags, all problems at once
//	Run    HTTP (alive) -> core.Open (lock, recovery) -> keys -> QUIC listener -> ready
//	       signal: not ready -> sessions drain -> listener -> logs -> HTTP
//
// Who owns what. Run owns everything it starts and has joined it when it returns. The rest of the
// program gets values, never the environment.
//
// Goroutines: main's signal watcher, one that serves the listener; everything else belongs to the
// packages below.
//
// Failures. A configuration that cannot work is refused before anything is opened; a start that
// fails undoes what it did; a shutdown that was cut short says what was lost, by name, and ends the
// process with 1.
//
// What it refuses to do: start without a key to check tokens with, serve HTTP in the clear beyond
// this machine unless told to, or accept a setting of something that this version does not have.
package main
