package ring

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func neg(e syscall.Errno) int32 { return -int32(e) }

// HZ-4, HZ-21: one operation against a script of results. The script is in the order in which the
// kernel carries entries out; canceled syncs are not part of it.
func TestCompletionsAreJudgedByTheirResult(t *testing.T) {
	all := int32(10)
	for _, c := range []struct {
		what    string
		kind    OpKind
		script  []int32
		want    error // nil: success
		written int64
		trace   string // opcode:result, 2 = write, 3 = sync
	}{
		{"full and synced", OpWriteSync, []int32{all, 0}, nil, 10, "2:10 3:0"},
		{"short by one", OpWriteSync, []int32{9, 1, 0}, nil, 10, "2:9 3:canceled 2:1 3:0"},
		{"short twice", OpWriteSync, []int32{3, 3, 4, 0}, nil, 10, "2:3 3:canceled 2:3 3:canceled 2:4 3:0"},
		{"nothing written", OpWriteSync, []int32{0}, io.ErrShortWrite, 0, "2:0 3:canceled"},
		{"interrupted", OpWriteSync, []int32{neg(syscall.EINTR), all, 0}, nil, 10, "2:-4 3:canceled 2:10 3:0"},
		{"again", OpWrite, []int32{neg(syscall.EAGAIN), all}, nil, 10, "2:-11 2:10"},
		{"interrupted, then short, then disk full", OpWriteSync, []int32{neg(syscall.EINTR), 4, neg(syscall.ENOSPC)}, ErrNoSpace, 4, "2:-4 3:canceled 2:4 3:canceled 2:-28 3:canceled"},
		{"write failed", OpWriteSync, []int32{neg(syscall.EIO)}, syscall.EIO, 0, "2:-5 3:canceled"},
		{"write canceled", OpWrite, []int32{neg(syscall.ECANCELED)}, ErrCanceled, 0, "2:-125"},
		{"sync failed once and for all", OpWriteSync, []int32{all, neg(syscall.EIO)}, ErrIO, 10, "2:10 3:-5"},
		{"sync canceled behind a full write", OpWriteSync, []int32{all, neg(syscall.ECANCELED), 0}, nil, 10, "2:10 3:-125 3:0"},
		{"sync interrupted", OpWriteSync, []int32{all, neg(syscall.EINTR), 0}, nil, 10, "2:10 3:-4 3:0"},
		{"sync of its own canceled", OpSync, []int32{neg(syscall.ECANCELED)}, ErrCanceled, 0, "3:-125"},
		{"sync of its own failed", OpSync, []int32{neg(syscall.EROFS)}, ErrReadOnly, 0, "3:-30"},
		{"more than asked", OpWrite, []int32{11}, ErrIO, 0, "2:11"},
		{"sync with a count", OpSync, []int32{1}, ErrIO, 0, "3:1"},
	} {
		t.Run(c.what, func(t *testing.T) {
			k, left := scripted(t, c.script)
			e := openFake(t, k, 2)
			file, f := k.file(9)
			op := &Op{Kind: c.kind, File: file, Off: 3, Vec: [][]byte{[]byte("01234"), []byte("56789")}}
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
			if !holds(f.data, []byte("0123456789")[:op.Written], 3) {
				t.Error("credited bytes are not in the file")
			}
		})
	}
}

func TestRetriesOfOneOperationAreBoundedAndLeaveTheThread(t *testing.T) { // HZ-21
	async := 0
	k := &fakeKernel{}
	k.answer = func(en *entry) int32 {
		if en.flags&sqeAsync != 0 {
			async++
		}
		return neg(syscall.EAGAIN)
	}
	e := openFake(t, k, 2)
	file, _ := k.file(9)
	op := &Op{Kind: OpWrite, File: file, Vec: [][]byte{{1}}}
	do(t, e, op)
	if !errors.Is(op.Err, syscall.EAGAIN) {
		t.Errorf("%v", op.Err)
	}
	if async != triesMax || e.Stats().Retries != triesMax {
		t.Errorf("%d tries on a worker, %d counted, want %d", async, e.Stats().Retries, triesMax)
	}
}

