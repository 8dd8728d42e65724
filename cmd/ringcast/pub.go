package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/wire"
)

// pubBudget bounds the bytes that are published and not yet acknowledged.
const pubBudget = 4 << 20

type pubCmd struct {
	Stream  string   `arg:"" help:"Stream to publish to."`
	Records []string `arg:"" optional:"" help:"Records. Without any: the lines of --file, else of standard input."`

	File         []string      `short:"f" sep:"none" placeholder:"FILE" help:"Publish the lines of this file; may be given several times."`
	Whole        bool          `help:"Each file, or standard input, is one record."`
	Key          *string       `help:"Routing key of every record."`
	KeySeparator string        `placeholder:"TEXT" help:"The routing key is what stands before this text in each record."`
	Shard        *uint32       `placeholder:"N" help:"Shard of every record, in place of that which a key picks."`
	IfOffset     *uint64       `placeholder:"N" help:"Publish all records as one batch, only if the first gets this offset."`
	Ack          string        `enum:"commit,queued,none" default:"commit" help:"When a record counts as published: written to the log (commit), taken by the broker (queued), or sent (none)."`
	Batch        int           `placeholder:"N" help:"Most records in one frame."`
	Linger       time.Duration `help:"How long a record may wait for others to share its frame."`
	InFlight     int           `placeholder:"N" help:"Most unanswered frames per shard."`
	Idempotent   bool          `help:"Send again what was lost, without duplicates."`
	Progress     string        `enum:"auto,always,never" default:"auto" help:"Show a progress bar: auto, always or never."`
	Quiet        bool          `short:"q" help:"No summary."`
}

