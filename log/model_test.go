package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcast/ringcast/internal/crashfs"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/ring/ringtest"
)

// stagedEntry is an entry that has no outcome yet.
type stagedEntry struct {
	first uint64
	recs  []string
}

// model is a log beside a slice: every step is made on both.
type model struct {
	t     *rapid.T
	inner *crashfs.FS
	fs    *ringtest.FS
	o     Options
	log   *Log

	acked  []string // committed, in order
	staged []stagedEntry
	ghosts []stagedEntry // void by a poison: a restart may find a prefix of them
	poison bool
	op     *ring.Op // in flight
	sync   *ring.Op
	job    *Job // out and not run, or run and not handed back
	ran    bool
	serial int
	broken bool // the disk was made to fail since the last open
}

func (m *model) open(fs *crashfs.FS) {
	m.inner, m.fs = fs, ringtest.NewFS(fs)
	m.o.FS = m.fs
	l, err := Open(m.o)
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	m.log = l
	m.op, m.sync, m.job, m.ran, m.poison, m.broken = nil, nil, nil, false, false, false
}

// next is the offset after everything that is staged.
func (m *model) next() uint64 {
	n := uint64(len(m.acked))
	for _, e := range m.staged {
		n += uint64(len(e.recs))
	}
	return n
}

// appendEntry stages an entry of unique records.
func (m *model) appendEntry(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "records")
	size := rapid.SampledFrom([]int{0, 5, 60, 700, 3000, 20_000}).Draw(t, "size")
	e := stagedEntry{first: m.next()}
	var raw [][]byte
	for range n {
		m.serial++
		rec := fmt.Sprintf("%d/%0*d", m.serial, size, 0)
		e.recs, raw = append(e.recs, rec), append(raw, []byte(rec))
	}
	first, err := m.log.Append(entryOf(raw), uint64(m.serial))
	switch {
	case errors.Is(err, ErrGroupFull):
		return
	case errors.Is(err, ErrPoisoned):
		if m.log.Err() == nil { // while a write is in flight the outcome comes with it
			t.Fatalf("append: %v", err)
		}
		return
	case err != nil:
		t.Fatalf("append: %v", err)
	case first != e.first:
		t.Fatalf("offset %d, want %d", first, e.first)
	}
	m.staged = append(m.staged, e)
}

// outcome applies what an operation or job changed. Every staged entry ends in exactly one.
func (m *model) outcome(out Outcome) {
	if out.Committed < uint64(len(m.acked)) && (m.log.commit || m.log.Err() == nil) {
		m.t.Fatalf("the committed bound fell from %d to %d", len(m.acked), out.Committed)
	}
	for len(m.staged) > 0 {
		e := m.staged[0]
		if e.first+uint64(len(e.recs)) > out.Committed {
			break
		}
		m.acked = append(m.acked, e.recs...)
		m.staged = m.staged[1:]
	}
	if out.Err == nil {
		return
	}
	if !m.broken {
		m.t.Fatalf("outcome %v, and the disk did not fail", out.Err)
	}
	m.poison = errors.Is(out.Err, ErrPoisoned)
	from := uint64(len(m.acked))
	if out.FailedFrom != from || out.FailedTo != m.next() || m.log.Next() != from {
		m.t.Fatalf("void [%d, %d), want [%d, %d); next %d", out.FailedFrom, out.FailedTo, from, m.next(), m.log.Next())
	}
	if m.poison {
		m.ghosts = m.staged
	}
	m.staged = nil
}

func (m *model) submit(t *rapid.T) {
	if op := m.log.NextOp(); op != nil {
		if m.op != nil {
			t.Fatal("two writes in flight")
		}
		m.op = op
	}
}

func (m *model) endOp(t *rapid.T) {
	if m.op == nil {
		return
	}
	op := m.op
	m.op = nil
	size := opSize(op)
	switch rapid.SampledFrom([]string{"ok", "ok", "ok", "ok", "short", "error", "sync"}).Draw(t, "op") {
	case "short":
		m.broken = true
		runPart(op, rapid.Int64Range(0, size-1).Draw(t, "bytes"), nil)
	case "error":
		m.broken = true
		runPart(op, rapid.Int64Range(0, size-1).Draw(t, "bytes"), diskError(syscall.ENOSPC))
	case "sync":
		m.broken = true
		runPart(op, size, diskError(syscall.EIO))
	default:
		runHere(op)
		if op.Err != nil {
			t.Fatal(op.Err)
		}
	}
	m.outcome(m.log.OpDone(op))
}

func (m *model) tick(t *rapid.T) {
	if m.sync != nil {
		op := m.sync
		m.sync = nil
		if rapid.IntRange(0, 9).Draw(t, "sync") == 0 {
			m.broken = true
			op.Err = diskError(syscall.EIO)
		} else {
			runHere(op)
		}
		m.outcome(m.log.OpDone(op))
		return
	}
	m.sync = m.log.Tick()
}

