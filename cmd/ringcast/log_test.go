package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// dataDir is a data directory as a stopped broker leaves it: acme/default/orders with two shards,
// acme/default/empty, and a stream in memory. Each shard of orders has 5 segments of 12 records.
type dataDir struct {
	t   *testing.T
	dir string
	id  uint64
}

func newDataDir(t *testing.T) *dataDir {
	t.Helper()
	d := &dataDir{t: t, dir: filepath.Join(t.TempDir(), "data")}
	b := d.open()
	var err error
	var info core.StreamInfo
	for _, def := range []core.StreamDef{
		{Tenant: "acme", Namespace: "default", Stream: "orders", Shards: 2, Durable: true},
		{Tenant: "acme", Namespace: "default", Stream: "empty", Durable: true},
		{Tenant: "acme", Namespace: "default", Stream: "volatile"},
	} {
		if info, _, err = b.CreateStream(def); err != nil {
			t.Fatal(err)
		}
		if def.Stream == "orders" {
			d.id = info.ID
		}
	}
	d.close(b)
	for shard := range uint32(2) {
		d.fill(shard)
	}
	return d
}

func (d *dataDir) open() *core.Broker {
	d.t.Helper()
	b, err := core.Open(context.Background(), core.Options{DataDir: d.dir, Engine: "portable"})
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}

func (d *dataDir) close(b *core.Broker) {
	d.t.Helper()
	if err := b.Close(context.Background()); err != nil {
		d.t.Fatal(err)
	}
}

