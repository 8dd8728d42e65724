package fanout

// SubscriberStats is a snapshot of a subscriber's counters. Records below From are in none of them.
type SubscriberStats struct {
	Capacity int
	Queued   int    // envelopes in the queue
	Accepted uint64 // envelopes queued since the start

	// Taken from the queue and written, or passed over because history had written it.
	DeliveredBatches uint64
	DeliveredRecords uint64
	HistoryRecords   uint64 // written by Deliver
	// Both together.
	Bytes  uint64 // of frames
	Frames uint64
	Writes uint64 // calls of the sink

	DroppedBatches uint64 // refused by a full queue
	DroppedRecords uint64

	AbandonedBatches uint64 // accepted, and released undelivered when the subscriber ended
	AbandonedRecords uint64
}

// Stats returns the counters. Safe from any goroutine; the fields are consistent with each other
// when nothing moves.
func (s *Subscriber) Stats() SubscriberStats {
	return SubscriberStats{
		Capacity:         s.opts.Capacity,
		Queued:           s.q.len(),
		Accepted:         s.q.tail.Load(),
		DeliveredBatches: s.delivered.batches.Load(),
		DeliveredRecords: s.delivered.records.Load(),
		HistoryRecords:   s.history.Load(),
		Bytes:            s.delivered.bytes.Load(),
		Frames:           s.delivered.frames.Load(),
		Writes:           s.delivered.writes.Load(),
		DroppedBatches:   s.dropped.batches.Load(),
		DroppedRecords:   s.dropped.records.Load(),
		AbandonedBatches: s.abandoned.batches.Load(),
		AbandonedRecords: s.abandoned.records.Load(),
	}
}

// Queued is how many envelopes are in the queue.
func (s *Subscriber) Queued() int { return s.q.len() }

// Dropped is how many records a full queue refused.
func (s *Subscriber) Dropped() uint64 { return s.dropped.records.Load() }

// FirstDropped is the offset of the first record that a full queue refused.
func (s *Subscriber) FirstDropped() (offset uint64, ok bool) {
	if s.dropped.batches.Load() == 0 {
		return 0, false
	}
	return s.firstDropped, true
}
