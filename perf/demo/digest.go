package demo

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"slices"
)

// digests hashes the records of each publisher in the order in which they are added.
type digests struct {
	byTag map[byte]*tagDigest
	total int
	bytes int64
}

type tagDigest struct {
	hash    hash.Hash
	records int
}

func newDigests() *digests { return &digests{byTag: make(map[byte]*tagDigest)} }

// tagged puts the publisher's tag before a line.
func tagged(dst []byte, tag byte, line []byte) []byte {
	return append(append(dst[:0], tag, '\t'), line...)
}

// add takes one record: a tag, a tab, a line.
func (d *digests) add(rec []byte) error {
	if len(rec) < 2 || rec[1] != '\t' {
		return fmt.Errorf("record %.40q carries no publisher tag", rec)
	}
	t := d.byTag[rec[0]]
	if t == nil {
		t = &tagDigest{hash: sha256.New()}
		d.byTag[rec[0]] = t
	}
	t.hash.Write(rec[2:])
	t.hash.Write([]byte{'\n'})
	t.records++
	d.total++
	d.bytes += int64(len(rec))
	return nil
}

// sum is the hash of one publisher's records.
func (d *digests) sum(tag byte) string {
	if t := d.byTag[tag]; t != nil {
		return fmt.Sprintf("%x", t.hash.Sum(nil))
	}
	return "nothing"
}

// equal compares with what was published and says what differs.
func (d *digests) equal(want *digests) error {
	tags := slices.Sorted(maps.Keys(want.byTag))
	if got := slices.Sorted(maps.Keys(d.byTag)); !bytes.Equal(got, tags) {
		return fmt.Errorf("records of publishers %q, want %q", got, tags)
	}
	for _, tag := range tags {
		if got, want := d.byTag[tag].records, want.byTag[tag].records; got != want {
			return fmt.Errorf("publisher %c: %d records, want %d", tag, got, want)
		}
		if got, want := d.sum(tag), want.sum(tag); got != want {
			return fmt.Errorf("publisher %c: hash %s, want %s", tag, got, want)
		}
	}
	return nil
}