// starts says whether a broker starts on the directory.
func (d *dataDir) starts() bool {
	b, err := core.Open(context.Background(), core.Options{DataDir: d.dir, Engine: "portable"})
	if _, refused := errors.AsType[*log.CorruptError](err); refused {
		return false
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.close(b)
	return true
}

func (d *dataDir) logDir(shard uint32) string {
	return filepath.Join(d.dir, "logs", "streams", fmt.Sprintf("%016x", d.id), fmt.Sprint(shard))
}

func (d *dataDir) segment(shard uint32, id int) string {
	return filepath.Join(d.logDir(shard), fmt.Sprintf("%020d.seg", id))
}

func (d *dataDir) options(shard uint32) log.Options {
	return log.Options{
		FS: ring.OS(), Dir: d.logDir(shard), CatalogueID: d.id, Shard: shard, Pool: wire.NewPool(8 << 20), SegmentBytes: 16 << 10,
		NowMicros: func() uint64 { return 1_790_000_000_000_000 },
	}
}

// fill appends 60 records of 900 bytes, 12 for each segment, in groups of one.
func (d *dataDir) fill(shard uint32) {
	d.t.Helper()
	for i := range uint64(60) {
		l, err := log.Open(d.options(shard))
		if err != nil {
			d.t.Fatal(err)
		}
		e := &log.Entry{Kind: log.KindRecords, Count: 1, Section: wire.AppendSection(nil, bytes.Repeat([]byte{byte(i)}, 900))}
		if i%20 == 3 {
			e.Publisher = "alice"
			e.HasProducer, e.ProducerID, e.Sequence = true, 7, i/20
		}
		if _, err := l.Append(e, 1_790_000_000_000_000+i*1_000_000); err != nil {
			d.t.Fatal(err)
		}
		if err := l.Close(); err != nil { // writes what is staged
			d.t.Fatal(err)
		}
	}
}

// records reads a shard's records through the log.
func (d *dataDir) records(shard uint32) (n uint64) {
	d.t.Helper()
	l, err := log.Open(d.options(shard))
	if err != nil {
		d.t.Fatal(err)
	}
	for {
		p, err := l.Read(n, 1<<20)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, e := range p.Entries {
			if e.Records[4] != byte(e.Base) {
				d.t.Fatalf("record %d is not what was written", e.Base)
			}
		}
		next := p.Next
		p.Release()
		if next == n {
			break
		}
		n = next
	}
	if err := l.Close(); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// flip changes a bit of a file.
func (d *dataDir) flip(name string, pos int64) {
	d.t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, pos); err != nil {
		d.t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, pos); err != nil {
		d.t.Fatal(err)
	}
}

// hash is one of every name and byte in a directory.
func hashOf(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(h, name)
		if e.Type().IsRegular() {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			h.Write(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// scrubLog takes out what differs from run to run.
func (d *dataDir) scrubLog(text string) string {
	text = strings.ReplaceAll(text, d.dir, "DATA")
	for _, r := range []struct{ re, to string }{
		{`"(seconds|bytes_per_second)":[0-9.e+-]+`, `"$1":0`},
		{`read in [0-9.]+ s \([^)]*\)`, `read in S s (RATE)`},
		{`repair-[0-9]{8}T[0-9]{6}Z`, `repair-TIME`},
		{`"nonce":"[0-9a-f]{16}"`, `"nonce":"N"`},
		{`"digest":"[0-9a-f]{16}"`, `"digest":"D"`},
	} {
		text = regexp.MustCompile(r.re).ReplaceAllString(text, r.to)
	}
	return text
}

// The transcript of an operator whose broker does not start, and of one who only looks.
func TestLogCommands(t *testing.T) { // LOG-5, HZ-6
	d := newDataDir(t)
	var out strings.Builder
	step := func(args ...string) outcome {
		t.Helper()
		o := ringcast(t, nil, args...)
		line := strings.ReplaceAll(strings.Join(args, " "), d.dir, "DATA")
		fmt.Fprintf(&out, "$ ringcast %s\n%s", line, d.scrubLog(o.stdout+o.stderr))
		if o.code != 0 {
			fmt.Fprintf(&out, "[exit %d]\n", o.code)
		}
		for _, row := range strings.Split(o.stdout, "\n") {
			if !strings.Contains(strings.Join(args, " "), "--json") && len([]rune(strings.ReplaceAll(row, d.dir, "DATA"))) > 100 {
				t.Errorf("%d columns: %s", len(row), row)
			}
		}
		return o
	}
	t.Setenv("RINGCAST_DATA_DIR", d.dir)
	step("log", "inspect")
	step("log", "inspect", "orders", "--shard", "1")
	step("--json", "log", "inspect", "acme/default/empty")
	step("log", "inspect", "orders", "--shard", "0", "--offset", "4", "--entries", "2")
	step("--json", "log", "inspect", "orders", "--shard", "0", "--offset", "3", "--entries", "0")
	step("log", "verify")
	step("log", "repair")
	d.flip(d.segment(0, 2), 4096+3*1024+9)
	d.flip(d.segment(0, 4), 4096+1024+300)
	d.flip(d.segment(1, 1), 4096+2*1024+300)
	step("log", "inspect")
	step("log", "inspect", fmt.Sprintf("%016x", d.id), "--shard", "0")
	step("log", "verify")
	step("--json", "log", "verify", "orders", "--shard", "0")
	step("log", "repair", "--yes")
	before := hashOf(t, d.dir)
	step("log", "repair", "orders", "--shard", "0", "--truncate-at-damage", "--dry-run")
	step("--json", "log", "repair", "orders", "--shard", "0", "--truncate-at-damage", "--dry-run")
	step("log", "repair", "orders", "--truncate-at-damage") // not a terminal, no --yes
	if hashOf(t, d.dir) != before {
		t.Error("a dry run changed something")
	}
	if d.starts() {
		t.Error("the broker starts with a damaged log")
	}
	step("log", "repair", "orders", "--shard", "0", "--truncate-at-damage", "--yes")
	if !d.starts() {
		t.Error("the broker does not start after the repair")
	}
	step("log", "verify", "orders", "--shard", "0")
	step("log", "inspect", "nosuch")
	step("log", "inspect", "a/b")
	step("log", "inspect", "orders", "--offset", "3")
	step("log", "verify", "--data-dir", "/nonexistent")
	golden(t, "log.txt", out.String())
	if n := d.records(0); n != 2*12+3 {
		t.Errorf("%d records before the damage are there, want 27", n)
	}
}

// Repairing is saved beside the log, or where it is told to, or nowhere; done twice it does nothing.
func TestRepairTwiceIsRepairOnce(t *testing.T) { // HZ-7
	for _, c := range []struct{ flag, glob string }{
		{"", "repair-*"}, {"--backup-dir=%s", "x"}, {"--no-backup", "repair-*"},
	} {
		d := newDataDir(t)
		elsewhere := filepath.Join(t.TempDir(), "saved")
		d.flip(d.segment(0, 1), 4096+1)
		args := []string{"--json", "log", "repair", "acme/default/orders", "--data-dir", d.dir, "--truncate-at-damage", "--yes"}
		if c.flag != "" {
			args = append(args, strings.ReplaceAll(c.flag, "%s", elsewhere))
		}
		var views [2]repairView
		decodeLines(t, ok(t, nil, args...), &views[0], &views[1])
		v := views[1] // the clean one is printed first
		if views[0].State != "clean" || v.State != "repaired" || *v.Next != 12 || v.Loss == nil || v.Loss.First != 12 || v.Damage == nil {
			t.Fatalf("%+v", views)
		}
		if c.flag == "--no-backup" {
			if v.Backup != "" {
				t.Errorf("saved in %s", v.Backup)
			}
		} else if _, err := os.Stat(filepath.Join(v.Backup, "00000000000000000001.seg")); err != nil {
			t.Error(err)
		}
		if c.flag == "--backup-dir=%s" && !strings.HasPrefix(v.Backup, elsewhere) {
			t.Errorf("saved in %s", v.Backup)
		}
		before := hashOf(t, d.dir)
		if o := ok(t, nil, "log", "repair", "--data-dir", d.dir, "--truncate-at-damage", "--yes"); strings.Count(o, "nothing to do") != 3 {
			t.Errorf("the second repair: %s", o)
		}
		if hashOf(t, d.dir) != before {
			t.Error("the second repair changed something")
		}
		if !d.starts() || d.records(0) != 12 || d.records(1) != 60 {
			t.Error("the logs are not what they should be")
		}
	}
}

func decodeLines(t *testing.T, text string, into ...any) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != len(into) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(into), text)
	}
	for i := range into {
		dec := json.NewDecoder(strings.NewReader(lines[i]))
		dec.DisallowUnknownFields()
		if err := dec.Decode(into[i]); err != nil {
			t.Fatalf("%v: %s", err, lines[i])
		}
	}
}

// While a broker runs nothing is looked at, let alone changed.
func TestLogCommandsRefuseARunningBroker(t *testing.T) { // HZ-17
	d := newDataDir(t)
	b := d.open()
	before := hashOf(t, d.dir)
	for _, args := range [][]string{
		{"log", "inspect", "--data-dir", d.dir}, {"log", "verify", "--data-dir", d.dir}, {"log", "repair", "--yes", "--data-dir", d.dir},
		{"log", "repair", "--yes", "--truncate-at-damage", "--log-dir", d.logDir(0)}, {"log", "inspect", "--log-dir", d.logDir(1)},
	} {
		if e := failed(t, 1, args...); e.Code != "locked" || !strings.Contains(e.Hint, "broker runs") {
			t.Errorf("%v: %+v", args, e)
		}
	}
	if hashOf(t, d.dir) != before {
		t.Error("something was changed")
	}
	d.close(b)
	ok(t, nil, "log", "inspect", "--data-dir", d.dir)
}

// A copy without a lock file, and one that nobody may write to, can be looked at; nothing is made in it.
func TestReadOnlyCopiesCanBeLookedAt(t *testing.T) {
	d := newDataDir(t)
	if err := os.Remove(filepath.Join(d.dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	before := hashOf(t, d.dir)
	for _, args := range [][]string{{"log", "inspect"}, {"log", "verify"}, {"log", "repair", "--dry-run"}} {
		o := ringcast(t, nil, append(args, "--data-dir", d.dir)...)
		if o.code != 0 || !strings.Contains(o.stderr, "not locked") {
			t.Errorf("%v: exit %d, %s", args, o.code, o.stderr)
		}
	}
	if hashOf(t, d.dir) != before {
		t.Error("something was changed")
	}
}

// A log that lies alone is told which it is by its segments; without a catalogue streams go by their ids.
func TestLogsWithoutACatalogue(t *testing.T) {
	d := newDataDir(t)
	alone := filepath.Join(t.TempDir(), "alone")
	if err := os.CopyFS(alone, os.DirFS(d.logDir(1))); err != nil {
		t.Fatal(err)
	}
	var v logView
	decodeLines(t, ok(t, nil, "--json", "log", "inspect", "--log-dir", alone), &v)
	if v.ID != fmt.Sprintf("%016x", d.id) || v.Shard != 1 || v.Next != 60 || len(v.Segments) != 5 || v.Changes {
		t.Errorf("%+v", v)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "meta.db"), bytes.Repeat([]byte{7}, 9000), 0o600); err != nil {
		t.Fatal(err)
	}
	o := ringcast(t, nil, "log", "verify", "--data-dir", d.dir, v.ID)
	if o.code != 0 || !strings.Contains(o.stderr, "shown by their ids") || !strings.Contains(o.stdout, "2 logs") {
		t.Errorf("exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// An interrupt ends the commands with the code of one, and leaves the directory as it was.
func TestInterruptedLogCommandsChangeNothing(t *testing.T) {
	d := newDataDir(t)
	d.flip(d.segment(0, 1), 4096+1)
	before := hashOf(t, d.dir)
	for _, args := range [][]string{{"log", "verify"}, {"log", "inspect"}, {"log", "repair", "--yes", "--truncate-at-damage"}} {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		var stdout, stderr bytes.Buffer
		if code := run(ctx, append(args, "--data-dir", d.dir), strings.NewReader(""), &stdout, &stderr); code != 130 {
			t.Errorf("%v: exit %d: %s%s", args, code, &stdout, &stderr)
		}
	}
	if hashOf(t, d.dir) != before {
		t.Error("something was changed")
	}
}
