// Package auth says who a client is and what it may do: it verifies Felix tokens (EdDSA JWT, wire.md 3.2)
// and holds the permissions they carry. It also makes tokens, for development and for operators without a
// control plane.
//
//	token, tenant ---> Verifier ---> Identity ---> AllowStream, AllowCache, AllowGroup ...
//	                     |  ^
//	                     |  +-- token cache (hash of the token -> Identity), revocations
//	                     v
//	                  KeySource ---- StaticSource (admin API)
//	                     |     +---- FileSource, DirSource (read again when changed)
//	                     +---------- URLSource (fetched, kept for an hour)
//
// Who owns what: an Identity and a KeySet never change and are shared freely. A Verifier owns its cache and
// revocations; a source owns its copies. Revocations are kept in memory: whoever stores them gives them
// again after a restart.
//
// Goroutines: none. A fetch runs on the goroutine of the first caller that needs it.
//
// What may fail: every refusal is the same "unauthenticated: auth failed" to the peer; ReasonOf tells a
// counter why. Keys that cannot be had refuse new streams and end none that is open.
//
// It refuses: every algorithm but EdDSA, an audience that is a list, a token of another tenant, a permission
// that it cannot read, a key set with one key that is not Ed25519, tenant ids that are not plausible. It
// compares no tenant of a request with the identity's: the session does that first.
package auth