// pubSummary is what --json prints at the end.
type pubSummary struct {
	Stream           string  `json:"stream"`
	Records          uint64  `json:"records"`
	Bytes            uint64  `json:"bytes"`
	Seconds          float64 `json:"seconds"`
	RecordsPerSecond float64 `json:"records_per_second"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
	Acked            bool    `json:"acked"`
	Frames           uint64  `json:"frames"`
	Resent           uint64  `json:"resent"`
	FirstOffset      *uint64 `json:"first_offset,omitempty"` // of a stream with one shard
	LastOffset       *uint64 `json:"last_offset,omitempty"`
	AckP50Millis     float64 `json:"ack_p50_ms"`
	AckP99Millis     float64 `json:"ack_p99_ms"`
}

func (p *pubCmd) options() ([]client.PublisherOption, error) {
	// What is under way is a fraction of a second of a fast disk: an interrupt loses little time, and
	// the times to an ack are the broker's.
	opts := []client.PublisherOption{client.WithBudgetBytes(pubBudget)}
	switch p.Ack {
	case "none":
		if p.Idempotent {
			return nil, usageError(errors.New("--idempotent needs acks: leave out --ack none"))
		}
		opts = append(opts, client.WithAcks(wire.AckNone))
	case "queued":
		opts = append(opts, client.WithQueuedAcks())
	}
	if p.Idempotent {
		opts = append(opts, client.WithIdempotence())
	}
	if p.Batch > 0 {
		opts = append(opts, client.WithBatchRecords(p.Batch))
	}
	if p.Linger > 0 {
		opts = append(opts, client.WithLinger(p.Linger))
	}
	if p.InFlight > 0 {
		opts = append(opts, client.WithInFlight(p.InFlight))
	}
	if p.Key != nil && p.KeySeparator != "" {
		return nil, usageError(errors.New("give --key or --key-separator, not both"))
	}
	if p.Shard != nil {
		if p.KeySeparator != "" {
			return nil, usageError(errors.New("give --shard or --key-separator, not both"))
		}
		opts = append(opts, client.WithShard(*p.Shard))
	}
	if p.Whole && len(p.Records) > 0 || len(p.File) > 0 && len(p.Records) > 0 {
		return nil, usageError(errors.New("records come from arguments or from files, not from both"))
	}
	return opts, nil
}

// Run publishes until the input ends or a record fails.
func (p *pubCmd) Run(ctx context.Context, env *environment, s *Settings) error {
	opts, err := p.options()
	if err != nil {
		return err
	}
	if p.IfOffset != nil {
		return p.pubIf(ctx, env, s)
	}
	c, _, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	pub, err := c.Publisher(ctx, p.Stream, opts...)
	if err != nil {
		return err
	}
	in := &input{args: p.Records, files: p.File, whole: p.Whole, stdin: env.stdin}
	bar := newProgress(env, p.Progress, "publishing", in.total())
	t := newTally()
	began := time.Now()
	err = in.each(ctx, func(rec []byte) error {
		bar.Add(int64(len(rec)) + 1)
		r, err := p.record(rec)
		if err != nil {
			return err
		}
		if err := t.failure(); err != nil {
			return err
		}
		return pub.PublishAsync(ctx, r, t.begin(len(r.Value)))
	})
	end := context.WithoutCancel(ctx) // what was accepted is delivered also after an interrupt
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		end, cancel = context.WithTimeout(end, s.Timeout)
		defer cancel()
	}
	closing := pub.Close(end)
	took := time.Since(began)
	bar.End()
	sum := t.summary(p.Stream, took, pub.Stats())
	sum.Acked = p.Ack != "none"
	if failed := t.failure(); failed != nil {
		err = failed
	}
	if err = errors.Join(err, closing); err != nil {
		if sum.Records+t.failures > 1 {
			err = fmt.Errorf("%w (%s records published, %s failed)", firstOf(err), count(sum.Records), count(t.failures))
		}
		return err
	}
	return p.print(env, sum)
}

// firstOf keeps messages to one cause.
func firstOf(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
		return many.Unwrap()[0]
	}
	return err
}

func (p *pubCmd) record(rec []byte) (client.Record, error) {
	r := client.Record{Value: rec}
	switch {
	case p.Key != nil:
		r.Key = []byte(*p.Key)
	case p.KeySeparator != "":
		key, value, ok := bytes.Cut(rec, []byte(p.KeySeparator))
		if !ok {
			return r, fmt.Errorf("record %.60q has no key: %q is not in it", rec, p.KeySeparator)
		}
		r.Key, r.Value = key, value
		if r.Key == nil {
			r.Key = []byte{}
		}
	}
	return r, nil
}

func (p *pubCmd) print(env *environment, sum pubSummary) error {
	if env.json {
		return env.emit(sum)
	}
	if p.Quiet {
		return nil
	}
	at := ""
	if sum.FirstOffset != nil {
		at = fmt.Sprintf(" at offset %d", *sum.FirstOffset)
		if *sum.FirstOffset != *sum.LastOffset {
			at = fmt.Sprintf(" at offsets %d to %d", *sum.FirstOffset, *sum.LastOffset)
		}
	}
	noun := "records"
	if sum.Records == 1 {
		noun = "record"
	}
	verb, acks := "published", fmt.Sprintf(", ack p50 %.2f ms p99 %.2f ms", sum.AckP50Millis, sum.AckP99Millis)
	if p.Ack == "none" {
		verb, acks = "sent", ", not acknowledged: the broker may have dropped some"
	}
	fmt.Fprintf(env.stderr, "%s %s %s%s\n", verb, count(sum.Records), noun, at)
	if sum.Records > 1 && p.IfOffset == nil {
		fmt.Fprintf(env.stderr, "  %s in %.2f s, %s records/s, %s/s, %s frames%s\n",
			size(float64(sum.Bytes)), sum.Seconds, count(uint64(sum.RecordsPerSecond)), size(sum.BytesPerSecond),
			count(sum.Frames), acks)
	}
	return nil
}

// tally counts outcomes. Callbacks come from one goroutine per shard.
type tally struct {
	mu       sync.Mutex // guards what follows
	records  uint64
	bytes    uint64
	failures uint64
	first    error
	hist     *hdrhistogram.Histogram // us
	shards   map[uint32]bool
	low      uint64
	high     uint64
	offsets  bool
}

func newTally() *tally {
	return &tally{hist: hdrhistogram.New(1, 600_000_000, 3), shards: map[uint32]bool{}}
}

// begin returns the callback of one record of n bytes that is sent now.
func (t *tally) begin(n int) func(client.Ack, error) {
	sent := time.Now()
	return func(a client.Ack, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err != nil {
			t.failures++
			if t.first == nil {
				t.first = err
			}
			return
		}
		t.records++
		t.bytes += uint64(n)
		_ = t.hist.RecordValue(max(1, time.Since(sent).Microseconds())) // above the range is not counted
		t.shards[a.Shard] = true
		if a.HasOffset {
			if !t.offsets || a.Offset < t.low {
				t.low = a.Offset
			}
			t.high, t.offsets = max(t.high, a.Offset), true
		}
	}
}

func (t *tally) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first
}

func (t *tally) summary(stream string, took time.Duration, st client.PublisherStats) pubSummary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := pubSummary{
		Stream: stream, Records: t.records, Bytes: t.bytes, Seconds: took.Seconds(),
		RecordsPerSecond: rate(float64(t.records), took), BytesPerSecond: rate(float64(t.bytes), took),
		Frames: st.Batches, Resent: st.Resent,
		AckP50Millis: float64(t.hist.ValueAtQuantile(50)) / 1000, AckP99Millis: float64(t.hist.ValueAtQuantile(99)) / 1000,
	}
	if t.offsets && len(t.shards) == 1 {
		s.FirstOffset, s.LastOffset = &t.low, &t.high
	}
	return s
}
