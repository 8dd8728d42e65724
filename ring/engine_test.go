package ring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Every test of this file runs on every engine: they must not be told apart by what they do.
// Where io_uring is forbidden on purpose, "auto" is what must work.
var engines = func() []string {
	if os.Getenv("RING_TEST_FORBID") != "" {
		return []string{KindAuto}
	}
	return []string{Portable, URing, URingDirect}
}()

func eachEngine(t *testing.T, depth int, fn func(t *testing.T, e Engine)) {
	t.Helper()
	for _, kind := range engines {
		t.Run(kind, func(t *testing.T) { fn(t, openEngine(t, kind, depth)) })
	}
}

func openEngine(t testing.TB, kind string, depth int) Engine {
	t.Helper()
	e, _, err := Open(kind, Options{Depth: depth, Dir: t.TempDir()})
	if kind != Portable && (errors.Is(err, ErrUnsupported) || errors.Is(err, ErrPermission)) {
		t.Skipf("%s is not available: %v", kind, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// inbox is an owner that keeps what ended.
type inbox chan *Op

func (c inbox) OpDone(op *Op) { c <- op }

func (c inbox) next(t testing.TB) *Op {
	t.Helper()
	select {
	case op := <-c:
		return op
	case <-time.After(30 * time.Second):
		t.Fatal("the operation does not end")
		return nil
	}
}

// do runs one operation to its end.
func do(t testing.TB, e Engine, op *Op) {
	t.Helper()
	done := make(inbox, 1)
	op.Owner = done
	e.Submit([]*Op{op})
	if got := done.next(t); got != op {
		t.Fatal("another operation ended")
	}
}

func content(t testing.TB, f File) []byte {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOperationsDoWhatTheySay(t *testing.T) {
	eachEngine(t, 8, func(t *testing.T, e Engine) {
		f := create(t, filepath.Join(t.TempDir(), "f"))
		for _, op := range []*Op{
			{Kind: OpWrite, Off: 0, Vec: [][]byte{[]byte("0123456789")}},
			{Kind: OpWriteSync, Off: 4, Vec: [][]byte{[]byte("ab"), nil, {}, []byte("c")}},
			{Kind: OpSync},
			{Kind: OpWriteSync, Off: 20, Vec: [][]byte{[]byte("z")}},
			{Kind: OpWrite}, // nothing to write is not an error
			{Kind: OpWriteSync, Vec: [][]byte{{}}},
			{Kind: OpSync, Err: errLeftOver, Written: 99},
		} {
			op.File = f
			do(t, e, op)
			if want := vecLen(op.Vec); op.Err != nil || op.Written != want {
				t.Errorf("operation %d at %d: %v, %d bytes, want %d", op.Kind, op.Off, op.Err, op.Written, want)
			}
		}
		if got, want := string(content(t, f)), "0123abc789\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00z"; got != want {
			t.Errorf("file holds %q, want %q", got, want)
		}
		s := e.Stats()
		s.Submits -= base(e).Submits
		if s.Ops-base(e).Ops != 7 || s.Syncs-base(e).Syncs != 5 || s.Bytes-base(e).Bytes != 14 || s.Submits != 7 || s.Errors != 0 || s.Workers == 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

var errLeftOver = errors.New("left over from before")

// base is what the proof of the io_uring engine has counted before its user could.
func base(e Engine) Stats {
	const buffered, direct = 4 + 4*1500 + 5, 3 * DirectAlign
	switch e.Name() {
	case URing:
		return Stats{Submits: 1, Ops: 1, Syncs: 1, Bytes: buffered}
	case URingDirect:
		return Stats{Submits: 3, Ops: 3, Syncs: 3, Bytes: buffered + direct}
	}
	return Stats{}
}

// More buffers than one call can gather, of sizes that make every kind of boundary.
func TestGatheredWriteKeepsOrderBeyondTheCallsLimit(t *testing.T) {
	eachEngine(t, 4, func(t *testing.T, e Engine) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, n := range []int{1, 2, 7, MaxVec - 1, MaxVec, MaxVec + 1, 3*MaxVec + 17} {
			f := create(t, filepath.Join(t.TempDir(), "f"))
			op := &Op{Kind: OpWriteSync, File: f, Off: 11}
			var want []byte
			for i := range n {
				b := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, rng.IntN(40))
				op.Vec = append(op.Vec, b)
				want = append(want, b...)
			}
			do(t, e, op)
			if op.Err != nil || op.Written != int64(len(want)) {
				t.Fatalf("%d buffers: %v, %d of %d bytes", n, op.Err, op.Written, len(want))
			}
			if got := content(t, f)[11:]; !bytes.Equal(got, want) {
				t.Fatalf("%d buffers: the file differs", n)
			}
		}
	})
}

// Many operations on many files at the same time, submitted in batches, each checked.
func TestConcurrentOperationsDoNotMix(t *testing.T) {
	eachEngine(t, 32, func(t *testing.T, e Engine) {
		const files, rounds, size = 16, 20, 1500
		dir := t.TempDir()
		done := make(inbox, files)
		ops := make([]*Op, files)
		for i := range ops {
			f := create(t, filepath.Join(dir, string(rune('a'+i))))
			ops[i] = &Op{File: f, Owner: done, Tag: uint64(i)}
		}
		for r := range rounds {
			for i, op := range ops {
				op.Kind = []OpKind{OpWrite, OpWriteSync}[(r+i)%2]
				op.Off = int64(r * size)
				b := bytes.Repeat([]byte{byte(i*rounds + r)}, size)
				op.Vec = [][]byte{b[:i*10], b[i*10:]}
			}
			e.Submit(ops)
			seen := map[uint64]bool{}
			for range ops {
				op := done.next(t)
				if op.Err != nil || op.Written != size || seen[op.Tag] {
					t.Fatalf("file %d: %v, %d bytes, twice: %v", op.Tag, op.Err, op.Written, seen[op.Tag])
				}
				seen[op.Tag] = true
			}
		}
		for i, op := range ops {
			got := content(t, op.File)
			for r := range rounds {
				if !bytes.Equal(got[r*size:(r+1)*size], bytes.Repeat([]byte{byte(i*rounds + r)}, size)) {
					t.Fatalf("file %d round %d: wrong bytes", i, r)
				}
			}
		}
	})
}

// capped is an owner that waits for a number of operations.
type capped struct {
	left   sync.WaitGroup
	failed atomic.Int64
}

func (c *capped) OpDone(op *Op) {
	if op.Err != nil {
		c.failed.Add(1)
	}
	c.left.Done()
}

// HZ-23: a tiny ring and far more operations than it can hold, from one submitter that does not
// count. The cap is the back-pressure; every operation ends.
func TestDepthIsTheCapOnWhatIsInFlight(t *testing.T) {
	eachEngine(t, 2, func(t *testing.T, e Engine) {
		if e.Depth() != 2 {
			t.Fatalf("Depth = %d, want 2", e.Depth())
		}
		f := create(t, filepath.Join(t.TempDir(), "f"))
		const n = 1000
		var c capped
		c.left.Add(n)
		ops := make([]*Op, n)
		for i := range ops {
			ops[i] = &Op{Kind: OpWrite, File: f, Off: int64(i), Vec: [][]byte{{byte(i)}}, Owner: &c}
		}
		e.Submit(ops)
		c.left.Wait()
		if c.failed.Load() != 0 {
			t.Fatalf("%d operations failed", c.failed.Load())
		}
		for i, b := range content(t, f) {
			if b != byte(i) {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
		if s := e.Stats(); s.Overflows != 0 || s.Strays != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// stuck is an owner that holds the engine up at its first operation.
type stuck struct {
	capped
	once    sync.Once
	release chan struct{}
}

func (s *stuck) OpDone(op *Op) {
	s.once.Do(func() { <-s.release })
	s.capped.OpDone(op)
}

// HZ-23: completions are not taken for a while, under full load. Nothing overflows, nothing is lost.
func TestPausedReaperLosesNothing(t *testing.T) {
	eachEngine(t, 4, func(t *testing.T, e Engine) {
		f := create(t, filepath.Join(t.TempDir(), "f"))
		const n = 200
		s := &stuck{release: make(chan struct{})}
		s.left.Add(n)
		submitted := make(chan struct{})
		go func() {
			defer close(submitted)
			for i := range n {
				e.Submit([]*Op{{Kind: OpWriteSync, File: f, Off: int64(i), Vec: [][]byte{{1}}, Owner: s}})
			}
		}()
		select {
		case <-submitted:
			t.Error("200 operations were taken by an engine of depth 4 that is held up")
		case <-time.After(200 * time.Millisecond):
		}
		close(s.release)
		<-submitted
		s.left.Wait()
		if st := e.Stats(); s.failed.Load() != 0 || st.Overflows != 0 || st.Strays != 0 {
			t.Errorf("%d failed, stats %+v", s.failed.Load(), st)
		}
	})
}

func TestErrorsAreClassifiedAndTheEngineGoesOn(t *testing.T) {
	eachEngine(t, 4, func(t *testing.T, e Engine) {
		dir := t.TempDir()
		good := create(t, filepath.Join(dir, "good"))
		readOnly, err := OS().Open(good.Name(), os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer readOnly.Close()
		closed := create(t, filepath.Join(dir, "closed"))
		closed.Close()
		for _, c := range []struct {
			what string
			op   Op
			want []error
		}{
			{"read-only file", Op{Kind: OpWriteSync, File: readOnly, Vec: [][]byte{{1}}}, []error{ErrIO, syscall.EBADF}},
			{"closed file", Op{Kind: OpWriteSync, File: closed, Vec: [][]byte{{1}}}, []error{ErrClosed}},
			{"sync of a closed file", Op{Kind: OpSync, File: closed}, []error{ErrClosed}},
			{"too large an offset", Op{Kind: OpWrite, File: good, Off: 1<<63 - 10, Vec: [][]byte{make([]byte, 4)}}, []error{ErrNoSpace, syscall.EFBIG}},
			{"negative offset", Op{Kind: OpWrite, File: good, Off: -5, Vec: [][]byte{{1}}}, []error{ErrIO, syscall.EINVAL}},
		} {
			do(t, e, &c.op)
			for _, want := range c.want {
				if !errors.Is(c.op.Err, want) {
					t.Errorf("%s: %v, want %v", c.what, c.op.Err, want)
				}
			}
			if c.op.Written != 0 {
				t.Errorf("%s: %d bytes credited", c.what, c.op.Written)
			}
			op := &Op{Kind: OpWriteSync, File: good, Vec: [][]byte{[]byte("fine")}}
			if do(t, e, op); op.Err != nil {
				t.Fatalf("after %s: %v", c.what, op.Err)
			}
		}
		if got := e.Stats().Errors; got != 5 {
			t.Errorf("%d errors counted, want 5", got)
		}
	})
}

// A batch in which one operation fails: the others are not touched by it.
func TestOneFailureInABatchStaysAlone(t *testing.T) {
	eachEngine(t, 16, func(t *testing.T, e Engine) {
		dir := t.TempDir()
		f := create(t, filepath.Join(dir, "f"))
		readOnly, err := OS().Open(f.Name(), os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer readOnly.Close()
		done := make(inbox, 8)
		var ops []*Op
		for i := range 8 {
			op := &Op{Kind: OpWriteSync, File: f, Off: int64(i), Vec: [][]byte{{'a' + byte(i)}}, Owner: done, Tag: uint64(i)}
			if i%3 == 0 {
				op.File = readOnly
			}
			ops = append(ops, op)
		}
		e.Submit(ops)
		for range ops {
			op := done.next(t)
			if bad := op.Tag%3 == 0; bad != errors.Is(op.Err, syscall.EBADF) || bad != (op.Err != nil) {
				t.Errorf("operation %d: %v", op.Tag, op.Err)
			}
		}
		if got := string(content(t, f)); got != "\x00bc\x00ef\x00h" {
			t.Errorf("file holds %q", got)
		}
	})
}

func TestCloseWaitsForWhatIsInFlight(t *testing.T) {
	for _, kind := range engines {
		t.Run(kind, func(t *testing.T) {
			e := openEngine(t, kind, 64)
			f := create(t, filepath.Join(t.TempDir(), "f"))
			done := make(inbox, 64)
			var ops []*Op
			for i := range 64 {
				ops = append(ops, &Op{Kind: OpWriteSync, File: f, Off: int64(i) << 16, Vec: [][]byte{make([]byte, 1<<16)}, Owner: done})
			}
			e.Submit(ops)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if len(done) != len(ops) {
				t.Fatalf("Close returned with %d of %d operations ended", len(done), len(ops))
			}
			for range ops {
				if op := <-done; op.Err != nil {
					t.Error(op.Err)
				}
			}
			late := &Op{Kind: OpSync, File: f, Owner: done}
			e.Submit([]*Op{late})
			if op := done.next(t); !errors.Is(op.Err, ErrClosed) {
				t.Errorf("after Close: %v, want ErrClosed", op.Err)
			}
			if err := e.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
}

// HZ-24: rings leave nothing behind.
func TestOpenAndCloseManyTimes(t *testing.T) {
	for _, kind := range engines {
		t.Run(kind, func(t *testing.T) {
			openEngine(t, kind, 4).Close()
			before := descriptors(t)
			for range 200 {
				e, _, err := Open(kind, Options{Depth: 8, Dir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if after := descriptors(t); after > before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd")
	}
	return len(names)
}

func TestUnknownEnginesAreRefused(t *testing.T) {
	if _, _, err := Open("turbo", Options{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v", err)
	}
}
