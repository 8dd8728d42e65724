package core

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/ringcast/ringcast/ring"
)

// sweep removes the files of streams that the catalogue does not know, before anything is served:
// a crash came between a stream's row and its files, when it was deleted or could not be made. A row
// is written before the first file and removed before the last, so that such files belong to nobody.
//
// Files with an id that the catalogue has not given out yet are another matter: the catalogue was
// lost, or put back from a copy that is older than they are. Nothing is removed or served then,
// since the next streams would get those ids, and with them other people's records.
func (b *Broker) sweep(rows []streamRow) error {
	if b.opts.DataDir == "" {
		return nil
	}
	dir := streamsDir(b.opts.DataDir)
	names, err := b.opts.FS.ReadDir(dir)
	if errors.Is(err, ring.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("core: list streams' files: %w", err)
	}
	known := make(map[uint64]bool, len(rows))
	for i := range rows {
		known[rows[i].ID] = true
	}
	next, err := b.cat.next()
	if err != nil {
		return err
	}
	var orphans []uint64
	for _, name := range names {
		id, err := strconv.ParseUint(name, 16, 64)
		if err != nil || streamDirName(id) != name || known[id] {
			continue // not ours to judge, or in use
		}
		if id >= next {
			return fmt.Errorf("core: %s holds files of a stream that the catalogue does not know yet: "+
				"meta.db was lost or is older than logs; put the right meta.db back, or move logs away", filepath.Join(dir, name))
		}
		orphans = append(orphans, id)
	}
	for _, id := range orphans {
		if err := b.opts.FS.RemoveAll(b.streamDir(id)); err != nil {
			b.opts.Logger.Warn("files of a deleted stream remain until the next start", "id", id, "err", err)
			continue
		}
		b.opts.Logger.Info("removed the files of a deleted stream", "id", id)
	}
	return nil
}
