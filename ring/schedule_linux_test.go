package ring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/internal/invariants"
)

// Whatever the kernel does with what it was given (order, short counts, interruptions, links cut
// between two calls, duplicated and unknown completions, a busy kernel), an operation that ends
// well is in the file, and in the synced image of the file where it asked for that; an operation
// that ends with an error is credited with no byte that is not there. A direct write that fails has
// failed as a write, and whatever it is credited with is on disk. HZ-4, HZ-21, HZ-22
func TestNoScheduleCreditsWhatIsNotOnDisk(t *testing.T) {
	seeds := 10_000
	if invariants.Enabled || testing.Short() {
		seeds = 1_000
	}
	var failed, short, strays, retries uint64
	directs = [3]int{}
	for seed := range uint64(seeds) {
		s := runSchedule(t, seed)
		failed += s.Errors
		short += s.ShortWrites
		strays += s.Strays
		retries += s.Retries
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if failed == 0 || short == 0 || strays == 0 || retries == 0 {
		t.Errorf("the schedules were too kind: %d errors, %d short writes, %d strays, %d retries", failed, short, strays, retries)
	}
	if directs[0] == 0 || directs[1] == 0 || directs[2] == 0 {
		t.Errorf("direct writes: %d whole, %d that ended at a block, %d inside one", directs[0], directs[1], directs[2])
	}
}

// directs counts how direct writes of the schedules ended: whole, failed at a block, inside one.
var directs [3]int

func runSchedule(t *testing.T, seed uint64) Stats {
	k := hostileKernel(rand.New(rand.NewPCG(seed, 4)))
	e, err := openURing(k, URingOptions{Depth: 4, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	k.e = e
	k.mu.Unlock()

	rng := rand.New(rand.NewPCG(seed, 5))
	done := make(inbox, 8)
	fds := make([]fakeFd, 4)
	files := make([]*fakeFile, 4)
	for i := range fds {
		fds[i], files[i] = k.file(int32(i + 10))
		files[i].direct = i >= 2
	}
	const n = 8
	ops := make([]*Op, n)
	for i := range ops {
		op := &Op{Kind: OpKind(1 + rng.IntN(4)), File: fds[i%2], Off: int64(i * 100), Owner: done, Tag: uint64(i)}
		switch op.Kind {
		case OpSync:
		case OpWriteDirect:
			op.File, op.Off = fds[2+i%2], int64(i)*4*DirectAlign
			for range 1 + rng.IntN(2) {
				op.Vec = append(op.Vec, aligned[rng.IntN(len(aligned))][:DirectAlign*rng.IntN(3)])
			}
		default:
			for range 1 + rng.IntN(4) {
				op.Vec = append(op.Vec, bytes.Repeat([]byte{byte(1 + rng.IntN(255))}, rng.IntN(20)))
			}
		}
		ops[i] = op
	}
	for rest := ops; len(rest) > 0; {
		batch := min(1+rng.IntN(4), len(rest))
		e.Submit(rest[:batch])
		rest = rest[batch:]
	}
	for range ops {
		op := done.next(t)
		k.mu.Lock()
		f := files[op.Tag%2]
		if op.Kind == OpWriteDirect {
			f = files[2+op.Tag%2]
			judgeDirect(t, op, f)
		}
		b := bytes.Join(op.Vec, nil)
		switch {
		case op.Written < 0 || op.Written > int64(len(b)):
			t.Errorf("operation %d: %d of %d bytes credited", op.Tag, op.Written, len(b))
		case !holds(f.data, b[:op.Written], op.Off):
			t.Errorf("operation %d (%v): %d bytes credited that are not in the file", op.Tag, op.Err, op.Written)
		case op.Err == nil && op.Written != int64(len(b)):
			t.Errorf("operation %d: success after %d of %d bytes", op.Tag, op.Written, len(b))
		case op.Err == nil && op.Kind == OpWriteSync && !holds(f.synced, b, op.Off):
			t.Errorf("operation %d: success, but the sync did not cover the write: %v", op.Tag, k.trace)
		case op.Err != nil && !errors.Is(op.Err, ErrIO) && !errors.Is(op.Err, ErrCanceled):
			t.Errorf("operation %d: %v", op.Tag, op.Err)
		}
		k.mu.Unlock()
	}
	closeFake(t, e)
	return e.Stats()
}

// aligned is memory for direct writes, each piece with a byte of its own.
var aligned = [][]byte{blocks(2, 'a'), blocks(2, 'b'), blocks(2, 'c'), blocks(2, 'd')}

func judgeDirect(t *testing.T, op *Op, f *fakeFile) {
	b := bytes.Join(op.Vec, nil)
	switch whole := op.Written == int64(len(b)); {
	case !holds(f.synced, b[:max(0, min(op.Written, int64(len(b))))], op.Off):
		t.Errorf("operation %d (%v): %d bytes credited that are not on disk", op.Tag, op.Err, op.Written)
	case op.Err != nil && whole && len(b) > 0:
		t.Errorf("operation %d: %v with every byte credited", op.Tag, op.Err)
	case op.Err == nil:
		directs[0]++
	case op.Written%DirectAlign == 0:
		directs[1]++
	default:
		directs[2]++
	}
}

// hostileKernel is a kernel that does what rng says: hardly ever the best for us.
func hostileKernel(rng *rand.Rand) *fakeKernel {
	k := &fakeKernel{rng: rng}
	hostile := rng.IntN(4) // how often the kernel does not just do it
	k.answer = func(en *entry) int32 { return randomAnswer(rng, en, hostile) }
	k.keepLink = rng.IntN(4) == 0
	if rng.IntN(2) == 0 {
		k.take = func(n uint32) uint32 { return uint32(rng.IntN(int(n) + 1)) }
	}
	if rng.IntN(4) == 0 {
		k.submitErr = func(int) syscall.Errno {
			return []syscall.Errno{0, 0, 0, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY}[rng.IntN(6)]
		}
	}
	if rng.IntN(4) == 0 {
		k.waitErr = func(int) syscall.Errno {
			return []syscall.Errno{0, 0, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY}[rng.IntN(5)]
		}
	}
	if rng.IntN(4) == 0 {
		var before []cqe
		k.post = func(c cqe, put func(cqe)) {
			put(c)
			before = append(before, c)
			switch rng.IntN(6) {
			case 3, 4:
				late := before[rng.IntN(len(before))] // an old one again, as a success
				if late.res < 0 {
					late.res = 0
				}
				put(late)
			case 0:
				put(c) // twice
			case 1:
				put(cqe{userData: rng.Uint64() | 1<<63, res: int32(rng.IntN(1000))}) // nobody's
			case 2:
				put(cqe{userData: c.userData ^ kindWrite ^ kindSync, res: 0}) // another kind
			}
		}
		k.cqEntries = 64
	}
	return k
}

// randomAnswer is a result that a kernel might give; hostile 0 gives only the good one.
func randomAnswer(rng *rand.Rand, en *entry, hostile int) int32 {
	full := int32(len(en.data))
	if rng.IntN(4) >= hostile {
		return full
	}
	switch rng.IntN(12) {
	case 0, 1:
		return -int32(syscall.EINTR)
	case 2, 3:
		return -int32(syscall.EAGAIN)
	case 4:
		return -int32(syscall.EIO)
	case 5:
		return -int32(syscall.ECANCELED)
	}
	if en.opcode == opWritev && full > 0 {
		if full >= DirectAlign && rng.IntN(2) == 0 {
			return int32(rng.IntN(int(full)/DirectAlign)) * DirectAlign // by whole blocks
		}
		return int32(rng.IntN(int(full))) // short, perhaps nothing
	}
	return full
}
