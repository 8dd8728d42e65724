package ring

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// direct makes an empty file and opens it for direct writes as well.
func direct(t testing.TB, dir string) (direct, buffered File) {
	t.Helper()
	buffered = create(t, filepath.Join(dir, "direct"))
	direct, err := OS().OpenDirect(buffered.Name(), true)
	if errors.Is(err, ErrUnsupported) {
		t.Skipf("no direct writes in the directory for temporary files: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { direct.Close() })
	return direct, buffered
}

// blocks is aligned memory filled with one byte.
func blocks(n int, fill byte) []byte {
	b := AlignedBytes(n * DirectAlign)
	copy(b, bytes.Repeat([]byte{fill}, len(b)))
	return b
}

// Every engine carries out direct writes: new ones, over others, gathered, more slices than one call
// takes, and none at all; and each counts as a sync.
func TestDirectWritesDoWhatTheySay(t *testing.T) {
	eachEngine(t, 4, func(t *testing.T, e Engine) {
		if e.Direct() != (e.Name() == URingDirect) {
			t.Errorf("%s: Direct() = %v", e.Name(), e.Direct())
		}
		d, f := direct(t, t.TempDir())
		var want []byte
		before := e.Stats().Syncs
		for i, c := range []struct {
			block int
			vec   [][]byte
		}{
			{0, [][]byte{blocks(1, 'a')}},
			{1, [][]byte{blocks(2, 'b'), nil, blocks(1, 'c'), {}}},
			{1, [][]byte{blocks(1, 'd')}},
			{6, [][]byte{blocks(3, 'e')}},
			{0, nil},
			{2, slicesOf(2*MaxVec + 3)},
		} {
			op := &Op{Kind: OpWriteDirect, File: d, Off: int64(c.block) * DirectAlign, Vec: c.vec, Err: errLeftOver, Written: 99}
			do(t, e, op)
			if op.Err != nil || op.Written != vecLen(c.vec) {
				t.Fatalf("operation %d: %v, %d of %d bytes", i, op.Err, op.Written, vecLen(c.vec))
			}
			if end := int(op.Off + op.Written); end > len(want) {
				want = append(want, make([]byte, end-len(want))...)
			}
			copy(want[op.Off:], bytes.Join(c.vec, nil))
		}
		if !bytes.Equal(content(t, f), want) {
			t.Error("the file differs")
		}
		if s := e.Stats(); s.Syncs-before != 6 || s.Errors != 0 {
			t.Errorf("stats %+v", s)
		}
		// The other kinds go on working on the same descriptor.
		for _, kind := range []OpKind{OpWrite, OpWriteSync, OpSync} {
			op := &Op{Kind: kind, File: d, Off: DirectAlign, Vec: [][]byte{blocks(1, 'z')}}
			if kind == OpSync {
				op.Vec = nil
			}
			if do(t, e, op); op.Err != nil || op.Written != vecLen(op.Vec) {
				t.Errorf("kind %d: %v, %d bytes", kind, op.Err, op.Written)
			}
		}
	})
}

// slicesOf is n blocks, each a slice of its own with a byte of its own.
func slicesOf(n int) (vec [][]byte) {
	all := AlignedBytes(n * DirectAlign)
	for i := range n {
		b := all[i*DirectAlign : (i+1)*DirectAlign]
		copy(b, bytes.Repeat([]byte{byte(i), byte(i >> 8)}, DirectAlign/2))
		vec = append(vec, b)
	}
	return vec
}

// HZ-20: what is not aligned, or on a file that would take the bytes without syncing them, is refused
// by every engine alike, whatever this disk would let pass.
func TestDirectWritesThatAreNoneAreRefused(t *testing.T) {
	eachEngine(t, 4, func(t *testing.T, e Engine) {
		dir := t.TempDir()
		d, f := direct(t, dir)
		unsynced, err := OS().OpenDirect(f.Name(), false)
		if err != nil {
			t.Fatal(err)
		}
		defer unsynced.Close()
		two := blocks(2, 'x')
		for what, op := range map[string]*Op{
			"offset":           {File: d, Off: 512, Vec: [][]byte{two}},
			"length":           {File: d, Vec: [][]byte{two[:DirectAlign+512]}},
			"memory":           {File: d, Vec: [][]byte{two[512 : 512+DirectAlign]}},
			"slices, not sum":  {File: d, Vec: [][]byte{two[:512], two[512:DirectAlign]}},
			"a buffered file":  {File: f, Vec: [][]byte{two}},
			"without its sync": {File: unsynced, Vec: [][]byte{two}},
		} {
			op.Kind = OpWriteDirect
			if do(t, e, op); !errors.Is(op.Err, syscall.EINVAL) || !errors.Is(op.Err, ErrIO) || op.Written != 0 {
				t.Errorf("%s: %v, %d bytes", what, op.Err, op.Written)
			}
		}
		if got := content(t, f); len(got) != 0 {
			t.Errorf("%d bytes were written", len(got))
		}
		op := &Op{Kind: OpWriteDirect, File: d, Vec: [][]byte{two}}
		if do(t, e, op); op.Err != nil {
			t.Errorf("after that: %v", op.Err)
		}
	})
}

// methodFile is a file without a descriptor that takes so many bytes of each call; more than asked
// for is all of them. After its last it fails.
type methodFile struct {
	File
	takes []int
	data  []byte
	syncs int
}

func (f *methodFile) Fd() uintptr  { return ^uintptr(0) }
func (f *methodFile) Name() string { return "method" }

func (f *methodFile) Sync() error {
	f.syncs++
	return nil
}

func (f *methodFile) WriteAt(p []byte, off int64) (int, error) {
	if len(f.takes) == 0 {
		return 0, syscall.EIO
	}
	n := min(f.takes[0], len(p))
	f.takes = f.takes[1:]
	if n < 0 {
		return len(p), syscall.EIO // all of it, and an error
	}
	if need := int(off) + n; need > len(f.data) {
		f.data = append(f.data, make([]byte, need-len(f.data))...)
	}
	copy(f.data[off:], p[:n])
	return n, nil
}

// HZ-4, HZ-21: files without a descriptor. A short direct write goes on where the next one may
// begin, and nowhere else; a failed one never looks as if only a sync had failed.
func TestShortDirectWritesGoOnOnlyWhereOneMayBegin(t *testing.T) {
	const block = DirectAlign
	for _, c := range []struct {
		what    string
		takes   []int
		want    error
		written int64
	}{
		{"whole, in one call", []int{9 * block}, nil, 3 * block},
		{"short by a block", []int{block, block, block}, nil, 3 * block},
		{"short by a byte", []int{3*block - 1}, io.ErrShortWrite, 3*block - 1},
		{"short by a sector", []int{block + 512}, io.ErrShortWrite, block + 512},
		{"nothing", []int{0}, io.ErrShortWrite, 0},
		{"failed after two blocks", []int{2 * block}, syscall.EIO, 2 * block},
		{"failed with the last byte", []int{block, -1}, syscall.EIO, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			eachEngine(t, 2, func(t *testing.T, e Engine) {
				f := &methodFile{takes: c.takes}
				op := &Op{Kind: OpWriteDirect, File: f, Vec: [][]byte{blocks(2, 'a'), blocks(1, 'b')}}
				do(t, e, op)
				if c.want == nil && op.Err != nil || !errors.Is(op.Err, c.want) || op.Written != c.written {
					t.Errorf("%v, %d bytes; want %v, %d", op.Err, op.Written, c.want, c.written)
				}
				if f.syncs != 0 {
					t.Errorf("%d syncs of a write that is its own", f.syncs)
				}
			})
		})
	}
}

func TestAlignedMemoryIsAligned(t *testing.T) {
	for _, n := range []int{0, 1, 511, DirectAlign, DirectAlign + 1, 1 << 20} {
		b := AlignedBytes(n)
		if len(b) != n || cap(b) != n || n > 0 && address(b)%DirectAlign != 0 {
			t.Errorf("%d: length %d, capacity %d, address %#x", n, len(b), cap(b), address(b))
		}
	}
	b := blocks(2, 0)
	for _, c := range []struct {
		b    []byte
		off  int64
		want bool
	}{
		{b, 0, true}, {b, 3 * DirectAlign, true}, {b[:DirectAlign], 0, true}, {b[DirectAlign:], 0, true},
		{b, 512, false}, {b[:512], 0, false}, {b[512 : 512+DirectAlign], 0, false}, {b, -1, false},
	} {
		if IsAligned(c.b, c.off) != c.want {
			t.Errorf("%d bytes at %d: want %v", len(c.b), c.off, c.want)
		}
	}
	runtime.KeepAlive(b)
}
