// Package admin is the HTTP side of a broker: health, readiness, metrics, profiles, the API that
// defines streams and caches, and a status page.
//
//	probe, scraper, operator            Server                            below
//	------------------------            ------                            -----
//	GET /healthz /readyz     -------->  phase: starting, ready, draining
//	GET /metrics             -------->  one collector  ------------------> snapshots of core, netio,
//	                                                                       ring, cache, sessions
//	/v1/..., /debug/pprof, / -------->  bearer token -> auth.Verifier ---> core.Broker
//
// A Server answers from the moment it listens: liveness at once, readiness 503 with the phase until
// Attach has given it the broker and Ready was called. A drain turns readiness off for good; the
// server itself is closed last.
//
// Who owns what. The phase and the attached services are atomic; the sample from which rates are
// computed has a mutex. Everything else is read from snapshots, so that a scrape disturbs nobody.
//
// Goroutines: net/http's, started by Listen and joined by Close.
//
// Failures. Errors are JSON, {"code","message","retry"}, with the names of the wire protocol. At
// most requestsMax requests run at a time; more are answered 503 overloaded, health excepted.
//
// What it refuses to do: it serves nothing but health and metrics without a token, takes no body
// above bodyMax, and changes nothing that the token's tenant does not own.
package admin
