// Command ringcast is everything that a person does at a terminal: publish, subscribe, manage
// streams, read and write caches, make tokens, see the demo and measure the disk.
//
//	args, RINGCAST_* variables, config file --> settings --> client (QUIC) or adminAPI (HTTP)
//	                                               |
//	                                           output: text, or JSON lines with --json
//
// Only this package reads flags, variables and files of settings; each overrides the one behind
// it: flags, environment, file, then what a "ringcastd --dev" has left in its data directory.
//
// main does nothing but call run, which has its surroundings as arguments; every command is a struct
// with a Run method that returns an error. failure.go turns an error into a message, a hint about
// what to do, and an exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
//
// Goroutines: those of the client and of the progress bar, ended before run returns.
package main
