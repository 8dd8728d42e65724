package sim

// Reader is what one reader of a shard must be given: every record from its start on, once and in order, or
// a hole that is counted.
type Reader struct {
	shard *Shard
	start uint64
	next  uint64
	got   uint64
	// Holes: records may be missing, each of them counted by the broker as dropped. Else the reader is ended
	// at the first.
	Holes bool
	// late: it came when its shard had taken back what it ever takes back. Else what it is given is not compared any
	// more when that happens, which done says.
	late, done bool
}

// NewReader returns a reader of s from an offset on. late says whether s was Uncertain before the reader asked.
func NewReader(s *Shard, start uint64, holes, late bool) *Reader {
	return &Reader{shard: s, start: start, next: start, Holes: holes, late: late}
}

// lost says whether nothing can be said any more about what the reader is given.
func (r *Reader) lost() bool {
	r.done = r.done || r.shard.Uncertain() && !r.late
	return r.done
}

// Next is the offset behind the newest record that it got.
func (r *Reader) Next() uint64 { return r.next }

// Given takes a record, with its offset on a durable shard. In memory there are none on the wire: the next
// record that is the same is meant.
func (r *Reader) Given(offset uint64, hasOffset bool, payload []byte) error {
	s := r.shard
	if r.lost() {
		return nil
	}
	if hasOffset != s.Durable {
		return s.wrong("a reader got an offset %t", hasOffset)
	}
	if !hasOffset {
		for offset = r.next; offset < s.Tail() && !s.batches.is(s.log[offset].batch, s.log[offset].k, payload); offset++ {
		}
	}
	switch {
	case offset >= s.Tail():
		return s.wrong("a reader got record %d, and %d can be read", offset, s.Tail())
	case offset < r.next:
		return s.wrong("a reader at %d got record %d", r.next, offset)
	case offset > r.next && !r.Holes:
		return s.wrong("a reader at %d got record %d, and asked for no holes", r.next, offset)
	case !s.batches.is(s.log[offset].batch, s.log[offset].k, payload):
		return s.wrong("a reader got something else as record %d", offset)
	}
	r.next = offset + 1
	r.got++
	return nil
}

// CaughtUp is called when the reader has been given everything there is. dropped is how many records
// the broker says that it did not get.
func (r *Reader) CaughtUp(dropped uint64) error {
	s := r.shard
	switch {
	case r.lost():
		return nil
	case r.got+dropped != s.Tail()-r.start:
		return s.wrong("a reader from %d to %d got %d records, and %d were dropped", r.start, s.Tail(), r.got, dropped)
	case dropped == 0 && r.next != s.Tail():
		return s.wrong("a reader is at %d of %d", r.next, s.Tail())
	}
	return nil
}

// Lagged is called when the reader was ended because it was behind, and told where to go on.
func (r *Reader) Lagged(resume uint64) error {
	if s := r.shard; !r.lost() && (r.Holes || resume != r.next || resume >= s.Tail()) {
		return s.wrong("a reader at %d of %d was told to resume from %d", r.next, s.Tail(), resume)
	}
	return nil
}
