// Package serve speaks the protocol (wire.md) with clients: it is the one place that knows both
// connections (netio) and the engine (core).
//
//	netio.Server --Accept--> conn ---- deadline for authentication, 16 unauthenticated streams at a time
//	                          |
//	    bidirectional stream  |  publish-only stream        event stream (opened by us)
//	    session               |  oneWay                     subscription
//	     reader  writer       |   reader                     runner
//	       |        ^         |     |                          ^
//	       |        |         |     |                          | fanout.Sink
//	  FrameReader   | one write of all answers that are due    |
//	       v        |               v                          |
//	  dispatch: auth, publish, subscribe, cache, discovery     |
//	       |        ^               |                          |
//	       v        | answers       v                          |
//	  core.Broker.Publish ------> executors ------------> subscriptions
//
// Publishes. Every form becomes one command and one core.PublishRequest, so that rules cannot
// differ between encodings. An acked one has a slot (answers.go) that the executor fills and the
// writer encodes as the request was encoded; with a granted window answers keep the order of the
// requests. A stream that is at its window is not read, so flow control slows its client.
//
// A publish whose queue is full stands in line: an acked one in its slot, until its queue wait is over
// (the sweep withdraws it), an unacked one in a place of park.go, until it gets in or the connection
// ends. The stream is read on meanwhile, up to 1024 of the former and 16 of the latter. The ack wait
// begins when a publish gets in.
//
// Who owns what. A stream's state belongs to its reader; the writer owns what is being written;
// slots pass from reader to executor to writer and back. A connection's maps are behind its mutex,
// which only streams and subscriptions that come and go take. A subscription belongs to the
// connection: it outlives the stream that asked for it.
//
// Goroutines: per connection two accept loops; per bidirectional stream a reader and a writer; per
// publish-only stream a reader; per subscription a runner. All of them end with the connection, and
// Serve waits for them. Timers: one per connection until somebody authenticates, one per stream
// while something is owed (sweepclock.go).
//
// Failures. Bad input gets the answer of wire.md 2.4, 5.1 and 6.2 and a counter of its own; it
// ends at most its own stream. What nobody can answer in time is answered unacknowledged. A client
// that takes no answers loses the stream, one that takes no events loses them at its own queue.
//
// Where wire.md leaves a choice: a refused request never ends an authenticated stream, unless there
// is no answer to write (an unacked binary publish) or the request was a single shot.
//
// What it refuses to do: it stores nothing, decides nothing about order or durability, and
// advertises no feature that does not work. Requests of later versions are decoded and answered
// unsupported.
package serve
