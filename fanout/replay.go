package fanout

// Ring is the replay ring of a shard: the newest envelopes, for readers that start a little behind
// and for the join of history and live. It reaches to the tail without a gap or it is empty, so
// that being behind it never looks like being caught up (HZ-15). It belongs to the shard's
// executor.
type Ring struct {
	recordsMax int
	bytesMax   int64

	// envs[first:] are retained, in offset order, each beginning where the last one ended.
	envs    []*Envelope
	first   int
	records int
	bytes   int64
	next    uint64 // the tail: the offset that the next envelope begins at
}

// NewRing returns an empty ring whose tail is next. Bounds of 0 are the defaults. The newest
// envelope is kept even if it has more records than the bound; one beyond the bound in bytes is not
// kept.
func NewRing(recordsMax int, bytesMax int64, next uint64) *Ring {
	if recordsMax <= 0 {
		recordsMax = RingRecordsMax
	}
	if bytesMax <= 0 {
		bytesMax = RingBytesMax
	}
	return &Ring{recordsMax: recordsMax, bytesMax: bytesMax, next: next}
}

// Base is the oldest offset that the ring holds; the tail if it is empty.
func (r *Ring) Base() uint64 {
	if r.first == len(r.envs) {
		return r.next
	}
	return r.envs[r.first].base
}

// Next is the tail.
func (r *Ring) Next() uint64 { return r.next }

// Records is how many records the ring holds.
func (r *Ring) Records() int { return r.records }

// Bytes is how much memory its envelopes retain.
func (r *Ring) Bytes() int64 { return r.bytes }

// Push adds the newest envelope and drops the oldest ones that are beyond the bounds. It borrows
// the caller's reference. An envelope that does not begin at the tail, by offsets that are no events
// at least, empties the ring first.
func (r *Ring) Push(e *Envelope) {
	if e.records == 0 {
		return
	}
	if e.base-e.parts[0].Skipped != r.next {
		r.Reset(e.base)
	}
	e.Retain()
	r.envs = append(r.envs, e)
	r.records += e.records
	r.bytes += e.size
	r.next = e.next
	for r.bytes > r.bytesMax || r.records > r.recordsMax && len(r.envs)-r.first > 1 {
		r.drop()
	}
}

// From returns the envelopes that hold records from offset on, retained for the caller, and the
// first offset that they serve: offset itself, or the ring's base if that is later. What lies
// between the two is to be read elsewhere. At the tail there are none.
func (r *Ring) From(offset uint64) (envs []*Envelope, start uint64) {
	start = max(offset, r.Base())
	for _, e := range r.envs[r.first:] {
		if e.next > start {
			e.Retain()
			envs = append(envs, e)
		}
	}
	return envs, start
}

// DropOldest lets the oldest envelope go, for a budget that is shared with others, and says how
// much memory it retained.
func (r *Ring) DropOldest() (bytes int64, ok bool) {
	if r.first == len(r.envs) {
		return 0, false
	}
	bytes = r.envs[r.first].size
	r.drop()
	return bytes, true
}

// Reset empties the ring and puts its tail at next: the log was cut, or the shard goes.
func (r *Ring) Reset(next uint64) {
	for r.first < len(r.envs) {
		r.drop()
	}
	r.next = next
}

// drop releases the oldest envelope.
func (r *Ring) drop() {
	e := r.envs[r.first]
	r.envs[r.first] = nil
	r.first++
	r.records -= e.records
	r.bytes -= e.size
	e.Release()
	if 2*r.first >= len(r.envs) { // move what is left to the front, now and then
		n := copy(r.envs, r.envs[r.first:])
		clear(r.envs[n:])
		r.envs, r.first = r.envs[:n], 0
	}
}
