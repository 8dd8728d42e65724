package netio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/ringcast/ringcast/wire"
)

func frame(flags wire.Flags, body []byte) []byte {
	return append(wire.AppendHeader(nil, flags, len(body)), body...)
}

// pattern is n bytes that show when a part is moved or lost.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// slowReader gives at most n bytes per read.
type slowReader struct {
	r io.Reader
	n int
}

func (s slowReader) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

// Whatever the sizes of frames and of reads: the same frames come out, in order, whole, and nothing
// stays with the reader.
func TestFramesComeOutWholeAndInOrder(t *testing.T) {
	sizes := []int{0, 1, 11, 12, 13, 300, 4083, 4084, 4085, 4096, 8192, 65535, 65536, 65537, 256 << 10, 256<<10 + 1, 1 << 20, 0, 5}
	var stream []byte
	for i, n := range sizes {
		stream = append(stream, frame(wire.Flags(i), pattern(n))...)
	}
	readers := map[string]func(io.Reader) io.Reader{
		"as much as fits": func(r io.Reader) io.Reader { return r },
		"packets":         func(r io.Reader) io.Reader { return slowReader{r, 1252} },
		"7 bytes":         func(r io.Reader) io.Reader { return slowReader{r, 7} },
		"half":            iotest.HalfReader,
		"data with EOF":   iotest.DataErrReader,
	}
	for name, wrap := range readers {
		t.Run(name, func(t *testing.T) {
			pool := wire.NewPool(1 << 20)
			fr := NewFrameReader(wrap(bytes.NewReader(stream)), pool)
			fr.SetMax(wire.MaxFrameBytes)
			for i, n := range sizes {
				h, b, err := fr.Next()
				if err != nil {
					t.Fatalf("frame %d of %d bytes: %v", i, n, err)
				}
				if h.Flags != wire.Flags(i) || int(h.Length) != n || !bytes.Equal(b.Bytes(), pattern(n)) {
					t.Fatalf("frame %d: flags %d, length %d, %d bytes, want %d", i, h.Flags, h.Length, b.Len(), n)
				}
				b.Release()
			}
			for range 2 {
				if _, _, err := fr.Next(); err != io.EOF {
					t.Fatalf("at the end: %v", err)
				}
			}
			if n := pool.Stats().InUse; n != 0 {
				t.Fatalf("%d Bufs not given back", n)
			}
		})
	}
}

// What a reader says about bytes that are no frame, and that it keeps no memory for them.
func TestBadFrameBytesAreNamed(t *testing.T) {
	good := frame(0, []byte("{}"))
	alter := func(at int, v byte) []byte { b := bytes.Clone(good); b[at] = v; return b }
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		bytes []byte
		after error // what the stream says at its end; nil = EOF
		want  error
	}{
		{"nothing", nil, nil, io.EOF},
		{"magic", alter(0, 'X'), nil, wire.ErrMagic},
		{"version", alter(5, 2), nil, wire.ErrVersion},
		{"half a header", good[:7], nil, io.ErrUnexpectedEOF},
		{"header only", good[:12], nil, io.ErrUnexpectedEOF},
		{"half a body", good[:13], nil, io.ErrUnexpectedEOF},
		{"half a large body", frame(0, pattern(60000))[:40000], nil, io.ErrUnexpectedEOF},
		{"stream breaks at once", nil, broken, broken},
		{"stream breaks in a header", good[:5], broken, broken},
		{"stream breaks in a body", good[:13], broken, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r io.Reader = bytes.NewReader(c.bytes)
			if c.after != nil {
				r = io.MultiReader(r, iotest.ErrReader(c.after))
			}
			pool := wire.NewPool(1 << 20)
			fr := NewFrameReader(r, pool)
			_, _, err := fr.Next()
			if !errors.Is(err, c.want) {
				t.Fatalf("err = %v, want %v", err, c.want)
			}
			if _, _, again := fr.Next(); again != err {
				t.Fatalf("the second call says %v", again)
			}
			if n := pool.Stats().InUse; n != 0 {
				t.Fatalf("%d Bufs not given back", n)
			}
		})
	}
}

// A frame above the bound ends the stream on its header, with nothing reserved; the bound is the
// caller's (OPS-1).
func TestOversizedFrameIsRefusedOnItsHeader(t *testing.T) {
	for _, c := range []struct {
		length, max uint32
		ok          bool
	}{
		{wire.PreauthMaxFrameBytes, 0, true},
		{wire.PreauthMaxFrameBytes + 1, 0, false},
		{1<<32 - 1, 0, false},
		{1 << 31, wire.MaxFrameBytes, false},
		{wire.MaxFrameBytes, wire.MaxFrameBytes, true},
		{wire.MaxFrameBytes + 1, wire.MaxFrameBytes, false},
	} {
		pool := wire.NewPool(1 << 20)
		h := wire.AppendHeader(nil, 0, 0)
		binary.BigEndian.PutUint32(h[8:], c.length)
		fr := NewFrameReader(bytes.NewReader(h), pool)
		want := uint32(wire.PreauthMaxFrameBytes)
		if c.max != 0 {
			fr.SetMax(c.max)
			want = c.max
		}
		_, _, err := fr.Next()
		tooLarge, is := errors.AsType[*FrameTooLargeError](err)
		if c.ok {
			if is || err != io.ErrUnexpectedEOF {
				t.Fatalf("length %d of %d: %v", c.length, want, err)
			}
			continue
		}
		if !is || tooLarge.Length != c.length || tooLarge.Max != want {
			t.Fatalf("length %d of %d: %v", c.length, want, err)
		}
		if gets := pool.Stats().Gets; gets != 0 {
			t.Fatalf("length %d: %d Bufs were taken", c.length, gets)
		}
	}
}