// The sync's completion may be seen first; it counts only once the write's is there.
func TestSyncThatCompletesFirstIsNotEnough(t *testing.T) { // HZ-4
	var late []cqe
	k := &fakeKernel{}
	k.post = func(c cqe, put func(cqe)) {
		if c.userData&kindMask == kindWrite {
			late = append(late, c)
			return
		}
		put(c)
	}
	e := openFake(t, k, 2)
	file, _ := k.file(9)
	done := make(inbox, 1)
	op := &Op{Kind: OpWriteSync, File: file, Vec: [][]byte{{1, 2}}, Owner: done}
	e.Submit([]*Op{op})
	poll(t, k, func() bool { return len(late) == 1 && *k.r.cqTail == 1 })
	if len(done) != 0 {
		t.Fatal("ended without the write's completion")
	}
	k.mu.Lock()
	k.put(late[0])
	k.mu.Unlock()
	k.nudge()
	if done.next(t); op.Err != nil || op.Written != 2 {
		t.Fatalf("%v, %d bytes", op.Err, op.Written)
	}
}

func poll(t *testing.T, k *fakeKernel, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		k.mu.Lock()
		ok := cond()
		k.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it does not come to that")
		}
	}
}

// HZ-23: completions that found the queue full wait in the kernel; they are fetched, and counted.
func TestOverflowedCompletionsAreFetched(t *testing.T) {
	k := &fakeKernel{}
	k.post = func(c cqe, put func(cqe)) {
		for range 12 { // eleven strays more than the queue was made for
			put(cqe{userData: 1 << 60})
		}
		put(c)
	}
	e := openFake(t, k, 2)
	file, _ := k.file(9)
	for range 20 {
		op := &Op{Kind: OpWriteSync, File: file, Vec: [][]byte{{1}}}
		if do(t, e, op); op.Err != nil {
			t.Fatal(op.Err)
		}
	}
	if s := e.Stats(); s.Overflows == 0 || s.Strays != 20*2*12 {
		t.Errorf("stats %+v", s)
	}
}

// HZ-23: the kernel admits that it threw completions away. Nobody knows whose, so everything in
// flight ends with an error, but not before the kernel has let go of its memory.
func TestLostCompletionsEndEverythingWithAnError(t *testing.T) {
	k := &fakeKernel{}
	var held bool // the second write is still running
	k.hold = func(en *entry) bool { return held && en.opcode == opWritev && en.off == 100 }
	k.post = func(c cqe, put func(cqe)) {
		if k.r != nil && *k.r.cqOverflow == 0 {
			*k.r.cqOverflow = 1 // this one is lost
			return
		}
		put(c)
	}
	held = true
	e := openFake(t, k, 4)
	file, _ := k.file(9)
	done := make(inbox, 4)
	e.Submit([]*Op{
		{Kind: OpWrite, File: file, Off: 0, Vec: [][]byte{{1}}, Owner: done},
		{Kind: OpWrite, File: file, Off: 100, Vec: [][]byte{{2}}, Owner: done},
	})
	poll(t, k, func() bool { return *k.r.cqOverflow == 1 && len(k.active) == 2 }) // the write and the drain
	if len(done) != 0 {
		t.Fatal("an operation ended while the kernel may still use its memory")
	}
	k.mu.Lock()
	held = false
	k.mu.Unlock()
	for range 2 {
		if op := done.next(t); !errors.Is(op.Err, errLost) || !errors.Is(op.Err, ErrIO) {
			t.Errorf("ended with %v", op.Err)
		}
	}
	op := &Op{Kind: OpSync, File: file}
	if do(t, e, op); !errors.Is(op.Err, errLost) {
		t.Errorf("later operation: %v", op.Err)
	}
}

