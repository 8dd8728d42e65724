package ring

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
)

// HZ-4, HZ-21: one direct write against a script of results. It is one entry, with no sync behind it;
// it succeeds with its last byte, goes on at blocks only, and fails as a write.
func TestDirectCompletionsAreJudgedByTheirResult(t *testing.T) {
	const block, all = DirectAlign, 3 * DirectAlign
	for _, c := range []struct {
		what    string
		script  []int32
		want    error // nil: success
		written int64
		trace   string
	}{
		{"full", []int32{all}, nil, all, "2:12288"},
		{"short by a block", []int32{2 * block, block}, nil, all, "2:8192 2:4096"},
		{"short twice", []int32{block, block, block}, nil, all, "2:4096 2:4096 2:4096"},
		{"short by a byte", []int32{all - 1}, io.ErrShortWrite, all - 1, "2:12287"},
		{"one byte", []int32{1}, io.ErrShortWrite, 1, "2:1"},
		{"past a block by a sector", []int32{block + 512}, io.ErrShortWrite, block + 512, "2:4608"},
		{"at a block, then inside one", []int32{block, 512}, io.ErrShortWrite, block + 512, "2:4096 2:512"},
		{"nothing written", []int32{0}, io.ErrShortWrite, 0, "2:0"},
		{"nothing more", []int32{block, 0}, io.ErrShortWrite, block, "2:4096 2:0"},
		{"interrupted", []int32{neg(syscall.EINTR), all}, nil, all, "2:-4 2:12288"},
		{"again", []int32{neg(syscall.EAGAIN), neg(syscall.EAGAIN), all}, nil, all, "2:-11 2:-11 2:12288"},
		{"short, interrupted, rest", []int32{block, neg(syscall.EINTR), 2 * block}, nil, all, "2:4096 2:-4 2:8192"},
		{"disk full halfway", []int32{block, neg(syscall.ENOSPC)}, ErrNoSpace, block, "2:4096 2:-28"},
		{"failed", []int32{neg(syscall.EIO)}, ErrIO, 0, "2:-5"},
		{"not taken by the disk", []int32{neg(syscall.EINVAL)}, syscall.EINVAL, 0, "2:-22"},
		{"canceled", []int32{neg(syscall.ECANCELED)}, ErrCanceled, 0, "2:-125"},
		{"more than asked", []int32{all + block}, ErrIO, 0, "2:16384"},
	} {
		t.Run(c.what, func(t *testing.T) {
			k, left := scripted(t, c.script)
			e := openFake(t, k, 2)
			file, f := k.file(9)
			f.direct = true
			op := &Op{Kind: OpWriteDirect, File: file, Off: block, Vec: [][]byte{blocks(2, 'a'), {}, blocks(1, 'b')}}
			do(t, e, op)
			if c.want == nil && op.Err != nil || !errors.Is(op.Err, c.want) || op.Written != c.written {
				t.Errorf("%v, %d bytes; want %v, %d", op.Err, op.Written, c.want, c.written)
			}
			if got := strings.Join(k.trace, " "); got != c.trace {
				t.Errorf("the kernel did %s, want %s", got, c.trace)
			}
			if left() != 0 {
				t.Errorf("%d results were not asked for", left())
			}
			if !holds(f.synced, bytes.Join(op.Vec, nil)[:op.Written], block) {
				t.Error("credited bytes are not on disk")
			}
			if want := uint64(1); op.Err == nil && e.Stats().Syncs != want {
				t.Errorf("%d syncs counted, want %d", e.Stats().Syncs, want)
			}
		})
	}
}

// Many direct writes of one Submit are one call, and one entry each.
func TestDirectWritesOfOneSubmitAreOneCall(t *testing.T) {
	k := &fakeKernel{}
	e := openFake(t, k, 64)
	file, f := k.file(9)
	f.direct = true
	done := make(inbox, 64)
	b := blocks(1, 'x')
	var ops []*Op
	for i := range 64 {
		ops = append(ops, &Op{Kind: OpWriteDirect, File: file, Off: int64(i) * DirectAlign, Vec: [][]byte{b}, Owner: done})
	}
	e.Submit(ops)
	for range ops {
		done.next(t)
	}
	if k.submits != 1 || len(k.trace) != 64 || f.syncs != 0 {
		t.Errorf("%d calls, %d entries, %d syncs for one Submit of 64 direct writes", k.submits, len(k.trace), f.syncs)
	}
}

// HZ-23: the kernel has thrown completions away, and a direct write completes after that. It ends
// with the error as all do, and not as one whose bytes are there.
func TestDirectWriteAfterLostCompletionsIsNotCredited(t *testing.T) {
	k := &fakeKernel{}
	held := true
	k.hold = func(en *entry) bool { return held && en.opcode == opWritev && en.off == DirectAlign }
	k.post = func(c cqe, put func(cqe)) {
		if *k.r.cqOverflow == 0 {
			*k.r.cqOverflow = 1 // this one is lost
			return
		}
		put(c)
	}
	e := openFake(t, k, 4)
	file, f := k.file(9)
	f.direct = true
	done := make(inbox, 4)
	b := blocks(1, 'x')
	e.Submit([]*Op{
		{Kind: OpWriteDirect, File: file, Off: 0, Vec: [][]byte{b}, Owner: done},
		{Kind: OpWriteDirect, File: file, Off: DirectAlign, Vec: [][]byte{b}, Owner: done},
	})
	poll(t, k, func() bool { return *k.r.cqOverflow == 1 && len(k.active) == 2 }) // the write and the drain
	k.mu.Lock()
	held = false
	k.mu.Unlock()
	for range 2 {
		if op := done.next(t); !errors.Is(op.Err, errLost) || op.Written != 0 {
			t.Errorf("ended with %v, %d bytes", op.Err, op.Written)
		}
	}
}