// allocBound is what a reader may reserve for a body of which arrived bytes came (OPS-9), given that
// the pool rounds up to its next size class.
func allocBound(arrived int) int64 {
	n := max(frameReserveMax, frameGrowthMax*arrived)
	return int64(n+n/2) + wire.Headroom + 64<<10
}

// spy is a stream that measures what the reader holds each time it asks for more.
type spy struct {
	data []byte
	step int
	pool *wire.Pool
	sent int
	bad  string
}

func (s *spy) Read(p []byte) (int, error) {
	if held, most := s.pool.Stats().InUseBytes, allocBound(s.sent); held > most && s.bad == "" {
		s.bad = "held too much"
	}
	if s.sent == len(s.data) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.data[s.sent:])
	s.sent += n
	return n, nil
}

// 2000 headers that announce 16 MiB reserve nothing beyond 64 KiB each, and a growing body never more
// than four times what came (BUG-22, OPS-9, HZ-44).
func TestMemoryFollowsArrivingBytes(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	header := wire.AppendHeader(nil, 0, wire.MaxFrameBytes)
	held := int64(0)
	for range 2000 {
		fr := NewFrameReader(bytes.NewReader(header), pool)
		fr.SetMax(wire.MaxFrameBytes)
		s := &spy{data: header, step: 12, pool: pool}
		fr.r = s
		if _, _, err := fr.Next(); err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
		if s.bad != "" {
			t.Fatal(s.bad)
		}
		held = max(held, pool.Stats().InUseBytes)
	}
	if held != 0 {
		t.Fatalf("%d bytes still held", held)
	}
	for _, n := range []int{1, 65536, 65537, 300000, 1 << 20, 5 << 20, 16 << 20} {
		s := &spy{data: frame(0, pattern(n)), step: 1200, pool: pool}
		fr := NewFrameReader(s, pool)
		fr.SetMax(wire.MaxFrameBytes)
		_, b, err := fr.Next()
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		if s.bad != "" {
			t.Fatalf("%d bytes: %s", n, s.bad)
		}
	}
}

// Steady state allocates nothing per frame.
func TestFrameReadingDoesNotAllocate(t *testing.T) {
	pool := wire.NewPool(1 << 20)
	stream := bytes.Repeat(frame(wire.FlagPublish, pattern(300)), 64)
	r := bytes.NewReader(stream)
	fr := NewFrameReader(r, pool)
	allocs := testing.AllocsPerRun(50, func() {
		r.Reset(stream)
		for range 64 {
			_, b, err := fr.Next()
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
	})
	if allocs != 0 && !poisoning() {
		t.Fatalf("%v allocations per 64 frames", allocs)
	}
}

// Any bytes, cut anywhere: no panic; the frames that come out are those that a parser of the whole
// would find; memory stays within the bound.
func FuzzFrameReader(f *testing.F) {
	f.Add([]byte{}, uint16(1), uint32(100))
	f.Add(frame(0, []byte(`{"type":"auth"}`)), uint16(5), uint32(65536))
	f.Add(slices.Concat(frame(1, pattern(700)), frame(2, nil), frame(0x8000, pattern(3))), uint16(64), uint32(1<<20))
	f.Add(wire.AppendHeader(nil, 0, 16<<20), uint16(12), uint32(16<<20))
	f.Add([]byte("FLX1\x00\x01\x00\x00\xff\xff\xff\xff"), uint16(3), uint32(1<<24))
	f.Fuzz(func(t *testing.T, data []byte, step uint16, most uint32) {
		pool := wire.NewPool(1 << 20)
		s := &spy{data: data, step: int(step)%4096 + 1, pool: pool}
		fr := NewFrameReader(s, pool)
		fr.SetMax(most)
		rest := data
		for {
			h, b, err := fr.Next()
			if err != nil {
				break
			}
			want := frame(h.Flags, b.Bytes())
			if !bytes.HasPrefix(rest, want) {
				t.Fatalf("a frame of %d bytes that is not in the stream", b.Len())
			}
			rest = rest[len(want):]
			b.Release()
		}
		if s.bad != "" {
			t.Fatal(s.bad)
		}
		if n := pool.Stats().InUse; n != 0 {
			t.Fatalf("%d Bufs not given back", n)
		}
		if h, err := wire.ParseHeader(rest); err == nil && h.Length <= most && int(h.Length) <= len(rest)-wire.HeaderSize {
			t.Fatalf("a whole frame of %d bytes was left", h.Length)
		}
	})
}
