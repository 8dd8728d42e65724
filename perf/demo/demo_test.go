package demo

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buildBroker builds ringcastd once for a test.
func buildBroker(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ringcastd")
	out, err := exec.Command("go", "build", "-o", name, "github.com/ringcast/ringcast/cmd/ringcastd").CombinedOutput()
	if err != nil {
		t.Fatalf("build ringcastd: %v\n%s", err, out)
	}
	return name
}

// The demo passes on the real broker and leaves nothing behind.
func TestDemoPassesAndLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	report, err := Run(ctx, Options{Broker: buildBroker(t), Dir: dir, Lines: 5000, Out: &out, Env: os.Environ()})
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if report.Records != 5000 || report.Replay.RecordsPerSecond <= 0 || report.AckP99Millis <= 0 || len(report.Publishers) != 2 {
		t.Errorf("%+v", report)
	}
	if !strings.Contains(out.String(), "all the same: 5000 records") || !strings.Contains(out.String(), "SIGKILL") {
		t.Errorf("told:\n%s", &out)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// A broker that does not start is an error with its own words, and nothing is left behind.
func TestBrokerThatDoesNotStartIsExplained(t *testing.T) {
	base := t.TempDir()
	broken := filepath.Join(base, "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no ports today >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "work")
	_, err := Run(t.Context(), Options{Broker: broken, Dir: dir, Lines: 10})
	if err == nil || !strings.Contains(err.Error(), "no ports today") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// A directory that holds something is refused and kept: it is removed at the end of a run.
func TestUsedDirectoryIsRefusedAndKept(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Broker: "x", Dir: dir}); err == nil {
		t.Error("accepted")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// An interrupted run kills its broker and cleans up.
func TestInterruptedRunCleansUp(t *testing.T) {
	base := t.TempDir()
	pidFile := filepath.Join(base, "pid")
	hanging := filepath.Join(base, "hanging")
	if err := os.WriteFile(hanging, []byte("#!/bin/sh\necho $$ > "+pidFile+"\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(pidFile); err == nil {
				cancel()
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
	dir := filepath.Join(base, "work")
	began := time.Now()
	if _, err := Run(ctx, Options{Broker: hanging, Dir: dir, Lines: 10, Env: os.Environ()}); err == nil {
		t.Error("succeeded")
	}
	if time.Since(began) > 20*time.Second {
		t.Error("waited for the broker")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// The text is the same at every run, and every kind of difference changes a hash or a count.
func TestEveryDifferenceIsSeen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "text")
	size, err := writeText(name, 200)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != size {
		t.Fatal(err, size)
	}
	var records [][]byte
	err = eachLine(name, 50, 150, func(line []byte) error {
		records = append(records, tagged(nil, "AB"[len(records)%2], line))
		return nil
	})
	if err != nil || len(records) != 100 {
		t.Fatal(len(records), err)
	}
	hash := func(edit func(r [][]byte) [][]byte) *digests {
		d := newDigests()
		for _, r := range edit(append([][]byte(nil), records...)) {
			if err := d.add(r); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	same := func(r [][]byte) [][]byte { return r }
	want := hash(same)
	edits := map[string]func(r [][]byte) [][]byte{
		"missing":      func(r [][]byte) [][]byte { return append(r[:10], r[11:]...) },
		"missing last": func(r [][]byte) [][]byte { return r[:99] },
		"doubled":      func(r [][]byte) [][]byte { return append(r, r[4]) },
		"swapped":      func(r [][]byte) [][]byte { r[10], r[12] = r[12], r[10]; return r },
		"changed":      func(r [][]byte) [][]byte { r[7] = append(bytes.Clone(r[7]), '!'); return r },
		"other author": func(r [][]byte) [][]byte { r[7] = append([]byte{'C'}, r[7][1:]...); return r },
		"joined by eol": func(r [][]byte) [][]byte {
			r[3] = append(append(bytes.Clone(r[3]), '\n'), r[5][2:]...)
			return append(r[:5], r[6:]...)
		},
	}
	for what, edit := range edits {
		if hash(edit).equal(want) == nil {
			t.Errorf("%s: not seen", what)
		}
	}
	if err := hash(func(r [][]byte) [][]byte { r[10], r[11] = r[11], r[10]; return r }).equal(want); err != nil {
		t.Errorf("another interleaving of the publishers: %v", err)
	}
	if newDigests().add([]byte("x")) == nil {
		t.Error("a record without a tag was accepted")
	}
}
