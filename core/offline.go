package core

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ringcast/ringcast/ring"
)

// StoredLog is one log in a data directory, for commands that work without a broker.
type StoredLog struct {
	Dir   string
	ID    uint64 // of the stream
	Shard uint32
	// Tenant, Namespace and Stream are empty where the catalogue does not know the stream (it was
	// deleted, or the catalogue could not be read), and so is Fsync.
	Tenant, Namespace, Stream string
	Fsync                     string
	// Missing: the catalogue has the shard, and there is no directory for it.
	Missing bool
}

// Name is the stream's name as people write it, "" when it is not known.
func (l *StoredLog) Name() string {
	if l.Stream == "" {
		return ""
	}
	return l.Tenant + "/" + l.Namespace + "/" + l.Stream
}

// LockName is the file in a data directory that a broker holds a lock on while it runs.
const LockName = "LOCK"

// LockDataDir takes the lock of a data directory for a command that works offline. With write it is
// made when it is missing, as a broker does. Without, nothing is written: where it is missing or may
// not be opened (a copy, a read-only file system) the closer is nil and why says so. ring.ErrLocked when a
// broker runs on the directory.
func LockDataDir(fs ring.FS, dir string, write bool) (lock io.Closer, why string, err error) {
	name := filepath.Join(dir, LockName)
	if !write {
		if _, err := fs.Stat(name); errors.Is(err, ring.ErrNotExist) {
			return nil, "it has no " + LockName + " file, so it looks like a copy", nil
		}
	}
	lock, err = fs.Lock(name)
	switch {
	case err == nil:
		return lock, "", nil
	case !write && (errors.Is(err, ring.ErrReadOnly) || errors.Is(err, ring.ErrPermission)):
		return nil, "its " + LockName + " file cannot be opened for writing", nil
	}
	return nil, "", fmt.Errorf("core: lock data directory %s: %w", dir, err)
}

// StoredLogs lists the logs of a data directory by its catalogue, opened for reading only, and by
// the directories that are there, sorted by name, id and shard. A catalogue that cannot be read is
// told in catalogue and the logs are listed by their ids; err is a directory that cannot be.
func StoredLogs(fs ring.FS, dataDir string) (logs []StoredLog, catalogue, err error) {
	rows, catalogue := readStreams(dataDir)
	known := make(map[uint64]*streamRow, len(rows))
	for i := range rows {
		known[rows[i].ID] = &rows[i]
	}
	root := streamsDir(dataDir)
	ids, err := fs.ReadDir(root)
	if err != nil && !errors.Is(err, ring.ErrNotExist) {
		return nil, catalogue, fmt.Errorf("core: list streams' files: %w", err)
	}
	for _, name := range ids {
		id, err := strconv.ParseUint(name, 16, 64)
		if err != nil || streamDirName(id) != name {
			continue
		}
		shards, err := fs.ReadDir(filepath.Join(root, name))
		if err != nil {
			return nil, catalogue, fmt.Errorf("core: list the files of stream %s: %w", name, err)
		}
		row, found := known[id], make(map[uint32]bool)
		for _, s := range shards {
			n, err := strconv.ParseUint(s, 10, 32)
			if err != nil || shardDirName(uint32(n)) != s {
				continue
			}
			found[uint32(n)] = true
			logs = append(logs, storedLog(filepath.Join(root, name, s), id, uint32(n), row))
		}
		if row != nil {
			logs = append(logs, missingShards(filepath.Join(root, name), row, found)...)
			delete(known, id)
		}
	}
	for id, row := range known {
		if row.Durable {
			logs = append(logs, missingShards(filepath.Join(root, streamDirName(id)), row, nil)...)
		}
	}
	slices.SortFunc(logs, func(a, b StoredLog) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Shard, b.Shard))
	})
	return logs, catalogue, nil
}

func storedLog(dir string, id uint64, shard uint32, row *streamRow) StoredLog {
	l := StoredLog{Dir: dir, ID: id, Shard: shard}
	if row != nil {
		l.Tenant, l.Namespace, l.Stream, l.Fsync = row.Tenant, row.Namespace, row.Stream, row.Fsync
	}
	return l
}

func missingShards(dir string, row *streamRow, found map[uint32]bool) []StoredLog {
	var out []StoredLog
	for n := range max(1, row.Shards) {
		if !found[n] {
			l := storedLog(filepath.Join(dir, shardDirName(n)), row.ID, n, row)
			l.Missing = true
			out = append(out, l)
		}
	}
	return out
}

// readStreams reads the stream rows of DATA/meta.db without writing to it.
func readStreams(dataDir string) (rows []streamRow, err error) {
	name := filepath.Join(dataDir, "meta.db")
	// bbolt panics on pages that do not hold together. Whoever looks at a damaged disk must still be able
	// to see the logs.
	defer func() {
		if r := recover(); r != nil {
			rows, err = nil, fmt.Errorf("core: read catalogue %s: damaged: %v", name, r)
		}
	}()
	// A broker that runs has it locked; whoever holds the directory's lock does not wait.
	db, err := bbolt.Open(name, 0o400, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("core: read catalogue %s: %w", name, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketMeta) == nil || tx.Bucket(bucketStreams) == nil {
			return errIncomplete
		}
		if err := checkVersion(tx); err != nil {
			return err
		}
		var err error
		rows, err = streamRows(tx)
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, fmt.Errorf("core: read catalogue %s: %w", name, err)
	}
	return rows, nil
}
