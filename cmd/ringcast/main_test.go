package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func TestMain(m *testing.M) {
	// What is set around the tests is not for them.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "RINGCAST_") {
			_ = os.Unsetenv(name)
		}
	}
	var err error
	if scratch, err = os.MkdirTemp("", "ringcast-test-"); err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_CONFIG_HOME", scratch)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(scratch)
		os.Exit(code)
	}))
}

// scratch holds what the tests share: the broker's binary.
var scratch string

// outcome is what one command line did.
type outcome struct {
	code           int
	stdout, stderr string
}

// ringcast runs one command line in this process.
func ringcast(t testing.TB, stdin io.Reader, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, stdin, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// ok is ringcast for a command line that must succeed; it returns standard output.
func ok(t testing.TB, stdin io.Reader, args ...string) string {
	t.Helper()
	o := ringcast(t, stdin, args...)
	if o.code != 0 {
		t.Fatalf("ringcast %s: exit %d\n%s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// failed is ringcast --json for a command line that must fail; it returns the error.
func failed(t testing.TB, code int, args ...string) reportBody {
	t.Helper()
	o := ringcast(t, nil, append([]string{"--json"}, args...)...)
	var r report
	if err := json.Unmarshal([]byte(o.stderr), &r); err != nil {
		t.Fatalf("ringcast %s: standard error is not one JSON object: %v\n%s", strings.Join(args, " "), err, o.stderr)
	}
	if o.code != code || o.stdout != "" {
		t.Errorf("ringcast %s: exit %d, want %d; standard output %q", strings.Join(args, " "), o.code, code, o.stdout)
	}
	return r.Error
}

// golden compares text with testdata/name.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs (run with -rewrite and look at the diff):\n%s", file, text)
	}
}

// brokerBinary builds ringcastd once.
var brokerBinary = sync.OnceValues(func() (string, error) {
	name := filepath.Join(scratch, "ringcastd")
	out, err := exec.Command("go", "build", "-o", name, "github.com/ringcast/ringcast/cmd/ringcastd").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return name, nil
})

// devBroker starts a ringcastd --dev and points the environment at it.
func devBroker(t *testing.T, flags ...string) *brokerProcess {
	t.Helper()
	b := &brokerProcess{t: t, dir: t.TempDir(), flags: flags}
	b.start("127.0.0.1:0")
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			for line := range strings.Lines(b.log.String()) {
				if strings.HasPrefix(line, "time=") { // what it prints for people holds the token
					t.Logf("broker: %s", line)
				}
			}
		}
	})
	t.Setenv("RINGCAST_DEV_DIR", b.dir)
	return b
}

// brokerProcess is a ringcastd --dev that can be killed and started again.
type brokerProcess struct {
	t     *testing.T
	dir   string
	flags []string
	cmd   *exec.Cmd
	log   bytes.Buffer
}

func (b *brokerProcess) start(quic string) {
	b.t.Helper()
	binary, err := brokerBinary()
	if err != nil {
		b.t.Fatal(err)
	}
	args := append([]string{"--dev", "--data-dir", b.dir, "--quic-bind", quic, "--http-bind", "127.0.0.1:0"}, b.flags...)
	b.cmd = exec.Command(binary, args...)
	b.cmd.Stdout, b.cmd.Stderr = &b.log, &b.log
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); b.addr() == ""; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.kill()
			b.t.Fatalf("the broker is not ready:\n%s", &b.log)
		}
	}
}

// addr is the QUIC address of the process, "" until it is ready.
func (b *brokerProcess) addr() string {
	var a struct {
		QUIC string `json:"quic"`
		PID  int    `json:"pid"`
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "dev", "addr.json"))
	if err != nil || json.Unmarshal(text, &a) != nil || a.PID != b.cmd.Process.Pid {
		return ""
	}
	return a.QUIC
}

func (b *brokerProcess) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}
