package core

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ringcast/ringcast/ring"
)

// catalogue keeps the definitions of streams and caches, and tenants' keys, in DATA/meta.db. With
// no data directory it keeps nothing: the tables in memory are all there is.
//
// Ids come from a counter that only rises, so that the files of a deleted stream can never be
// taken for those of a new one with the same name (design.md 5.1).
type catalogue struct {
	db     *bbolt.DB // nil without a data directory
	nextID uint64    // without db; guarded by Broker.defMu
}

var (
	bucketMeta    = []byte("meta")
	bucketStreams = []byte("streams")
	bucketCaches  = []byte("caches")
	bucketKeys    = []byte("keys")

	buckets = [][]byte{bucketMeta, bucketStreams, bucketCaches, bucketKeys}

	metaVersion = []byte("version")
	metaNextID  = []byte("next_id")
)

const catalogueVersion = 1

type streamRow struct {
	StreamDef
	ID      uint64    `json:"id"`
	Created time.Time `json:"created"`
}

type cacheRow struct {
	CacheDef
	ID      uint64    `json:"id"`
	Created time.Time `json:"created"`
}

func openCatalogue(dir string) (*catalogue, error) {
	if dir == "" {
		return &catalogue{nextID: 1}, nil
	}
	path := filepath.Join(dir, "meta.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("core: open catalogue %s: %w", path, err)
	}
	// A catalogue that is complete is not written to: a broker whose disk is full must start, and serve
	// reads (HZ-10).
	err = db.View(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if tx.Bucket(name) == nil {
				return errIncomplete
			}
		}
		if tx.Bucket(bucketMeta).Get(metaVersion) == nil {
			return errIncomplete
		}
		return nil
	})
	if err != nil {
		err = db.Update(initialise)
	}
	if err == nil {
		err = db.View(checkVersion)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("core: open catalogue %s: %w", path, err), db.Close())
	}
	return &catalogue{db: db}, nil
}

var errIncomplete = errors.New("buckets are missing")

// initialise makes what a new catalogue lacks.
func initialise(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	if meta.Get(metaVersion) != nil {
		return checkVersion(tx) // of another version: nothing is changed
	}
	return meta.Put(metaVersion, binary.BigEndian.AppendUint64(nil, catalogueVersion))
}

func checkVersion(tx *bbolt.Tx) error {
	if v := tx.Bucket(bucketMeta).Get(metaVersion); len(v) != 8 || binary.BigEndian.Uint64(v) != catalogueVersion {
		return fmt.Errorf("catalogue version %x is not %d: written by another version of ringcast", v, catalogueVersion)
	}
	return nil
}

func (c *catalogue) close() error {
	if c.db == nil {
		return nil
	}
	return c.db.Close()
}

// streamRows reads the rows of all streams.
func streamRows(tx *bbolt.Tx) (rows []streamRow, err error) {
	err = tx.Bucket(bucketStreams).ForEach(func(k, v []byte) error {
		var r streamRow
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("stream %q: %w", k, err)
		}
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

// load returns every row.
func (c *catalogue) load() (streams []streamRow, caches []cacheRow, err error) {
	if c.db == nil {
		return nil, nil, nil
	}
	err = c.db.View(func(tx *bbolt.Tx) error {
		var err error
		if streams, err = streamRows(tx); err != nil {
			return err
		}
		return tx.Bucket(bucketCaches).ForEach(func(k, v []byte) error {
			var r cacheRow
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("cache %q: %w", k, err)
			}
			caches = append(caches, r)
			return nil
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("core: read catalogue: %w", err)
	}
	return streams, caches, nil
}

// putNew stores a row under a fresh id, which set fills into the row before it is encoded.
func (c *catalogue) putNew(bucket, key []byte, set func(id uint64) any) error {
	if c.db == nil {
		set(c.nextID)
		c.nextID++
		return nil
	}
	return c.update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		id := nextID(meta)
		if err := meta.Put(metaNextID, binary.BigEndian.AppendUint64(nil, id+1)); err != nil {
			return err
		}
		row, err := json.Marshal(set(id))
		if err != nil {
			return err
		}
		return tx.Bucket(bucket).Put(key, row)
	})
}

// next is the id that the next row gets.
func (c *catalogue) next() (id uint64, err error) {
	if c.db == nil {
		return c.nextID, nil
	}
	err = c.db.View(func(tx *bbolt.Tx) error {
		id = nextID(tx.Bucket(bucketMeta))
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("core: read catalogue: %w", err)
	}
	return id, nil
}

func nextID(meta *bbolt.Bucket) uint64 {
	if v := meta.Get(metaNextID); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 1
}

// put replaces a row.
func (c *catalogue) put(bucket, key []byte, row any) error {
	if c.db == nil {
		return nil
	}
	b, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("core: encode catalogue row: %w", err)
	}
	return c.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, b) })
}

func (c *catalogue) remove(bucket, key []byte) error {
	if c.db == nil {
		return nil
	}
	return c.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Delete(key) })
}

// update runs a transaction that is on the disk when it returns. Its errors have a class of package
// ring, so that a full disk is told from a broken one.
func (c *catalogue) update(fn func(*bbolt.Tx) error) error {
	switch err := c.db.Update(fn); {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return errDraining
	default:
		return fmt.Errorf("core: write catalogue: %w", ring.Classify("write", c.db.Path(), err))
	}
}

// keys returns the raw JWK sets stored per tenant.
func (c *catalogue) keys() (map[string][]byte, error) {
	sets := map[string][]byte{}
	if c.db == nil {
		return sets, nil
	}
	err := c.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketKeys).ForEach(func(k, v []byte) error {
			sets[string(k)] = append([]byte(nil), v...)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("core: read keys: %w", err)
	}
	return sets, nil
}

func (c *catalogue) putKeys(tenant string, set []byte) error {
	if c.db == nil {
		return nil
	}
	return c.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketKeys).Put([]byte(tenant), set) })
}
