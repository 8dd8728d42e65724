package log

import (
	"encoding/binary"
	"io"
	"os"
	"sort"

	"github.com/ringcast/ringcast/ring"
)

const (
	indexMagic   = 0x52434958 // "RCIX"
	indexVersion = 1
)

// indexEntry says that the entry whose first record is base starts at pos. There is one for the
// first entry of a segment and one for the first entry that starts IndexSpacing bytes or more
// after the last one that has one. An index is a hint: whoever follows it verifies what he finds.
type indexEntry struct {
	base uint64
	pos  int64
}

func appendIndexHeader(dst []byte, base uint64) []byte {
	dst = binary.BigEndian.AppendUint32(dst, indexMagic)
	dst = binary.BigEndian.AppendUint16(dst, indexVersion)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, base)
	return binary.BigEndian.AppendUint64(dst, 0)
}

func appendIndexEntry(dst []byte, e indexEntry) []byte {
	dst = binary.BigEndian.AppendUint64(dst, e.base)
	return binary.BigEndian.AppendUint64(dst, uint64(e.pos))
}

func decodeIndexEntry(b []byte) indexEntry {
	return indexEntry{base: binary.BigEndian.Uint64(b), pos: int64(binary.BigEndian.Uint64(b[8:]))}
}

// checkIndexHeader says whether b starts an index file of the segment with this base.
func checkIndexHeader(b []byte, base uint64) bool {
	return len(b) >= indexHeaderBytes && binary.BigEndian.Uint32(b) == indexMagic &&
		binary.BigEndian.Uint16(b[4:]) == indexVersion && binary.BigEndian.Uint16(b[6:]) == 0 &&
		binary.BigEndian.Uint64(b[8:]) == base && binary.BigEndian.Uint64(b[16:]) == 0
}

// index finds the position from which to look for an offset. Implementations: memIndex while the
// segment is written, indexFile afterwards.
type index interface {
	len() int
	at(i int) (indexEntry, error)
}

// seek returns the last entry of x at or below offset, false when there is none or x cannot be
// read.
func seek(x index, offset uint64) (indexEntry, bool) {
	var failed error
	i := sort.Search(x.len(), func(i int) bool {
		e, err := x.at(i)
		if err != nil {
			failed = err
		}
		return e.base > offset
	})
	if i == 0 || failed != nil {
		return indexEntry{}, false
	}
	e, err := x.at(i - 1)
	return e, err == nil
}

// indexFile is the index of a sealed segment on the disk.
type indexFile struct {
	f ring.File
	n int
}

// openIndexFile opens the index at name; a torn last entry is ignored.
func openIndexFile(fs ring.FS, name string, base uint64) (*indexFile, error) {
	f, err := fs.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	var head [indexHeaderBytes]byte
	n := 0
	size, err := f.Size()
	if err == nil {
		n, err = readFull(f, head[:], 0)
	}
	if err != nil || !checkIndexHeader(head[:n], base) {
		f.Close()
		return nil, err
	}
	return &indexFile{f: f, n: int((size - indexHeaderBytes) / indexEntryBytes)}, nil
}

func (x *indexFile) len() int { return x.n }

func (x *indexFile) at(i int) (indexEntry, error) {
	var b [indexEntryBytes]byte
	n, err := readFull(x.f, b[:], indexHeaderBytes+int64(i)*indexEntryBytes)
	if err != nil {
		return indexEntry{}, err
	}
	if n < len(b) {
		return indexEntry{}, io.ErrUnexpectedEOF
	}
	return decodeIndexEntry(b[:]), nil
}

// writeIndexFile writes the index of a segment. It is not synced: a lost one is rebuilt.
func writeIndexFile(fs ring.FS, name string, base uint64, x index) error {
	f, err := fs.Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	b := appendIndexHeader(make([]byte, 0, indexBuffer(x.len())), base)
	var pos int64
	for i := 0; i < x.len() && err == nil; i++ {
		var e indexEntry
		if e, err = x.at(i); err != nil {
			break
		}
		if b = appendIndexEntry(b, e); len(b) > cap(b)-indexEntryBytes {
			err = writeFull(f, b, pos)
			pos += int64(len(b))
			b = b[:0]
		}
	}
	if err == nil {
		err = writeFull(f, b, pos)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// indexBuffer is the memory to write or read an index of n entries with.
func indexBuffer(n int) int { return min(64<<10, indexHeaderBytes+(n+1)*indexEntryBytes) }

// indexMatches says whether the file at name is the index x, byte for byte.
func indexMatches(fs ring.FS, name string, base uint64, x index) bool {
	f, err := fs.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size != indexHeaderBytes+int64(x.len())*indexEntryBytes {
		return false
	}
	var head [indexHeaderBytes]byte
	if n, err := readFull(f, head[:], 0); err != nil || !checkIndexHeader(head[:n], base) {
		return false
	}
	b := make([]byte, indexBuffer(x.len()))
	i := 0
	for pos := int64(indexHeaderBytes); pos < size; {
		n, err := readFull(f, b, pos)
		if err != nil || n < indexEntryBytes {
			return false
		}
		n -= n % indexEntryBytes
		for j := 0; j < n; j += indexEntryBytes {
			want, err := x.at(i)
			if err != nil || decodeIndexEntry(b[j:]) != want {
				return false
			}
			i++
		}
		pos += int64(n)
	}
	return i == x.len()
}

// readFull reads until b is full or the file ends; the end is no error.
func readFull(f io.ReaderAt, b []byte, pos int64) (int, error) {
	done := 0
	for done < len(b) {
		n, err := f.ReadAt(b[done:], pos+int64(done))
		done += n
		if err == io.EOF { //nolint:errorlint // ring hands the bare io.EOF through
			return done, nil
		}
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.ErrNoProgress
		}
	}
	return done, nil
}

// writeFull writes all of b, going on after short writes.
func writeFull(f io.WriterAt, b []byte, pos int64) error {
	for len(b) > 0 {
		n, err := f.WriteAt(b, pos)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		b, pos = b[n:], pos+int64(n)
	}
	return nil
}
