// Hot path.

package netio

import (
	"fmt"
	"io"

	"github.com/ringcast/ringcast/wire"
)

// FrameTooLargeError: a header announced more than the reader's bound. Nothing was reserved.
type FrameTooLargeError struct {
	Length, Max uint32
}

func (e *FrameTooLargeError) Error() string {
	return fmt.Sprintf("netio: frame of %d bytes, at most %d allowed", e.Length, e.Max)
}

// FrameReader cuts a stream into frames (wire.md 2.1). Each body lies in one Buf. One goroutine.
//
// Nothing is reserved on a header's word: at most 64 KiB at first, then at most four times what has
// arrived (OPS-1, OPS-9). So a 256 KiB body moves its first 64 KiB once, and one up to 64 KiB never
// moves. Up to 4 KiB are read ahead: small frames then come out of one read of the stream by the dozen,
// for a copy of their bytes; of a large body only its first bytes are copied.
type FrameReader struct {
	r    io.Reader
	pool *wire.Pool
	max  uint32

	ahead    []byte // read and not yet used: ahead[from:to]
	from, to int
	err      error // what ended the stream; every later Next returns it
}

// NewFrameReader reads frames from r. The bound is wire.PreauthMaxFrameBytes until SetMax.
func NewFrameReader(r io.Reader, pool *wire.Pool) *FrameReader {
	return &FrameReader{r: r, pool: pool, max: wire.PreauthMaxFrameBytes, ahead: make([]byte, frameAheadLen)}
}

// SetMax bounds the bodies of the frames from the next one on.
func (f *FrameReader) SetMax(n uint32) { f.max = n }

// Next returns the next frame. The caller owns the Buf, whose Bytes are the body.
//
// io.EOF means that the stream ended between two frames, io.ErrUnexpectedEOF within one. Other errors:
// wire.ErrMagic, wire.ErrVersion, *FrameTooLargeError, the stream's own. They are final.
func (f *FrameReader) Next() (wire.Header, *wire.Buf, error) {
	if f.err != nil {
		return wire.Header{}, nil, f.err
	}
	h, err := f.header()
	if err == nil {
		var b *wire.Buf
		if b, err = f.body(int(h.Length)); err == nil {
			return h, b, nil
		}
	}
	f.err = err
	return wire.Header{}, nil, err
}

func (f *FrameReader) header() (wire.Header, error) {
	if f.to-f.from < wire.HeaderSize {
		f.to = copy(f.ahead, f.ahead[f.from:f.to])
		f.from = 0
		n, err := readSome(f.r, f.ahead[f.to:], wire.HeaderSize-f.to)
		f.to += n
		if err != nil {
			if err == io.EOF && f.to > 0 {
				err = io.ErrUnexpectedEOF
			}
			return wire.Header{}, err
		}
	}
	h, err := wire.ParseHeader(f.ahead[f.from:f.to])
	if err != nil {
		return h, err
	}
	if h.Length > f.max {
		return h, &FrameTooLargeError{Length: h.Length, Max: f.max}
	}
	f.from += wire.HeaderSize
	return h, nil
}

func (f *FrameReader) body(length int) (*wire.Buf, error) {
	b := f.pool.Get(min(length, frameReserveMax))
	have := copy(b.Bytes(), f.ahead[f.from:f.to])
	f.from += have
	for have < length {
		if have == b.Len() {
			larger := f.pool.Get(min(length, frameGrowthMax*have))
			copy(larger.Bytes(), b.Bytes())
			b.Release()
			b = larger
		}
		n, err := readSome(f.r, b.Bytes()[have:], b.Len()-have)
		have += n
		if err != nil {
			b.Release()
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}

// readSome reads at least least bytes, and whatever else there is at that moment. Its error is nil
// when least was reached: a stream's error comes again with the next read.
func readSome(r io.Reader, p []byte, least int) (n int, err error) {
	for idle := 0; n < least && err == nil; {
		var m int
		m, err = r.Read(p[n:])
		n += m
		if m > 0 {
			idle = 0
		} else if idle++; idle == 100 && err == nil {
			err = io.ErrNoProgress
		}
	}
	if n >= least {
		err = nil
	}
	return n, err
}
