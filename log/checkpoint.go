package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/ringcast/ringcast/ring"
)

// The checkpoint of the producers (docs/formats/log.md, "producers"): what idempotent producers were
// remembered at the start of a segment. With it recovery need not read what lies before, and
// producers outlive the segments that retention deletes. It is derived: a bad one is no worse than
// none, and all headers are walked then.
//
// The owner freezes the state when a segment begins, which copies no batch; a job encodes and writes
// it once everything before that segment is sealed and something in it committed. So a checkpoint speaks of durable records only: what
// is void by then has taken the frozen state with it.

const (
	checkpointName        = "producers"
	checkpointTemp        = "producers.tmp"
	checkpointMagic       = 0x52435052 // "RCPR"
	checkpointVersion     = 1
	checkpointHeaderBytes = 48
	checkpointEntryBytes  = 24
	checkpointBatchBytes  = 24
	// checkpointMax is the size of a full state: 6 MiB.
	checkpointMax = checkpointHeaderBytes + producersMax*(checkpointEntryBytes+producerBatchesMax*checkpointBatchBytes) + 4
)

// checkpoint is the state of the producers at an offset where one segment ends and another begins.
type checkpoint struct {
	base uint64
	// before and after are the nonces of the segments on both sides. Offsets are given out again when
	// what they stood for is void; nonces are not. Either one proves that it is that place: the one
	// before may have been deleted, the one after may never have been used, or under another nonce.
	before, after uint64
	state         []frozenProducer
	// older is one that was not written when this one was frozen: this one may still become void.
	older *checkpoint
}

// encode returns the whole file.
func (c *checkpoint) encode(catalogue uint64, shard uint32) []byte {
	size := checkpointHeaderBytes + len(c.state)*checkpointEntryBytes + 4
	for i := range c.state {
		size += c.state[i].held * checkpointBatchBytes
	}
	b := make([]byte, 0, size)
	b = binary.BigEndian.AppendUint32(b, checkpointMagic)
	b = binary.BigEndian.AppendUint16(b, checkpointVersion)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint64(b, c.base)
	b = binary.BigEndian.AppendUint64(b, c.before)
	b = binary.BigEndian.AppendUint64(b, c.after)
	b = binary.BigEndian.AppendUint64(b, catalogue)
	b = binary.BigEndian.AppendUint32(b, shard)
	b = binary.BigEndian.AppendUint32(b, uint32(len(c.state)))
	for i := range c.state {
		q := &c.state[i]
		b = binary.BigEndian.AppendUint64(b, q.id)
		b = binary.BigEndian.AppendUint64(b, q.next)
		b = binary.BigEndian.AppendUint32(b, uint32(q.held))
		b = binary.BigEndian.AppendUint32(b, 0)
		for j := range q.held {
			batch := q.at(j)
			b = binary.BigEndian.AppendUint64(b, batch.offset)
			b = binary.BigEndian.AppendUint64(b, batch.digest)
			b = binary.BigEndian.AppendUint32(b, batch.count)
			b = binary.BigEndian.AppendUint32(b, 0)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeCheckpoint reads the file of a log; false when it is not whole, not of this log, or says what
// no state can be. It reserves no more than the bytes that are there can fill.
func decodeCheckpoint(b []byte, catalogue uint64, shard uint32) (*checkpoint, bool) {
	if len(b) < checkpointHeaderBytes+4 || len(b) > checkpointMax {
		return nil, false
	}
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) ||
		binary.BigEndian.Uint32(b) != checkpointMagic || binary.BigEndian.Uint16(b[4:]) != checkpointVersion ||
		binary.BigEndian.Uint16(b[6:]) != 0 || binary.BigEndian.Uint64(b[32:]) != catalogue ||
		binary.BigEndian.Uint32(b[40:]) != shard {
		return nil, false
	}
	c := &checkpoint{
		base:   binary.BigEndian.Uint64(b[8:]),
		before: binary.BigEndian.Uint64(b[16:]),
		after:  binary.BigEndian.Uint64(b[24:]),
	}
	n := binary.BigEndian.Uint32(b[44:])
	b = b[checkpointHeaderBytes:end]
	if n > producersMax || uint64(len(b)) < uint64(n)*checkpointEntryBytes {
		return nil, false
	}
	c.state = make([]frozenProducer, 0, n)
	seen := make(map[uint64]bool, n)
	var newest uint64
	for range n {
		q, rest, ok := decodeFrozen(b, c.base)
		if !ok || seen[q.id] || q.last < newest {
			return nil, false
		}
		seen[q.id], newest = true, q.last
		c.state, b = append(c.state, q), rest
	}
	return c, len(b) == 0
}

// decodeFrozen reads one producer. Its batches lie below base and their offsets rise.
func decodeFrozen(b []byte, base uint64) (q frozenProducer, rest []byte, ok bool) {
	if len(b) < checkpointEntryBytes {
		return q, nil, false
	}
	q.id, q.next = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	held, zero := binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:])
	b = b[checkpointEntryBytes:]
	if held > producerBatchesMax || uint64(held) > q.next || q.next == 0 || zero != 0 || len(b) < int(held)*checkpointBatchBytes {
		return q, nil, false
	}
	q.held, q.ring = int(held), make([]producerBatch, held)
	for i := range q.ring {
		batch := producerBatch{
			offset: binary.BigEndian.Uint64(b), digest: binary.BigEndian.Uint64(b[8:]), count: binary.BigEndian.Uint32(b[16:]),
		}
		if batch.offset >= base || i > 0 && batch.offset <= q.last || batch.count == 0 || binary.BigEndian.Uint32(b[20:]) != 0 {
			return q, nil, false
		}
		q.ring[i], q.last = batch, batch.offset
		b = b[checkpointBatchBytes:]
	}
	return q, b, true
}