// HZ-22: a busy kernel is asked again, an interrupted call too; nothing fails.
func TestBusyAndInterruptedCallsAreRepeated(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINTR, syscall.EAGAIN, syscall.EBUSY} {
		k := &fakeKernel{}
		k.submitErr = func(call int) syscall.Errno {
			if call%5 != 0 {
				return errno
			}
			return 0
		}
		k.waitErr = func(call int) syscall.Errno {
			if call%7 != 0 {
				return errno
			}
			return 0
		}
		e := openFake(t, k, 2)
		file, _ := k.file(9)
		for range 20 {
			op := &Op{Kind: OpWriteSync, File: file, Vec: [][]byte{{1, 2, 3}}}
			if do(t, e, op); op.Err != nil {
				t.Fatalf("%v: %v", errno, op.Err)
			}
		}
		if e.Stats().Retries < 80 {
			t.Errorf("%v: %d retries counted", errno, e.Stats().Retries)
		}
	}
}

func TestKernelThatStaysBusyIsGivenUpAfterABound(t *testing.T) { // HZ-22
	k := &fakeKernel{submitErr: func(int) syscall.Errno { return syscall.EAGAIN }}
	e := openFake(t, k, 2)
	file, _ := k.file(9)
	op := &Op{Kind: OpWriteSync, File: file, Vec: [][]byte{{1}}}
	do(t, e, op)
	if !errors.Is(op.Err, syscall.EBUSY) || op.Written != 0 {
		t.Errorf("%v", op.Err)
	}
	if slept := time.Duration(k.slept.Load()); slept < busyTotalMax || slept > 2*busyTotalMax {
		t.Errorf("gave up after %v, the bound is %v", slept, busyTotalMax)
	}
}

// HZ-19: calls are forbidden after the start. What the kernel has ends with what it says, what
// it has not ends with the error, and Close does not hang.
func TestRingThatIsForbiddenLaterEndsCleanly(t *testing.T) {
	k := &fakeKernel{}
	forbidden, held := false, true
	k.submitErr = func(int) syscall.Errno {
		if forbidden {
			return syscall.EPERM
		}
		return 0
	}
	k.waitErr = k.submitErr
	k.hold = func(*entry) bool { return held }
	e := openFake(t, k, 4)
	file, f := k.file(9)
	done := make(inbox, 1)
	before := &Op{Kind: OpWriteSync, File: file, Vec: [][]byte{[]byte("before")}, Owner: done}
	e.Submit([]*Op{before})
	k.mu.Lock()
	forbidden = true
	k.mu.Unlock()
	after := &Op{Kind: OpWriteSync, File: file, Vec: [][]byte{[]byte("after")}}
	if do(t, e, after); !errors.Is(after.Err, syscall.EPERM) || after.Written != 0 {
		t.Errorf("after: %v, %d bytes", after.Err, after.Written)
	}
	k.mu.Lock()
	held = false
	for len(k.active) > 0 {
		k.work(1) // the kernel goes on by itself
	}
	k.mu.Unlock()
	if done.next(t); before.Err != nil || !holds(f.synced, []byte("before"), 0) {
		t.Errorf("before: %v", before.Err)
	}
}

// The kernel takes a write without the sync that is linked behind it, and then no call any more:
// the operation ends with an error and is not forgotten.
func TestSyncThatNeverReachedTheKernelIsNotWaitedFor(t *testing.T) { // HZ-4
	k := &fakeKernel{}
	k.take = func(uint32) uint32 { return 1 }
	k.submitErr = func(call int) syscall.Errno {
		if call > 1 {
			return syscall.EPERM
		}
		return 0
	}
	e := openFake(t, k, 2)
	file, _ := k.file(9)
	op := &Op{Kind: OpWriteSync, File: file, Vec: [][]byte{[]byte("data")}}
	if do(t, e, op); !errors.Is(op.Err, syscall.EPERM) || op.Written != 4 {
		t.Errorf("%v, %d bytes", op.Err, op.Written)
	}
}

func TestOneSubmitIsOneCall(t *testing.T) {
	k := &fakeKernel{}
	e := openFake(t, k, 64)
	file, _ := k.file(9)
	done := make(inbox, 64)
	var ops []*Op
	for i := range 64 {
		ops = append(ops, &Op{Kind: OpWriteSync, File: file, Off: int64(i), Vec: [][]byte{{1}}, Owner: done})
	}
	e.Submit(ops)
	for range ops {
		done.next(t)
	}
	if k.submits != 1 {
		t.Errorf("%d calls for one Submit of 64 operations", k.submits)
	}
}

