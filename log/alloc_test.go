package log

import (
	"runtime/debug"
	"testing"

	"github.com/ringcast/ringcast/internal/invariants"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// Staging an entry, handing out its group and taking it back allocate nothing once what grows has
// grown; nor does reading a page.
func TestAppendAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("checks allocate")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools
	for _, o := range []Options{{Mode: FsyncNone}, {Mode: FsyncOnCommit, Direct: true}} {
		appendAllocatesNothing(t, o)
	}
}

func appendAllocatesNothing(t *testing.T, o Options) {
	o.FS, o.Dir, o.Pool = ring.OS(), t.TempDir(), testPool
	l := mustOpen(t, o)
	buf := testPool.Get(300)
	e := &Entry{
		Kind: KindRecords, Count: 1, Section: wire.AppendSection(buf.Bytes()[:0], make([]byte, 256)), Buf: buf,
		HasProducer: true, Publisher: "somebody",
	}
	group := func() {
		for range 64 {
			if _, err := l.Append(e, 1); err != nil {
				t.Fatal(err)
			}
		}
		op := l.NextOp()
		runHere(op)
		l.OpDone(op)
	}
	if _, err := l.Append(e, 1); err != nil {
		t.Fatal(err)
	}
	pump(l)
	group()
	group()
	if n := testing.AllocsPerRun(100, group); n != 0 {
		t.Errorf("a group of 64 entries allocates %v times", n)
	}
	at := uint64(0)
	page := func() {
		p, err := l.Read(at, 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		if at = p.Next; at == l.Committed() {
			at = 0
		}
		p.Release()
	}
	page()
	if n := testing.AllocsPerRun(100, page); n > 0 {
		t.Errorf("a page allocates %v times", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
