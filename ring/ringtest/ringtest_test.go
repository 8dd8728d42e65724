package ringtest

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
)

var (
	_ ring.FS     = (*FS)(nil)
	_ ring.File   = (*File)(nil)
	_ ring.Engine = (*Engine)(nil)
)

func open(t *testing.T, f ring.FS, name string) ring.File {
	t.Helper()
	file, err := f.Open(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func text(t *testing.T, f ring.File) string {
	t.Helper()
	b := make([]byte, 100)
	n, err := f.ReadAt(b, 0)
	if err != io.EOF {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestRulesActOnTheCallsTheyName(t *testing.T) {
	f := NewFS(crashfs.New())
	a, b := open(t, f, "a"), open(t, f, "b")
	f.Fail(Sync, 2, syscall.EIO)
	f.Add(Rule{Kind: Write, Path: "b", Times: -1, Err: syscall.ENOSPC})
	for i, want := range []error{nil, ring.ErrIO, nil} {
		if err := a.Sync(); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("sync %d: %v, want %v", i+1, err, want)
		}
	}
	for range 3 {
		if n, err := b.WriteAt([]byte("x"), 0); n != 0 || !errors.Is(err, ring.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("write to b: %d, %v", n, err)
		}
	}
	if _, err := a.WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("write to a: %v", err)
	}
	f.Clear()
	if _, err := b.WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("write to b without rules: %v", err)
	}
}

func TestShortAndLyingWrites(t *testing.T) {
	f := NewFS(crashfs.New())
	file := open(t, f, "a")
	f.Short(1, 2)
	f.Add(Rule{Kind: Write, Short: 1, Err: syscall.EIO})
	f.Add(Rule{Kind: Write, Lie: true})
	if n, err := file.WriteAt([]byte("abc"), 0); n != 2 || err != nil {
		t.Errorf("short: %d, %v", n, err)
	}
	if n, err := file.WriteAt([]byte("xyz"), 2); n != 1 || !errors.Is(err, ring.ErrIO) {
		t.Errorf("short with an error: %d, %v", n, err)
	}
	if n, err := file.WriteAt([]byte("lie"), 0); n != 3 || err != nil {
		t.Errorf("lie: %d, %v", n, err)
	}
	if got := text(t, file); got != "abx" {
		t.Errorf("file holds %q", got)
	}
}

func TestCallsWaitAndAreRecordedInOrder(t *testing.T) {
	f := NewFS(crashfs.New())
	entered, release := make(chan struct{}), make(chan struct{})
	f.Add(Rule{Kind: Sync, Wait: release, Entered: entered})
	if err := f.MkdirAll("d", 0o755); err != nil {
		t.Fatal(err)
	}
	file := open(t, f, "d/tmp")
	done := make(chan error)
	go func() { done <- file.Sync() }()
	<-entered
	select {
	case <-done:
		t.Error("the sync did not wait")
	default:
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Rename("d/tmp", "d/seg"), f.SyncDir("d"), file.Truncate(9), file.Allocate(0, 5)); err != nil {
		t.Error(err)
	}
	want := "mkdir d\nopen tmp\nsync tmp\nrename tmp seg\nsyncdir d\ntruncate tmp 9\nallocate tmp 0+5\n"
	if got := f.Trace(); got != want {
		t.Errorf("trace\n%swant\n%s", got, want)
	}
	if got := f.Trace(Rename, SyncDir); strings.Count(got, "\n") != 2 {
		t.Errorf("chosen kinds: %s", got)
	}
}

// tags is an owner that records the order.
type tags chan uint64

func (c tags) OpDone(op *ring.Op) { c <- op.Tag }

func TestEngineEndsOperationsAsTheTestSays(t *testing.T) {
	e := NewEngine(8)
	f := open(t, crashfs.New(), "a")
	done := make(tags, 8)
	var ops []*ring.Op
	for i := range 3 {
		ops = append(ops, &ring.Op{Kind: ring.OpWriteSync, File: f, Off: int64(i), Vec: [][]byte{{'a' + byte(i)}}, Owner: done, Tag: uint64(i)})
	}
	e.Submit(ops[:2])
	e.Submit(ops[2:])
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	pending, err := e.WaitPending(ctx, 3)
	if err != nil || len(pending) != 3 || len(e.Batches()) != 2 {
		t.Fatalf("%d pending in %d batches, %v", len(pending), len(e.Batches()), err)
	}
	e.Run(ops[2])
	e.End(ops[0], 0, syscall.EIO)
	if n := e.RunAll(); n != 1 {
		t.Errorf("%d left", n)
	}
	for _, want := range []uint64{2, 0, 1} {
		if got := <-done; got != want {
			t.Errorf("ended %d, want %d", got, want)
		}
	}
	if !errors.Is(ops[0].Err, ring.ErrIO) || ops[1].Err != nil || ops[1].Written != 1 {
		t.Errorf("outcomes %v, %v, %d", ops[0].Err, ops[1].Err, ops[1].Written)
	}
	if got := text(t, f); got != "\x00bc" {
		t.Errorf("file holds %q", got)
	}
	if s := e.Stats(); s.Ops != 3 || s.Errors != 1 || s.Syncs != 2 || s.Bytes != 2 {
		t.Errorf("stats %+v", s)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestEngineKeepsItsDepth(t *testing.T) {
	e := NewEngine(2)
	f := open(t, crashfs.New(), "a")
	done := make(tags, 3)
	var ops []*ring.Op
	for i := range 3 {
		ops = append(ops, &ring.Op{Kind: ring.OpSync, File: f, Owner: done, Tag: uint64(i)})
	}
	submitted := make(chan struct{})
	go func() { e.Submit(ops); close(submitted) }()
	if _, err := e.WaitPending(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	select {
	case <-submitted:
		t.Error("Submit did not wait for room")
	default:
	}
	e.Run(ops[0])
	<-submitted
	e.RunAll()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestSyncEngineEndsInsideSubmit(t *testing.T) {
	e := NewSyncEngine()
	fs := NewFS(crashfs.New())
	f := open(t, fs, "a")
	done := make(tags, 2)
	op := &ring.Op{Kind: ring.OpWriteSync, File: f, Vec: [][]byte{[]byte("ab"), []byte("c")}, Owner: done}
	fs.Short(1, 1)
	e.Submit([]*ring.Op{op})
	if len(done) != 1 || op.Err != nil || op.Written != 3 || text(t, f) != "abc" {
		t.Errorf("%d ended, %v, %d bytes, %q", len(done), op.Err, op.Written, text(t, f))
	}
	fs.Fail(Sync, 1, syscall.EIO)
	e.Submit([]*ring.Op{op})
	if !errors.Is(op.Err, ring.ErrIO) {
		t.Errorf("%v", op.Err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A direct write is one call and no sync; it ends as a write does when it fails.
func TestEngineForDirectWrites(t *testing.T) {
	if NewSyncEngine().Direct() {
		t.Error("direct without being asked")
	}
	e := NewSyncEngine().ForDirect()
	if !e.Direct() {
		t.Error("not direct")
	}
	fs := NewFS(crashfs.New())
	open(t, fs, "a")
	d, err := fs.OpenDirect("a", true)
	if err != nil {
		t.Fatal(err)
	}
	fs.Forget()
	const block = ring.DirectAlign
	b := ring.AlignedBytes(2 * block)
	done := make(tags, 8)
	run := func(vec ...[]byte) *ring.Op {
		op := &ring.Op{Kind: ring.OpWriteDirect, File: d, Vec: vec, Owner: done}
		e.Submit([]*ring.Op{op})
		<-done
		return op
	}
	if op := run(b[:block], b[block:]); op.Err != nil || op.Written != 2*block {
		t.Errorf("%v, %d bytes", op.Err, op.Written)
	}
	if got := fs.Trace(); got != "write a 0+8192 direct\n" {
		t.Errorf("calls: %s", got)
	}
	if s := e.Stats(); s.Syncs != 1 {
		t.Errorf("stats %+v", s)
	}
	fs.Short(1, block)
	if op := run(b); op.Err != nil || op.Written != 2*block {
		t.Errorf("short by a block: %v, %d bytes", op.Err, op.Written)
	}
	fs.Clear()
	fs.Add(Rule{Kind: Write, Short: 2 * block, Err: syscall.EIO})
	if op := run(b); !errors.Is(op.Err, ring.ErrIO) || op.Written != 0 {
		t.Errorf("failed with its last byte: %v, %d bytes", op.Err, op.Written)
	}
	if op := run(b[:512]); !errors.Is(op.Err, syscall.EINVAL) || op.Written != 0 {
		t.Errorf("not aligned: %v, %d bytes", op.Err, op.Written)
	}
	fs.Fail(OpenDirect, 1, syscall.EOPNOTSUPP)
	if _, err := fs.OpenDirect("a", true); !errors.Is(err, ring.ErrUnsupported) {
		t.Errorf("refused: %v", err)
	}
}
