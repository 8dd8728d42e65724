package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/bbolt"
)

// store appends records to logs; append returns when the record is on the device. It is called by
// many writers, each with a number of its own.
type store interface {
	append(writer, log int, record []byte) error
	close() error
}

// kind is one way to use one library.
type kind struct {
	name, module, what string
	open               func(dir string, c Cell) (store, error)
}

var kinds = []kind{
	{"bbolt", "go.etcd.io/bbolt", "a bucket per log, the sequence as key; Batch with as many calls as there are writers, Update for a lone one", func(dir string, c Cell) (store, error) {
		return openBolt(dir, c, true)
	}},
	{"bbolt-defaults", "go.etcd.io/bbolt", "the same with Batch's default bounds of 1000 calls and 10 ms, also for a lone writer", func(dir string, c Cell) (store, error) {
		return openBolt(dir, c, false)
	}},
	{"pebble", "github.com/cockroachdb/pebble/v2", "Set with Sync, log and sequence as key, a memtable that is not flushed during a turn, no compactions: its WAL", openPebble},
}

// list describes the kinds.
func list() []Peer {
	v := versions()
	var out []Peer
	for _, k := range kinds {
		out = append(out, Peer{k.name, v[k.module], k.what})
	}
	return out
}

func open(name, dir string, c Cell) (store, error) {
	for _, k := range kinds {
		if k.name == name {
			return k.open(dir, c)
		}
	}
	return nil, fmt.Errorf("unknown peer %q", name)
}

type bolt struct {
	db    *bbolt.DB
	names [][]byte // of the buckets
	lone  bool
}

func openBolt(dir string, c Cell, tuned bool) (store, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	b := &bolt{db: db}
	if tuned {
		// A batch goes as soon as every writer is in it: closed loops would wait for the timer otherwise.
		db.MaxBatchSize = c.Writers
		b.lone = c.Writers == 1
	}
	for i := range c.Logs {
		b.names = append(b.names, fmt.Appendf(nil, "log-%d", i))
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range b.names {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return b, nil
}

func (b *bolt) append(_, log int, record []byte) error {
	put := func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(b.names[log])
		bucket.FillPercent = 1 // keys only grow
		seq, err := bucket.NextSequence()
		if err != nil {
			return err
		}
		return bucket.Put(binary.BigEndian.AppendUint64(nil, seq), record)
	}
	if b.lone {
		return b.db.Update(put)
	}
	return b.db.Batch(put)
}

func (b *bolt) close() error { return b.db.Close() }

// memtableBytes is more than a turn may write: nothing is flushed.
const memtableBytes = 1 << 30

type peb struct {
	db   *pebble.DB
	next []uint64 // per writer; its number is in the key
}

func openPebble(dir string, c Cell) (store, error) {
	db, err := pebble.Open(dir, &pebble.Options{
		MemTableSize:                memtableBytes,
		MemTableStopWritesThreshold: 4,
		DisableAutomaticCompactions: true,
		L0StopWritesThreshold:       1000,
		Logger:                      quiet{},
	})
	if err != nil {
		return nil, err
	}
	return &peb{db: db, next: make([]uint64, c.Writers)}, nil
}

func (p *peb) append(writer, log int, record []byte) error {
	key := make([]byte, 0, 16)
	key = binary.BigEndian.AppendUint32(key, uint32(log))
	key = binary.BigEndian.AppendUint64(key, p.next[writer])
	key = binary.BigEndian.AppendUint32(key, uint32(writer))
	p.next[writer]++
	return p.db.Set(key, record, pebble.Sync)
}

func (p *peb) close() error { return p.db.Close() }

// quiet keeps Pebble's notices away; what it cannot survive ends the program as by default.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pebble: "+format+"\n", args...)
	os.Exit(1)
}
