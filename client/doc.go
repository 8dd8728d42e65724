// Package client is the Go SDK of ringcast. It speaks the Felix wire protocol and works with any
// broker that does.
//
//	Dial / New --> Client -- manager (one goroutine): dials, backs off, shares the session
//	                 |          |
//	                 |       session = one connection -- accepts event streams, one short
//	                 |          |                        goroutine per hello
//	                 |          +-- request streams, authenticated, reused
//	                 |
//	   Publisher ----+-- sender per shard (run writes, receive reads answers) over an outbox
//	   Subscription -+-- receiver (one goroutine) --> frameQueue --> Next / Events
//	   Cache, StreamShards, ReadStream, OffsetForTime, PublishIf, Commit, StateGet: calls, no goroutine
//
// The halves that decide are plain structs without goroutine, clock or stream, stepped by tests:
// outbox and sequencer (batches, window, retries, idempotence), cursor (what is new, seen,
// missing), budget, backoff, decide (the retry table).
//
// Who owns what: the caller owns each Publisher and Subscription and closes it; Client.Close ends
// those that are left, at once. Records are copied when they are accepted. An Event's Payload is the
// subscription's memory, valid until its next event.
//
// What may fail: a refusal is the broker's *wire.Error with its class; errors.Is with wire's
// sentinels works (wire.ErrUnauthenticated for a bad token). wire.ErrUnacknowledged says that a
// request may or may not have been applied. DialError, GapError, OffsetMismatchError, ProtocolError and
// UnsupportedError carry data; ErrBudgetFull, ErrDeliveryTimeout, ErrClosed and others are fixed.
//
// What it promises:
//   - a publish has exactly one outcome, and one that may have been applied is never sent again
//     unless WithIdempotence (applied once) or WithAtLeastOnce was given;
//   - with WithIdempotence the records of a shard are in the log once and in order, through
//     refusals, lost connections and restarts of the broker;
//   - a subscription to a stream with a log delivers each record once and in order through all of
//     them, or says what is missing;
//   - a PublishIf, and a Commit with IfOffset, is written at the offset that was expected or not at all,
//     however often it is repeated; a Commit's event and its state are seen together;
//   - memory is bounded: the byte budget of a publisher, the receive buffer of a subscription.
//
// It refuses: to skip records silently, to drop events because the reader is slow, to retry what
// the broker called fatal, to turn certificate checks off, to read environment variables.
package client
