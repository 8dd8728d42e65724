// Package fanout delivers batches to many readers: one envelope per batch, encoded once per shape
// and shared by all, a bounded queue per reader, and a feeder that writes.
//
//	executor of the shard                         one goroutine per reader
//	---------------------                         ------------------------
//	NewEnvelope(parts)
//	  |-- Ring.Push            newest batches, for those who join
//	  '-- Registry.Publish --> Subscriber: queue --> Feeder --> Sink.WriteFrames
//	                             full: dropped,        ^
//	                             counted               '-- Deliver: history, before the queue
//
// # Who owns what
//
// An Envelope is counted: the executor, the ring and each queue hold a reference, and with the last
// one its frame memory goes back to its pool. Its bytes are written once, when a shape is first
// encoded, and only read after that. Registry.Publish and Ring belong to the shard's executor; Add
// and Remove may be called by anyone; a Subscriber's queue has the executor at one end and its
// feeder at the other; End and Close may be called by anyone.
//
// # Goroutines
//
// None is started here. Feeder.Run occupies the goroutine of the reader until the subscriber ends,
// its context ends, or the sink fails.
//
// # Failures
//
// A reader that does not read fills its own queue and loses what does not fit: it is counted, and
// visible to the reader as a hole in the offsets or as the end of the subscription. Nobody else
// notices, and a publish never waits. A sink that fails ends its own feeder.
//
// # What it refuses
//
// To know files, streams, sessions or frames other than event batches; to split or copy what a
// publisher sent, but for the shape with times and for a publish near the frame limit; to buffer
// without a bound; to arm a timer when no delay was asked for.
package fanout
