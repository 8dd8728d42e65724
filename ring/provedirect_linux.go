package ring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// proveDirect lets the file system of dir show that it takes direct writes as OpWriteDirect makes
// them: it is asked for the alignment it needs, then two blocks are written at the end of a scratch
// file, read back through the page cache, and one of them is overwritten and read again (HZ-20).
//
// An error with ErrNoSpace or ErrReadOnly says that there was no room to find out.
func proveDirect(e Engine, dir string) error {
	f, err := os.CreateTemp(dir, ".ring-proof-*")
	if err != nil {
		return fmt.Errorf("direct write proof: %w", Classify("open", dir, err))
	}
	defer f.Close()
	d, err := OS().OpenDirect(f.Name(), true)
	if rerr := os.Remove(f.Name()); err == nil && rerr != nil {
		d.Close()
		err = Classify("remove", f.Name(), rerr)
	}
	if errors.Is(err, ErrUnsupported) {
		return noDirect(err)
	}
	if err != nil {
		return fmt.Errorf("direct write proof: %w", err)
	}
	defer d.Close()
	if err := directAlignment(d.Fd()); err != nil {
		return noDirect(err)
	}
	blocks := AlignedBytes(2 * DirectAlign)
	for _, w := range []struct {
		fill byte
		off  int
		vec  [][]byte
	}{
		{'1', 0, [][]byte{blocks[:DirectAlign], blocks[DirectAlign:]}}, // behind the end: the file grows
		{'2', DirectAlign, [][]byte{blocks[DirectAlign:]}},             // over what is there
	} {
		for _, b := range w.vec {
			copy(b, bytes.Repeat([]byte{w.fill}, len(b)))
		}
		if err := proveDirectWrite(e, d, int64(w.off), w.vec); err != nil {
			return err
		}
		got := make([]byte, len(blocks))
		if _, err := f.ReadAt(got, 0); err != nil && err != io.EOF { //nolint:errorlint // an end too early is a difference
			return fmt.Errorf("direct write proof: %w", Classify("read", f.Name(), err))
		}
		if !bytes.Equal(got, blocks) {
			return noDirect(&Error{Op: "direct write proof", Path: dir, Class: ErrIO, Err: errUntrusted})
		}
	}
	return nil
}

func proveDirectWrite(e Engine, d File, off int64, vec [][]byte) error {
	ended := make(chan struct{})
	op := &Op{Kind: OpWriteDirect, File: d, Off: off, Vec: vec, Owner: ownerFunc(func(*Op) { close(ended) })}
	e.Submit([]*Op{op})
	if err := answered(ended, proofWaitMax); err != nil {
		return fmt.Errorf("direct write proof: %w", err)
	}
	switch {
	case op.Err == nil && op.Written == vecLen(vec):
		return nil
	case op.Err == nil:
		return noDirect(&Error{Op: "direct write proof", Class: ErrIO, Err: errUntrusted})
	case errors.Is(op.Err, unix.EINVAL) || errors.Is(op.Err, ErrUnsupported):
		return noDirect(op.Err)
	}
	return refuse(fmt.Errorf("direct write proof: %w", op.Err))
}

func noDirect(err error) error {
	return refusedError{&Error{Op: "direct write proof", Class: ErrUnsupported, Err: fmt.Errorf("%w: %w", errNoDirect, err)}}
}

// directAlignment asks what direct writes to an open file must be aligned to. A kernel that does not
// know leaves the answer to the write itself.
func directAlignment(fd uintptr) error {
	var st unix.Statx_t
	if err := unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil {
		return nil //nolint:nilerr // an old kernel, or a filter: see above
	}
	return judgeAlignment(&st)
}

func judgeAlignment(st *unix.Statx_t) error {
	mem, off := st.Dio_mem_align, st.Dio_offset_align
	switch {
	case st.Mask&unix.STATX_DIOALIGN == 0:
		return nil
	case mem == 0 || off == 0:
		return &Error{Op: "statx", Class: ErrUnsupported, Err: unix.EOPNOTSUPP}
	case DirectAlign%mem != 0 || DirectAlign%off != 0:
		return &Error{Op: "statx", Class: ErrUnsupported, Err: fmt.Errorf("the disk asks for memory aligned to %d and offsets to %d: %w", mem, off, unix.EOPNOTSUPP)}
	}
	return nil
}
