package core

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
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
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketMeta, bucketStreams, bucketCaches, bucketKeys} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		switch v := meta.Get(metaVersion); {
		case v == nil:
			return meta.Put(metaVersion, binary.BigEndian.AppendUint64(nil, catalogueVersion))
		case len(v) != 8 || binary.BigEndian.Uint64(v) != catalogueVersion:
			return fmt.Errorf("catalogue version %x is not %d: written by another version of ringcast", v, catalogueVersion)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("core: open catalogue %s: %w", path, err), db.Close())
	}
	return &catalogue{db: db}, nil
}

func (c *catalogue) close() error {
	if c.db == nil {
		return nil
	}
	return c.db.Close()
}

// load returns every row.
func (c *catalogue) load() (streams []streamRow, caches []cacheRow, err error) {
	if c.db == nil {
		return nil, nil, nil
	}
	err = c.db.View(func(tx *bbolt.Tx) error {
		err := tx.Bucket(bucketStreams).ForEach(func(k, v []byte) error {
			var r streamRow
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("stream %q: %w", k, err)
			}
			streams = append(streams, r)
			return nil
		})
		if err != nil {
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
		id := uint64(1)
		if v := meta.Get(metaNextID); len(v) == 8 {
			id = binary.BigEndian.Uint64(v)
		}
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

func (c *catalogue) update(fn func(*bbolt.Tx) error) error {
	if err := c.db.Update(fn); err != nil {
		return fmt.Errorf("core: write catalogue: %w", err)
	}
	return nil
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
