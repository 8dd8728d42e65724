package log

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcast/ringcast/ring"
)

// backupNote is the file that says what a backup is of.
const backupNote = "repair.txt"

// save copies what the repair will cut or remove, and a note of its steps, to dir, and makes the copies
// durable before anything is changed. When it does not come to its end what it has copied goes again.
func (r *Repair) save(ctx context.Context, fs ring.FS, dir string, progress func(n int64)) (err error) {
	if _, err := fs.Stat(dir); err == nil {
		return fmt.Errorf("log: backup %s exists already: name another directory", dir)
	} else if !isNotExist(err) {
		return fmt.Errorf("log: backup: %w", err)
	}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("log: backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.RemoveAll(dir))
		}
	}()
	buf := make([]byte, backupBufferBytes)
	for _, name := range r.Saved {
		if err := copyFile(ctx, fs, filepath.Join(r.dir, name), filepath.Join(dir, name), buf, progress); err != nil {
			return fmt.Errorf("log: backup of %s: %w", name, err)
		}
	}
	if err := writeNew(fs, filepath.Join(dir, backupNote), []byte(r.note())); err != nil {
		return fmt.Errorf("log: backup: %w", err)
	}
	if err := fs.SyncDir(dir); err != nil {
		return fmt.Errorf("log: backup: %w", err)
	}
	return nil
}

// note is the text of backupNote.
func (r *Repair) note() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Files of %s (shard %d) as they were before a repair.\n", r.dir, r.shard)
	if d := r.Damage; d != nil {
		fmt.Fprintf(&b, "Damage: segment %d, byte %d: %s\n", d.Segment, d.Pos, d.What)
	}
	if l := r.Loss; l != nil {
		fmt.Fprintf(&b, "Dropped: offsets %d to %d (excluded), %d bytes.\n", l.First, l.Next, l.Bytes)
	}
	b.WriteString("Steps:\n")
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	b.WriteString("To undo it: stop the broker, remove the segments from the first of these numbers on, and put these files in\ntheir place. What was appended since is lost then.\n")
	return b.String()
}

// copyFile makes a synced copy, by way of b. A source that is gone is no error: an unlink that was cut short.
func copyFile(ctx context.Context, fs ring.FS, from, to string, b []byte, progress func(n int64)) (err error) {
	src, err := fs.Open(from, os.O_RDONLY, 0)
	if err != nil {
		if isNotExist(err) {
			return nil
		}
		return err
	}
	defer src.Close()
	dst, err := fs.Open(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	for pos := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := readFull(src, b, pos)
		if err != nil {
			return err
		}
		if n == 0 {
			return dst.Sync()
		}
		if err := writeFull(dst, b[:n], pos); err != nil {
			return err
		}
		pos += int64(n)
		if progress != nil {
			progress(int64(n))
		}
	}
}

func writeNew(fs ring.FS, name string, b []byte) error {
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	err = writeFull(f, b, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