// readCheckpoint returns the checkpoint in dir; nil when there is none that can be used.
func readCheckpoint(o *Options) (*checkpoint, error) {
	f, err := o.FS.Open(filepath.Join(o.Dir, checkpointName), os.O_RDONLY, 0)
	if err != nil {
		if isNotExist(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("log: recover: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("log: recover: %w", err)
	}
	if size > checkpointMax {
		return nil, nil
	}
	b := make([]byte, size)
	n, err := readFull(f, b, 0)
	if err != nil {
		return nil, fmt.Errorf("log: recover: %w", err)
	}
	c, ok := decodeCheckpoint(b[:n], o.CatalogueID, o.Shard)
	if !ok {
		return nil, nil
	}
	return c, nil
}

// writeCheckpoint replaces the file at once: whole under another name, synced, renamed, and the
// directory synced. fatal: that last sync failed, and a later one would prove nothing.
func writeCheckpoint(fs ring.FS, dir string, b []byte) (fatal bool, err error) {
	temp := filepath.Join(dir, checkpointTemp)
	f, err := fs.Open(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return false, err
	}
	if err = writeFull(f, b, 0); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(temp, filepath.Join(dir, checkpointName))
	}
	if err != nil {
		_ = fs.Remove(temp) // it takes room; recovery removes it, too
		return false, err
	}
	err = fs.SyncDir(dir)
	return err != nil, err
}

// freezeProducers remembers the state where t begins, to be written when all before is sealed. A log
// that begins with t has no past.
func (l *Log) freezeProducers(t *tail, prev *tail) {
	var before uint64
	switch segs := l.view.Load().segs; {
	case prev != nil:
		before = prev.seg.nonce
	case len(segs) > 0:
		before = segs[len(segs)-1].nonce
	default:
		return
	}
	l.unwritten = &checkpoint{
		base: t.seg.base, before: before, after: t.seg.nonce, state: l.producers.freeze(), older: l.unwritten,
	}
}

// dueCheckpoint returns the newest frozen state of which all is sealed, the segment behind it in use. The job
// that writes it comes before any that deletes a segment; and what may be deleted lies before a sealed
// segment with a used one behind it. So no segment goes whose producers are in memory only.
func (l *Log) dueCheckpoint() *checkpoint {
	for c := l.unwritten; c != nil; c = c.older {
		if l.written > c.base && (len(l.retired) == 0 || l.retired[0].seg.base >= c.base) {
			return c
		}
	}
	return nil
}

func (l *Log) checkpointJob(c *checkpoint) {
	l.job.kind, l.job.checkpoint = jobCheckpoint, c
	l.job.header = segmentHeader{catalogue: l.o.CatalogueID, shard: l.o.Shard}
	at := &l.unwritten
	for *at != c {
		at = &(*at).older
	}
	*at, c.older = nil, nil // those that are older are not needed any more
}

func (j *Job) writeCheckpoint() {
	j.fatal, j.err = writeCheckpoint(j.fs, j.dir, j.checkpoint.encode(j.header.catalogue, j.header.shard))
}

func (l *Log) checkpointDone(j *Job) Outcome {
	if l.unwritten == nil {
		l.producers.thaw()
	}
	switch {
	case j.fatal:
		return l.poisoned(fmt.Errorf("log: producers: %w", j.err))
	case j.err != nil:
		// The old one, or none, costs the next open a longer walk. The next segment tries again.
		l.stats.checkpointErrors.Add(1)
	}
	return l.outcome()
}

// voidCheckpoint drops the frozen states that speak of records which never were, or of a segment that
// was never used.
func (l *Log) voidCheckpoint() {
	for l.unwritten != nil && l.unwritten.base >= l.written {
		l.unwritten = l.unwritten.older
	}
}
