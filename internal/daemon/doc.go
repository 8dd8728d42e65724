// Package daemon runs a real ringcastd as a child process, for tests: it
// builds the binary, starts it in --dev mode on free loopback ports, kills it and starts it again
// on the same ports and data.
//
//	Build -> bin    Start -> Daemon{QUIC, HTTP, CA, Token}    Kill (SIGKILL)  Stop (SIGTERM)  Restart
//
// Who owns what. A Daemon is used by one goroutine. Its process dies with its parent where the
// kernel offers that; in any case the owner calls Stop or Kill.
//
// Goroutines: one per process that waits for its end.
//
// Failures. A process that ends before it is ready is an error with the end of its log.
package daemon
