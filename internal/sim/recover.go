package sim

// Recovered compares a log after a restart with what it held before. At least atLeast of the records that
// could be read are there; all of them, and nothing else, when the end was an orderly one. Otherwise
// batches may follow that were under way or whose outcome was left open, each whole, in the order in
// which they were accepted. After it nothing is under way, and Vanished counts again from 0.
func (s *Shard) Recovered(records [][]byte, atLeast uint64, orderly bool) error {
	if s.OnCommit || orderly && !s.failed {
		atLeast = s.Tail()
	}
	n := len(records)
	if uint64(n) < atLeast {
		return s.wrong("%d records are lost: %d of %d that could be read, %d of them for good", atLeast-uint64(n), n, s.Tail(), atLeast)
	}
	for i, p := range s.log[:min(n, len(s.log))] {
		if !s.batches.is(p.batch, p.k, records[i]) {
			return s.wrong("record %d was record %d of batch %v and is another one", i, p.k, p.batch.BatchID)
		}
	}
	if n < len(s.log) {
		if _, err := s.drop(n); err != nil {
			return err
		}
	}
	if orderly && !s.failed && n > len(s.log) {
		return s.wrong("%d records came from nowhere", n-len(s.log))
	}
	for _, record := range records[len(s.log):] {
		if err := s.readable(record, true); err != nil {
			return err
		}
	}
	if s.open != nil {
		return s.wrong("batch %v was torn", s.open.BatchID)
	}
	s.forget()
	return nil
}

// Emptied is Recovered for a shard in memory: nothing is there any more.
func (s *Shard) Emptied() {
	s.open = nil // whoever published it is told nothing more
	for _, p := range s.log {
		p.batch.at = -1
	}
	s.log = s.log[:0]
	clear(s.next)
	s.forget()
}

// forget is what a restart does to everything that is not in the log.
func (s *Shard) forget() {
	s.queue, s.failed, s.changed = nil, false, false
	s.Vanished, s.VanishedOnQueue = 0, 0
	clear(s.before)
	clear(s.high)
	for p, n := range s.next {
		s.before[p], s.high[p] = n, n
	}
}