// HZ-20: each flag and each operation refused in turn, by a kernel of any version.
func TestSetUpAsksTheKernelAndNotItsVersion(t *testing.T) {
	refusedBy := func(k *fakeKernel) error {
		e, err := openURing(k, URingOptions{Depth: 4, Workers: 1})
		if err == nil {
			closeFake(t, e)
		}
		return err
	}
	for _, c := range []struct {
		what   string
		k      *fakeKernel
		want   error // nil: it opens
		falls  bool  // auto may fall back
		setups []uint32
	}{
		{"everything", &fakeKernel{}, nil, false, []uint32{setupSubmitAll}},
		{"no optional flag", &fakeKernel{refuseFlags: setupSubmitAll}, nil, false, []uint32{setupSubmitAll, 0}},
		{"every set-up", &fakeKernel{setupErrno: syscall.EINVAL}, syscall.EINVAL, true, []uint32{setupSubmitAll, 0}},
		{"forbidden", &fakeKernel{setupErrno: syscall.EPERM}, ErrPermission, true, []uint32{setupSubmitAll}},
		{"absent", &fakeKernel{setupErrno: syscall.ENOSYS}, ErrUnsupported, true, []uint32{setupSubmitAll}},
		{"no memory", &fakeKernel{setupErrno: syscall.ENOMEM}, syscall.ENOMEM, false, nil},
		{"no memory that may be locked", &fakeKernel{setupErrno: syscall.ENOMEM, locked: 4096}, syscall.ENOMEM, true, nil},
		{"no memory until closed rings give theirs back", &fakeKernel{setupErrno: syscall.ENOMEM, setupTimes: 5, locked: 4096}, nil, false, nil},
		{"no descriptor", &fakeKernel{setupErrno: syscall.EMFILE}, ErrTooManyFiles, false, nil},
		{"no timed wait", &fakeKernel{noFeature: featExtArg}, ErrUnsupported, true, nil},
		{"two mappings", &fakeKernel{noFeature: featSingleMmap}, nil, false, nil},
		{"no probe", &fakeKernel{probeErrno: syscall.EINVAL}, nil, false, nil},
		{"probe forbidden", &fakeKernel{probeErrno: syscall.EPERM}, ErrPermission, true, nil},
		{"no nop", &fakeKernel{noOp: -1}, ErrUnsupported, true, nil},
		{"no writev", &fakeKernel{noOp: opWritev}, ErrUnsupported, true, nil},
		{"no fsync", &fakeKernel{noOp: opFsync}, ErrUnsupported, true, nil},
		{"no worker limit", &fakeKernel{limitErrno: syscall.EINVAL}, nil, false, nil},
		{"worker limit forbidden", &fakeKernel{limitErrno: syscall.EPERM}, ErrPermission, true, nil},
	} {
		k := c.k
		err := refusedBy(k)
		if c.want == nil && err != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		if _, falls := errors.AsType[refusedError](refuse(err)); err != nil && falls != c.falls {
			t.Errorf("%s: falls back: %v, want %v", c.what, falls, c.falls)
		}
		if c.setups != nil && !slices.Equal(k.setups, c.setups) {
			t.Errorf("%s: set-ups with flags %v, want %v", c.what, k.setups, c.setups)
		}
		if !k.closed && (c.k.setupErrno == 0 || c.want == nil) {
			t.Errorf("%s: the ring was left open", c.what)
		}
	}
}

// The reaper lies down whenever nothing is in flight, which here is all the time and at every moment of
// a submission: had one been missed, its operation would never end.
func TestRestingReaperMissesNoSubmission(t *testing.T) {
	e := openEngine(t, URing, 4)
	f, err := memFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	done := make(inbox, 1)
	op := &Op{Kind: OpWrite, File: f, Vec: [][]byte{{1, 2, 3}}, Owner: done}
	for i := range 20_000 {
		e.Submit([]*Op{op})
		if done.next(t); op.Err != nil {
			t.Fatal(op.Err)
		}
		for range i % 64 {
			_ = e.Stats() // a little later each time
		}
	}
}