// work moves the job one step on: taken, run (perhaps failing), handed back.
func (m *model) work(t *rapid.T) {
	switch {
	case m.job == nil:
		m.job, m.ran = m.log.TakeJob(), false
	case !m.ran:
		if rapid.IntRange(0, 7).Draw(t, "fail") == 0 {
			kind := rapid.SampledFrom([]ringtest.Kind{
				ringtest.Write, ringtest.Write, ringtest.Open, ringtest.OpenDirect, ringtest.Truncate, ringtest.Sync, ringtest.SyncDir, ringtest.Remove,
			}).Draw(t, "call")
			errno := rapid.SampledFrom([]syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EMFILE}).Draw(t, "errno")
			m.broken = true
			m.fs.Add(ringtest.Rule{Kind: kind, Nth: rapid.IntRange(1, 2).Draw(t, "nth"), Err: errno, Short: rapid.IntRange(0, 3000).Draw(t, "short")})
		}
		m.job.Run()
		m.fs.Clear()
		m.ran = true
	default:
		j := m.job
		m.job = nil
		m.outcome(m.log.JobDone(j))
	}
}

// restart ends the process in some way and recovers.
func (m *model) restart(t *rapid.T) {
	how := rapid.SampledFrom([]string{"close", "kill", "power"}).Draw(t, "how")
	least := uint64(len(m.acked))
	switch how {
	case "close":
		if m.op != nil || m.sync != nil || m.job != nil {
			return
		}
		failing := m.log.fail != nil // a failed write waits for its cut: Close makes it, and reports
		err := m.log.Close()
		if (err != nil) != (m.poison || failing) {
			t.Fatalf("close: %v, poisoned %v", err, m.poison)
		}
		if !m.poison {
			m.outcome(Outcome{Committed: m.log.Committed()})
			if len(m.staged) > 0 && !failing {
				t.Fatalf("close left %d entries without an outcome", len(m.staged))
			}
			m.staged = nil
			least = uint64(len(m.acked))
		}
		m.open(m.inner)
	case "kill":
		m.open(m.inner.Crash(crashfs.SeedKeepAll))
	case "power":
		if m.o.Mode != FsyncOnCommit {
			least = m.log.durable
		}
		m.open(m.inner.Crash(rapid.Uint64Range(0, 1000).Draw(t, "seed")))
	}
	// What is there: the acknowledged records, then perhaps the beginning of what was under way.
	got := m.read(0)
	if uint64(len(got)) < least {
		t.Fatalf("%s: %d records, at least %d promised", how, len(got), least)
	}
	want := m.acked
	for _, e := range append(m.ghosts, m.staged...) {
		if len(want) < len(got) {
			want = append(want[:len(want):len(want)], e.recs...)
		}
	}
	if len(want) < len(got) {
		t.Fatalf("%s: %d records, only %d were ever written", how, len(got), len(want))
	}
	if len(got) >= len(m.acked) && len(want) != len(got) {
		t.Fatalf("%s: %d records are no whole entries", how, len(got))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: record %d is %.20q, want %.20q", how, i, got[i], want[i])
		}
	}
	m.acked, m.staged, m.ghosts = got, nil, nil
}

func (m *model) read(from uint64) []string {
	recs, err := readRecords(m.log, from, 10_000)
	if err != nil {
		m.t.Fatalf("read from %d: %v", from, err)
	}
	out := make([]string, len(recs))
	for i, r := range recs {
		out[i] = string(r)
	}
	return out
}

// check compares what is readable with the slice.
func (m *model) check(t *rapid.T) {
	m.t = t
	readable := m.acked
	if m.poison || m.log.Err() != nil {
		readable = readable[:min(len(readable), int(m.log.Committed()))]
	}
	if m.log.Committed() != uint64(len(readable)) {
		t.Fatalf("committed %d, want %d", m.log.Committed(), len(readable))
	}
	from := max(0, len(readable)-5)
	got := m.read(uint64(from))
	if len(got) != len(readable)-from {
		t.Fatalf("%d records from %d, want %d", len(got), from, len(readable)-from)
	}
	for i, rec := range got {
		if rec != readable[from+i] {
			t.Fatalf("record %d is not what was written", from+i)
		}
	}
}

// Whatever the disk does and in whatever order operations and jobs end, the log is a slice: each
// entry is committed or void, once; what is committed is read in order; after a restart it is there
// as its mode promises, and nothing that was answered as void is.
func TestLogIsASlice(t *testing.T) { // LOG-2, LOG-3, LOG-10, LOG-11, LOG-23, HZ-4, HZ-5, HZ-8
	rapid.Check(t, func(t *rapid.T) {
		nonces := rand.New(rand.NewPCG(1, 2))
		m := &model{t: t, o: testOptions(nil,
			withMode(FsyncMode(rapid.IntRange(0, 2).Draw(t, "mode"))),
			withSegment(rapid.SampledFrom([]int64{8 << 10, 16 << 10, 160 << 10}).Draw(t, "segment")), withGroup(5),
			withDirect(rapid.Bool().Draw(t, "direct")))}
		m.o.NoPreWrite = rapid.IntRange(0, 3).Draw(t, "pre-write") == 0
		m.o.nonce = func() uint64 { return nonces.Uint64() | 1 }
		m.open(crashfs.New())
		t.Repeat(map[string]func(*rapid.T){
			"append": m.appendEntry, "append2": m.appendEntry, "append3": m.appendEntry,
			"submit": m.submit, "end": m.endOp, "end2": m.endOp, "tick": m.tick,
			"work": m.work, "work2": m.work, "work3": m.work,
			"restart": m.restart, "": m.check,
		})
	})
}
