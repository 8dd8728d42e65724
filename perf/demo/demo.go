package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ringcast/ringcast/client"
)

const (
	linesDefault = 120_000
	linesMin     = 2
	streamName   = "demo"
	// stepTimeout ends a step that stands still; the whole takes seconds.
	stepTimeout = 90 * time.Second
	// publishBudget bounds what each publisher has under way, so that the times to an
	// acknowledgement are those of the broker and not of a long queue in front of it.
	publishBudget = 256 << 10
)

// Options says what to run. The zero value of a field is its default.
type Options struct {
	// Broker is the ringcastd binary. Required.
	Broker string
	// Dir is where the text and the broker's data go; it must not exist or be empty. Default: a
	// temporary one. Both are removed at the end.
	Dir string
	// Env is the broker's environment, without the RINGCAST_ variables in it. Default: empty.
	Env []string
	// Lines is the length of the text. 120,000.
	Lines int
	// Out gets what happens, as lines. Default: nowhere.
	Out io.Writer
	// NewBar makes a progress bar over total bytes. Default: none is shown.
	NewBar func(label string, total int64) Bar
}

// Report is what one run did.
type Report struct {
	Records        int               `json:"records"`
	Bytes          int64             `json:"bytes"`
	Publishers     map[string]string `json:"publishers"` // tag -> SHA-256 of its lines
	Publish        Rate              `json:"publish"`
	AckP50Millis   float64           `json:"ack_p50_ms"`
	AckP99Millis   float64           `json:"ack_p99_ms"`
	AckMaxMillis   float64           `json:"ack_max_ms"`
	Live           Rate              `json:"live"`
	RestartSeconds float64           `json:"restart_seconds"`
	Replay         Rate              `json:"replay"`
	Seconds        float64           `json:"seconds"`
}

// Rate is an amount of records over a time.
type Rate struct {
	Seconds          float64 `json:"seconds"`
	RecordsPerSecond float64 `json:"records_per_second"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
}

func newRate(records int, bytes int64, d time.Duration) Rate {
	s := max(d.Seconds(), 1e-9)
	return Rate{Seconds: d.Seconds(), RecordsPerSecond: float64(records) / s, BytesPerSecond: float64(bytes) / s}
}

func (r Rate) String() string {
	return fmt.Sprintf("%.2f s, %.0f records/s, %.1f MB/s", r.Seconds, r.RecordsPerSecond, r.BytesPerSecond/1e6)
}

// run is one demo under way.
type run struct {
	o      Options
	text   string // file
	data   string // the broker's directory
	want   *digests
	broker *broker
	report Report
}

// Run runs the demo and returns what it measured. An error means that something did not work or that
// what was read is not what was published.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if o.Lines == 0 {
		o.Lines = linesDefault
	}
	if o.Lines < linesMin || o.Broker == "" {
		return Report{}, errors.New("demo: wants a broker binary and at least two lines")
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	dir, err := workDir(o.Dir)
	if err != nil {
		return Report{}, fmt.Errorf("demo: %w", err)
	}
	r := &run{o: o, text: filepath.Join(dir, "text.txt"), data: filepath.Join(dir, "data")}
	defer func() {
		if r.broker != nil {
			r.broker.kill()
		}
		if gone := os.RemoveAll(dir); gone != nil && err == nil {
			err = fmt.Errorf("demo: clean up: %w", gone)
		}
	}()
	began := time.Now()
	for _, step := range []func(context.Context) error{r.prepare, r.publish, r.crash, r.replay, r.stop} {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		err := step(ctx)
		cancel()
		if err != nil {
			return Report{}, fmt.Errorf("demo: %w", err)
		}
	}
	r.report.Seconds = time.Since(began).Seconds()
	r.say("all the same: %d records, %d publishers, 3 readers, 1 crash, %.1f s", r.want.total, len(r.want.byTag), r.report.Seconds)
	return r.report, nil
}

// workDir makes the directory of a run. One that holds something is refused: it is removed at the end.
func workDir(name string) (string, error) {
	if name == "" {
		return os.MkdirTemp("", "ringcast-demo-")
	}
	entries, err := os.ReadDir(name)
	if err == nil && len(entries) > 0 {
		return "", fmt.Errorf("directory %s is not empty", name)
	}
	return name, os.MkdirAll(name, 0o700)
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.o.Out, format+"\n", args...) }

// prepare writes the text and works out what each publisher's hash must be.
func (r *run) prepare(ctx context.Context) error {
	size, err := writeText(r.text, r.o.Lines)
	if err != nil {
		return err
	}
	r.want = newDigests()
	var rec []byte
	for _, p := range r.parts() {
		err := eachLine(r.text, p.from, p.to, func(line []byte) error {
			rec = tagged(rec, p.tag, line)
			return r.want.add(rec)
		})
		if err != nil {
			return err
		}
	}
	if r.want.total != r.o.Lines {
		return fmt.Errorf("the text has %d lines, want %d", r.want.total, r.o.Lines)
	}
	r.say("text: %d lines, %.1f MB, two publishers take half each", r.o.Lines, float64(size)/1e6)
	r.report.Records, r.report.Bytes = r.want.total, r.want.bytes
	r.report.Publishers = make(map[string]string)
	for _, p := range r.parts() {
		r.report.Publishers[string(p.tag)] = r.want.sum(p.tag)
	}
	return r.start(ctx)
}

// part is what one publisher publishes: lines of the text, counted from 0.
type part struct {
	tag      byte
	from, to int
}

func (r *run) parts() []part {
	half := r.o.Lines / 2
	return []part{{'A', 0, half}, {'B', half, r.o.Lines}}
}

// start starts the broker on the data directory.
func (r *run) start(ctx context.Context) (err error) {
	began := time.Now()
	if r.broker, err = startBroker(ctx, r.o.Broker, r.data, r.o.Env); err != nil {
		return err
	}
	r.report.RestartSeconds = time.Since(began).Seconds()
	r.say("broker: pid %d, ready in %.2f s, %s", r.broker.cmd.Process.Pid, r.report.RestartSeconds, r.broker.quic)
	return nil
}

// crash kills the broker, checks that it is gone, and starts it again.
func (r *run) crash(ctx context.Context) error {
	pid := r.broker.cmd.Process.Pid
	r.broker.kill()
	r.broker = nil
	r.say("broker: killed pid %d with SIGKILL", pid)
	return r.start(ctx)
}

// replay reads the stream from its start on the restarted broker.
func (r *run) replay(ctx context.Context) error {
	c, err := r.broker.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	began := time.Now()
	sub, err := c.Subscribe(ctx, streamName, client.FromEarliest())
	if err != nil {
		return err
	}
	defer sub.Close()
	bar := r.bar("replaying", r.want.bytes)
	got, err := r.read(ctx, sub, bar)
	bar.end()
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if err := got.equal(r.want); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	r.report.Replay = newRate(got.total, got.bytes, time.Since(began))
	r.say("replay from the start after the crash: the same hashes, %s", r.report.Replay)
	return nil
}

// stop ends the broker in order.
func (r *run) stop(context.Context) error {
	b := r.broker
	r.broker = nil
	if err := b.stop(); err != nil {
		return err
	}
	r.say("broker: stopped")
	return nil
}
